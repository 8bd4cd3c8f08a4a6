//! The seccomp filters of a running process, as the kernel keeps them.
//!
//! The one part of a live audit that attaches: PTRACE_SECCOMP_GET_FILTER (ptrace(2)) takes a stopped process, and a
//! caller with CAP_SYS_ADMIN in the host's user namespace and no filter of its own. The process is stopped for the
//! time of a few calls, and goes on where it was, with the signal that it may have been about to get.

use std::io;
use std::time::{Duration, Instant};

use crate::seccomp::{Instruction, Program};

/// Of linux/ptrace.h; glibc's header lacks it.
const SECCOMP_GET_FILTER: libc::c_uint = 0x420c;
/// How long the process may take to stop: one that waits for a disk does not until it is served.
const PATIENCE: Duration = Duration::from_secs(5);

/// The filters could not be read.
#[derive(Debug, thiserror::Error)]
#[error("the filters of process {pid}: {what}: {source}")]
pub struct FilterError {
    /// The process.
    pid: i32,
    /// What was done.
    what: &'static str,
    /// Why it failed.
    source: io::Error,
}

/// The filters of a process, the newest first; the strictest answer of all of them holds. Empty if there is none.
///
/// # Errors
/// The process is gone, is traced already, or may not be traced by this caller; the kernel was built without
/// CONFIG_CHECKPOINT_RESTORE.
pub fn filters(pid: i32) -> Result<Vec<Program>, FilterError> {
    let stopped = Stopped::new(pid)?;
    let mut programs = Vec::new();
    loop {
        match stopped.filter(programs.len()) {
            Ok(program) => programs.push(program),
            // One more than there are; EINVAL if the process has no filter at all.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(programs),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && programs.is_empty() => {
                return Ok(programs);
            }
            Err(source) => return Err(FilterError { pid, what: "PTRACE_SECCOMP_GET_FILTER", source }),
        }
    }
}

/// A process that was stopped, and goes on when this is dropped.
struct Stopped {
    pid: i32,
    /// What it was about to get when it stopped.
    signal: i32,
}

impl Stopped {
    fn new(pid: i32) -> Result<Stopped, FilterError> {
        let failed = |what| move |source| FilterError { pid, what, source };
        ptrace(libc::PTRACE_SEIZE, pid, 0, 0).map_err(failed("PTRACE_SEIZE"))?;
        let mut stopped = Stopped { pid, signal: 0 };
        ptrace(libc::PTRACE_INTERRUPT, pid, 0, 0).map_err(failed("PTRACE_INTERRUPT"))?;
        let end = Instant::now() + PATIENCE;
        loop {
            let mut status = 0;
            // SAFETY: the status is a number of this function's own.
            match unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL | libc::WNOHANG) } {
                -1 => return Err(failed("waitpid")(io::Error::last_os_error())),
                0 if Instant::now() < end => std::thread::sleep(Duration::from_millis(1)),
                0 => return Err(failed("it does not stop")(io::ErrorKind::TimedOut.into())),
                _ if libc::WIFSTOPPED(status) => {
                    // A stop with an event above the signal is one of tracing, and no signal is lost by it.
                    stopped.signal = if status >> 16 == 0 { libc::WSTOPSIG(status) } else { 0 };
                    return Ok(stopped);
                }
                _ => return Err(failed("it has ended")(io::Error::from_raw_os_error(libc::ESRCH))),
            }
        }
    }

    fn filter(&self, index: usize) -> io::Result<Program> {
        let length = ptrace(SECCOMP_GET_FILTER, self.pid, index, 0)?;
        let empty = libc::sock_filter { code: 0, jt: 0, jf: 0, k: 0 };
        let mut instructions = vec![empty; usize::try_from(length).map_err(io::Error::other)?];
        // It stays stopped in between, so the filter is the same one.
        ptrace(SECCOMP_GET_FILTER, self.pid, index, instructions.as_mut_ptr().addr())?;
        let plain =
            |step: libc::sock_filter| Instruction { code: step.code, jt: step.jt, jf: step.jf, k: step.k };
        Ok(Program { instructions: instructions.into_iter().map(plain).collect() })
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // A process that has not stopped yet goes on when its tracer ends.
        let _ = ptrace(libc::PTRACE_DETACH, self.pid, 0, usize::try_from(self.signal).unwrap_or(0));
    }
}

fn ptrace(request: libc::c_uint, pid: i32, address: usize, data: usize) -> io::Result<i64> {
    // SAFETY: the requests used here take numbers, but for the filter's buffer, which has the length that the kernel
    // named for it.
    match unsafe { libc::ptrace(request, pid, address, data) } {
        -1 => Err(io::Error::last_os_error()),
        answer => Ok(answer),
    }
}
