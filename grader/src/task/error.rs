//! What can be wrong with a task.

use std::fmt;
use std::io;
use std::path::PathBuf;

use airlock_policy::Diagnostic;

/// Why a task could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// `task.toml` could not be read.
    #[error("read task {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said, or that it is no text.
        source: io::Error,
    },
    /// The task says something that is wrong; every mistake that was found.
    #[error("{}", join(.0))]
    Invalid(Vec<Finding>),
}

/// One mistake in a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// In the text of one of its files.
    Text(Diagnostic),
    /// In its tree.
    Tree {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
        /// What to do instead.
        help: &'static str,
    },
}

impl From<Diagnostic> for Finding {
    fn from(diagnostic: Diagnostic) -> Self {
        Finding::Text(diagnostic)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Text(diagnostic) => diagnostic.fmt(f),
            // Debug escapes what a terminal might obey.
            Finding::Tree { path, message, help } => {
                let path = path.display().to_string();
                write!(f, "{}: {message}\n  = help: {help}", path.escape_debug())
            }
        }
    }
}

fn join(findings: &[Finding]) -> String {
    findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n\n")
}
