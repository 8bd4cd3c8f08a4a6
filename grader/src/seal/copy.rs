//! Copying and hashing one file at a time.
//!
//! The digest is always that of the bytes that landed in the copy, never of a second reading of the source: where
//! the file system shares blocks (`FICLONE`) the finished copy is hashed, else each block is hashed between its
//! reading and its writing. copy_file_range(2) would save nothing here, since the bytes must be read anyway.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use rustix::fs::{SeekFrom, ioctl_ficlone};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::limits::in_time;
use super::manifest::Entry;
use super::walk::{Found, Source};
use super::{SealError, TreePath};
use crate::Digest;

/// Bytes read and written at once: small enough to be still in the cache when they are hashed and written.
const BLOCK: usize = 256 << 10;

/// Copies and hashes files with one buffer.
pub(crate) struct Copier {
    block: Box<[u8]>,
    zeros: Box<[u8]>,
    /// Whether sharing blocks has not failed yet.
    clones: bool,
    until: Option<Instant>,
}

impl Copier {
    pub(crate) fn new() -> Self {
        Self::until(None)
    }

    /// One that stops at this time.
    pub(crate) fn until(until: Option<Instant>) -> Self {
        Self { block: vec![0; BLOCK].into(), zeros: vec![0; BLOCK].into(), clones: true, until }
    }

    /// What a file is, without copying it.
    pub(crate) fn hash(&mut self, found: &Found<'_>) -> Result<Entry, SealError> {
        found.steadily(|found, source| {
            let digest = self.stream(source, None, found.path)?;
            Ok(Entry::file(found.executable(), source.size, digest))
        })
    }

    /// Copies a file into the empty file `target`, and says what the copy is.
    pub(crate) fn copy(&mut self, found: &Found<'_>, target: &File) -> Result<Entry, SealError> {
        found.steadily(|found, source| {
            let digest = self.fill(source, target, found.path)?;
            Ok(Entry::file(found.executable(), source.size, digest))
        })
    }

    /// Copies an open file whose content nobody changes any more, and gives the digest of the copy.
    pub(crate) fn fill(
        &mut self,
        source: &Source,
        target: &File,
        path: &TreePath,
    ) -> Result<Digest, SealError> {
        // A second attempt starts over. Truncating a file that is empty anyway would make ext4 write it out when it
        // is closed (`auto_da_alloc`), which for many small files costs more than all the rest.
        if target.metadata().map_err(failure("reading the size of the copy of", path))?.len() > 0 {
            target.set_len(0).map_err(failure("emptying the copy of", path))?;
        }
        if self.clones && source.size > 0 {
            match ioctl_ficlone(target, &source.file) {
                Ok(()) => return self.hash_clone(source, target, path),
                // Different file systems, or one that shares no blocks: no file of this tree will do better.
                Err(_) => self.clones = false,
            }
        }
        self.stream(source, Some(target), path)
    }

    /// The digest of a clone, which must be as large as its source was.
    fn hash_clone(&mut self, source: &Source, target: &File, path: &TreePath) -> Result<Digest, SealError> {
        let size = target.metadata().map_err(failure("reading the size of the copy of", path))?.len();
        if size != source.size {
            return Err(SealError::Changed { path: path.clone() });
        }
        let (mut hash, mut at) = (Sha256::new(), 0);
        while at < size {
            let read = self.read(target, at, size, path)?;
            hash.update(&self.block[..read]);
            at += read as u64;
        }
        Ok(finish(hash))
    }

    /// Hashes a source and, where a target is given, writes it there; holes stay holes.
    fn stream(
        &mut self,
        source: &Source,
        target: Option<&File>,
        path: &TreePath,
    ) -> Result<Digest, SealError> {
        let (mut hash, mut at) = (Sha256::new(), 0);
        while at < source.size {
            let (data, hole) = if source.sparse { extent(source, at, path)? } else { (at, source.size) };
            while at < data {
                in_time(self.until, path)?;
                let zeros = self.zeros.len().min(usize::try_from(data - at).unwrap_or(BLOCK));
                hash.update(&self.zeros[..zeros]);
                at += zeros as u64;
            }
            while at < hole {
                let read = self.read(&source.file, at, hole, path)?;
                let block = &self.block[..read];
                hash.update(block);
                if let Some(target) = target {
                    target.write_all_at(block, at).map_err(failure("writing the copy of", path))?;
                }
                at += read as u64;
            }
        }
        if let Some(target) = target.filter(|_| source.sparse) {
            target.set_len(source.size).map_err(failure("sizing the copy of", path))?;
        }
        Ok(finish(hash))
    }

    /// Reads at least one byte and at most up to `end`; a file that ends before it has changed.
    fn read(&mut self, file: &File, at: u64, end: u64, path: &TreePath) -> Result<usize, SealError> {
        in_time(self.until, path)?;
        let most = BLOCK.min(usize::try_from(end - at).unwrap_or(BLOCK));
        loop {
            match file.read_at(&mut self.block[..most], at) {
                Ok(0) => return Err(SealError::Changed { path: path.clone() }),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done.map_err(failure("reading", path)),
            }
        }
    }
}

/// Where the next data at or after `at` starts and where it ends, both at most the file's size.
fn extent(source: &Source, at: u64, path: &TreePath) -> Result<(u64, u64), SealError> {
    let seek = |from| match rustix::fs::seek(&source.file, from) {
        Ok(place) => Ok(place.min(source.size)),
        // lseek(2): no data after this offset.
        Err(Errno::NXIO) => Ok(source.size),
        Err(error) => Err(SealError::at("looking for holes in", path)(error)),
    };
    let data = seek(SeekFrom::Data(at))?;
    let hole = if data < source.size { seek(SeekFrom::Hole(data))? } else { data };
    if data < at || (hole <= at && hole < source.size) {
        return Err(SealError::Changed { path: path.clone() });
    }
    Ok((data, hole))
}

fn finish(hash: Sha256) -> Digest {
    <[u8; 32]>::from(hash.finalize()).into()
}

/// Names a failed read or write.
pub(crate) fn failure(step: &'static str, path: &TreePath) -> impl FnOnce(io::Error) -> SealError {
    let path = path.clone();
    move |error| {
        let source = error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
        SealError::Entry { step, path, source }
    }
}
