//! A try in a process of its own: what kills it, or what it changes, is its own affair.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use airlock_runtime::probe::Outcome;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How long a try may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Performs `act` in a child and waits for it.
pub(crate) fn outcome(act: impl FnOnce() -> Outcome) -> Outcome {
    let Ok((mut reader, writer)) = io::pipe() else { return Outcome::Broken("pipe".into()) };
    // SAFETY: this process has one thread.
    match unsafe { fork() } {
        Err(errno) => Outcome::Broken(format!("fork: {errno}")),
        Ok(ForkResult::Child) => {
            drop(reader);
            if rustix::stdio::dup2_stdout(&writer).is_ok() {
                drop(writer);
                crate::say(&act());
            }
            exit(0)
        }
        Ok(ForkResult::Parent { child }) => {
            drop(writer);
            let text = read(&mut reader, child);
            let status = waitpid(child, None);
            match (text, status) {
                (None, _) => Outcome::Hung,
                (_, Ok(WaitStatus::Signaled(_, signal, _))) => Outcome::Killed(signal as i32),
                (Some(text), _) => serde_json::from_str(&text)
                    .unwrap_or_else(|_| Outcome::Broken(format!("it said {text:?}"))),
            }
        }
    }
}

/// What the child says until it ends; none if it does not in time, and is killed.
fn read(reader: &mut io::PipeReader, child: Pid) -> Option<String> {
    let end = Instant::now() + PATIENCE;
    let mut said = Vec::new();
    let mut part = [0; 4096];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        let ready = poll(&mut [PollFd::from_borrowed_fd(reader.as_fd(), PollFlags::IN)], timeout.as_ref());
        match ready {
            Ok(0) => {
                // Gone already is as good.
                let _ = kill(child, Signal::SIGKILL);
                return None;
            }
            _ => match reader.read(&mut part) {
                Ok(0) | Err(_) => return Some(String::from_utf8_lossy(&said).into_owned()),
                Ok(length) => said.extend_from_slice(&part[..length]),
            },
        }
    }
}

/// Ends this process at once: what the parent has set up is not run again.
pub(crate) fn exit(status: i32) -> ! {
    // SAFETY: _exit does not return, and runs nothing of this program.
    unsafe { libc::_exit(status) }
}

/// A child that does nothing until it is killed, which dropping this does.
pub(crate) struct Idle(pub(crate) Pid);

impl Idle {
    pub(crate) fn start() -> nix::Result<Idle> {
        // SAFETY: this process has one thread.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => Ok(Idle(child)),
            ForkResult::Child => {
                // The reader of the answers waits for the end of the stream.
                let _ = nix::unistd::close(1);
                loop {
                    nix::unistd::pause();
                }
            }
        }
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        // Not reaped yet, so the id is still its own.
        let _ = kill(self.0, Signal::SIGKILL);
        let _ = waitpid(self.0, None);
    }
}
