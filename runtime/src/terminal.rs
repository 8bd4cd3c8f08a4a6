//! The sandbox's pseudo-terminal (pty(7)) and the caller's terminal.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};

/// Opens a pair in the sandbox's own devpts: the master, and the payload's end, got from the master and not
/// by a path that could be swapped (CVE-2025-52565).
pub(crate) fn open() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let master = rustix::fs::open("/dev/pts/ptmx", flags, Mode::empty())?;
    unlockpt(&master)?;
    let peer = ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    Ok((master, peer))
}

/// The caller's terminal in raw mode; restored on drop.
pub(crate) struct Raw {
    terminal: OwnedFd,
    before: Termios,
}

impl Raw {
    pub(crate) fn enter(terminal: BorrowedFd<'_>) -> io::Result<Raw> {
        let terminal = terminal.try_clone_to_owned()?;
        let before = tcgetattr(&terminal)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&terminal, OptionalActions::Now, &raw)?;
        Ok(Raw { terminal, before })
    }

    /// Gives the sandbox's terminal the size of the caller's.
    pub(crate) fn copy_size(&self, master: BorrowedFd<'_>) {
        if let Ok(size) = tcgetwinsize(self.terminal.as_fd()) {
            // A terminal without a size is no reason to fail.
            let _ = tcsetwinsize(master, size);
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}
