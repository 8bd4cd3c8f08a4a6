//! Trying something in a child that cannot outlive our patience.
//!
//! A child in new namespaces comes from a bare clone3, so it makes system calls only: no allocation, no
//! locks. A [`forked`] child comes from libc's fork, which leaves a usable allocator, and may do as it likes.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};

use crate::ids::{IdMaps, map_text};
use crate::sys::{self, Cloned};

/// How long a child may take. What is tried takes milliseconds; a dead network file system takes forever.
pub(crate) const PATIENCE: Duration = Duration::from_millis(700);
/// How long a killed child may take to end. One that hangs in the kernel is left behind.
const END: Duration = Duration::from_millis(100);

/// What the kernel answered.
pub(crate) type Outcome = Result<(), Errno>;

/// The child could not try.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It could not be made.
    Clone(io::Error),
    /// Its id maps were refused.
    Maps(io::Error),
    /// It did not answer in time, or died.
    NoAnswer,
}

/// Tries `body` in new namespaces (`CLONE_NEW*`), with these id maps if there is a user namespace among them.
///
/// `body` must make system calls only.
pub(crate) fn in_namespaces<const N: usize>(
    namespaces: u64,
    maps: Option<&IdMaps>,
    deny_setgroups: bool,
    body: impl FnOnce() -> [Outcome; N],
) -> Result<[Outcome; N], Failure> {
    let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|error| Failure::Clone(error.into()));
    let ((gate, opener), (answers, answer)) = (pipe()?, pipe()?);
    match sys::clone3(namespaces, None).map_err(Failure::Clone)? {
        Cloned::Child => {
            drop(opener);
            if rustix::io::read(&gate, &mut [0]) == Ok(1) {
                let codes = body().map(code);
                // A parent that is gone needs no answer.
                let _ = rustix::io::write(&answer, &codes);
            }
            sys::exit_now(0)
        }
        Cloned::Parent { pid, pidfd } => {
            drop((gate, answer));
            let mapped = maps.map_or(Ok(()), |maps| write_maps(pid, maps, deny_setgroups));
            let received = mapped.map_err(Failure::Maps).and_then(|()| {
                // A child that died is seen by the missing answer.
                let _ = rustix::io::write(&opener, &[1]);
                let bytes = receive(answers, PATIENCE);
                <[u8; N]>::try_from(bytes).map_err(|_| Failure::NoAnswer)
            });
            end(&pidfd);
            received.map(|codes| codes.map(outcome))
        }
    }
}

/// What `body` wrote within `patience`, in a copy of this process.
pub(crate) fn forked(patience: Duration, body: impl FnOnce(File)) -> io::Result<Vec<u8>> {
    let (answers, answer) = pipe_with(PipeFlags::CLOEXEC)?;
    match sys::fork()? {
        None => {
            drop(answers);
            // A panic must not run the caller's code a second time.
            let _ = catch_unwind(AssertUnwindSafe(|| body(answer.into())));
            sys::exit_now(0)
        }
        Some(pid) => {
            drop(answer);
            let pid = Pid::from_raw(pid).ok_or(Errno::SRCH)?;
            let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
            let bytes = receive(answers, patience);
            end(&pidfd);
            Ok(bytes)
        }
    }
}

fn write_maps(pid: i32, maps: &IdMaps, deny_setgroups: bool) -> io::Result<()> {
    if deny_setgroups {
        fs::write(format!("/proc/{pid}/setgroups"), "deny")?;
    }
    fs::write(format!("/proc/{pid}/uid_map"), map_text(&maps.uids))?;
    fs::write(format!("/proc/{pid}/gid_map"), map_text(&maps.gids))
}

/// All that comes through `pipe` until its end, or until `patience` does.
fn receive(pipe: OwnedFd, patience: Duration) -> Vec<u8> {
    let deadline = Instant::now() + patience;
    let mut file = File::from(pipe);
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    while wait_readable(&file, deadline) {
        match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    bytes
}

fn end(pidfd: &OwnedFd) {
    // It may have ended by itself; its status says nothing.
    let _ = pidfd_send_signal(pidfd, Signal::KILL);
    if wait_readable(pidfd, Instant::now() + END) {
        let _ = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}

fn wait_readable(fd: &impl AsFd, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(left) = Timespec::try_from(left) else {
            return false;
        };
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            result => return result.is_ok_and(|ready| ready > 0),
        }
    }
}

/// 0, or an errno; Linux has none above 133.
fn code(outcome: Outcome) -> u8 {
    outcome.map_or_else(|errno| u8::try_from(errno.raw_os_error()).unwrap_or(u8::MAX), |()| 0)
}

fn outcome(code: u8) -> Outcome {
    if code == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(code.into())) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn answers_come_back_as_they_were() {
        let answers =
            in_namespaces(0, None, false, || [Ok(()), Err(Errno::PERM), Err(Errno::NOSPC)]).unwrap();
        assert_eq!(answers, [Ok(()), Err(Errno::PERM), Err(Errno::NOSPC)]);
    }

    #[test]
    fn a_child_that_hangs_is_given_up() {
        let start = Instant::now();
        let hangs = in_namespaces(0, None, false, || {
            loop {
                // SAFETY: pause(2) has no arguments.
                unsafe { libc::pause() };
            }
            #[expect(unreachable_code, reason = "gives the array its type")]
            [Ok(())]
        });
        assert!(matches!(hangs, Err(Failure::NoAnswer)));
        assert!(start.elapsed() < PATIENCE + END + Duration::from_millis(500));
    }

    #[test]
    fn what_a_forked_child_wrote_before_it_hung_is_kept() {
        let bytes = forked(Duration::from_millis(100), |mut answer| {
            let _ = answer.write_all(b"half");
            std::thread::sleep(Duration::from_secs(60));
        });
        assert_eq!(bytes.unwrap(), b"half");
    }
}
