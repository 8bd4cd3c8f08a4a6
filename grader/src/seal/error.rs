//! What can stop a tree from being sealed.

use rustix::io::Errno;

use super::{Escaped, NameError, TreePath};
use crate::Digest;

/// Why a tree was not sealed, read, copied or verified. Every path in a message is escaped and short.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// An entry whose name no tree may hold; see [`TreePath`].
    #[error("{directory}: the entry `{name}` has {why}")]
    Name {
        /// The directory that holds it.
        directory: TreePath,
        /// Its name.
        name: Escaped,
        /// What is wrong with it.
        why: NameError,
    },
    /// Neither a regular file nor a directory.
    #[error("{path} is a {kind}; a tree holds regular files and directories only")]
    Kind {
        /// The entry.
        path: TreePath,
        /// What it is.
        kind: &'static str,
    },
    /// A file with more than one name: another may lie outside the tree.
    #[error("{path} has {links} hard links; a sealed file has one")]
    Links {
        /// The file.
        path: TreePath,
        /// Its link count.
        links: u64,
    },
    /// Something is mounted there.
    #[error("{path} is on another mount")]
    Mount {
        /// The entry.
        path: TreePath,
    },
    /// Somebody holds a lease on the file (fcntl(2), `F_SETLEASE`), so opening it would block.
    #[error("{path} is held by a file lease")]
    Lease {
        /// The file.
        path: TreePath,
    },
    /// The entry changed while it was read, twice in a row.
    #[error("{path} changes while it is read")]
    Changed {
        /// The entry.
        path: TreePath,
    },
    /// A cap of [`Limits`](super::Limits).
    #[error("{path}: {what} {found}, more than {limit}")]
    Limit {
        /// The entry that went over it.
        path: TreePath,
        /// What is counted, with its unit.
        what: &'static str,
        /// What the tree has so far.
        found: u64,
        /// What it may have.
        limit: u64,
    },
    /// The time of [`Limits::until`](super::Limits::until) is over.
    #[error("{path}: the time for reading the tree was over here")]
    Late {
        /// The entry that was not read to its end.
        path: TreePath,
    },
    /// A system call on an entry failed.
    #[error("{step} {path}")]
    Entry {
        /// What was being done.
        step: &'static str,
        /// The entry.
        path: TreePath,
        /// The cause.
        #[source]
        source: Errno,
    },
    /// A system call on the store failed.
    #[error("store: {step} `{name}`")]
    Store {
        /// What was being done.
        step: &'static str,
        /// The directory or file of the store.
        name: String,
        /// The cause.
        #[source]
        source: Errno,
    },
    /// An entry of the store is not what its name says.
    #[error("store: {digest} is damaged: {why}")]
    Damaged {
        /// The entry.
        digest: Digest,
        /// What differs.
        why: String,
    },
    /// A tree or file that should have one digest has another.
    #[error("{path} has the digest {found}, not {expected}")]
    Digest {
        /// The file, or the root of the tree.
        path: TreePath,
        /// What it should be.
        expected: Digest,
        /// What it is.
        found: Digest,
    },
    /// The tree has no such file.
    #[error("the sealed tree has no file {path}")]
    Absent {
        /// The path asked for.
        path: TreePath,
    },
}

impl SealError {
    /// An error of a system call on an entry, for `map_err`.
    pub(crate) fn at(step: &'static str, path: &TreePath) -> impl FnOnce(Errno) -> Self {
        let path = path.clone();
        move |source| Self::Entry { step, path, source }
    }

    /// Whether there was no room on the disk.
    pub fn is_full(&self) -> bool {
        let source = match self {
            SealError::Store { source, .. } | SealError::Entry { source, .. } => *source,
            _ => return false,
        };
        matches!(source, Errno::NOSPC | Errno::DQUOT)
    }

    /// An error of a system call on the store, for `map_err`.
    pub(crate) fn store(step: &'static str, name: impl Into<String>) -> impl FnOnce(Errno) -> Self {
        let name = name.into();
        move |source| Self::Store { step, name, source }
    }
}
