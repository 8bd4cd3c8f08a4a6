//! The walk over a tree that somebody else wrote, and may still be writing.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, Mode, RawDir, Stat};

use super::handles::{self, State};
use super::limits::Budget;
use super::{Escaped, Limits, SealError, TreePath};

/// Bytes of directory entries that are read at once.
const LISTING: usize = 32 << 10;

/// What a walk does with the entries it meets. Entries come in the order of [`TreePath`], a directory before what
/// it holds.
pub(crate) trait Visit {
    /// Whether an entry, and all below it, is passed over without being looked at.
    fn skips(&self, _path: &TreePath) -> bool {
        false
    }

    /// A directory below the root.
    fn directory(&mut self, path: &TreePath) -> Result<(), SealError>;

    /// A regular file with one link, within the limits.
    fn file(&mut self, found: &Found<'_>) -> Result<(), SealError>;
}

/// A regular file that a walk has met and not yet opened.
pub(crate) struct Found<'a> {
    /// Where it is.
    pub(crate) path: &'a TreePath,
    directory: BorrowedFd<'a>,
    stat: Stat,
}

/// A file opened for reading, in the state in which it must still be afterwards.
pub(crate) struct Source {
    pub(crate) file: File,
    pub(crate) size: u64,
    /// Whether the file has holes.
    pub(crate) sparse: bool,
    state: State,
}

impl Source {
    /// An open file as it is now.
    pub(crate) fn of(file: File, path: &TreePath) -> Result<Self, SealError> {
        let stat = handles::stat(file.as_fd(), path)?;
        let size = stat.st_size.cast_unsigned();
        Ok(Self {
            file,
            size,
            sparse: allocated(&stat) < size,
            state: State::of(&stat),
        })
    }
}

impl<'a> Found<'a> {
    /// Its size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.stat.st_size.cast_unsigned()
    }

    /// Whether its owner may execute it.
    pub(crate) fn executable(&self) -> bool {
        self.stat.st_mode & 0o100 != 0
    }

    /// Its permission bits.
    pub(crate) fn mode(&self) -> Mode {
        Mode::from_raw_mode(self.stat.st_mode)
    }

    /// Opens it, if it is still the same.
    pub(crate) fn open(&self) -> Result<Source, SealError> {
        let opened = handles::file(self.directory, self.path.name());
        let source = Source::of(
            File::from(opened.map_err(handles::name_error("opening", self.path))?),
            self.path,
        )?;
        if source.state != State::of(&self.stat) {
            return Err(SealError::Changed {
                path: self.path.clone(),
            });
        }
        Ok(source)
    }

    /// The file as it is now, when it has changed since it was met. It was counted with its size, so it may not
    /// have grown.
    fn again(&self) -> Result<Found<'a>, SealError> {
        let stat = look(self.directory, self.path)?;
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        if !regular || stat.st_size > self.stat.st_size {
            return Err(SealError::Changed {
                path: self.path.clone(),
            });
        }
        Ok(Found {
            path: self.path,
            directory: self.directory,
            stat,
        })
    }

    /// Does `read` on the opened file, and once more if the file changed meanwhile.
    pub(crate) fn steadily<T>(
        &self,
        mut read: impl FnMut(&Self, &Source) -> Result<T, SealError>,
    ) -> Result<T, SealError> {
        let mut attempt = |found: &Self| {
            let source = found.open()?;
            let value = read(found, &source)?;
            let after = State::of(&handles::stat(source.file.as_fd(), self.path)?);
            if after == source.state {
                Ok(value)
            } else {
                Err(SealError::Changed {
                    path: self.path.clone(),
                })
            }
        };
        match attempt(self) {
            Err(SealError::Changed { .. }) => attempt(&self.again()?),
            done => done,
        }
    }
}

/// Walks the tree below `root`.
pub(crate) fn walk(root: BorrowedFd<'_>, limits: &Limits, visit: &mut dyn Visit) -> Result<(), SealError> {
    let top = TreePath::ROOT;
    let root = handles::directory(root, "").map_err(handles::name_error("opening", &top))?;
    directory(root.as_fd(), &top, &mut Budget::new(limits), visit)
}

fn directory(
    handle: BorrowedFd<'_>,
    path: &TreePath,
    budget: &mut Budget,
    visit: &mut dyn Visit,
) -> Result<(), SealError> {
    budget.directory(path)?;
    let before = State::of(&handles::stat(handle, path)?);
    for entry in list(handle, path, budget, visit)? {
        let stat = look(handle, &entry)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            visit.directory(&entry)?;
            let opened = handles::directory(handle, entry.name());
            let below = opened.map_err(handles::name_error("opening", &entry))?;
            directory(below.as_fd(), &entry, budget, visit)?;
        } else {
            budget.file(&entry, stat.st_size.cast_unsigned(), allocated(&stat))?;
            visit.file(&Found {
                path: &entry,
                directory: handle,
                stat,
            })?;
        }
    }
    if State::of(&handles::stat(handle, path)?) != before {
        return Err(SealError::Changed { path: path.clone() });
    }
    Ok(())
}

/// The paths of a directory's entries, sorted. No more are read than the budget allows.
fn list(
    handle: BorrowedFd<'_>,
    path: &TreePath,
    budget: &mut Budget,
    visit: &dyn Visit,
) -> Result<Vec<TreePath>, SealError> {
    let mut entries = Vec::new();
    let mut buffer = Vec::with_capacity(LISTING);
    let mut listing = RawDir::new(handle, buffer.spare_capacity_mut());
    while let Some(entry) = listing.next() {
        let entry = entry.map_err(SealError::at("listing", path))?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let refused = |why| SealError::Name {
            directory: path.clone(),
            name: Escaped::new(name),
            why,
        };
        let text = str::from_utf8(name).map_err(|_| refused(super::NameError::Encoding))?;
        let entry = path.join(text).map_err(refused)?;
        if visit.skips(&entry) {
            continue;
        }
        budget.entry(&entry)?;
        entries.push(entry);
    }
    entries.sort_unstable();
    Ok(entries)
}

/// The state of a directory's entry, which is a directory or a regular file with one link.
fn look(directory: BorrowedFd<'_>, path: &TreePath) -> Result<Stat, SealError> {
    let handle =
        handles::anything(directory, path.name()).map_err(handles::name_error("looking at", path))?;
    let stat = handles::stat(handle.as_fd(), path)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Ok(stat),
        FileType::RegularFile if stat.st_nlink == 1 => Ok(stat),
        FileType::RegularFile => Err(SealError::Links {
            path: path.clone(),
            links: stat.st_nlink,
        }),
        _ => Err(SealError::Kind {
            path: path.clone(),
            kind: handles::kind(stat.st_mode),
        }),
    }
}

fn allocated(stat: &Stat) -> u64 {
    stat.st_blocks.cast_unsigned().saturating_mul(512)
}
