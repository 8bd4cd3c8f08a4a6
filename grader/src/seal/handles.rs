//! Reaching the entries of a tree by handles.
//!
//! Every name is resolved beneath a handle of the tree, through no link of any kind and onto no other mount
//! (openat2(2), Linux 5.6). `O_NOFOLLOW` alone would still follow a link in the middle of a path.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, openat2};
use rustix::io::Errno;

use super::{SealError, TreePath};

const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Reading a file never waits: not for the other end of a FIFO, not for the holder of a lease.
const READ: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY);

/// What identifies a state of a file or directory. The kernel sets the change time itself, so whoever writes to a
/// file moves it; only two writes within one tick of the kernel's clock look alike (coarse before Linux 6.13).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    device: u64,
    inode: u64,
    size: i64,
    links: u64,
    mode: u32,
    modified: (i64, u64),
    changed: (i64, u64),
}

impl State {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            links: stat.st_nlink,
            mode: stat.st_mode,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

/// The directory `path` beneath `root`, for reading its entries.
pub(crate) fn directory(root: impl AsFd, path: &str) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { "." } else { path };
    open(
        root,
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | READ,
        Mode::empty(),
    )
}

/// A handle of whatever `path` is; opening it does nothing to a device or FIFO, and breaks no lease.
pub(crate) fn anything(root: impl AsFd, path: &str) -> Result<OwnedFd, Errno> {
    open(root, path, OFlags::PATH, Mode::empty())
}

/// The file `path`, for reading.
pub(crate) fn file(root: impl AsFd, path: &str) -> Result<OwnedFd, Errno> {
    open(root, path, OFlags::RDONLY | READ, Mode::empty())
}

/// A new file `path`, for writing and for reading back what was written.
pub(crate) fn new_file(root: impl AsFd, path: &str) -> Result<OwnedFd, Errno> {
    open(
        root,
        path,
        OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
        Mode::RUSR | Mode::WUSR,
    )
}

fn open(root: impl AsFd, path: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    openat2(
        root,
        path,
        flags | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        mode,
        BENEATH,
    )
}

/// Names the error of an open beneath a tree.
pub(crate) fn name_error(step: &'static str, path: &TreePath) -> impl FnOnce(Errno) -> SealError {
    let path = path.clone();
    move |error| match error {
        Errno::XDEV => SealError::Mount { path },
        Errno::WOULDBLOCK => SealError::Lease { path },
        // The entry was there when its directory was read, and was no link when it was looked at.
        Errno::NOENT | Errno::LOOP => SealError::Changed { path },
        source => SealError::Entry { step, path, source },
    }
}

/// What an error calls an entry of this mode.
pub(crate) fn kind(mode: u32) -> &'static str {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => "regular file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "FIFO",
        FileType::Socket => "socket",
        FileType::CharacterDevice => "character device",
        FileType::BlockDevice => "block device",
        FileType::Unknown => "file of an unknown kind",
    }
}

/// The mode of a sealed directory or file: nobody writes.
pub(crate) const fn sealed_mode(executable: bool) -> Mode {
    Mode::from_raw_mode(if executable { 0o555 } else { 0o444 })
}

/// The entry's handle borrowed for as long as `root` lives; a shorthand for calls that take both.
pub(crate) fn stat(handle: BorrowedFd<'_>, path: &TreePath) -> Result<Stat, SealError> {
    rustix::fs::fstat(handle).map_err(SealError::at("reading the state of", path))
}
