//! Writing a tree through a handle of its root.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, fchmod, mkdirat, unlinkat};
use rustix::io::Errno;

use super::handles;
use super::{SealError, TreePath};

const DIRECTORY: Mode = Mode::from_raw_mode(0o755);

/// A directory that files are written beneath. No link in it is followed, and no file in it is overwritten.
#[derive(Debug)]
pub(crate) struct Destination {
    root: OwnedFd,
    /// The directory used last: files of one directory mostly come one after the other.
    last: Option<(TreePath, OwnedFd)>,
}

impl Destination {
    pub(crate) fn new(root: OwnedFd) -> Self {
        Self { root, last: None }
    }

    /// Makes a directory and those above it, where they are missing.
    pub(crate) fn directory(&mut self, path: &TreePath) -> Result<(), SealError> {
        if self.handle(path).is_ok() {
            return Ok(());
        }
        let parent = path.parent().unwrap_or(TreePath::ROOT);
        self.directory(&parent)?;
        mkdirat(self.handle(&parent)?, path.name(), Mode::RWXU).map_err(SealError::at("making", path))?;
        // The mode given to mkdirat(2) is subject to the umask.
        fchmod(self.handle(path)?, DIRECTORY).map_err(SealError::at("setting the mode of", path))
    }

    /// Makes a new, empty file that only its owner can read and write.
    pub(crate) fn create(&mut self, path: &TreePath) -> Result<File, SealError> {
        let parent = path.parent().unwrap_or(TreePath::ROOT);
        self.directory(&parent)?;
        let file = handles::new_file(self.handle(&parent)?, path.name());
        Ok(file.map_err(SealError::at("creating", path))?.into())
    }

    /// Removes a file.
    pub(crate) fn remove_file(&mut self, path: &TreePath) -> Result<(), SealError> {
        let parent = path.parent().unwrap_or(TreePath::ROOT);
        unlinkat(self.handle(&parent)?, path.name(), AtFlags::empty())
            .map_err(SealError::at("removing", path))
    }

    /// Removes a directory if it is there and empty, and says whether it did.
    pub(crate) fn remove_empty(&mut self, path: &TreePath) -> Result<bool, SealError> {
        self.last = None;
        let Some(parent) = path.parent() else {
            return Ok(false);
        };
        // Where its own directory is gone, so is it.
        let Ok(parent) = self.handle(&parent) else {
            return Ok(false);
        };
        match unlinkat(parent, path.name(), AtFlags::REMOVEDIR) {
            Ok(()) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(error) => Err(SealError::at("removing", path)(error)),
        }
    }

    /// A handle of the directory `path`.
    pub(crate) fn handle(&mut self, path: &TreePath) -> Result<&OwnedFd, SealError> {
        if path.is_root() {
            return Ok(&self.root);
        }
        let last = match self.last.take() {
            Some(last) if last.0 == *path => last,
            _ => {
                let opened = handles::directory(&self.root, path.as_str());
                (path.clone(), opened.map_err(SealError::at("opening", path))?)
            }
        };
        Ok(&self.last.insert(last).1)
    }
}
