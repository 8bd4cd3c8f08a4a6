//! One directory of one hierarchy, held by descriptors: making, reading, writing, removing.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, XattrFlags, fgetxattr, fsetxattr, fstatfs,
    mkdirat, openat, openat2, unlinkat,
};
use rustix::io::Errno;

use super::error::CgroupError;
use super::facts::{Controller, Version};
use super::target::TreeTarget;
use super::v2;
use crate::sys;

/// `CGROUP_SUPER_MAGIC` of `linux/magic.h`.
const V1_MAGIC: i64 = 0x0027_e0eb;
/// `CGROUP2_SUPER_MAGIC` of `linux/magic.h`.
const V2_MAGIC: i64 = 0x6367_7270;

/// Attribute of the directories above their own that sandboxes made (user attributes of cgroups: Linux 5.7).
const MARK: &str = "user.airlock.made";

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// A sandbox's directory in one hierarchy.
#[derive(Debug)]
pub(super) struct Tree {
    pub version: Version,
    /// Controllers that serve this sandbox here.
    pub controllers: BTreeSet<Controller>,
    pub mount: PathBuf,
    pub path: PathBuf,
    pub name: OsString,
    /// How many directories just above `path` belong to an explicit parent, and go with the last sandbox in them if
    /// they are marked.
    pub above: usize,
    parent: OwnedFd,
    dir: OwnedFd,
}

impl Tree {
    /// Makes the directory, and those of its parents that are absent. On failure nothing made here is left.
    pub(super) fn create(target: &TreeTarget) -> Result<Self, CgroupError> {
        // Another sandbox may remove an empty explicit parent between our finding it and our using it.
        let mut attempts = if target.parents.is_empty() { 1 } else { 50 };
        loop {
            let mut made = Vec::new();
            let result = Self::make(target, &mut made);
            attempts -= 1;
            match result {
                Ok((parent, dir, controllers)) => {
                    return Ok(Self {
                        version: target.version,
                        controllers,
                        mount: target.mount.clone(),
                        path: target.path(),
                        name: target.name.clone(),
                        above: target.parents.len(),
                        parent,
                        dir,
                    });
                }
                Err(error) => {
                    for (parent, name) in made.iter().rev() {
                        // The error being reported matters more than one here; an unremovable directory is empty.
                        let _ = unlinkat(parent, *name, AtFlags::REMOVEDIR);
                    }
                    if attempts == 0 || !error.means_gone() {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn make<'a>(
        target: &'a TreeTarget,
        made: &mut Vec<(OwnedFd, &'a OsStr)>,
    ) -> Result<(OwnedFd, OwnedFd, BTreeSet<Controller>), CgroupError> {
        let mut path = target.base.clone();
        let mut parent = open_directory(&path, target.version)?;
        let mut controllers = target.required.clone();
        if target.version == Version::V1 {
            controllers.extend(&target.wanted);
        }
        for (depth, name) in target.parents.iter().chain([&target.name]).enumerate() {
            if target.version == Version::V2 {
                controllers = v2::enable(parent.as_fd(), &path, target)?;
            }
            let own = depth == target.parents.len();
            path.push(name);
            // Before the directory is made, or one could be made that nobody removes.
            let above = clone(&parent, &path)?;
            let new = match mkdirat(&parent, name, Mode::from(0o755)) {
                Ok(()) => {
                    made.push((above, name));
                    true
                }
                Err(Errno::EXIST) if own => return Err(CgroupError::Exists { path }),
                Err(Errno::EXIST) => false,
                Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => {
                    path.pop();
                    return Err(CgroupError::NotDelegated { path });
                }
                Err(errno) => return Err(CgroupError::io("make cgroup", path, errno)),
            };
            let dir = openat(&parent, name, DIRECTORY, Mode::empty())
                .map_err(|errno| CgroupError::io("open cgroup", &path, errno))?;
            if target.version == Version::V1 && controllers.contains(&Controller::CpuSet) {
                inherit_cpuset(parent.as_fd(), dir.as_fd(), &path)?;
            }
            if own {
                return Ok((parent, dir, controllers));
            }
            if new {
                // Without it the directory would merely stay.
                let _ = fsetxattr(&dir, MARK, b"1", XattrFlags::empty());
            }
            parent = dir;
        }
        Err(CgroupError::InvalidPath { path: target.path(), reason: "has no name" })
    }

    /// Opens a recorded directory; absent if it is gone.
    pub(super) fn open(
        version: Version,
        controllers: BTreeSet<Controller>,
        mount: &Path,
        path: &Path,
        above: usize,
    ) -> Result<Option<Self>, CgroupError> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(CgroupError::InvalidPath { path: path.into(), reason: "has no name" });
        };
        let parent = match open_directory(parent, version) {
            Err(error) if error.means_gone() => return Ok(None),
            parent => parent?,
        };
        match openat(&parent, name, DIRECTORY, Mode::empty()) {
            Ok(dir) => Ok(Some(Self {
                version,
                controllers,
                mount: mount.into(),
                path: path.into(),
                name: name.into(),
                above,
                parent,
                dir,
            })),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(CgroupError::io("open cgroup", path, errno)),
        }
    }

    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// The directory was removed.
    pub(super) fn is_gone(&self) -> bool {
        self.read("cgroup.procs").is_err_and(|error| error.means_gone())
    }

    pub(super) fn read(&self, file: &str) -> Result<String, CgroupError> {
        read_file(self.dir(), &self.path, file)
    }

    pub(super) fn write(&self, file: &str, value: &str) -> Result<(), CgroupError> {
        write_file(self.dir(), &self.path, file, &[value])
    }

    pub(super) fn write_each(&self, file: &str, values: &[String]) -> Result<(), CgroupError> {
        write_file(self.dir(), &self.path, file, values)
    }

    /// A file of this directory for another process to write to: the opener's rights count, not the writer's.
    pub(super) fn open_for_writing(&self, file: &str) -> Result<OwnedFd, CgroupError> {
        openat(&self.dir, file, OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())
            .map_err(|errno| CgroupError::io("open", self.path.join(file), errno))
    }

    /// The processes in this directory and all below it.
    pub(super) fn pids(&self) -> Result<Vec<u32>, CgroupError> {
        let mut pids = Vec::new();
        each_directory(self.dir(), &self.path, DEEPEST, &mut |dir, path| {
            let text = match read_file(dir, path, "cgroup.procs") {
                // Removed meanwhile, or threaded: its processes are listed in the domain above.
                Err(error) if error.means_gone() || error.errno() == Some(libc::EOPNOTSUPP) => return Ok(()),
                text => text?,
            };
            // 0 stands for a process outside the reader's PID namespace.
            pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()).filter(|&pid| pid != 0));
            Ok(())
        })?;
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// Removes the directory, all below it, and the parents that a sandbox made if they are empty.
    ///
    /// Having nothing to remove is success. EBUSY is retried until the deadline: the kernel takes a moment to
    /// let go of a dead process.
    pub(super) fn remove(&self, deadline: Instant) -> Result<(), CgroupError> {
        let mut pause = Duration::from_micros(50);
        loop {
            match self.remove_once() {
                Ok(()) => break,
                Err(error) if error.errno() == Some(Errno::BUSY.raw_os_error()) => {
                    if Instant::now() >= deadline {
                        return Err(error);
                    }
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(20));
                }
                Err(error) => return Err(error),
            }
        }
        let mut path = self.path.as_path();
        for _ in 0..self.above {
            let (Some(dir), Some(name)) = (path.parent(), path.parent().and_then(Path::file_name)) else {
                break;
            };
            let Some(above) = dir.parent() else { break };
            if !dir.starts_with(&self.mount) || dir == self.mount {
                break;
            }
            let above = match open_directory(above, self.version) {
                Err(error) if error.means_gone() => break,
                above => above?,
            };
            match openat(&above, name, DIRECTORY, Mode::empty()) {
                Ok(found) if fgetxattr(&found, MARK, &mut [0_u8; 8]).is_ok() => {}
                _ => break,
            }
            match unlinkat(&above, name, AtFlags::REMOVEDIR) {
                // Another sandbox uses it, or it is gone with another one.
                Ok(()) | Err(Errno::BUSY | Errno::NOTEMPTY | Errno::NOENT) => {}
                Err(errno) => return Err(CgroupError::io("remove cgroup", dir, errno)),
            }
            path = dir;
        }
        Ok(())
    }

    /// Takes away leaves until nothing is left. Depth costs time, not descriptors, as the payload may
    /// have made the tree.
    fn remove_once(&self) -> Result<(), CgroupError> {
        loop {
            let mut parent = clone(&self.parent, &self.path)?;
            let mut name = CString::new(self.name.as_bytes()).map_err(|_| CgroupError::InvalidPath {
                path: self.path.clone(),
                reason: "has a NUL byte",
            })?;
            let mut path = self.path.clone();
            let mut depth = 0_usize;
            loop {
                match unlinkat(&parent, &name, AtFlags::REMOVEDIR) {
                    Ok(()) | Err(Errno::NOENT) => break,
                    Err(errno) => {
                        let dir = match openat(&parent, &name, DIRECTORY, Mode::empty()) {
                            Err(Errno::NOENT) => break,
                            dir => dir.map_err(|errno| CgroupError::io("open cgroup", &path, errno))?,
                        };
                        let Some(child) = first_child(dir.as_fd(), &path)? else {
                            return Err(CgroupError::io("remove cgroup", path, errno));
                        };
                        path.push(OsStr::from_bytes(child.to_bytes()));
                        (parent, name) = (dir, child);
                        depth += 1;
                    }
                }
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }
}

/// Opens a directory of a cgroup file system without following any link.
pub(super) fn open_directory(path: &Path, version: Version) -> Result<OwnedFd, CgroupError> {
    let fail = |errno| CgroupError::io("open cgroup", path, errno);
    let dir =
        openat2(CWD, path, DIRECTORY, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS)
            .map_err(fail)?;
    let magic = match version {
        Version::V1 => V1_MAGIC,
        Version::V2 => V2_MAGIC,
    };
    if fstatfs(&dir).map_err(fail)?.f_type != magic {
        return Err(CgroupError::InvalidPath {
            path: path.into(),
            reason: "is not on the cgroup file system",
        });
    }
    Ok(dir)
}

/// A v1 cpuset accepts no process until it has CPUs and memory nodes (ENOSPC).
fn inherit_cpuset(parent: BorrowedFd<'_>, dir: BorrowedFd<'_>, path: &Path) -> Result<(), CgroupError> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if read_file(dir, path, file)?.trim().is_empty() {
            let inherited = read_file(parent, path.parent().unwrap_or(path), file)?;
            write_file(dir, path, file, &[inherited.trim()])?;
        }
    }
    Ok(())
}

pub(super) fn read_file(dir: BorrowedFd<'_>, path: &Path, file: &str) -> Result<String, CgroupError> {
    let text = sys::read_small(dir, file).and_then(|text| String::from_utf8(text).map_err(io::Error::other));
    text.map_err(|source| CgroupError::io("read", path.join(file), source))
}

/// Control files take each value from a single write.
pub(super) fn write_file(
    dir: BorrowedFd<'_>,
    path: &Path,
    file: &str,
    values: &[impl AsRef<[u8]>],
) -> Result<(), CgroupError> {
    let fail = |source| CgroupError::io("write", path.join(file), source);
    let fd = openat(dir, file, OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())
        .map_err(|errno| fail(errno.into()))?;
    let mut open = File::from(fd);
    values.iter().try_for_each(|value| open.write_all(value.as_ref())).map_err(fail)
}

pub(super) fn clone(fd: &OwnedFd, path: &Path) -> Result<OwnedFd, CgroupError> {
    fd.try_clone().map_err(|source| CgroupError::io("duplicate the descriptor of", path, source))
}

/// How deep processes are looked for: each level holds a descriptor.
const DEEPEST: usize = 64;

/// Visits a directory and all below it, `levels` deep.
fn each_directory(
    dir: BorrowedFd<'_>,
    path: &Path,
    levels: usize,
    visit: &mut dyn FnMut(BorrowedFd<'_>, &Path) -> Result<(), CgroupError>,
) -> Result<(), CgroupError> {
    visit(dir, path)?;
    if levels == 0 {
        return Ok(());
    }
    for name in children(dir, path)? {
        let path = path.join(OsStr::from_bytes(name.to_bytes()));
        match openat(dir, &name, DIRECTORY, Mode::empty()) {
            Ok(child) => each_directory(child.as_fd(), &path, levels - 1, visit)?,
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(CgroupError::io("open cgroup", path, errno)),
        }
    }
    Ok(())
}

fn children(dir: BorrowedFd<'_>, path: &Path) -> Result<Vec<CString>, CgroupError> {
    let fail = |errno| CgroupError::io("list cgroup", path, errno);
    let mut names = Vec::new();
    for entry in Dir::read_from(dir).map_err(fail)? {
        let entry = match entry {
            // Removed while it was being listed.
            Err(Errno::NOENT) => break,
            entry => entry.map_err(fail)?,
        };
        if entry.file_type() == FileType::Directory && !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(CStr::to_owned(entry.file_name()));
        }
    }
    Ok(names)
}

fn first_child(dir: BorrowedFd<'_>, path: &Path) -> Result<Option<CString>, CgroupError> {
    Ok(children(dir, path)?.into_iter().next())
}
