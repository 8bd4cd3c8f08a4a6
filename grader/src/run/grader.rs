//! The grader process of a run: the one that decodes what comes out of the research sandbox, in a sandbox of its own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Supervisor;
use super::directory::{at, fresh_directory};
use super::error::RunError;
use super::phase::{RunningPhase, Start};
use super::state::names;
use crate::protocol::bind::Access;
use crate::protocol::link::{Acts, LinkLimits};
use crate::protocol::process::{self, Settings};

/// The socket's name on the host.
const SOCKET: &str = "grader.sock";

/// The run's listening socket. It stays open while grader processes come and go.
pub(crate) struct Grader {
    socket: PathBuf,
    process: process::Grader,
    spec: Arc<airlock_runtime::Spec>,
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
    pub(crate) async fn start(&self, supervisor: &Supervisor) -> Result<RunningGrader, RunError> {
        let (pass, ours) = self.process.hand_over()?;
        let number = supervisor.state().next_phase();
        let spec = Arc::clone(&self.spec);
        match supervisor.start_spec(number, names::GRADER, spec, pass, None).await? {
            Start::Running(phase) => {
                Ok(RunningGrader { phase, acts: Acts::new(ours, LinkLimits::default())? })
            }
            Start::Failed(ended) => Err(RunError::GraderSetup(ended.error.unwrap_or_default())),
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
        let settings = Settings {
            program: self.programs.grader.clone(),
            best_effort: self.manifest.best_effort.clone(),
        };
        let process = process::Grader::new(settings, &directory, Path::new(SOCKET), access)?;
        let spec = Arc::new(process.spec().clone());
        Ok(Grader { socket: place.join(SOCKET), process, spec })
    }
}
