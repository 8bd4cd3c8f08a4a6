//! What can be wrong with a changeset or a patch.

use crate::Digest;
use crate::seal::{NameError, SealError, TreePath};

/// Why a changeset could not be made, read or applied.
#[derive(Debug, thiserror::Error)]
pub enum ChangesetError {
    /// A tree could not be read or written.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The store lacks a tree that the changeset names.
    #[error("the store has no tree {digest}")]
    Missing {
        /// Its tree digest.
        digest: Digest,
    },
    /// The changes do not fit the frozen tree or one another.
    #[error("{path}: {why}")]
    Conflict {
        /// The file.
        path: TreePath,
        /// What does not fit.
        why: &'static str,
    },
    /// Not the JSON form of a changeset.
    #[error("not a changeset: {0}")]
    Json(String),
    /// A patch is refused.
    #[error(transparent)]
    Patch(#[from] PatchError),
}

/// Where and why a patch is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchError {
    /// Line of the patch, from 1.
    pub line: usize,
    /// The file whose section it is in, as far as it is known.
    pub file: Option<TreePath>,
    /// The hunk of that section, from 1.
    pub hunk: Option<usize>,
    /// What is wrong.
    pub fault: PatchFault,
}

impl std::error::Error for PatchError {}

impl std::fmt::Display for PatchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "patch line {}", self.line)?;
        if let Some(file) = &self.file {
            write!(f, ", file {file}")?;
        }
        if let Some(hunk) = self.hunk {
            write!(f, ", hunk {hunk}")?;
        }
        write!(f, ": {}", self.fault)
    }
}

/// What is wrong with a patch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchFault {
    /// More bytes, files or hunks than are read.
    #[error("{what} {found}, more than {limit}")]
    Limit {
        /// What is counted.
        what: &'static str,
        /// How many there are.
        found: u64,
        /// How many there may be.
        limit: u64,
    },
    /// The last line has no newline: something is cut off.
    #[error("the patch does not end with a newline")]
    CutOff,
    /// A line that has no place there.
    #[error("expected {0}")]
    Expected(&'static str),
    /// A path that no tree may hold.
    #[error("a path with {0}")]
    Path(#[from] NameError),
    /// A path into a git directory.
    #[error("a path into a git directory")]
    GitPath,
    /// The two sides of a section name different files.
    #[error("the section names two different files")]
    TwoPaths,
    /// A second section for the same file.
    #[error("a second section for the same file")]
    Again,
    /// Renames and copies are refused: both files are spelt out instead.
    #[error("renames and copies are refused")]
    Rename,
    /// A symbolic link (120000), a submodule (160000) or any mode but 100644 and 100755.
    #[error("the mode {0} is refused; a file has 100644 or 100755")]
    Mode(Box<str>),
    /// The mode stated is not the frozen file's.
    #[error("the mode stated is not that of the frozen file")]
    OtherMode,
    /// Binary content.
    #[error("binary content is refused")]
    Binary,
    /// The frozen file is not text.
    #[error("the frozen file is not text")]
    NotText,
    /// The frozen tree already has the file.
    #[error("the frozen tree has the file already")]
    Exists,
    /// The frozen tree lacks the file.
    #[error("the frozen tree has no such file")]
    Absent,
    /// The hunk is not at the place that its header states, or overlaps the one before.
    #[error("the hunk's header does not fit its place")]
    Place,
    /// A context or removed line differs from the frozen file's line.
    #[error("the line is not line {0} of the frozen file")]
    Context(usize),
    /// A line without newline that is not the file's last.
    #[error("a line without newline is not the last of its file")]
    Newline,
    /// A removed file whose lines are not all removed.
    #[error("the removed file has lines left")]
    Left,
    /// A section or hunk without effect.
    #[error("it changes nothing")]
    Nothing,
}
