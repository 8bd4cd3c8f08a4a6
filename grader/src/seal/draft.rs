//! A tree on its way into the store.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};

use globset::GlobSet;
use rustix::fs::{FlockOperation, Mode, fchmod, flock, fsync, mkdirat, renameat, syncfs};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use super::copy::{Copier, failure};
use super::destination::Destination;
use super::handles;
use super::store::{DRAFT_PREFIX, MANIFEST, Store, TREE, remove_tree};
use super::walk::{Found, Visit};
use super::{Entry, Manifest, SealError, Sealed, TreePath};
use crate::Digest;

/// From this many files on, one syncfs(2) is cheaper than an fsync(2) each, although it also writes what others
/// have left to be written.
const MANY_FILES: usize = 64;

/// A tree that is being written. Dropped before [`Draft::publish`], it leaves nothing behind.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    store: &'a Store,
    name: String,
    /// Holds the lock that tells the draft from a dead one.
    entry: OwnedFd,
    destination: Destination,
    manifest: Manifest,
}

impl<'a> Draft<'a> {
    pub(super) fn new(store: &'a Store) -> Result<Self, SealError> {
        let mut random = [0; 16];
        getrandom(&mut random, GetRandomFlags::empty()).map_err(SealError::store("naming", "a draft"))?;
        let name = format!("{DRAFT_PREFIX}{:032x}", u128::from_ne_bytes(random));
        let make = || -> Result<(OwnedFd, OwnedFd), Errno> {
            mkdirat(&store.directory, &name, Mode::RWXU)?;
            let entry = handles::directory(&store.directory, &name)?;
            flock(&entry, FlockOperation::NonBlockingLockExclusive)?;
            mkdirat(&entry, TREE, Mode::RWXU)?;
            let tree = handles::directory(&entry, TREE)?;
            Ok((entry, tree))
        };
        let (entry, tree) = make().map_err(SealError::store("making", &name))?;
        Ok(Self { store, name, entry, destination: Destination::new(tree), manifest: Manifest::default() })
    }

    /// Copies a file into the draft and says what the copy is.
    pub(crate) fn copy(&mut self, found: &Found<'_>, copier: &mut Copier) -> Result<Entry, SealError> {
        let target = self.destination.create(found.path)?;
        let entry = copier.copy(found, &target)?;
        self.keep(found.path, &target, entry)?;
        Ok(entry)
    }

    /// Copies a file of a sealed tree into the draft.
    pub(super) fn take(
        &mut self,
        sealed: &Sealed,
        path: &TreePath,
        copier: &mut Copier,
    ) -> Result<(), SealError> {
        let (entry, target) = sealed.copy_bytes(path, &mut self.destination, copier)?;
        self.keep(path, &target, Entry::file(entry.executable, entry.size, entry.digest))
    }

    /// Writes a file of given bytes.
    pub(crate) fn write(
        &mut self,
        path: &TreePath,
        executable: bool,
        bytes: &[u8],
    ) -> Result<Entry, SealError> {
        let mut target = self.destination.create(path)?;
        target.write_all(bytes).map_err(failure("writing", path))?;
        let entry = Entry::file(executable, bytes.len() as u64, Digest::of(bytes));
        self.keep(path, &target, entry)?;
        Ok(entry)
    }

    /// Takes a file out again.
    pub(crate) fn discard(&mut self, path: &TreePath) -> Result<(), SealError> {
        self.destination.remove_file(path)?;
        self.manifest.remove(path);
        let mut directory = path.parent();
        while let Some(path) = directory.filter(|path| !path.is_root() && self.manifest.get(path).is_none()) {
            self.destination.remove_empty(&path)?;
            directory = path.parent();
        }
        Ok(())
    }

    fn keep(&mut self, path: &TreePath, target: &File, entry: Entry) -> Result<(), SealError> {
        let executable = entry.as_file().is_some_and(|file| file.executable);
        fchmod(target, handles::sealed_mode(executable))
            .map_err(SealError::at("setting the mode of", path))?;
        self.manifest.insert(path.clone(), entry);
        Ok(())
    }

    /// Makes the draft an entry of the store, or gives the entry that the store already has.
    pub(crate) fn publish(mut self) -> Result<Sealed, SealError> {
        let digest = self.manifest.digest();
        if let Some(present) = self.store.get(digest)? {
            present.check()?;
            return Ok(present);
        }
        self.finish()?;
        let name = digest.hex();
        match renameat(&self.store.directory, &self.name, &self.store.directory, &name) {
            Ok(()) => self.name.clear(),
            // Another process sealed the same tree a moment ago.
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(error) => return Err(SealError::store("publishing", name)(error)),
        }
        fsync(&self.store.directory).map_err(SealError::store("syncing", "the store"))?;
        let missing = || SealError::Damaged { digest, why: "it vanished as it was published".into() };
        self.store.get(digest)?.ok_or_else(missing)
    }

    /// Writes the manifest, takes the write permissions and waits for the disk.
    fn finish(&mut self) -> Result<(), SealError> {
        let failed = |step| SealError::store(step, MANIFEST);
        let mut manifest = File::from(handles::new_file(&self.entry, MANIFEST).map_err(failed("creating"))?);
        let written = manifest.write_all(self.manifest.to_text().as_bytes());
        written.map_err(|error| {
            failed("writing")(error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error))
        })?;
        fchmod(&manifest, handles::sealed_mode(false)).map_err(failed("setting the mode of"))?;

        let few = self.manifest.files().count() <= MANY_FILES;
        if few {
            fsync(&manifest).map_err(failed("syncing"))?;
            for (path, _) in self.manifest.files() {
                let parent = path.parent().unwrap_or(TreePath::ROOT);
                let file = handles::file(self.destination.handle(&parent)?, path.name());
                let file = file.map_err(SealError::at("opening", path))?;
                fsync(&file).map_err(SealError::at("syncing", path))?;
            }
        }
        let root = [TreePath::ROOT];
        let below = self.manifest.entries().filter(|(_, entry)| **entry == Entry::Directory);
        for path in below.map(|(path, _)| path).chain(&root) {
            let directory = self.destination.handle(path)?;
            fchmod(directory, handles::sealed_mode(true))
                .map_err(SealError::at("setting the mode of", path))?;
            if few {
                fsync(directory).map_err(SealError::at("syncing", path))?;
            }
        }
        fchmod(&self.entry, handles::sealed_mode(true))
            .map_err(SealError::store("setting the mode of", &self.name))?;
        let synced = if few { fsync(&self.entry) } else { syncfs(&self.entry) };
        synced.map_err(SealError::store("syncing", &self.name))
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.name.is_empty() {
            // What cannot be removed now is removed when the store is opened next.
            let _ = remove_tree(self.store.directory.as_fd(), &self.name);
        }
    }
}

/// Copies a whole tree into a draft.
pub(crate) struct CopyAll<'a, 'b> {
    pub(crate) draft: &'b mut Draft<'a>,
    pub(crate) copier: Copier,
    pub(crate) ignored: &'b GlobSet,
}

impl Visit for CopyAll<'_, '_> {
    fn skips(&self, path: &TreePath) -> bool {
        self.ignored.is_match(path.as_str())
    }

    fn directory(&mut self, path: &TreePath) -> Result<(), SealError> {
        self.draft.destination.directory(path)?;
        self.draft.manifest.insert(path.clone(), Entry::Directory);
        Ok(())
    }

    fn file(&mut self, found: &Found<'_>) -> Result<(), SealError> {
        self.draft.copy(found, &mut self.copier)?;
        Ok(())
    }
}
