//! What can stop a supervisor.

use std::io;
use std::path::PathBuf;

use airlock_policy::PolicyError;
use airlock_runtime::launcher::LauncherError;
use airlock_runtime::state::StateError;

use super::clock::ClockError;
use super::directory::DirectoryError;
use super::logs::LogError;
use super::verdict::VerdictError;
use crate::Digest;
use crate::changeset::ChangesetError;
use crate::journal::{CanonicalError, JournalError};
use crate::protocol::link::LinkError;
use crate::protocol::process::ProcessError;
use crate::receipt::{KeyError, ReceiptError};
use crate::score::LadderError;
use crate::seal::SealError;
use crate::task::TaskError;

/// Why a supervisor cannot go on. The journal is intact, and the run can be resumed when the cause is gone.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A file of the run.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The clock.
    #[error(transparent)]
    Clock(#[from] ClockError),
    /// The log of a phase.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The store, or a tree of the host's.
    #[error("{what}: {source}")]
    Seal {
        /// What was being done.
        what: &'static str,
        /// Why it failed.
        source: Box<SealError>,
    },
    /// A changeset of the host's.
    #[error("{what}: {source}")]
    Changeset {
        /// What was being done.
        what: &'static str,
        /// Why it failed.
        source: Box<ChangesetError>,
    },
    /// The task.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// A part of the task is not what it was when the run was made.
    #[error(
        "{part} of the task is {found}, and was {expected} when the run was made; put the old one back and resume, \
         or make a new run"
    )]
    PartChanged {
        /// The part.
        part: String,
        /// What it was.
        expected: Digest,
        /// What it is.
        found: Digest,
    },
    /// A part of the task has come or gone since the run was made.
    #[error("the task has other parts than when the run was made: {0}")]
    PartsChanged(String),
    /// A program of Airlock's is not what it was when the run was made.
    #[error(
        "{program} is {found}, and was {expected} when the run was made; resume with the Airlock that made it, or close \
         the run with --close"
    )]
    ProgramChanged {
        /// The program, or what was copied of it into the run.
        program: PathBuf,
        /// What it was.
        expected: Digest,
        /// What it is.
        found: Digest,
    },
    /// The task or the command line asks for what contradicts the rest.
    #[error("{0}")]
    Options(String),
    /// `run.json` is not one.
    #[error("{path}: not the run.json of this version: {why}")]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A verdict that was written down.
    #[error("reading {path}: {source}")]
    Verdict {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: Box<VerdictError>,
    },
    /// A phase's policy with its mounts.
    #[error("phase {phase}: {source}")]
    Policy {
        /// The phase.
        phase: String,
        /// What is wrong.
        source: Box<PolicyError>,
    },
    /// The launcher, not a sandbox.
    #[error(transparent)]
    Launcher(#[from] LauncherError),
    /// The grader process.
    #[error(transparent)]
    Grader(#[from] ProcessError),
    /// The sandbox of the grader process.
    #[error("the sandbox of the grader process could not be set up: {0}")]
    GraderSetup(String),
    /// Research runs on while its clock stands.
    #[error("research cannot be frozen while validations are graded that do not count against its budget")]
    NotFrozen,
    /// The supervisor link.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Sandboxes that were let go of.
    #[error("ending what is left of earlier sandboxes: {0}")]
    Leftover(#[from] StateError),
    /// A monitor that was let go of does not end.
    #[error("the sandbox of {0} does not end; see `airlock list` and `airlock gc`")]
    StillThere(PathBuf),
    /// The signing key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The receipt.
    #[error(transparent)]
    Receipt(#[from] ReceiptError),
    /// A document has no canonical form.
    #[error(transparent)]
    Canonical(#[from] CanonicalError),
    /// A score has no place on the ladder.
    #[error(transparent)]
    Ladder(#[from] LadderError),
    /// A system call.
    #[error("{step}: {source}")]
    Call {
        /// What was done.
        step: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

impl RunError {
    /// Whether there was no room on the disk.
    pub fn is_full(&self) -> bool {
        match self {
            RunError::Journal(JournalError::DiskFull(_)) => true,
            RunError::Directory(error) => full(&error.source),
            RunError::Seal { source, .. } => source.is_full(),
            RunError::Changeset { source, .. } => {
                matches!(&**source, ChangesetError::Seal(error) if error.is_full())
            }
            RunError::Log(LogError::Io { source, .. }) | RunError::Call { source, .. } => full(source),
            _ => false,
        }
    }
}

fn full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// An error of a system call, for `map_err`.
pub(crate) fn call(step: &'static str) -> impl Fn(io::Error) -> RunError {
    move |source| RunError::Call { step, source }
}

/// An error of a tree of the host's, for `map_err`.
pub(crate) fn tree(what: &'static str) -> impl Fn(SealError) -> RunError {
    move |source| RunError::Seal { what, source: source.into() }
}

/// An error of a changeset of the host's, for `map_err`.
pub(crate) fn changeset(what: &'static str) -> impl Fn(ChangesetError) -> RunError {
    move |source| RunError::Changeset { what, source: source.into() }
}
