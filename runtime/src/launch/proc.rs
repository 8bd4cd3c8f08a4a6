//! A procfs for a sandbox on a host whose own one is partly covered, as inside many containers.
//!
//! Init may mount one only where a whole one is in sight: the kernel looks for that in a mount namespace of any user
//! namespace but the initial one (`mount_too_revealing` in fs/namespace.c). So root lets a helper make it: a process in
//! init's PID namespace whose procfs is therefore init's, but in the monitor's own user and mount namespaces.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use rustix::process::{Pid, WaitOptions, waitpid};

use super::{Channel, Init};
use crate::{mounts, sys};

/// How long the helper may take for its few calls.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes the procfs of init's PID namespace. The caller must be root and have one thread.
pub(super) fn of_init(init: &Init) -> io::Result<OwnedFd> {
    let (channel, other) = Channel::pair()?;
    let own = File::open("/proc/self/ns/pid")?;
    // From here on children are born in init's namespace (pid_namespaces(7)); this process stays where it is.
    setns(&init.pidfd, CloneFlags::CLONE_NEWPID)?;
    let helper = sys::fork();
    let back = setns(own, CloneFlags::CLONE_NEWPID);
    let Some(helper) = helper? else {
        let made = mounts::proc();
        let errno = made.as_ref().err().map(|error| error.raw_os_error().unwrap_or(libc::EIO));
        let fds: Vec<_> = made.iter().map(AsFd::as_fd).collect();
        // A monitor that is gone needs no answer.
        let _ = other.send(&errno, &fds);
        sys::exit_now(0)
    };
    drop(other);
    let answer = channel.receive_within::<Option<i32>>(PATIENCE);
    if let Some(helper) = Pid::from_raw(helper) {
        rustix::io::retry_on_intr(|| waitpid(Some(helper), WaitOptions::empty()))?;
    }
    back?;
    match answer? {
        Some((None, mut fds)) => fds.pop().ok_or_else(|| io::Error::other("the helper sent no mount")),
        Some((Some(errno), _)) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(io::Error::other("the helper ended without an answer")),
    }
}
