//! From a patch to a changeset: exact context, no offsets, no fuzz.

use std::collections::BTreeSet;

use super::error::{PatchError, PatchFault};
use super::parse::{Action, PatchHunk, Section, parse};
use super::render::text_of;
use super::{Change, Changeset, ChangesetError, Mark, lines, result};
use crate::Digest;
use crate::seal::{Entry, Limits, Sealed, Store, TreePath};

/// Largest patch that is read, in bytes.
pub const LARGEST_PATCH: usize = 64 << 20;

/// Turns a patch against the frozen tree into a changeset.
///
/// Git's format and plain unified diffs are read, with `a/` and `b/` before the paths. Every line of context must
/// be the frozen file's, at the very line that the hunk states. Renames, copies, links, submodules, other modes than
/// 100644 and 100755, binary content, paths that no tree may hold or that lead into a git directory, and a second
/// section for a file are refused; the error names the line of the patch, the file and the hunk.
///
/// Of `limits`, the number of entries and the bytes of one file and of all files hold for the files of the patch.
pub fn import_patch(
    patch: &str,
    frozen: &Sealed,
    store: &Store,
    limits: &Limits,
) -> Result<Changeset, ChangesetError> {
    check(0, None, "bytes", patch.len() as u64, LARGEST_PATCH as u64)?;
    let sections = parse(patch)?;
    check(0, None, "files", sections.len() as u64, limits.entries)?;
    let (mut changes, mut texts, mut seen, mut bytes) = (Vec::new(), Vec::new(), BTreeSet::new(), 0);
    for section in &sections {
        let Section { line, path, .. } = section;
        if !seen.insert(path) {
            return Err(fault(*line, path, None, PatchFault::Again).into());
        }
        let Some((executable, text)) = outcome(section, frozen)? else {
            changes.push(Change::Removed { path: path.clone() });
            continue;
        };
        let size = text.len() as u64;
        check(*line, Some(path), "bytes in the file", size, limits.file_bytes)?;
        bytes += size;
        check(*line, Some(path), "bytes in all files", bytes, limits.logical_bytes)?;
        let after = Entry::file(executable, size, Digest::of(text.as_bytes()));
        changes.extend(Change::new(path.clone(), frozen.manifest(), after));
        texts.push((path, executable, text));
    }
    result(&changes, frozen.manifest())?;
    let mut draft = store.draft()?;
    for (path, executable, text) in texts {
        draft.write(path, executable, text.as_bytes())?;
    }
    Ok(Changeset::new(frozen.digest(), draft.publish()?.digest(), changes))
}

/// What a section makes of its file: the executable bit and the text; `None` if it removes the file.
fn outcome(section: &Section<'_>, frozen: &Sealed) -> Result<Option<(bool, String)>, ChangesetError> {
    let Section { line, path, action, hunks } = section;
    let wrong = |what| ChangesetError::from(fault(*line, path, None, what));
    let before = frozen.manifest().file(path);
    let old = match (action, before) {
        (Action::Add(_), Some(_)) => return Err(wrong(PatchFault::Exists)),
        (Action::Add(_), None) => String::new(),
        (_, None) => return Err(wrong(PatchFault::Absent)),
        (_, Some(_)) if hunks.is_empty() && *action == Action::Change(None, None) => {
            return Err(wrong(PatchFault::Nothing));
        }
        (_, Some(file)) => text_of(frozen, path, file)?.ok_or_else(|| wrong(PatchFault::NotText))?,
    };
    let stated = match action {
        Action::Add(_) => None,
        Action::Remove(mode) | Action::Change(mode, _) => *mode,
    };
    let mode = before.map(|file| file.executable);
    if stated.is_some() && stated != mode {
        return Err(wrong(PatchFault::OtherMode));
    }
    let new = patched(&old, path, hunks)?;
    match action {
        Action::Remove(_) if !new.is_empty() => Err(wrong(PatchFault::Left)),
        Action::Remove(_) => Ok(None),
        Action::Add(executable) => Ok(Some((*executable, new))),
        Action::Change(_, None) if new == old => Err(wrong(PatchFault::Nothing)),
        Action::Change(_, changed) => Ok(Some((changed.or(mode).unwrap_or_default(), new))),
    }
}

/// Applies hunks to a text.
fn patched(old: &str, path: &TreePath, hunks: &[PatchHunk<'_>]) -> Result<String, PatchError> {
    let old = lines(old);
    let (mut new, mut at) = (Vec::new(), 0);
    let mut last = None;
    for (index, PatchHunk { hunk, line, places }) in hunks.iter().enumerate() {
        let wrong = |line: &usize, what| fault(*line, path, Some(index + 1), what);
        let untouched = old.get(at..hunk.old_start).ok_or_else(|| wrong(line, PatchFault::Place))?;
        join(&mut new, untouched).ok_or_else(|| wrong(line, PatchFault::Newline))?;
        at = hunk.old_start;
        if new.len() != hunk.new_start {
            return Err(wrong(line, PatchFault::Place));
        }
        for ((mark, content), place) in hunk.lines.iter().zip(places) {
            if *mark != Mark::Added {
                if old.get(at) != Some(content) {
                    return Err(wrong(place, PatchFault::Context(at + 1)));
                }
                at += 1;
            }
            if *mark != Mark::Removed {
                join(&mut new, &[content]).ok_or_else(|| wrong(place, PatchFault::Newline))?;
            }
        }
        last = Some((*line, index + 1));
    }
    let (line, hunk) = last.unzip();
    let wrong = || fault(line.unwrap_or(1), path, hunk, PatchFault::Newline);
    join(&mut new, &old[at..]).ok_or_else(wrong)?;
    Ok(new.concat())
}

/// Adds lines after lines that all end with a newline.
fn join<'a>(lines: &mut Vec<&'a str>, more: &[&'a str]) -> Option<()> {
    let glued = !more.is_empty() && lines.last().is_some_and(|line| !line.ends_with('\n'));
    lines.extend(more);
    (!glued).then_some(())
}

fn fault(line: usize, file: &TreePath, hunk: Option<usize>, fault: PatchFault) -> PatchError {
    PatchError { line, file: Some(file.clone()), hunk, fault }
}

fn check(
    line: usize,
    file: Option<&TreePath>,
    what: &'static str,
    found: u64,
    limit: u64,
) -> Result<(), PatchError> {
    if found <= limit {
        return Ok(());
    }
    Err(PatchError {
        line: line.max(1),
        file: file.cloned(),
        hunk: None,
        fault: PatchFault::Limit { what, found, limit },
    })
}
