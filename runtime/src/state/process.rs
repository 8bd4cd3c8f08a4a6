//! A process that a record names, found again by its id and the time of its start.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::sys;

/// A process that can be told from a later one with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessRecord {
    /// Process id.
    pub pid: i32,
    /// Clock ticks after boot at which it started (field 22 of proc_pid_stat(5)).
    pub started: u64,
}

impl ProcessRecord {
    pub(crate) fn of(pid: i32) -> io::Result<ProcessRecord> {
        Ok(ProcessRecord { pid, started: start_time(pid)? })
    }

    /// It has not ended: it is neither gone nor waits to be asked for its status. Of an init: something of its PID
    /// namespace may run.
    pub(crate) fn lives(&self) -> bool {
        let pidfd = match self.open() {
            Ok(Some(pidfd)) => pidfd,
            Ok(None) => return false,
            // What cannot be looked at may live.
            Err(_) => return true,
        };
        !matches!(ended(&pidfd, Duration::ZERO), Ok(true))
    }

    /// A pidfd of a recorded process; none if that is gone, whoever has its id now.
    pub(super) fn open(self) -> io::Result<Option<OwnedFd>> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(None) };
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            // The two others where the id is a thread's by now.
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => return Ok(None),
            pidfd => pidfd?,
        };
        // Checked after the descriptor is held: the id cannot be given to another process in between.
        match start_time(self.pid) {
            Ok(started) => Ok((started == self.started).then_some(pidfd)),
            // Reaped meanwhile: before the file was opened, or before it was read.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a signal to a recorded process; gone is as good.
    pub(super) fn signal(self, signal: Signal) {
        if let Ok(Some(pidfd)) = self.open() {
            let _ = pidfd_send_signal(&pidfd, signal);
        }
    }

    /// Kills it, which is an init, and waits for its end, which is the end of its PID namespace.
    pub(super) fn end(self, patience: Duration) -> Result<(), String> {
        let opened = self.open().map_err(|error| format!("init (process {}): {error}", self.pid))?;
        let Some(pidfd) = opened else { return Ok(()) };
        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
        match ended(&pidfd, patience) {
            Ok(false) => Err(format!("init (process {}) does not end; it hangs in the kernel", self.pid)),
            Ok(true) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Waits for the end of a process.
pub(super) fn ended(pidfd: &OwnedFd, patience: Duration) -> rustix::io::Result<bool> {
    let timeout =
        Timespec { tv_sec: patience.as_secs().cast_signed(), tv_nsec: patience.subsec_nanos().into() };
    let mut fds = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
    rustix::io::retry_on_intr(|| poll(&mut fds, Some(&timeout))).map(|ready| ready > 0)
}

/// Field 22 of `/proc/PID/stat`: clock ticks after boot at which the process started.
fn start_time(pid: i32) -> io::Result<u64> {
    let stat = sys::read_small(CWD, format!("/proc/{pid}/stat"))?;
    let stat = String::from_utf8_lossy(&stat);
    // The name in field 2 may hold anything; the last parenthesis ends it.
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields.split_whitespace());
    let started = fields.and_then(|mut fields| fields.nth(19)?.parse().ok());
    started.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no start time in /proc/PID/stat"))
}
