//! A tree in the store.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};

use super::copy::{Copier, failure};
use super::destination::Destination;
use super::handles;
use super::manifest::FileEntry;
use super::walk::{Found, Source, Visit, walk};
use super::{Entry, Limits, Manifest, SealError, Store, TreePath, verify_tree};
use crate::Digest;

/// A sealed tree: the store's own copy, which nobody changes, and what it holds.
#[derive(Debug)]
pub struct Sealed {
    pub(super) digest: Digest,
    pub(super) manifest: Manifest,
    pub(super) tree: OwnedFd,
    pub(super) path: PathBuf,
}

impl Sealed {
    /// The tree digest, which is its name in the store.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// What it holds.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// A handle of the tree's root.
    pub fn handle(&self) -> BorrowedFd<'_> {
        self.tree.as_fd()
    }

    /// Where the tree's root is, for a read-only mount.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file of the tree for reading.
    pub fn open(&self, path: &TreePath) -> Result<File, SealError> {
        Ok(self.source(path)?.1.file)
    }

    /// The bytes of a file, which are checked against its digest. Refuses a file of more than `most` bytes.
    pub fn read(&self, path: &TreePath, most: u64) -> Result<Vec<u8>, SealError> {
        let (entry, source) = self.source(path)?;
        if entry.size > most {
            let (path, what) = (path.clone(), "bytes in the file:");
            return Err(SealError::Limit { path, what, found: entry.size, limit: most });
        }
        let mut bytes = Vec::new();
        source.file.take(most).read_to_end(&mut bytes).map_err(failure("reading", path))?;
        same(path, entry.digest, Digest::of(&bytes))?;
        Ok(bytes)
    }

    /// Writes the tree into the empty directory `target`, with usual modes (0755 and 0644), and checks each file's
    /// digest on the way. Blocks are shared where the file system does that.
    pub fn copy_to(&self, target: BorrowedFd<'_>) -> Result<(), SealError> {
        let root = handles::directory(target, "").map_err(SealError::at("opening", &TreePath::ROOT))?;
        let (mut destination, mut copier) = (Destination::new(root), Copier::new());
        for (path, entry) in self.manifest.entries() {
            match entry {
                Entry::Directory => destination.directory(path)?,
                Entry::File(_) => self.copy_file(path, &mut destination, &mut copier)?,
            }
        }
        Ok(())
    }

    /// Writes one file of the tree as a new file of `destination`.
    pub(crate) fn copy_file(
        &self,
        path: &TreePath,
        destination: &mut Destination,
        copier: &mut Copier,
    ) -> Result<(), SealError> {
        let (entry, target) = self.copy_bytes(path, destination, copier)?;
        let mode = Mode::from_raw_mode(if entry.executable { 0o755 } else { 0o644 });
        fchmod(&target, mode).map_err(SealError::at("setting the mode of", path))
    }

    /// Seals some of the files as a tree of their own.
    pub fn part(&self, store: &Store, keep: impl Fn(&TreePath) -> bool) -> Result<Sealed, SealError> {
        let (mut draft, mut copier) = (store.draft()?, Copier::new());
        for (path, _) in self.manifest.files().filter(|(path, _)| keep(path)) {
            draft.take(self, path, &mut copier)?;
        }
        draft.publish()
    }

    /// Writes the bytes of a file as a new file of `destination`, which it leaves with no particular mode.
    pub(super) fn copy_bytes(
        &self,
        path: &TreePath,
        destination: &mut Destination,
        copier: &mut Copier,
    ) -> Result<(FileEntry, File), SealError> {
        let (entry, source) = self.source(path)?;
        let target = destination.create(path)?;
        same(path, entry.digest, copier.fill(&source, &target, path)?)?;
        Ok((entry, target))
    }

    /// Checks names, kinds, sizes and modes against the manifest, without reading any file.
    pub fn check(&self) -> Result<(), SealError> {
        let damaged = |why| SealError::Damaged { digest: self.digest, why };
        let mut seen = Outline { manifest: &self.manifest, met: 0, wrong: None };
        walk(self.handle(), &Limits::NONE, &mut seen).map_err(|error| damaged(error.to_string()))?;
        match seen.wrong {
            Some(path) => Err(damaged(format!("{path} is not as it was sealed"))),
            None if seen.met != self.manifest.entries().count() => Err(damaged("an entry is missing".into())),
            None => Ok(()),
        }
    }

    /// Reads the whole tree and checks it against the digest.
    pub fn verify(&self) -> Result<(), SealError> {
        verify_tree(self.handle(), self.digest, &Limits::NONE)
    }

    fn source(&self, path: &TreePath) -> Result<(FileEntry, Source), SealError> {
        let absent = || SealError::Absent { path: path.clone() };
        let entry = *self.manifest.file(path).ok_or_else(absent)?;
        let file =
            File::from(handles::file(&self.tree, path.as_str()).map_err(SealError::at("opening", path))?);
        let source = Source::of(file, path)?;
        if source.size != entry.size {
            return Err(SealError::Damaged { digest: self.digest, why: format!("{path} has another size") });
        }
        Ok((entry, source))
    }
}

fn same(path: &TreePath, expected: Digest, found: Digest) -> Result<(), SealError> {
    if found == expected {
        return Ok(());
    }
    Err(SealError::Digest { path: path.clone(), expected, found })
}

/// Compares what can be seen from outside.
struct Outline<'a> {
    manifest: &'a Manifest,
    met: usize,
    wrong: Option<TreePath>,
}

impl Outline<'_> {
    fn meet(&mut self, path: &TreePath, right: bool) {
        self.met += 1;
        if !right && self.wrong.is_none() {
            self.wrong = Some(path.clone());
        }
    }
}

impl Visit for Outline<'_> {
    fn directory(&mut self, path: &TreePath) -> Result<(), SealError> {
        self.meet(path, self.manifest.get(path) == Some(&Entry::Directory));
        Ok(())
    }

    fn file(&mut self, found: &Found<'_>) -> Result<(), SealError> {
        let entry = self.manifest.file(found.path);
        let same = |file: &FileEntry| {
            file.size == found.size() && found.mode() == handles::sealed_mode(file.executable)
        };
        self.meet(found.path, entry.is_some_and(same));
        Ok(())
    }
}
