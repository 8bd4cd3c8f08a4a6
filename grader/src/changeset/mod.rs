//! Changesets: the host-computed difference between a tree and the frozen one.
//!
//! A changeset lists files: added, changed, removed. Directories come and go with the files in them; an empty
//! directory is no difference. The bytes of added and changed files lie in the store as a sealed tree of their
//! own, and the frozen tree lies there too, so a changeset and a store are all that its users need:
//!
//! | from | to | by |
//! | --- | --- | --- |
//! | a tree | a changeset | [`compare`] |
//! | two sealed trees | a changeset | [`between`] |
//! | a patch (text) | a changeset | [`import_patch`], which guesses nothing |
//! | a changeset | a patch, for people | [`render_patch`] |
//! | a changeset | a changed tree | [`apply`] |

mod apply;
mod compare;
mod error;
mod hunks;
mod import;
mod parse;
mod quote;
mod render;
#[cfg(test)]
mod tests;

pub use apply::apply;
pub use compare::{between, compare};
pub use error::{ChangesetError, PatchError, PatchFault};
pub(crate) use hunks::{Hunk, Mark, hunks, lines};
pub use import::{LARGEST_PATCH, import_patch};
pub use render::render_patch;
pub(crate) use render::text_of;

use serde::{Deserialize, Serialize};

use crate::Digest;
use crate::seal::{Entry, Manifest, Sealed, Store, TreePath};

/// The version of the format.
const VERSION: u32 = 1;

/// The difference between a tree and the frozen one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Changeset {
    contents: Digest,
    files: Vec<Change>,
    frozen: Digest,
    version: u32,
}

/// What happened to one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case", deny_unknown_fields)]
pub enum Change {
    /// The frozen tree has no such file.
    Added {
        /// The digest of its bytes.
        digest: Digest,
        /// Whether its owner may execute it.
        executable: bool,
        /// Its path.
        path: TreePath,
        /// Its size in bytes.
        size: u64,
    },
    /// The frozen tree has the file with other bytes, or with another executable bit.
    Changed {
        /// The digest of its new bytes.
        digest: Digest,
        /// Whether its owner may now execute it.
        executable: bool,
        /// Its path.
        path: TreePath,
        /// Its new size in bytes.
        size: u64,
    },
    /// The file is gone.
    Removed {
        /// Its path.
        path: TreePath,
    },
}

impl Change {
    /// The file.
    pub fn path(&self) -> &TreePath {
        match self {
            Self::Added { path, .. } | Self::Changed { path, .. } | Self::Removed { path } => path,
        }
    }

    /// What the file is afterwards; `None` if it is gone.
    pub fn after(&self) -> Option<Entry> {
        match self {
            Self::Added { digest, executable, size, .. } | Self::Changed { digest, executable, size, .. } => {
                Some(Entry::file(*executable, *size, *digest))
            }
            Self::Removed { .. } => None,
        }
    }

    fn new(path: TreePath, frozen: &Manifest, after: Entry) -> Option<Self> {
        let file = after.as_file()?;
        let (digest, executable, size) = (file.digest, file.executable, file.size);
        Some(match frozen.file(&path) {
            None => Self::Added { digest, executable, path, size },
            Some(_) => Self::Changed { digest, executable, path, size },
        })
    }
}

impl Changeset {
    fn new(frozen: Digest, contents: Digest, mut files: Vec<Change>) -> Self {
        files.sort_unstable_by(|a, b| a.path().cmp(b.path()));
        Self { contents, files, frozen, version: VERSION }
    }

    /// The tree digest of the frozen tree.
    pub fn frozen(&self) -> Digest {
        self.frozen
    }

    /// The tree digest of the sealed tree that holds the added and changed files.
    pub fn contents(&self) -> Digest {
        self.contents
    }

    /// The changes, sorted by path.
    pub fn files(&self) -> &[Change] {
        &self.files
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The one way to write a changeset: JSON in the canonical form of RFC 8785 (keys sorted, no white space).
    pub fn to_json(&self) -> Result<Vec<u8>, ChangesetError> {
        // The fields are declared in the order of their names, and serde_json escapes as RFC 8785 asks.
        serde_json::to_vec(self).map_err(|error| ChangesetError::Json(error.to_string()))
    }

    /// Reads what [`Changeset::to_json`] writes, and nothing else.
    pub fn from_json(bytes: &[u8]) -> Result<Self, ChangesetError> {
        let read: Self =
            serde_json::from_slice(bytes).map_err(|error| ChangesetError::Json(error.to_string()))?;
        let sorted = read.files.is_sorted_by(|a, b| a.path() < b.path());
        if read.version != VERSION || !sorted || read.to_json()? != bytes {
            return Err(ChangesetError::Json("it is not in the canonical form of version 1".into()));
        }
        Ok(read)
    }

    /// The digest of the canonical JSON: the name of the candidate.
    pub fn digest(&self) -> Result<Digest, ChangesetError> {
        Ok(Digest::of(&self.to_json()?))
    }

    /// What the frozen tree holds once the changes are made; an error if they do not fit it.
    pub fn result(&self, frozen: &Manifest) -> Result<Manifest, ChangesetError> {
        result(&self.files, frozen)
    }
}

fn result(changes: &[Change], frozen: &Manifest) -> Result<Manifest, ChangesetError> {
    let conflict = |path: &TreePath, why| ChangesetError::Conflict { path: path.clone(), why };
    let mut tree = frozen.clone();
    for change in changes {
        let path = change.path();
        match (change, frozen.file(path)) {
            (Change::Added { .. }, None) => {}
            (Change::Added { .. }, Some(_)) => return Err(conflict(path, "the frozen tree has it already")),
            (_, Some(_)) => tree.remove(path),
            (_, None) => return Err(conflict(path, "the frozen tree has no such file")),
        }
    }
    for change in changes {
        let (path, Some(entry)) = (change.path(), change.after()) else {
            continue;
        };
        if std::iter::successors(path.parent(), TreePath::parent).any(|path| tree.file(&path).is_some()) {
            return Err(conflict(path, "a file has the name of one of its directories"));
        }
        if tree.below(path).any(|(_, below)| below.as_file().is_some()) {
            return Err(conflict(path, "it is a directory that holds files"));
        }
        let empty: Vec<TreePath> = tree.below(path).map(|(below, _)| below.clone()).collect();
        empty.iter().for_each(|below| tree.forget(below));
        tree.insert(path.clone(), entry);
    }
    Ok(tree)
}

/// The two sealed trees that a changeset speaks of.
pub(crate) struct Sides {
    /// The frozen tree.
    pub(crate) frozen: Sealed,
    /// The added and changed files.
    pub(crate) contents: Sealed,
}

impl Sides {
    /// Finds them in the store, and checks that the contents are those of the changeset.
    pub(crate) fn of(changeset: &Changeset, store: &Store) -> Result<Self, ChangesetError> {
        let get = |digest| store.get(digest)?.ok_or(ChangesetError::Missing { digest });
        let sides = Self { frozen: get(changeset.frozen)?, contents: get(changeset.contents)? };
        for change in &changeset.files {
            let path = change.path();
            if let Some(after) = change.after()
                && sides.contents.manifest().get(path) != Some(&after)
            {
                return Err(ChangesetError::Conflict {
                    path: path.clone(),
                    why: "its contents are another file's",
                });
            }
        }
        Ok(sides)
    }
}
