//! A changeset as a unified diff in git's style, for people and for `git apply`.

use std::fmt::Write as _;

use super::quote::quote;
use super::{Change, Changeset, ChangesetError, Hunk, Mark, Sides, hunks, lines};
use crate::seal::{FileEntry, Sealed, Store, TreePath};

/// Largest file that is shown line by line, in bytes; one above it is named as binary.
const LARGEST_TEXT: u64 = 16 << 20;

/// Last line of a hunk whose file does not end with a newline.
pub(super) const NO_NEWLINE: &str = "\\ No newline at end of file\n";

/// The changeset as a patch. Files that are not text (UTF-8 without zero bytes), or larger than 16 MiB, are only
/// named. The text holds the candidate's own bytes: it is escaped where it is shown on a terminal or in HTML.
pub fn render_patch(changeset: &Changeset, store: &Store) -> Result<String, ChangesetError> {
    let sides = Sides::of(changeset, store)?;
    let mut patch = String::new();
    changeset
        .files()
        .iter()
        .try_for_each(|change| section(change, &sides, &mut patch))?;
    Ok(patch)
}

/// The text of a file; `None` if it is not text.
pub(crate) fn text_of(
    tree: &Sealed,
    path: &TreePath,
    entry: &FileEntry,
) -> Result<Option<String>, ChangesetError> {
    if entry.size > LARGEST_TEXT {
        return Ok(None);
    }
    let text = String::from_utf8(tree.read(path, LARGEST_TEXT)?).ok();
    Ok(text.filter(|text| !text.contains('\0')))
}

fn section(change: &Change, sides: &Sides, patch: &mut String) -> Result<(), ChangesetError> {
    let path = change.path();
    let (before, after) = (
        sides.frozen.manifest().file(path),
        sides.contents.manifest().file(path),
    );
    let (before, after) = match change {
        Change::Added { .. } => (None, after),
        Change::Changed { .. } => (before, after),
        Change::Removed { .. } => (before, None),
    };
    let side = |letter, present: bool| match present {
        true => quote(&format!("{letter}/{}", path.as_str())).into_owned(),
        false => "/dev/null".to_owned(),
    };
    let (old_name, new_name) = (side('a', before.is_some()), side('b', after.is_some()));
    // Writing to a string cannot fail.
    let _ = writeln!(patch, "diff --git {} {}", side('a', true), side('b', true));
    let _ = match (before, after) {
        (None, Some(after)) => writeln!(patch, "new file mode {}", mode(after)),
        (Some(before), None) => writeln!(patch, "deleted file mode {}", mode(before)),
        (Some(before), Some(after)) if before.executable != after.executable => {
            writeln!(patch, "old mode {}\nnew mode {}", mode(before), mode(after))
        }
        _ => Ok(()),
    };
    let text = |tree, entry: Option<&FileEntry>| match entry {
        Some(entry) => text_of(tree, path, entry),
        None => Ok(Some(String::new())),
    };
    if before.map(|file| file.digest) == after.map(|file| file.digest) {
        return Ok(());
    }
    let (Some(old), Some(new)) = (text(&sides.frozen, before)?, text(&sides.contents, after)?) else {
        let _ = writeln!(patch, "Binary files {old_name} and {new_name} differ");
        return Ok(());
    };
    let hunks = hunks(&lines(&old), &lines(&new));
    if !hunks.is_empty() {
        // As git does: a tab ends a name with a space in it, which other tools would cut there.
        let tab = if path.as_str().contains(' ') { "\t" } else { "" };
        let tab = |name: &str| if name == "/dev/null" { "" } else { tab };
        let _ = writeln!(
            patch,
            "--- {old_name}{}\n+++ {new_name}{}",
            tab(&old_name),
            tab(&new_name)
        );
    }
    hunks.iter().for_each(|hunk| write_hunk(hunk, patch));
    Ok(())
}

fn mode(file: &FileEntry) -> &'static str {
    if file.executable { "100755" } else { "100644" }
}

fn write_hunk(hunk: &Hunk<'_>, patch: &mut String) {
    let range = |start: usize, len: usize| match len {
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        _ => format!("{},{len}", start + 1),
    };
    let (old, new) = (
        range(hunk.old_start, hunk.old_len()),
        range(hunk.new_start, hunk.new_len()),
    );
    let _ = writeln!(patch, "@@ -{old} +{new} @@");
    for (mark, line) in &hunk.lines {
        patch.push(match mark {
            Mark::Context => ' ',
            Mark::Removed => '-',
            Mark::Added => '+',
        });
        patch.push_str(line);
        if !line.ends_with('\n') {
            patch.push('\n');
            patch.push_str(NO_NEWLINE);
        }
    }
}
