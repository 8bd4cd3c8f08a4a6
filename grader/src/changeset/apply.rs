//! From a changeset to a changed tree.

use std::os::fd::BorrowedFd;

use super::{Change, Changeset, ChangesetError, Sides};
use crate::seal::{Copier, Destination, SealError, Store, TreePath, open_directory};

/// Makes the changes in `target`, the root of a fresh copy of the frozen tree.
///
/// Files are removed, and made anew with `O_EXCL`, through handles: nothing in the target is followed or
/// overwritten. A failure leaves the target half changed; it is thrown away then.
pub fn apply(changeset: &Changeset, store: &Store, target: BorrowedFd<'_>) -> Result<(), ChangesetError> {
    let sides = Sides::of(changeset, store)?;
    changeset.result(sides.frozen.manifest())?;
    let root = open_directory(target, "").map_err(SealError::at("opening", &TreePath::ROOT))?;
    let (mut destination, mut copier) = (Destination::new(root), Copier::new());
    for change in changeset.files() {
        match change {
            Change::Added { .. } => {}
            Change::Changed { path, .. } => destination.remove_file(path)?,
            Change::Removed { path } => {
                destination.remove_file(path)?;
                let mut above = path.parent();
                while let Some(directory) = above.filter(|directory| !directory.is_root()) {
                    above = if destination.remove_empty(&directory)? {
                        directory.parent()
                    } else {
                        None
                    };
                }
            }
        }
    }
    for change in changeset.files().iter().filter(|change| change.after().is_some()) {
        let path = change.path();
        // A file may take the name of a directory that held only directories.
        let frozen = sides.frozen.manifest();
        let held: Vec<&TreePath> = frozen.below(path).map(|(below, _)| below).collect();
        if frozen.file(path).is_none() && frozen.get(path).is_some() {
            for directory in held.into_iter().rev().chain([path]) {
                destination.remove_empty(directory)?;
            }
        }
        sides.contents.copy_file(path, &mut destination, &mut copier)?;
    }
    Ok(())
}
