//! The patch gate.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde::{Deserialize, Serialize};

use super::overlap::{HiddenRows, Overlap};
use super::{Refusal, Rule, blob, has_suffix, rows};
use crate::changeset::{Change, Changeset, ChangesetError, Mark, Sides, hunks, lines, text_of};
use crate::seal::{Entry, Sealed, Store, TreePath};

/// What a changeset may hold. Zero turns a counted rule off where it says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PatchRules {
    /// Globs of the paths that may change; `*` stays within a directory, `**` does not.
    pub editable: Vec<String>,
    /// Whether files may be added.
    pub allow_create: bool,
    /// Whether executable bits may change, and added files may have them.
    pub allow_executable: bool,
    /// Bytes of one changed or added file.
    pub max_file_bytes: u64,
    /// Bytes of all changed and added files.
    pub max_total_bytes: u64,
    /// Files that change.
    pub max_files: u64,
    /// Suffixes of model weights and stored arrays, without the dot.
    pub weights: Vec<String>,
    /// Bytes of one added line; 0 is no limit.
    pub max_line_bytes: u64,
    /// Characters of text that looks encoded (base64, base85, hexadecimal…), in a row; 0 is no limit. Fewer than 1024
    /// cannot be told from ordinary text.
    pub max_encoded: u64,
    /// Consecutive added lines that look like rows of CSV or JSON lines; 0 is no limit.
    pub max_data_rows: u64,
    /// Numbers in all added lines; 0 is no limit.
    pub max_numbers: u64,
    /// Globs of files in which rows and numbers are expected: `max_data_rows` and `max_numbers` do not hold there.
    pub data: Vec<String>,
}

impl Default for PatchRules {
    /// Nothing is editable; the counts are AI4AI-Bench's (arXiv 2608.20318) where that has them.
    fn default() -> Self {
        let weights = [
            "pt",
            "pth",
            "bin",
            "safetensors",
            "ckpt",
            "npz",
            "npy",
            "pkl",
            "pickle",
            "joblib",
            "h5",
            "hdf5",
            "gguf",
            "ggml",
            "onnx",
            "pb",
            "tflite",
            "msgpack",
            "parquet",
            "arrow",
            "feather",
            "mar",
            "zip",
            "tar",
            "gz",
            "xz",
            "zst",
            "bz2",
            "7z",
        ];
        Self {
            editable: Vec::new(),
            allow_create: true,
            allow_executable: false,
            max_file_bytes: 4 << 20,
            max_total_bytes: 16 << 20,
            max_files: 1000,
            weights: weights.map(str::to_owned).to_vec(),
            max_line_bytes: 16 << 10,
            max_encoded: 2048,
            max_data_rows: 15,
            max_numbers: 8192,
            data: Vec::new(),
        }
    }
}

/// [`PatchRules`], ready to be used.
#[derive(Debug, Clone)]
pub struct PatchGate {
    rules: PatchRules,
    editable: GlobSet,
    data: GlobSet,
}

/// An added line and where it stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Added<'a> {
    /// The hunk, from 1.
    pub(super) hunk: usize,
    /// The line of the new file, from 1.
    pub(super) line: usize,
    /// The line, without its newline.
    pub(super) text: &'a str,
}

impl PatchGate {
    /// Compiles the globs of `rules`.
    pub fn new(rules: PatchRules) -> Result<Self, globset::Error> {
        let (editable, data) = (globs(&rules.editable)?, globs(&rules.data)?);
        Ok(Self { rules, editable, data })
    }

    /// Everything that the rules refuse in a changeset. `hidden` are rows that the candidate must not know.
    ///
    /// An error means that the changeset could not be read, not that it is refused.
    pub fn check(
        &self,
        changeset: &Changeset,
        store: &Store,
        hidden: Option<&HiddenRows>,
    ) -> Result<Vec<Refusal>, ChangesetError> {
        let sides = Sides::of(changeset, store)?;
        let mut refusals = Vec::new();
        let (mut bytes, mut numbers) = (0_u64, 0);
        for change in changeset.files() {
            self.check_place(change, &sides.frozen, &mut refusals);
            let Some(size) = change.after().and_then(|after| after.as_file().map(|file| file.size)) else {
                continue;
            };
            bytes = bytes.saturating_add(size);
            let path = change.path();
            if has_suffix(path, &self.rules.weights) {
                let why = "the suffix of weights or of packed data";
                refusals.push(Refusal::new(Rule::Weights, path, why));
            }
            if size > self.rules.max_file_bytes {
                let why = format!("{size} bytes, more than {}", self.rules.max_file_bytes);
                refusals.push(Refusal::new(Rule::FileSize, path, why));
            } else {
                self.check_text(path, &sides, hidden, &mut numbers, &mut refusals)?;
            }
        }
        let names: Vec<Added<'_>> = changeset
            .files()
            .iter()
            .filter(|change| matches!(change, Change::Added { .. }))
            .map(|change| Added { hunk: 1, line: 1, text: change.path().as_str() })
            .collect();
        if let Some((_, what, found)) = blob::find(&names, none_is_all(self.rules.max_encoded)) {
            let why = format!("{found} characters in the names of added files look like {what}");
            refusals.push(Refusal::new(Rule::EncodedBlob, &TreePath::ROOT, why));
        }
        let whole = [
            (Rule::TotalSize, "bytes", bytes, self.rules.max_total_bytes),
            (Rule::FileCount, "files", changeset.files().len() as u64, self.rules.max_files),
            (Rule::Numbers, "numbers", numbers, none_is_all(self.rules.max_numbers)),
        ];
        for (rule, what, found, most) in whole.into_iter().filter(|(_, _, found, most)| found > most) {
            refusals.push(Refusal::new(rule, &TreePath::ROOT, format!("{found} {what}, more than {most}")));
        }
        Ok(refusals)
    }

    /// What the rules about paths refuse in a changeset whose candidate is a whole tree, trained weights included: sizes
    /// and texts are free there, but hidden rows are looked for in every text.
    pub fn check_tree(
        &self,
        changeset: &Changeset,
        store: &Store,
        hidden: Option<&HiddenRows>,
    ) -> Result<Vec<Refusal>, ChangesetError> {
        let sides = Sides::of(changeset, store)?;
        let mut refusals = Vec::new();
        for change in changeset.files() {
            self.check_place(change, &sides.frozen, &mut refusals);
            if let Some(hidden) = hidden {
                check_rows(change.path(), &sides, hidden, "the text of a hidden row", &mut refusals)?;
            }
        }
        // Directories are no changes, but a tree has them, and names can say anything.
        let frozen = sides.frozen.manifest();
        let added = sides
            .contents
            .manifest()
            .entries()
            .filter(|(path, entry)| **entry == Entry::Directory && frozen.get(path).is_none());
        for (path, _) in added {
            let holds_files =
                sides.contents.manifest().below(path).any(|(_, below)| below.as_file().is_some());
            if !holds_files && !self.editable.is_match(path.as_str()) {
                refusals.push(Refusal::new(Rule::Editable, path, "not an editable path"));
            }
            if hidden.is_some_and(|hidden| !hidden.overlaps(path.as_str()).is_empty()) {
                refusals.push(Refusal::new(Rule::HiddenRow, path, "the text of a hidden row in a name"));
            }
        }
        Ok(refusals)
    }

    /// Where the training data of a changeset holds what validations returned: that is for diagnosis alone.
    pub fn check_data(
        &self,
        changeset: &Changeset,
        store: &Store,
        returned: &HiddenRows,
    ) -> Result<Vec<Refusal>, ChangesetError> {
        let sides = Sides::of(changeset, store)?;
        let mut refusals = Vec::new();
        for change in changeset.files().iter().filter(|change| self.is_data(change)) {
            check_rows(
                change.path(),
                &sides,
                returned,
                "the text of what a validation returned",
                &mut refusals,
            )?;
        }
        Ok(refusals)
    }

    /// Whether a change is one of the training data.
    pub fn is_data(&self, change: &Change) -> bool {
        self.data.is_match(change.path().as_str())
    }

    /// The rules about path and mode.
    fn check_place(&self, change: &Change, frozen: &Sealed, refusals: &mut Vec<Refusal>) {
        let path = change.path();
        let mut refuse = |rule, why: &str| refusals.push(Refusal::new(rule, path, why));
        let git = path.names().any(|name| name.eq_ignore_ascii_case(".git"));
        if git || !self.editable.is_match(path.as_str()) {
            refuse(Rule::Editable, "not an editable path");
        }
        if matches!(change, Change::Added { .. }) && !self.rules.allow_create {
            refuse(Rule::Create, "files may not be added");
        }
        let before = frozen.manifest().file(path).is_some_and(|file| file.executable);
        let after = change.after();
        if let Some(after) = after.as_ref().and_then(|after| after.as_file())
            && after.executable != before
            && !self.rules.allow_executable
        {
            refuse(Rule::Executable, "the executable bit may not change");
        }
    }

    /// The rules about what a file now says.
    fn check_text(
        &self,
        path: &TreePath,
        sides: &Sides,
        hidden: Option<&HiddenRows>,
        numbers: &mut u64,
        refusals: &mut Vec<Refusal>,
    ) -> Result<(), ChangesetError> {
        let text = |tree: &Sealed| match tree.manifest().file(path) {
            Some(file) => text_of(tree, path, file),
            None => Ok(Some(String::new())),
        };
        let Some(new) = text(&sides.contents)? else {
            refusals.push(Refusal::new(Rule::Binary, path, "not text (UTF-8 without zero bytes)"));
            return Ok(());
        };
        let old = text(&sides.frozen)?.unwrap_or_default();
        let (old_lines, new_lines) = (lines(&old), lines(&new));
        let hunks = hunks(&old_lines, &new_lines);
        let mut added = Vec::new();
        for (index, hunk) in hunks.iter().enumerate() {
            let kept = hunk.lines.iter().filter(|(mark, _)| *mark != Mark::Removed);
            for (offset, (mark, text)) in kept.enumerate() {
                if *mark == Mark::Added {
                    let (hunk, line) = (index + 1, hunk.new_start + offset + 1);
                    added.push(Added { hunk, line, text: text.trim_end_matches(['\n', '\r']) });
                }
            }
        }
        let mut refuse = |rule, place: &Added<'_>, why: String| {
            let (hunk, line) = (Some(place.hunk), Some(place.line));
            refusals.push(Refusal { hunk, line, ..Refusal::new(rule, path, why) });
        };
        let longest = none_is_all(self.rules.max_line_bytes);
        for long in added.iter().filter(|added| added.text.len() as u64 > longest) {
            refuse(Rule::LongLine, long, format!("a line of {} bytes, more than {longest}", long.text.len()));
        }
        if let Some((place, what, found)) = blob::find(&added, none_is_all(self.rules.max_encoded)) {
            refuse(Rule::EncodedBlob, place, format!("{found} characters in a row look like {what}"));
        }
        if !self.data.is_match(path.as_str()) {
            *numbers += rows::numbers(&added);
            if let Some((place, found)) = rows::find(&added, none_is_all(self.rules.max_data_rows)) {
                refuse(Rule::DataRows, place, format!("{found} lines in a row look like data"));
            }
        }
        if let Some(hidden) = hidden {
            for overlap in new_rows(hidden, &old, &new) {
                let hunk = added.iter().rfind(|added| added.line <= overlap.line).or(added.first());
                let place = Added { hunk: hunk.map_or(1, |added| added.hunk), line: overlap.line, text: "" };
                refuse(Rule::HiddenRow, &place, "the text of a hidden row".into());
            }
        }
        Ok(())
    }
}

/// Largest file in which rows are looked for, in bytes; weights are larger.
const LARGEST_SEARCHED: u64 = 256 << 20;

/// The hidden rows that a changed file holds and the frozen one does not.
fn check_rows(
    path: &TreePath,
    sides: &Sides,
    hidden: &HiddenRows,
    why: &str,
    refusals: &mut Vec<Refusal>,
) -> Result<(), ChangesetError> {
    // Bytes that are no text are looked at as far as they are: UTF-16 is ASCII with zeros between.
    let text = |tree: &Sealed| match tree.manifest().file(path) {
        Some(file) if file.size <= LARGEST_SEARCHED => {
            let mut bytes = tree.read(path, LARGEST_SEARCHED)?;
            bytes.retain(|byte| *byte != 0);
            Ok::<_, ChangesetError>(String::from_utf8_lossy(&bytes).into_owned())
        }
        _ => Ok(String::new()),
    };
    if !hidden.overlaps(path.as_str()).is_empty() {
        refusals.push(Refusal::new(Rule::HiddenRow, path, "the text of a hidden row in a name"));
    }
    for overlap in new_rows(hidden, &text(&sides.frozen)?, &text(&sides.contents)?) {
        let line = Some(overlap.line);
        refusals.push(Refusal { line, ..Refusal::new(Rule::HiddenRow, path, why) });
    }
    Ok(())
}

fn new_rows(hidden: &HiddenRows, old: &str, new: &str) -> Vec<Overlap> {
    let known: Vec<usize> = hidden.overlaps(old).iter().map(|overlap| overlap.row).collect();
    hidden.overlaps(new).into_iter().filter(|overlap| !known.contains(&overlap.row)).collect()
}

fn none_is_all(limit: u64) -> u64 {
    if limit == 0 { u64::MAX } else { limit }
}

fn globs(patterns: &[String]) -> Result<GlobSet, globset::Error> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(GlobBuilder::new(pattern).literal_separator(true).build()?);
    }
    set.build()
}
