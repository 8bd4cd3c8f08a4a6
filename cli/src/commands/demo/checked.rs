//! Verifying the demo's runs offline, and a copy of one in which a single byte is another.

use std::fs;
use std::path::{Path, PathBuf};

use airlock_grader::receipt::PublicKey;
use airlock_grader::run::remove_directory;
use airlock_grader::run::verify::verify;
use anyhow::{Context, Result};
use serde::Serialize;

use crate::commands::task::sentence;

/// What verification says.
#[derive(Serialize)]
pub(super) struct Checked {
    /// The run.
    pub(super) run: String,
    pub(super) verified: bool,
    /// How much was looked at, or the first thing that does not fit.
    pub(super) says: String,
}

/// Verifies a run.
pub(super) fn checked(name: &str, run: &Path, key: &PublicKey) -> Result<Checked> {
    let (verified, says) = match verify(run, key) {
        Ok(run) => {
            let checked = run.checked;
            let (files, trees, events) = (checked.files, checked.trees, checked.events);
            (true, format!("verified: {files} files, {trees} sealed trees, {events} events"))
        }
        Err(error) if error.is_failure() => {
            return Err(error).with_context(|| format!("verifying {}", run.display()));
        }
        Err(error) => (false, sentence(&error)),
    };
    Ok(Checked { run: name.to_owned(), verified, says })
}

/// Verifies a copy of a run in which one byte of a final verdict is another. The copy is gone afterwards.
pub(super) fn tampered(run: &Path, place: &Path, key: &PublicKey) -> Result<Checked> {
    let (verdict, copy) = (verdict(run)?, place.join("tampered"));
    copy_tree(run, &copy)?;
    let path = copy.join(&verdict);
    let failed = || format!("changing {}", path.display());
    let mut bytes = fs::read(&path).with_context(failed)?;
    let middle = bytes.len() / 2;
    if let Some(byte) = bytes.get_mut(middle) {
        *byte ^= 1;
    }
    fs::write(&path, bytes).with_context(failed)?;
    let checked = checked("one byte changed", &copy, key);
    remove_directory(&copy)?;
    checked
}

/// A final verdict of a run, relative to its directory.
fn verdict(run: &Path) -> Result<PathBuf> {
    let phases = run.join("phases");
    let entries = fs::read_dir(&phases).with_context(|| format!("reading {}", phases.display()))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let score = names.filter(|name| name.ends_with("-score")).min();
    let score = score.with_context(|| format!("{} holds no final scoring", phases.display()))?;
    Ok(Path::new("phases").join(score).join("verdict.json"))
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    let failed = || format!("copying {}", from.display());
    fs::create_dir(to).with_context(failed)?;
    for entry in fs::read_dir(from).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type().with_context(failed)? {
            kind if kind.is_dir() => copy_tree(&source, &target)?,
            _ => drop(fs::copy(&source, &target).with_context(failed)?),
        }
    }
    Ok(())
}
