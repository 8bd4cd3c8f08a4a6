//! The grader process of a run: the one that decodes what comes out of the research sandbox, in a sandbox of its own.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::Supervisor;
use super::directory::{at, fresh_directory};
use super::error::{RunError, call};
use super::phase::{RunningPhase, Start};
use super::state::names;
use crate::protocol::bind::{Access, bind_socket};
use crate::protocol::link::{Acts, LinkLimits};
use crate::protocol::process::{LINK, LISTENER, grader_spec};

/// The run's listening socket. It stays open while grader processes come and go.
pub(crate) struct Grader {
    socket: PathBuf,
    listener: UnixListener,
}

/// A grader process that runs, and what it asks for.
pub(crate) struct RunningGrader {
    pub(crate) phase: Box<RunningPhase>,
    pub(crate) acts: Acts,
}

impl Grader {
    /// Where the socket lies on the host.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Starts a grader process.
    pub(crate) async fn start(&self, supervisor: &Rc<Supervisor>) -> Result<RunningGrader, RunError> {
        let spec = grader_spec(&supervisor.programs.grader)
            .map_err(|source| RunError::Policy { phase: names::GRADER.into(), source })?;
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(|error| call("making the supervisor link")(error.into()))?;
        let listener = self.listener.try_clone().map_err(call("handing over the run's socket"))?;
        let pass = vec![(OwnedFd::from(listener), LISTENER), (theirs, LINK)];
        let number = supervisor.state().next_phase();
        match supervisor.start_spec(number, names::GRADER, Arc::new(spec), pass, None).await? {
            Start::Running(phase) => {
                let acts = Acts::new(UnixStream::from(ours), LinkLimits::default())?;
                Ok(RunningGrader { phase, acts })
            }
            Start::Failed(ended) => Err(RunError::Grader(ended.error.unwrap_or_default())),
        }
    }
}

impl RunningGrader {
    /// Ends the process.
    pub(crate) async fn end(self, supervisor: &Supervisor) -> Result<(), RunError> {
        self.phase.kill()?;
        supervisor.end(self.phase, None).await.map(drop)
    }
}

impl Supervisor {
    /// Binds the run's socket.
    pub(crate) fn open_grader(&self) -> Result<Grader, RunError> {
        let place = self.directory.join("work/socket");
        fresh_directory(&place, 0o700)?;
        let directory = File::open(&place).map_err(at("opening", &place))?;
        let access = if rustix::process::geteuid().is_root() { Access::AnyoneInside } else { Access::Own };
        let name = Path::new("grader.sock");
        let listener = bind_socket(&directory, name, access).map_err(|error| RunError::Grader(error.to_string()))?;
        let socket = fs::canonicalize(&place).map_err(at("finding", &place))?.join(name);
        Ok(Grader { socket, listener })
    }
}
