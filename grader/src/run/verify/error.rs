//! What does not fit in a run.

use std::fmt;
use std::io::ErrorKind;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::Digest;
use crate::journal::JournalError;
use crate::receipt::ReceiptError;
use crate::run::directory::FINDING;
use crate::run::{DirectoryError, RunError};
use crate::seal::SealError;

/// The first thing of a run that does not fit. Paths are relative to the run directory.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// A file or directory of the run could not be read.
    #[error("cannot be verified")]
    Directory(#[from] DirectoryError),
    /// There is nothing that could be verified.
    #[error("{path} is no run: it has neither a receipt.json nor a run.json")]
    NoRun {
        /// The directory.
        path: PathBuf,
    },
    /// Something in the run directory is no file of a run: a link, a FIFO, a device; or it could not be read.
    #[error("{0}")]
    Tree(Box<SealError>),
    /// There is no receipt yet.
    #[error(
        "the run is not over: it has no receipt.json; its journal is whole up to event {events}{}",
        if *.closed { ", which closes it (`airlock task resume` writes the receipt)" } else { "" }
    )]
    Unfinished {
        /// Events so far.
        events: usize,
        /// The last one closes the run.
        closed: bool,
    },
    /// A file that must be there is not.
    #[error("{path} is missing, and {by} names it")]
    Missing {
        /// The file.
        path: String,
        /// Who names it.
        by: String,
    },
    /// A file that is not of the run.
    #[error("{0} does not belong there: the receipt does not know it")]
    Unknown(String),
    /// A file whose mode is none of a run's.
    #[error("{path} has the mode {mode:04o}: {}", if mode & 0o7002 == 0 { "nothing of a run but its trees is executable" } else { "no file of a run has set-id bits or can be written by others" })]
    Mode {
        /// The file.
        path: String,
        /// Its permission bits.
        mode: u32,
    },
    /// A file has other bytes than it should have.
    #[error(transparent)]
    Digest(Box<Mismatch>),
    /// A document does not say what it should.
    #[error("{path}{}: {why}", Byte(*.byte))]
    Document {
        /// The file.
        path: String,
        /// The first byte that does not fit, where that can be known.
        byte: Option<usize>,
        /// What is wrong.
        why: String,
    },
    /// The journal is not what was written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The receipt is not what was signed.
    #[error(transparent)]
    Receipt(#[from] ReceiptError),
    /// An event that does not follow from those before it.
    #[error("journal.jsonl: line {line}: {why}")]
    Event {
        /// Counted from one.
        line: u64,
        /// What is wrong.
        why: String,
    },
    /// The receipt sums up another run.
    #[error("receipt.json: its `{field}` is {said}, but the run's is {found}")]
    Predicate {
        /// The first place in the predicate that differs: `weaker[0]`.
        field: String,
        /// What the receipt says, as JSON.
        said: String,
        /// What the run's files say, as JSON.
        found: String,
    },
    /// Something could not be recomputed.
    #[error("cannot be recomputed")]
    Recompute(#[from] RunError),
}

/// A file that has not the digest that it should have.
#[derive(Debug, thiserror::Error)]
#[error("{path}{} has the digest {found}, but {by} names {expected}", Byte(*.byte))]
pub struct Mismatch {
    /// The file.
    pub path: String,
    /// The first byte that does not fit, where that can be known.
    pub byte: Option<usize>,
    /// Who names the digest.
    pub by: String,
    /// What it names.
    pub expected: Digest,
    /// What is there.
    pub found: Digest,
}

/// The place of a fault, where it is known.
struct Byte(Option<usize>);

impl fmt::Display for Byte {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(byte) => write!(f, ", byte {byte},"),
            None => Ok(()),
        }
    }
}

impl From<SealError> for VerifyError {
    fn from(error: SealError) -> VerifyError {
        VerifyError::Tree(Box::new(error))
    }
}

impl VerifyError {
    /// Whether the host failed to look, so that nothing is said of the run.
    pub fn is_failure(&self) -> bool {
        match self {
            VerifyError::NoRun { .. } => true,
            // A file of a run that is there may have gone; without the run's own directory there is none.
            VerifyError::Directory(error) => {
                error.step == FINDING || error.source.kind() != ErrorKind::NotFound
            }
            VerifyError::Tree(error) => match &**error {
                SealError::Entry { source, .. } => !matches!(*source, Errno::NOENT | Errno::LOOP),
                SealError::Lease { .. } | SealError::Changed { .. } => true,
                _ => false,
            },
            VerifyError::Journal(JournalError::Io { source, .. }) => source.kind() != ErrorKind::NotFound,
            _ => false,
        }
    }
}
