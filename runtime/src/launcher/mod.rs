//! The launcher: a helper process that starts monitors for a supervisor with threads.
//!
//! A sandbox is started by fork, which only a process with one thread may do. So a supervisor starts the
//! launcher before its first thread, and from then on orders sandboxes over a socket:
//!
//! ```text
//! supervisor ──order──▶ launcher ──fork──▶ monitor ──▶ sandbox
//!      └──────────────── line ────────────────┘
//! ```
//!
//! Each order brings a socket pair of its own, the line, over which the monitor tells how the start went and
//! the sandbox ended, and takes signals. Closing the supervisor's end, as its death does, ends the sandbox:
//! TERM, a second of grace, KILL. The launcher itself keeps nothing of a sandbox. If it is killed, running sandboxes go
//! on, and further orders get [`LauncherError::Ended`].
//!
//! The launcher keeps no descriptor, no environment and no terminal of the supervisor's, but it is a fork: what lay in
//! the supervisor's memory when it was started lies in the launcher's. Start it first.

mod line;
mod serve;

use std::borrow::Cow;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};

pub(crate) use self::line::{Asked, Line, Wish};
use self::line::{FromMonitor, Frozen, Order, ToMonitor, read_document, write_document};
use crate::gpu::Grant;
use crate::launch::{Channel, LaunchError, checks};
use crate::report::EndReport;
use crate::spec::Spec;
use crate::sys;

/// Most descriptors that one payload gets, less one for each lease: what one message carries (unix(7)), less Airlock's
/// own seven.
const MOST_PASSED: usize = 246;

/// A launcher process. Dropping it ends the process, not the sandboxes that it started.
#[derive(Debug)]
pub struct Launcher {
    orders: Channel,
    pid: i32,
    pidfd: OwnedFd,
}

/// What a launch takes besides the spec.
#[derive(Debug, Default)]
pub struct Request {
    /// Standard input, output and error; absent: /dev/null. A socket is refused.
    pub stdio: Option<[OwnedFd; 3]>,
    /// Descriptors that the payload gets, and under which numbers.
    pub pass: Vec<(OwnedFd, i32)>,
    /// Control group to work below, an absolute path; absent: the launcher's own.
    pub cgroup_parent: Option<PathBuf>,
    /// Absolute path of a file that gets the end report too, even if the supervisor has died.
    pub report: Option<PathBuf>,
    /// The GPUs that were chosen for the spec.
    pub gpu: Option<Grant>,
    /// Kept open until the monitor is gone, or with it the order that never became one: a file with a lock (flock(2))
    /// tells everyone when neither can start or write anything any more. The payload does not get it.
    pub hold: Option<OwnedFd>,
}

/// A sandbox that runs. Dropping it ends the sandbox: TERM, a second of grace, KILL.
#[derive(Debug)]
pub struct Running {
    id: String,
    pid: i32,
    line: Channel,
}

/// A sandbox that is being frozen.
#[derive(Debug)]
pub struct Freezing(Channel);

/// A launcher, or a sandbox started through it, failed.
#[derive(Debug, thiserror::Error)]
pub enum LauncherError {
    /// The launcher must be started before the first thread.
    #[error(transparent)]
    Threads(LaunchError),
    /// A system call failed.
    #[error("launcher: {what}: {source}")]
    Call {
        /// What was done.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// More descriptors than one message carries.
    #[error("launcher: {0} descriptors for the payload, at most {MOST_PASSED} are supported")]
    Descriptors(usize),
    /// The launcher's process is gone.
    #[error("launcher: it has ended, so nothing can be started; start a new one (before any thread)")]
    Ended,
    /// The sandbox's monitor is gone without a word.
    #[error("launcher: the monitor was killed, and its sandbox with it; `airlock gc` removes what is left")]
    MonitorLost,
    /// The sandbox could not be frozen, and runs on.
    #[error("launcher: the sandbox could not be frozen: {0}")]
    Freeze(String),
    /// The sandbox could not be built, or its command not be executed.
    #[error("{message}")]
    Sandbox {
        /// Why, naming the step.
        message: String,
        /// As a shell would state it: 125 Airlock's own failure, 126 not executable, 127 not found.
        status: u8,
    },
}

impl Launcher {
    /// Forks the launcher.
    ///
    /// # Errors
    /// [`LauncherError::Threads`] if this process has more than one thread.
    pub fn start() -> Result<Launcher, LauncherError> {
        checks::threads().map_err(LauncherError::Threads)?;
        let (orders, other) = Channel::pair().map_err(call("socketpair"))?;
        let Some(pid) = sys::fork().map_err(call("fork"))? else {
            drop(orders);
            serve::serve(other);
        };
        drop(other);
        let child = Pid::from_raw(pid).ok_or_else(|| call("fork")(io::ErrorKind::InvalidData.into()))?;
        let pidfd =
            pidfd_open(child, PidfdFlags::empty()).map_err(|errno| call("pidfd_open")(errno.into()))?;
        Ok(Launcher { orders, pid, pidfd })
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Builds and verifies a sandbox of `spec` and releases its payload, waiting until that is done (a few
    /// milliseconds). Any number of threads may do so at once.
    ///
    /// # Errors
    /// [`LauncherError::Sandbox`] if it could not be built; nothing of it is left then.
    pub fn launch(&self, spec: &Spec, request: Request) -> Result<Running, LauncherError> {
        let (selection, leases, alarm) = match request.gpu {
            Some(Grant { selection, leases, alarm }) => (Some(selection), leases, alarm),
            None => (None, Vec::new(), None),
        };
        if request.pass.len() + leases.len() > MOST_PASSED {
            return Err(LauncherError::Descriptors(request.pass.len()));
        }
        let order = write_document(&Order {
            spec: Cow::Borrowed(spec),
            hold: request.hold.is_some(),
            stdio: request.stdio.is_some(),
            pass: request.pass.iter().map(|(_, number)| *number).collect(),
            cgroup_parent: request.cgroup_parent,
            report: request.report,
            gpu: selection,
            leases: leases.len(),
            alarm: alarm.is_some(),
        });
        let order = order.map_err(call("writing the order"))?;
        let (line, other) = Channel::pair().map_err(call("socketpair"))?;
        let fds: Vec<BorrowedFd<'_>> = [other.fd(), order.as_fd()]
            .into_iter()
            .chain(request.hold.iter().map(AsFd::as_fd))
            .chain(leases.iter().chain(&alarm).map(AsFd::as_fd))
            .chain(request.stdio.iter().flatten().map(AsFd::as_fd))
            .chain(request.pass.iter().map(|(fd, _)| fd.as_fd()))
            .collect();
        self.orders.send(&(), &fds).map_err(|error| match error.raw_os_error() {
            Some(libc::EPIPE | libc::ECONNRESET) => LauncherError::Ended,
            _ => call("handing over the order")(error),
        })?;
        drop(other);
        match next(&line)? {
            (FromMonitor::Started { id, pid }, _) => Ok(Running { id, pid, line }),
            (message, _) => Err(failure(message)),
        }
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        // It ends at the end of its orders; the zombie is taken away here. One that is stopped is left behind.
        let _ = rustix::net::shutdown(self.orders.fd(), rustix::net::Shutdown::Both);
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        let _ = poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&second));
        let _ = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}

impl Running {
    /// Name of the sandbox.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Process id of its init, as the host sees it.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Sends a signal to the payload; success if that has ended.
    pub fn signal(&self, number: i32) -> Result<(), LauncherError> {
        self.tell(&ToMonitor::Signal(number))
    }

    /// Kills everything in the sandbox.
    pub fn kill(&self) -> Result<(), LauncherError> {
        self.tell(&ToMonitor::Kill)
    }

    /// Stops everything in the sandbox; [`Freezing::wait`] says when it stands. A sandbox that is killed, that is out of
    /// time or whose supervisor goes is thawed for it.
    pub fn freeze(&self) -> Result<Freezing, LauncherError> {
        let (ours, theirs) = Channel::pair().map_err(call("socketpair"))?;
        self.tell_with(&ToMonitor::Freeze, &[theirs.fd()])?;
        Ok(Freezing(ours))
    }

    /// Lets a frozen sandbox run on.
    pub fn thaw(&self) -> Result<(), LauncherError> {
        self.tell(&ToMonitor::Thaw)
    }

    /// The end report. Waits for the end; does not wait once the descriptor is readable.
    ///
    /// # Errors
    /// [`LauncherError::Sandbox`] if the command could not be executed.
    pub fn wait(self) -> Result<EndReport, LauncherError> {
        match next(&self.line)? {
            (FromMonitor::Ended, mut fds) => {
                let document = fds.pop().ok_or(LauncherError::MonitorLost)?;
                read_document(document).map_err(call("reading the end report"))
            }
            (message, _) => Err(failure(message)),
        }
    }

    fn tell(&self, wish: &ToMonitor) -> Result<(), LauncherError> {
        self.tell_with(wish, &[])
    }

    fn tell_with(&self, wish: &ToMonitor, fds: &[BorrowedFd<'_>]) -> Result<(), LauncherError> {
        match self.line.send(wish, fds) {
            Err(error) if !matches!(error.raw_os_error(), Some(libc::EPIPE | libc::ECONNRESET)) => {
                Err(call("asking the monitor")(error))
            }
            _ => Ok(()),
        }
    }
}

impl Freezing {
    /// Waits until the sandbox stands, a few milliseconds as a rule, two seconds at most.
    ///
    /// # Errors
    /// [`LauncherError::Freeze`] if it could not be frozen, [`LauncherError::MonitorLost`] if it has ended.
    pub fn wait(self) -> Result<(), LauncherError> {
        match self.0.receive().map_err(call("waiting for the freeze"))? {
            Some((Frozen { error: None }, _)) => Ok(()),
            Some((Frozen { error: Some(error) }, _)) => Err(LauncherError::Freeze(error)),
            None => Err(LauncherError::MonitorLost),
        }
    }
}

/// Readable when the sandbox has ended.
impl AsFd for Running {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.fd()
    }
}

/// As [`AsFd`], for event loops that want a number.
impl AsRawFd for Running {
    fn as_raw_fd(&self) -> RawFd {
        self.line.fd().as_raw_fd()
    }
}

fn next(line: &Channel) -> Result<(FromMonitor, Vec<OwnedFd>), LauncherError> {
    line.receive().map_err(call("waiting for the monitor"))?.ok_or(LauncherError::MonitorLost)
}

fn failure(message: FromMonitor) -> LauncherError {
    match message {
        FromMonitor::Failed { message, status } => LauncherError::Sandbox { message, status },
        FromMonitor::Started { .. } | FromMonitor::Ended => {
            call("waiting for the monitor")(io::Error::other("it said something out of turn"))
        }
    }
}

fn call(what: &'static str) -> impl Fn(io::Error) -> LauncherError {
    move |source| LauncherError::Call { what, source }
}
