//! User namespaces that only carry an id map for a mount (mount_setattr(2), MOUNT_ATTR_IDMAP).

use std::fs::{self, File};
use std::io;

use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use crate::ids::{IdMaps, map_text};
use crate::sys;

/// A descriptor of a new user namespace with these maps.
///
/// A throw-away process makes it, and is killed as soon as the namespace is held by the descriptor.
pub(crate) fn user_namespace(maps: &IdMaps) -> io::Result<File> {
    let (pid, pidfd) = sys::userns_holder()?;
    let namespace = (|| {
        fs::write(format!("/proc/{pid}/uid_map"), map_text(&maps.uids))?;
        fs::write(format!("/proc/{pid}/gid_map"), map_text(&maps.gids))?;
        File::open(format!("/proc/{pid}/ns/user"))
    })();
    pidfd_send_signal(&pidfd, Signal::KILL)?;
    waitid(WaitId::PidFd(rustix::fd::AsFd::as_fd(&pidfd)), WaitIdOptions::EXITED)?;
    namespace
}
