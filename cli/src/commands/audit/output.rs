//! Where the result of an audit goes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;

use crate::audit_args::AuditArgs;
use crate::output;

/// What was asked for.
pub(super) struct Output {
    json: bool,
    html: Option<PathBuf>,
    sarif: Option<PathBuf>,
}

impl Output {
    pub(super) fn of(args: &AuditArgs) -> Output {
        Output { json: args.json, html: args.html.clone(), sarif: args.sarif.clone() }
    }

    /// Prints a result, unless a file of [`Output::page`] or [`Output::sarif`] is standard output.
    pub(super) fn say(&self, result: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
        match [&self.html, &self.sarif].into_iter().flatten().any(|file| is_stdout(file)) {
            true => Ok(()),
            false if self.json => output::json(result),
            false => output::print(&output::escape(&text())),
        }
    }

    /// Writes the page for people.
    pub(super) fn page(&self, page: impl FnOnce() -> String) -> Result<()> {
        self.html.as_deref().map_or(Ok(()), |file| write(file, &page()))
    }

    /// Writes SARIF.
    pub(super) fn sarif(&self, log: impl FnOnce() -> Value) -> Result<()> {
        let Some(file) = self.sarif.as_deref() else { return Ok(()) };
        write(file, &format!("{}\n", serde_json::to_string_pretty(&log())?))
    }
}

fn is_stdout(file: &Path) -> bool {
    file == Path::new("-")
}

fn write(file: &Path, text: &str) -> Result<()> {
    if is_stdout(file) {
        return output::print(text);
    }
    fs::write(file, text).with_context(|| format!("write {}", file.display()))
}
