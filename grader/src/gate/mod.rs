//! Gates: what a submitted change must satisfy before anything of it runs.
//!
//! [`PatchGate`] looks at a changeset: where it changes what, and whether it brings in data or weights dressed up as
//! source. [`ArtifactGate`] looks at a sealed tree: whether loading it would run code. Both judge bytes only, never
//! what the candidate says about them, and both report everything that they find.

mod artifact;
mod blob;
mod keys;
mod overlap;
mod patch;
mod pickle;
mod rows;
mod safetensors;
#[cfg(test)]
mod tests;
mod zip;

use std::fmt;

use serde::Serialize;

pub use artifact::{ArtifactGate, ArtifactRules, Pickles};
pub use overlap::{HiddenRows, Overlap};
pub use patch::{PatchGate, PatchRules};
pub use pickle::{PickleError, PickleFacts, is_pickle, scan_pickles};
pub use safetensors::{Header, SafetensorsError, Tensor, read_header};
pub use zip::{ZipEntry, ZipError, read_entries};

use crate::seal::TreePath;

/// One thing that a gate refuses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// The rule that was broken.
    pub rule: Rule,
    /// The file; the root where the change as a whole is meant.
    pub path: TreePath,
    /// The hunk of the rendered patch, from 1.
    pub hunk: Option<usize>,
    /// The line of the new file, from 1.
    pub line: Option<usize>,
    /// What was found, in words that hold nothing of the file.
    pub why: String,
}

impl Refusal {
    fn new(rule: Rule, path: &TreePath, why: impl Into<String>) -> Self {
        Self { rule, path: path.clone(), hunk: None, line: None, why: why.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path)?;
        if let Some(hunk) = self.hunk {
            write!(f, ", hunk {hunk}")?;
        }
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {} [{}]", self.why, self.rule)
    }
}

/// The rules of both gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Only editable paths change.
    Editable,
    /// No file is added.
    Create,
    /// No file's executable bit is set or cleared, and no added file has it.
    Executable,
    /// A file has a largest size.
    FileSize,
    /// All changed files together have a largest size.
    TotalSize,
    /// So many files change at most.
    FileCount,
    /// No file has the name of model weights.
    Weights,
    /// Changed files are text.
    Binary,
    /// A line has a longest length.
    LongLine,
    /// No text that encodes bytes.
    EncodedBlob,
    /// No rows of data in code.
    DataRows,
    /// So many numbers at most.
    Numbers,
    /// Nothing that equals a hidden row.
    HiddenRow,
    /// No code in an artifact.
    Code,
    /// No configuration that makes a loader run code.
    ConfigKey,
    /// No chat template but the known ones.
    ChatTemplate,
    /// No pickle, or none that calls anything unknown.
    Pickle,
    /// A safetensors file is well formed.
    Safetensors,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Whether a name ends with a dot and one of `suffixes`, whatever the case.
fn has_suffix(path: &TreePath, suffixes: &[String]) -> bool {
    let name = path.name().to_lowercase();
    suffixes
        .iter()
        .any(|suffix| name.strip_suffix(&suffix.to_lowercase()).is_some_and(|stem| stem.ends_with('.')))
}
