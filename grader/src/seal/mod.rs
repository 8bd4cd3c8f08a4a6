//! Sealing: the host's own content-addressed copy of a candidate.
//!
//! A sealed tree holds regular files and directories, copied by handles while whoever wrote them may still be
//! running. What makes it safe is not that the writer is stopped but that the copy is out of reach, and is named
//! by the digest of the bytes that it holds: the same bytes always have the same name.
//!
//! The formats of this module (tree digest, manifest, store) are written down in `FORMATS.md`.

mod copy;
mod destination;
mod draft;
mod error;
mod handles;
mod limits;
mod manifest;
mod path;
mod sealed;
mod store;
#[cfg(test)]
mod tests;
mod walk;

use std::os::fd::BorrowedFd;

use globset::GlobSet;

pub(crate) use copy::{Copier, failure as io_failure};
pub(crate) use destination::Destination;
use draft::CopyAll;
pub(crate) use draft::Draft;
pub use error::SealError;
pub(crate) use handles::directory as open_directory;
pub use limits::Limits;
pub use manifest::{Entry, FileEntry, Manifest, ManifestError};
pub use path::{Escaped, LONGEST_NAME, NameError, TreePath};
pub use sealed::Sealed;
pub use store::Store;
pub(crate) use walk::{Found, Visit, walk};

use crate::Digest;

/// Copies the tree whose root is `tree` into the store.
///
/// Anything but regular files with one link and directories, all on one mount, is refused, as is a tree over the
/// limits and one that changes while it is read. A failure leaves the store as it was.
pub fn seal(tree: BorrowedFd<'_>, store: &Store, limits: &Limits) -> Result<Sealed, SealError> {
    seal_without(tree, &GlobSet::empty(), store, limits)
}

/// [`seal`] without what matches `ignored`, which is not looked at; a directory that matches takes all below it along.
pub fn seal_without(
    tree: BorrowedFd<'_>,
    ignored: &GlobSet,
    store: &Store,
    limits: &Limits,
) -> Result<Sealed, SealError> {
    let mut draft = store.draft()?;
    walk(tree, limits, &mut CopyAll { draft: &mut draft, copier: Copier::until(limits.until), ignored })?;
    draft.publish()
}

/// What the tree whose root is `tree` holds, read by the rules of [`seal`] and copied nowhere.
pub fn read_tree(tree: BorrowedFd<'_>, limits: &Limits) -> Result<Manifest, SealError> {
    struct HashAll {
        manifest: Manifest,
        copier: Copier,
    }

    impl Visit for HashAll {
        fn directory(&mut self, path: &TreePath) -> Result<(), SealError> {
            self.manifest.insert(path.clone(), Entry::Directory);
            Ok(())
        }

        fn file(&mut self, found: &Found<'_>) -> Result<(), SealError> {
            let entry = self.copier.hash(found)?;
            self.manifest.insert(found.path.clone(), entry);
            Ok(())
        }
    }

    let mut seen = HashAll { manifest: Manifest::default(), copier: Copier::until(limits.until) };
    walk(tree, limits, &mut seen)?;
    Ok(seen.manifest)
}

/// Checks that the tree whose root is `tree` has the tree digest `expected`.
pub fn verify_tree(tree: BorrowedFd<'_>, expected: Digest, limits: &Limits) -> Result<(), SealError> {
    let found = read_tree(tree, limits)?.digest();
    if found == expected {
        return Ok(());
    }
    Err(SealError::Digest { path: TreePath::ROOT, expected, found })
}
