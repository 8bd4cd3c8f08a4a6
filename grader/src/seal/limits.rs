//! Caps on a tree.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::path::LONGEST_NAME;
use super::{SealError, TreePath};

/// Deepest nesting that is ever walked, whatever [`Limits::depth`] says: each level holds a descriptor open.
const DEEPEST: u64 = 256;

/// What one tree may have. Every cap is checked before the entry that goes over it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Files and directories together.
    pub entries: u64,
    /// Bytes of all files, as their sizes say; holes count.
    pub logical_bytes: u64,
    /// Bytes that the file system has allocated for all files.
    pub allocated_bytes: u64,
    /// Bytes of one file, as its size says.
    pub file_bytes: u64,
    /// Directories inside one another; an entry of the root has depth 1. At most 256.
    pub depth: u64,
    /// Bytes of one name; at most 255.
    pub name_bytes: u64,
    /// Bytes of one path from the root.
    pub path_bytes: u64,
    /// When the tree must have been read, the holes of its files included; none: whenever.
    #[serde(skip)]
    pub until: Option<Instant>,
}

impl Limits {
    /// None but those of the walk itself: for a tree that was within its limits when it was sealed.
    pub(crate) const NONE: Self = Self {
        entries: u64::MAX,
        logical_bytes: u64::MAX,
        allocated_bytes: u64::MAX,
        file_bytes: u64::MAX,
        depth: u64::MAX,
        name_bytes: u64::MAX,
        path_bytes: u64::MAX,
        until: None,
    };
}

impl Default for Limits {
    /// Room for a large model checkpoint: 200,000 entries, 256 GiB.
    fn default() -> Self {
        let bytes = 256 << 30;
        Self {
            entries: 200_000,
            logical_bytes: bytes,
            allocated_bytes: bytes,
            file_bytes: bytes,
            depth: 64,
            name_bytes: LONGEST_NAME as u64,
            path_bytes: 2048,
            until: None,
        }
    }
}

/// What a walk has seen so far.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: Limits,
    entries: u64,
    logical: u64,
    allocated: u64,
}

impl Budget {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { limits: *limits, entries: 0, logical: 0, allocated: 0 }
    }

    /// Counts an entry by its name alone.
    pub(crate) fn entry(&mut self, path: &TreePath) -> Result<(), SealError> {
        in_time(self.limits.until, path)?;
        self.entries += 1;
        cap(path, "entries:", self.entries, self.limits.entries)?;
        cap(path, "bytes in the name:", path.name().len() as u64, self.limits.name_bytes)?;
        cap(path, "bytes in the path:", path.as_str().len() as u64, self.limits.path_bytes)
    }

    /// Checks how deep a directory lies whose entries are about to be read.
    pub(crate) fn directory(&self, path: &TreePath) -> Result<(), SealError> {
        cap(path, "levels:", path.names().count() as u64 + 1, self.limits.depth.min(DEEPEST))
    }

    /// Counts a file's bytes.
    pub(crate) fn file(&mut self, path: &TreePath, size: u64, allocated: u64) -> Result<(), SealError> {
        cap(path, "bytes in the file:", size, self.limits.file_bytes)?;
        self.logical = self.logical.saturating_add(size);
        cap(path, "bytes in all files:", self.logical, self.limits.logical_bytes)?;
        self.allocated = self.allocated.saturating_add(allocated);
        cap(path, "bytes allocated for all files:", self.allocated, self.limits.allocated_bytes)
    }
}

/// Checks that the time is not over.
pub(super) fn in_time(until: Option<Instant>, path: &TreePath) -> Result<(), SealError> {
    match until {
        Some(until) if Instant::now() >= until => Err(SealError::Late { path: path.clone() }),
        _ => Ok(()),
    }
}

fn cap(path: &TreePath, what: &'static str, found: u64, limit: u64) -> Result<(), SealError> {
    if found <= limit {
        return Ok(());
    }
    Err(SealError::Limit { path: path.clone(), what, found, limit })
}
