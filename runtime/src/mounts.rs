//! Mounts under construction: made detached, filled, then moved to their places by descriptor.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use crate::host::FileKind;
use crate::idmap;
use crate::plan::{Action, Entry, Idmap, MountFlags, MountId, Owner, relative};
use crate::sys::{self, UsernsHolder};

/// Largest file of the host that is copied into an assembled root.
const LARGEST_COPY: u64 = 1 << 20;

/// The detached mounts of one sandbox, by their name in the plan.
#[derive(Debug)]
pub(crate) struct Mounts {
    fds: BTreeMap<MountId, OwnedFd>,
    /// Processes that made id maps. Their end is waited for when all is built.
    dying: Vec<UsernsHolder>,
    /// Who makes entries: what is to be his needs no change of owner.
    pub(crate) builder: Owner,
}

impl Mounts {
    /// No mounts yet; the caller makes entries.
    pub(crate) fn of_caller() -> Mounts {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Mounts { fds: BTreeMap::new(), dying: Vec::new(), builder: Owner { uid, gid } }
    }

    pub(crate) fn insert(&mut self, id: MountId, fd: OwnedFd) {
        self.fds.insert(id, fd);
    }

    pub(crate) fn get(&self, id: MountId) -> io::Result<BorrowedFd<'_>> {
        let missing = || io::Error::other(format!("mount {id} is not built"));
        self.fds.get(&id).map(AsFd::as_fd).ok_or_else(missing)
    }
}

/// A tmpfs of `size` bytes; its root belongs to the caller, or to `owner`.
fn tmpfs(size: u64, mode: u32, owner: Option<Owner>, flags: MountFlags) -> io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "size", size.to_string())?;
    // A file for every page: a tmpfs that is full of empty files costs the kernel no more than a full one.
    fsconfig_set_string(&context, "nr_inodes", (size / 4096).max(64).to_string())?;
    fsconfig_set_string(&context, "mode", format!("{mode:o}"))?;
    if let Some(Owner { uid, gid }) = owner {
        fsconfig_set_string(&context, "uid", uid.to_string())?;
        fsconfig_set_string(&context, "gid", gid.to_string())?;
    }
    finish(&context, attributes(flags))
}

/// A procfs of the caller's PID namespace that shows a process only to who may trace it.
pub(crate) fn proc() -> io::Result<OwnedFd> {
    let context = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "hidepid", "invisible")?;
    finish(&context, attributes(MountFlags { no_exec: true, no_dev: true, read_only: false }))
}

/// A devpts instance of its own.
pub(crate) fn devpts() -> io::Result<OwnedFd> {
    let context = fsopen("devpts", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_flag(&context, "newinstance")?;
    fsconfig_set_string(&context, "ptmxmode", "0666")?;
    fsconfig_set_string(&context, "mode", "0620")?;
    // The kernel's own limit is for all instances together (kernel.pty.max).
    fsconfig_set_string(&context, "max", "64")?;
    finish(&context, attributes(MountFlags { no_exec: true, ..MountFlags::default() }))
}

/// An overlay of layers that lie below the working directory; see the plan's scratch directory.
pub(crate) fn overlay(
    scratch: BorrowedFd<'_>,
    lower: &[MountId],
    upper: Option<(BorrowedFd<'_>, &str)>,
    flags: MountFlags,
) -> io::Result<OwnedFd> {
    // Layers are named relative to the working directory: plain names, nothing to quote.
    rustix::process::fchdir(scratch)?;
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let names: Vec<String> = lower.iter().map(ToString::to_string).collect();
    fsconfig_set_string(&context, "lowerdir", names.join(":"))?;
    // Held until the overlay has them: they are named by descriptor, so that nothing left in a kept directory by
    // an earlier sandbox, a link least of all, leads elsewhere.
    let mut held = Vec::new();
    if let Some((mount, name)) = upper {
        for kind in ["upper", "work"] {
            let directory = format!("{name}.{kind}");
            match rustix::fs::mkdirat(mount, &directory, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
            let place =
                rustix::fs::openat2(mount, &directory, flags, Mode::empty(), resolve).map_err(|error| {
                    io::Error::new(io::Error::from(error).kind(), format!("{directory}: {error}"))
                })?;
            fsconfig_set_string(
                &context,
                format!("{kind}dir"),
                format!("/proc/self/fd/{}", place.as_raw_fd()),
            )?;
            held.push(place);
        }
    }
    finish(&context, attributes(flags))
}

fn finish(context: &OwnedFd, attributes: MountAttrFlags) -> io::Result<OwnedFd> {
    fsconfig_create(context)?;
    Ok(fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// A clone of a path of the host, detached, private, with the given flags.
///
/// No component may be a link, and what is found must be of the planned kind.
pub(crate) fn clone_tree(
    source: &Path,
    kind: FileKind,
    flags: MountFlags,
    map: Option<&Idmap>,
) -> io::Result<(OwnedFd, Option<UsernsHolder>)> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let place = rustix::fs::openat2(CWD, source, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(&place, "", clone | OpenTreeFlags::AT_RECURSIVE | OpenTreeFlags::AT_EMPTY_PATH)?;
    let found = FileType::from_raw_mode(rustix::fs::fstat(&tree)?.st_mode);
    let wanted = match kind {
        FileKind::Directory => FileType::Directory,
        FileKind::File => FileType::RegularFile,
        FileKind::CharDevice => FileType::CharacterDevice,
        FileKind::Socket => FileType::Socket,
        FileKind::BlockDevice | FileKind::Fifo => {
            return Err(io::Error::other("block devices and FIFOs are not mounted"));
        }
    };
    if found != wanted {
        return Err(io::Error::other(format!("changed while it was planned: now a {found:?}")));
    }
    sys::mount_setattr(tree.as_fd(), true, attributes(flags), true, None)?;
    let Some(Idmap { maps, required }) = map else {
        return Ok((tree, None));
    };
    let (namespace, holder) = idmap::user_namespace(maps)?;
    match sys::mount_setattr(tree.as_fd(), true, MountAttrFlags::empty(), false, Some(namespace.as_fd())) {
        Err(error) if *required => Err(io::Error::other(format!(
            "this file system refuses idmapped mounts ({error}); use ids = \"direct\", or another file system"
        ))),
        _ => Ok((tree, Some(holder))),
    }
}

/// A clone of a device node of the host. That it is the planned device is seen on the clone itself, which nobody can
/// change any more; it alone is mounted with devices allowed.
fn clone_device(source: &Path, (major, minor): (u32, u32)) -> io::Result<OwnedFd> {
    let flags = MountFlags { no_exec: true, ..MountFlags::default() };
    let (tree, _) = clone_tree(source, FileKind::CharDevice, flags, None)?;
    let device = rustix::fs::fstat(&tree)?.st_rdev;
    let found = (rustix::fs::major(device), rustix::fs::minor(device));
    if found == (major, minor) {
        return Ok(tree);
    }
    Err(io::Error::other(format!("is device {}:{}, and should be {major}:{minor}", found.0, found.1)))
}

/// Puts an entry at `path` of a mount that nobody else sees yet. The umask is 0, so that modes are as stated
/// (crun#1047).
fn make(mount: BorrowedFd<'_>, path: &Path, owner: Option<Owner>, entry: &Entry) -> io::Result<()> {
    let path = relative(path);
    match entry {
        Entry::Dir { mode } => {
            rustix::fs::mkdirat(mount, path, Mode::from_raw_mode(*mode))?;
        }
        Entry::File { mode, content } => create(mount, path, *mode)?.write_all(content)?,
        Entry::Copy { source } => match small_file(source) {
            Ok(content) => create(mount, path, 0o644)?.write_all(&content)?,
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) =>
            {
                return Ok(());
            }
            Err(error) => {
                return Err(io::Error::new(error.kind(), format!("{}: {error}", source.display())));
            }
        },
        Entry::Link { target } => rustix::fs::symlinkat(target, mount, path)?,
        Entry::Device { major, minor } => {
            let device = rustix::fs::makedev(*major, *minor);
            rustix::fs::mknodat(mount, path, FileType::CharacterDevice, Mode::from_raw_mode(0o666), device)?;
        }
    }
    let Some(Owner { uid, gid }) = owner else {
        return Ok(());
    };
    let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    Ok(rustix::fs::chownat(mount, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn create(mount: BorrowedFd<'_>, path: &Path, mode: u32) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::openat(mount, path, flags, Mode::from_raw_mode(mode))?.into())
}

fn small_file(source: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(source, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("is not a regular file"));
    }
    // One byte more than it has: the read that finds no more needs room.
    let expected = usize::try_from(metadata.len().min(LARGEST_COPY)).map_err(io::Error::other)? + 1;
    let mut content = Vec::with_capacity(expected);
    file.take(LARGEST_COPY + 1).read_to_end(&mut content)?;
    if content.len() as u64 > LARGEST_COPY {
        return Err(io::Error::other("is larger than 1 MiB; mount it instead"));
    }
    Ok(content)
}

/// Makes a mount read-only.
pub(crate) fn seal(mount: BorrowedFd<'_>) -> io::Result<()> {
    sys::mount_setattr(mount, false, MountAttrFlags::MOUNT_ATTR_RDONLY, false, None)
}

/// Makes `/` and everything below private, so that later mounts of the host do not arrive.
pub(crate) fn make_private() -> io::Result<()> {
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    sys::mount_setattr(root.as_fd(), true, MountAttrFlags::empty(), true, None)
}

/// Moves a mount onto the process's `/`, over what is there.
pub(crate) fn attach_root(mount: BorrowedFd<'_>) -> io::Result<()> {
    Ok(move_mount(mount, "", CWD, "/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// Moves a mount to `target` below `root`; no component may be a link.
pub(crate) fn attach(root: BorrowedFd<'_>, mount: BorrowedFd<'_>, target: &Path) -> io::Result<()> {
    let place = open_inside(root, target, OFlags::PATH)?;
    let both = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(mount, "", &place, "", both)?)
}

/// Opens a path below `root` without following a link anywhere.
pub(crate) fn open_inside(root: BorrowedFd<'_>, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let path = match relative(path) {
        empty if empty.as_os_str().is_empty() => Path::new("."),
        path => path,
    };
    Ok(rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)?)
}

/// Pivots into `root`, which lies on `/`, and detaches what was there (pivot_root(2), NOTES).
pub(crate) fn pivot(root: BorrowedFd<'_>) -> io::Result<()> {
    let old = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::process::fchdir(root)?;
    rustix::process::pivot_root(".", ".")?;
    rustix::process::fchdir(&old)?;
    // Unmounting takes the topmost mount there: a scratch directory lies on the old root.
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    loop {
        match rustix::mount::unmount(".", UnmountFlags::DETACH) {
            Ok(()) => {}
            // What is left there is no mount.
            Err(Errno::INVAL) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(rustix::process::chdir("/")?)
}

/// Hides `paths`: a directory gets one shared, empty, read-only tmpfs, a file gets /dev/null.
///
/// Called after the pivot. The null device is checked by its number before it covers anything
/// (CVE-2025-31133).
pub(crate) fn mask(paths: &[impl AsRef<Path>]) -> io::Result<()> {
    // The first cover of each kind; the others are clones of it.
    let (mut empty, mut null) = (None, None);
    for path in paths {
        let Some((place, kind)) = existing(path.as_ref())? else {
            continue;
        };
        let directory = kind == FileType::Directory;
        let first = if directory { &mut empty } else { &mut null };
        if let Some(first) = first {
            let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            move_onto(&open_tree(first, "", clone | OpenTreeFlags::AT_EMPTY_PATH)?, &place)?;
            continue;
        }
        let cover = if directory {
            let flags = MountFlags { read_only: true, no_exec: true, no_dev: true };
            tmpfs(4096, 0o555, None, flags)?
        } else {
            null_device()?
        };
        move_onto(&cover, &place)?;
        *first = Some(cover);
    }
    Ok(())
}

/// Makes each of `paths` a read-only mount of itself.
pub(crate) fn read_only(paths: &[impl AsRef<Path>]) -> io::Result<()> {
    for path in paths {
        let Some((place, _)) = existing(path.as_ref())? else {
            continue;
        };
        let flags =
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
        let tree = open_tree(CWD, path.as_ref(), flags)?;
        sys::mount_setattr(tree.as_fd(), true, MountAttrFlags::MOUNT_ATTR_RDONLY, false, None)?;
        move_onto(&tree, &place)?;
    }
    Ok(())
}

fn existing(path: &Path) -> io::Result<Option<(OwnedFd, FileType)>> {
    match rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Ok(place) => {
            let kind = FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode);
            Ok(Some((place, kind)))
        }
        Err(Errno::NOENT | Errno::ACCESS) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn null_device() -> io::Result<OwnedFd> {
    let null =
        open_tree(CWD, "/dev/null", OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
    let stat = rustix::fs::fstat(&null)?;
    let is_null = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
        && stat.st_rdev == rustix::fs::makedev(1, 3);
    if is_null { Ok(null) } else { Err(io::Error::other("/dev/null inside is not the null device")) }
}

fn move_onto(mount: &OwnedFd, place: &OwnedFd) -> io::Result<()> {
    let both = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(mount, "", place, "", both)?)
}

fn attributes(flags: MountFlags) -> MountAttrFlags {
    let mut attributes = MountAttrFlags::MOUNT_ATTR_NOSUID;
    attributes.set(MountAttrFlags::MOUNT_ATTR_RDONLY, flags.read_only);
    attributes.set(MountAttrFlags::MOUNT_ATTR_NOEXEC, flags.no_exec);
    attributes.set(MountAttrFlags::MOUNT_ATTR_NODEV, flags.no_dev);
    attributes
}

/// Performs a step that builds a detached mount, on whichever side.
pub(crate) fn build(mounts: &mut Mounts, action: &Action) -> io::Result<()> {
    match action {
        Action::NewTmpfs { mount, size, mode, owner, flags } => {
            let owner = (*owner != mounts.builder).then_some(*owner);
            mounts.insert(*mount, tmpfs(*size, *mode, owner, *flags)?);
            Ok(())
        }
        Action::CloneTree { mount, source, kind, flags, idmap } => {
            let (tree, holder) = clone_tree(source, *kind, *flags, idmap.as_ref())?;
            mounts.insert(*mount, tree);
            mounts.dying.extend(holder);
            Ok(())
        }
        Action::CloneDevice { mount, source, major, minor } => {
            mounts.insert(*mount, clone_device(source, (*major, *minor))?);
            Ok(())
        }
        Action::Make { mount, path, owner, entry } => {
            let owner = (*owner != mounts.builder).then_some(*owner);
            make(mounts.get(*mount)?, path, owner, entry)
        }
        Action::Seal { mount } => seal(mounts.get(*mount)?),
        other => Err(io::Error::other(format!("`{other}` is not a step of this side"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CVE-2024-0132, CVE-2025-23359: what was checked by name was another thing when it was used by name.
    #[test]
    fn a_node_that_became_another_device_is_not_mounted() {
        if !crate::host::is_root() {
            return;
        }
        assert!(clone_device(Path::new("/dev/null"), (1, 3)).is_ok());
        let refused = clone_device(Path::new("/dev/zero"), (1, 3)).unwrap_err().to_string();
        assert_eq!(refused, "is device 1:5, and should be 1:3");
        for no_node in ["/dev", "/etc/passwd", "/dev/fd/0"] {
            assert!(clone_device(Path::new(no_node), (1, 3)).is_err(), "{no_node}");
        }
    }
}
