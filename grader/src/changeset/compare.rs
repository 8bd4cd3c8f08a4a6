//! From a tree that a candidate wrote to a changeset.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;

use globset::GlobSet;

use super::{Change, Changeset, ChangesetError};
use crate::seal::{
    Copier, Draft, Entry, FileEntry, Found, Limits, Manifest, SealError, Sealed, Store, TreePath, Visit, walk,
};

/// Compares the tree whose root is `tree` with the frozen one, and seals the files that differ.
///
/// The tree is walked by the rules of [`seal`](crate::seal::seal). What matches `excluded` — build outputs, caches —
/// is neither looked at nor counted as changed; a directory that matches takes all below it along.
pub fn compare(
    frozen: &Sealed,
    tree: BorrowedFd<'_>,
    excluded: &GlobSet,
    store: &Store,
    limits: &Limits,
) -> Result<Changeset, ChangesetError> {
    let mut compared = Compare {
        frozen: frozen.manifest(),
        excluded,
        draft: store.draft()?,
        copier: Copier::until(limits.until),
        met: BTreeSet::new(),
        changes: Vec::new(),
    };
    walk(tree, limits, &mut compared)?;
    let Compare { draft, met, mut changes, .. } = compared;
    let gone = frozen.manifest().files().map(|(path, _)| path).filter(|path| !met.contains(*path));
    let counted = gone.filter(|path| !below_excluded(excluded, path));
    changes.extend(counted.map(|path| Change::Removed { path: path.clone() }));
    Ok(Changeset::new(frozen.digest(), draft.publish()?.digest(), changes))
}

/// Compares two sealed trees. The contents of the changeset are the whole second tree.
pub fn between(frozen: &Sealed, tree: &Sealed) -> Changeset {
    let (before, after) = (frozen.manifest(), tree.manifest());
    let differs = |path: &TreePath, entry: &FileEntry| before.file(path) != Some(entry);
    let new = after.files().filter(|(path, entry)| differs(path, entry));
    let mut changes: Vec<Change> = new
        .filter_map(|(path, entry)| {
            Change::new(path.clone(), before, Entry::file(entry.executable, entry.size, entry.digest))
        })
        .collect();
    let gone = before.files().filter(|(path, _)| after.file(path).is_none());
    changes.extend(gone.map(|(path, _)| Change::Removed { path: path.clone() }));
    Changeset::new(frozen.digest(), tree.digest(), changes)
}

fn below_excluded(excluded: &GlobSet, path: &TreePath) -> bool {
    std::iter::successors(Some(path.clone()), TreePath::parent)
        .filter(|path| !path.is_root())
        .any(|path| excluded.is_match(path.as_str()))
}

struct Compare<'a> {
    frozen: &'a Manifest,
    excluded: &'a GlobSet,
    draft: Draft<'a>,
    copier: Copier,
    met: BTreeSet<TreePath>,
    changes: Vec<Change>,
}

impl Visit for Compare<'_> {
    fn skips(&self, path: &TreePath) -> bool {
        self.excluded.is_match(path.as_str())
    }

    fn directory(&mut self, _: &TreePath) -> Result<(), SealError> {
        Ok(())
    }

    fn file(&mut self, found: &Found<'_>) -> Result<(), SealError> {
        let path = found.path;
        self.met.insert(path.clone());
        let before = self.frozen.file(path);
        // Most files are as they were: those are read, but not written.
        if let Some(before) = before.filter(|before| before.size == found.size())
            && self.copier.hash(found)?.as_file() == Some(before)
        {
            return Ok(());
        }
        let after = self.draft.copy(found, &mut self.copier)?;
        if after.as_file() == before {
            return self.draft.discard(path);
        }
        self.changes.extend(Change::new(path.clone(), self.frozen, after));
        Ok(())
    }
}
