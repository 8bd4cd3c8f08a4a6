//! The store: sealed trees by their digests.
//!
//! ```text
//! STORE/<hex digest>/manifest     what the tree holds
//! STORE/<hex digest>/tree/        the tree; nobody may write in it
//! STORE/.draft-<random>/          a tree that is being copied; its owner holds a lock (flock(2)) on it
//! ```
//!
//! A draft becomes an entry by one rename, after its bytes are on disk. Whoever dies before leaves a draft without
//! a lock, which the next opening of the store removes.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, fchmod, flock, mkdirat, openat, unlinkat,
};
use rustix::io::Errno;

use super::draft::Draft;
use super::handles;
use super::{Manifest, SealError, Sealed};
use crate::Digest;

pub(super) const DRAFT_PREFIX: &str = ".draft-";
pub(super) const MANIFEST: &str = "manifest";
pub(super) const TREE: &str = "tree";

/// Largest manifest that is read: well above what [`Limits`](super::Limits) admit by default.
const LARGEST_MANIFEST: u64 = 1 << 30;

/// A directory of sealed trees. Nothing but the supervisor may have access to it.
#[derive(Debug)]
pub struct Store {
    pub(super) directory: OwnedFd,
    path: PathBuf,
}

impl Store {
    /// Opens the store at `path`, making the directory if it is missing, and removes what dead processes left.
    pub fn open(path: &Path) -> Result<Self, SealError> {
        let failed = |step| SealError::store(step, path.display().to_string());
        match mkdirat(CWD, path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed("making")(error)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(CWD, path, flags, Mode::empty()).map_err(failed("opening"))?;
        let store = Self { directory, path: path.to_owned() };
        store.sweep()?;
        Ok(store)
    }

    /// Where the store is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The tree with this digest, if the store has it. Its manifest is checked against the digest, its files are
    /// not read: see [`Sealed::check`] and [`Sealed::verify`].
    pub fn get(&self, digest: Digest) -> Result<Option<Sealed>, SealError> {
        let name = digest.hex();
        let failed = |step| SealError::store(step, name.clone());
        let entry = match handles::directory(&self.directory, &name) {
            Ok(entry) => entry,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(failed("opening")(error)),
        };
        let damaged = |why: String| SealError::Damaged { digest, why };
        let file = handles::file(&entry, MANIFEST).map_err(failed("opening the manifest of"))?;
        let mut text = String::new();
        let read = File::from(file).take(LARGEST_MANIFEST).read_to_string(&mut text);
        read.map_err(|error| damaged(format!("its manifest cannot be read: {error}")))?;
        let manifest = Manifest::from_text(&text).map_err(|error| damaged(error.to_string()))?;
        if manifest.digest() != digest {
            return Err(damaged("its manifest is that of another tree".into()));
        }
        let tree = handles::directory(&entry, TREE).map_err(failed("opening the tree of"))?;
        let path = self.path.join(&name).join(TREE);
        Ok(Some(Sealed { digest, manifest, tree, path }))
    }

    /// The digests of all trees, sorted.
    pub fn list(&self) -> Result<Vec<Digest>, SealError> {
        let mut digests: Vec<Digest> =
            self.names()?.iter().filter_map(|name| Digest::from_hex(name).ok()).collect();
        digests.sort_unstable();
        Ok(digests)
    }

    /// A new, empty draft.
    pub(crate) fn draft(&self) -> Result<Draft<'_>, SealError> {
        let _lock = Lock::take(self.directory.as_fd())?;
        Draft::new(self)
    }

    /// Removes drafts whose owners are dead.
    fn sweep(&self) -> Result<(), SealError> {
        let _lock = Lock::take(self.directory.as_fd())?;
        for name in self.names()?.iter().filter(|name| name.starts_with(DRAFT_PREFIX)) {
            let draft =
                handles::directory(&self.directory, name).map_err(SealError::store("opening", name))?;
            match flock(&draft, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => remove_tree(self.directory.as_fd(), name)?,
                Err(Errno::WOULDBLOCK) => {}
                Err(error) => return Err(SealError::store("locking", name)(error)),
            }
        }
        Ok(())
    }

    fn names(&self) -> Result<Vec<String>, SealError> {
        names(self.directory.as_fd()).map_err(SealError::store("listing", self.path.display().to_string()))
    }
}

/// The store's lock, held while drafts are made or swept, so that no draft is seen before it is locked.
struct Lock<'a>(BorrowedFd<'a>);

impl<'a> Lock<'a> {
    fn take(directory: BorrowedFd<'a>) -> Result<Self, SealError> {
        flock(directory, FlockOperation::LockExclusive).map_err(SealError::store("locking", "the store"))?;
        Ok(Self(directory))
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        // The lock goes with the descriptor at the latest.
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}

/// Removes a directory of the store with all that it holds; sealed directories are made writable first.
pub(super) fn remove_tree(parent: BorrowedFd<'_>, name: &str) -> Result<(), SealError> {
    let remove = || -> Result<(), Errno> {
        let directory = handles::directory(parent, name)?;
        fchmod(&directory, Mode::RWXU)?;
        empty(directory.as_fd())?;
        unlinkat(parent, name, AtFlags::REMOVEDIR)
    };
    remove().map_err(SealError::store("removing", name))
}

fn empty(directory: BorrowedFd<'_>) -> Result<(), Errno> {
    for name in names(directory)? {
        match unlinkat(directory, &name, AtFlags::empty()) {
            Err(Errno::ISDIR) => {
                let below = handles::directory(directory, &name)?;
                fchmod(&below, Mode::RWXU)?;
                empty(below.as_fd())?;
                unlinkat(directory, &name, AtFlags::REMOVEDIR)?;
            }
            removed => removed?,
        }
    }
    Ok(())
}

/// The names in a directory of the store; all of them are valid UTF-8, since only we write there.
fn names(directory: BorrowedFd<'_>) -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let dots =
            entry.file_type() == FileType::Directory && matches!(entry.file_name().to_bytes(), b"." | b"..");
        if let (Ok(name), false) = (entry.file_name().to_str(), dots) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}
