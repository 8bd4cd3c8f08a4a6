//! What the plan needs to know of this host: plain data, read once before planning.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::fs::{Access, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};

use crate::cgroups::{CgroupFacts, CgroupPath};
use crate::gpu;
use crate::ids::HostIds;
use crate::spec::{RootKind, Spec, Writable};
use crate::sys;

/// The caller's mounts (proc_pid_mountinfo(5)).
const MOUNTS: &str = "/proc/self/mountinfo";

/// Facts of the host, the caller and the paths that a spec names.
#[derive(Clone, Debug)]
pub struct HostFacts {
    /// Kernel release, major and minor.
    pub kernel: (u32, u32),
    /// The caller may do the privileged side itself: effective uid 0 with the needed capabilities, in the
    /// initial user namespace.
    pub root: bool,
    /// Effective user id of the caller.
    pub uid: u32,
    /// Effective group id of the caller.
    pub gid: u32,
    /// Supplementary groups of the caller other than `gid`.
    pub groups: Vec<u32>,
    /// Highest capability number that the kernel knows.
    pub last_capability: u8,
    /// Landlock ABI of the kernel; 0: none.
    pub landlock_abi: u8,
    /// Hard limit of open files, which only CAP_SYS_RESOURCE raises.
    pub open_files: u64,
    /// Hard limit of signals that wait, likewise.
    pub pending_signals: u64,
    /// Something is mounted on a part of the caller's `/proc`, so that the kernel refuses a new one in a user
    /// namespace.
    pub proc_covered: bool,
    /// Control group trees and the caller's place in them.
    pub cgroups: CgroupFacts,
    /// Ids that the sandbox may use.
    pub ids: HostIds,
    /// The host paths that the spec names: sources of bind mounts, the root, the kept upper directory.
    pub sources: BTreeMap<PathBuf, SourceFacts>,
    /// Mount targets that lead through a link or a non-directory of a root that is a directory, and what is
    /// there.
    pub crooked_targets: BTreeMap<PathBuf, String>,
    /// The GPUs that the sandbox gets; `None`: none was chosen.
    pub gpu: Option<gpu::Selection>,
    /// What the host has for them; `None`: it was not looked at.
    pub gpu_host: Option<gpu::GpuHost>,
}

/// What a path of the host is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFacts {
    /// Its type, links followed; `None`: it is not there or may not be read, `error` says which.
    pub kind: Option<FileKind>,
    /// Why `kind` is unknown.
    pub error: Option<String>,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The path with all links followed.
    pub resolved: PathBuf,
    /// A link on the way that a payload may have planted (see [`WalkError::Link`]); nothing else is known then.
    pub link: Option<PathBuf>,
    /// Somewhere above it stands a directory that only root can enter. The path itself does not count: whoever
    /// is its owner inside can change its mode.
    pub private: bool,
}

/// Type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A Unix socket.
    Socket,
    /// A FIFO.
    Fifo,
}

/// The facts could not be read.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A file of /proc or /sys is not readable or not as documented.
    #[error("reading host facts: {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The GPUs' side of the host could not be read.
    #[error("gpu: {0}")]
    Gpu(#[from] gpu::host::GpuHostError),
    /// The control group facts could not be read.
    #[error(transparent)]
    Cgroups(#[from] crate::cgroups::CgroupError),
    /// The host's kernel is older than what Airlock builds on.
    #[error(
        "kernel {0}.{1} is too old: Airlock needs 5.14 or newer (Landlock, mount_setattr, idmapped mounts, cgroup.kill)"
    )]
    OldKernel(u32, u32),
}

impl HostFacts {
    /// Reads the facts. `ids` were allocated before (see [`crate::ids`]). No GPU is chosen; see
    /// [`HostFacts::with_gpu`].
    pub fn read(spec: &Spec, ids: HostIds) -> Result<HostFacts, HostError> {
        HostFacts::without_spec()?.with_spec(spec, ids).with_gpu(spec, None)
    }

    /// Reads what is the same for every spec: no ids are given, and nothing is known of any path. Which ids a sandbox
    /// gets also decides who builds it.
    pub fn without_spec() -> Result<HostFacts, HostError> {
        let kernel = kernel_release();
        if kernel < (5, 14) {
            return Err(HostError::OldKernel(kernel.0, kernel.1));
        }
        let gid = rustix::process::getegid().as_raw();
        let groups = rustix::process::getgroups()
            .map_err(|error| HostError::Read { path: "getgroups".into(), source: error.into() })?;
        let mounts = sys::read_small(CWD, MOUNTS)
            .map_err(|error| HostError::Read { path: MOUNTS.into(), source: error })?;
        Ok(HostFacts {
            kernel,
            root: false,
            uid: rustix::process::geteuid().as_raw(),
            gid,
            groups: groups.into_iter().map(|group| group.as_raw()).filter(|group| *group != gid).collect(),
            last_capability: last_capability()?,
            landlock_abi: sys::landlock_abi(),
            open_files: getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX),
            pending_signals: getrlimit(Resource::Sigpending).maximum.unwrap_or(u64::MAX),
            proc_covered: is_covered(&mounts, "/proc"),
            cgroups: CgroupFacts::read_with(&mounts)?,
            ids: HostIds::Caller,
            sources: BTreeMap::new(),
            crooked_targets: BTreeMap::new(),
            gpu: None,
            gpu_host: None,
        })
    }

    /// The facts of a place where this process may make cgroups; it may move there (see [`CgroupFacts::settle`]).
    ///
    /// # Errors
    /// See [`CgroupFacts::settle`].
    pub fn settle(mut self, parent: Option<&CgroupPath>) -> Result<HostFacts, HostError> {
        self.cgroups = self.cgroups.settle(parent)?;
        Ok(self)
    }

    /// Adds what belongs to one spec.
    #[must_use]
    pub fn with_spec(self, spec: &Spec, ids: HostIds) -> HostFacts {
        let sources = named_paths(spec).map(|path| (path.to_path_buf(), SourceFacts::read(path))).collect();
        let root = matches!(ids, HostIds::Range { .. });
        HostFacts { root, ids, sources, crooked_targets: crooked_targets(spec), ..self }
    }

    /// Adds what a spec with GPUs needs to be known, and the choice that was made for it. To be called last: what is
    /// looked at depends on the rest.
    ///
    /// # Errors
    /// Something of it is there and cannot be read.
    pub fn with_gpu(
        mut self,
        spec: &Spec,
        selection: Option<gpu::Selection>,
    ) -> Result<HostFacts, HostError> {
        let Some(asked) = &spec.airlock.gpu else { return Ok(self) };
        self.gpu_host = Some(gpu::GpuHost::read(asked, &spec.airlock.root, selection.as_ref())?);
        self.gpu = selection;
        // What cannot be given is the plan's to say.
        if let Ok(Some(provided)) = gpu::provided(spec, &self) {
            for path in named_paths(&provided) {
                self.sources.entry(path.into()).or_insert_with(|| SourceFacts::read(path));
            }
            self.crooked_targets = crooked_targets(&provided);
        }
        Ok(self)
    }
}

impl SourceFacts {
    /// Looks at `path`, component by component.
    pub fn read(path: &Path) -> SourceFacts {
        let unknown = |error: io::Error| SourceFacts {
            kind: None,
            error: Some(error.to_string()),
            uid: 0,
            gid: 0,
            resolved: path.to_path_buf(),
            link: None,
            private: false,
        };
        let walk = match Walk::to(path) {
            Ok(walk) => walk,
            Err(WalkError::Io(error)) => return unknown(error),
            Err(WalkError::Link(link)) => {
                return SourceFacts { link: Some(link), ..unknown(Errno::LOOP.into()) };
            }
        };
        let wanted = if walk.metadata.is_dir() { Access::READ_OK | Access::EXEC_OK } else { Access::READ_OK };
        if let Err(error) = rustix::fs::access(&walk.resolved, wanted) {
            return unknown(error.into());
        }
        SourceFacts {
            kind: file_kind(walk.metadata.file_type()),
            error: None,
            uid: walk.metadata.uid(),
            gid: walk.metadata.gid(),
            private: walk.private.split_last().is_some_and(|(_, above)| above.contains(&true)),
            link: None,
            resolved: walk.resolved,
        }
    }
}

/// A path that a user names cannot be walked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WalkError {
    /// A link other than root's own directly in `/`. An owner proves nothing: a payload's files can belong to
    /// the caller, or to root, and its link would choose what is mounted or overwritten.
    #[error("leads through the link {}; name the real path", .0.display())]
    Link(PathBuf),
    /// Something on the way is not there, not a directory, or not to be entered.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The way to a path that a user names, component by component.
pub(crate) struct Walk {
    /// The path without links.
    pub(crate) resolved: PathBuf,
    metadata: fs::Metadata,
    /// For each component of `resolved`: it is a directory that only root can enter.
    private: Vec<bool>,
}

impl Walk {
    /// Walks to `path`; a relative one starts at the working directory.
    pub(crate) fn to(path: &Path) -> Result<Walk, WalkError> {
        // As many links as the kernel follows (path_resolution(7)).
        const MOST_LINKS: u32 = 40;
        let parts = |path: &Path| -> Vec<OsString> {
            path.components().rev().map(|part| part.as_os_str().to_os_string()).collect()
        };
        let mut rest = parts(&std::path::absolute(path)?);
        let mut walk = Walk { resolved: "/".into(), metadata: fs::metadata("/")?, private: Vec::new() };
        // The root that every absolute path starts with is where the walk stands already.
        rest.pop();
        let mut links = 0;
        while let Some(part) = rest.pop() {
            if part != "/" && !walk.metadata.is_dir() {
                return Err(io::Error::from(Errno::NOTDIR).into());
            }
            if part == "/" || part == ".." {
                if part == "/" {
                    walk.resolved = PathBuf::from("/");
                    walk.private.clear();
                } else {
                    walk.resolved.pop();
                    walk.private.pop();
                }
                walk.metadata = fs::symlink_metadata(&walk.resolved)?;
                continue;
            }
            walk.resolved.push(part);
            walk.metadata = fs::symlink_metadata(&walk.resolved)?;
            if walk.metadata.is_symlink() {
                if walk.metadata.uid() != 0 || walk.resolved.parent() != Some(Path::new("/")) {
                    return Err(WalkError::Link(walk.resolved));
                }
                links += 1;
                if links > MOST_LINKS {
                    return Err(io::Error::from(Errno::LOOP).into());
                }
                rest.extend(parts(&fs::read_link(&walk.resolved)?));
                walk.resolved.pop();
                walk.metadata = fs::symlink_metadata(&walk.resolved)?;
            } else {
                let closed = walk.metadata.uid() == 0 && walk.metadata.mode() & 0o011 == 0;
                walk.private.push(walk.metadata.is_dir() && closed);
            }
        }
        Ok(walk)
    }
}

/// The caller can act as root of the host: uid 0, the capabilities that building needs, and the initial
/// user namespace (root of a container is treated as an ordinary user).
pub fn is_root() -> bool {
    privileged().unwrap_or(false)
}

/// [`is_root`], or why nobody knows.
pub(crate) fn privileged() -> io::Result<bool> {
    let needed = CapabilitySet::SYS_ADMIN
        | CapabilitySet::SETUID
        | CapabilitySet::SETGID
        | CapabilitySet::CHOWN
        | CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::MKNOD;
    Ok(rustix::process::geteuid().is_root()
        && rustix::thread::capabilities(None)?.effective.contains(needed)
        && in_initial_user_namespace()?)
}

/// The initial user namespace maps every id to itself.
fn in_initial_user_namespace() -> io::Result<bool> {
    let map = sys::read_small(CWD, "/proc/self/uid_map")?;
    Ok(String::from_utf8_lossy(&map).split_whitespace().eq(["0", "0", "4294967295"]))
}

/// A mount of `mountinfo` lies below `directory`. The kernel forgives those on directories that are always empty, of
/// which /proc has one that hosts use.
fn is_covered(mountinfo: &[u8], directory: &str) -> bool {
    const ALWAYS_EMPTY: &[u8] = b"/proc/sys/fs/binfmt_misc";
    mountinfo
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4))
        .filter_map(|point| Some((point, point.strip_prefix(directory.as_bytes())?)))
        .any(|(point, rest)| rest.starts_with(b"/") && point != ALWAYS_EMPTY)
}

fn kernel_release() -> (u32, u32) {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn last_capability() -> Result<u8, HostError> {
    let path = "/proc/sys/kernel/cap_last_cap";
    let read =
        || String::from_utf8_lossy(&sys::read_small(CWD, path)?).trim().parse().map_err(io::Error::other);
    read().map_err(|source| HostError::Read { path: path.into(), source })
}

fn named_paths(spec: &Spec) -> impl Iterator<Item = &Path> {
    let mounts = spec.oci.mounts().iter().flatten();
    let binds = mounts
        .filter(|mount| mount.typ().as_deref() == Some("bind"))
        .filter_map(|mount| mount.source().as_deref());
    let root = match &spec.airlock.root {
        RootKind::Dir(path) => Some(path.as_path()),
        RootKind::Host | RootKind::Empty => None,
    };
    let upper = match &spec.airlock.writable {
        Writable::Dir { path } => Some(path.as_path()),
        Writable::None | Writable::Tmpfs { .. } => None,
    };
    binds.chain(root).chain(upper)
}

/// Looks up each mount target below a root that is a directory. Whatever becomes of that directory later, the
/// sandbox's own mount points cover it; this is for the error, not for safety.
fn crooked_targets(spec: &Spec) -> BTreeMap<PathBuf, String> {
    let RootKind::Dir(path) = &spec.airlock.root else {
        return BTreeMap::new();
    };
    let Ok(root) = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) else {
        return BTreeMap::new();
    };
    let crooked = |target: &Path| {
        let inner = target.strip_prefix("/").unwrap_or(target);
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match rustix::fs::openat2(&root, inner, flags, Mode::empty(), resolve) {
            Err(Errno::LOOP) => Some("leads through a symbolic link of the root; name the real path"),
            Err(Errno::NOTDIR) => Some("lies below a file of the root"),
            Ok(_) | Err(_) => None,
        }
    };
    let targets = spec.oci.mounts().iter().flatten().map(|mount| mount.destination());
    targets.filter_map(|target| Some((target.clone(), crooked(target)?.to_string()))).collect()
}

fn file_kind(kind: fs::FileType) -> Option<FileKind> {
    [
        (kind.is_dir(), FileKind::Directory),
        (kind.is_file(), FileKind::File),
        (kind.is_char_device(), FileKind::CharDevice),
        (kind.is_block_device(), FileKind::BlockDevice),
        (kind.is_socket(), FileKind::Socket),
        (kind.is_fifo(), FileKind::Fifo),
    ]
    .into_iter()
    .find_map(|(is, kind)| is.then_some(kind))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    use super::*;

    /// The owner of a link proves nothing: a payload's files can belong to the caller.
    #[test]
    fn a_link_is_refused_whoever_made_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir_all(path("real/data")).unwrap();
        fs::create_dir(path("other")).unwrap();
        symlink("real", path("link")).unwrap();
        symlink("../real/data", path("other/inner")).unwrap();
        symlink("/", path("root")).unwrap();
        symlink("loop", path("loop")).unwrap();
        assert_eq!(SourceFacts::read(&path("real/data")).link, None);
        assert_eq!(SourceFacts::read(&path("real/data")).kind, Some(FileKind::Directory));
        let cases = [
            ("link", "link"),
            ("link/data", "link"),
            ("link/../real", "link"),
            ("other/../link", "link"),
            ("other/inner", "other/inner"),
            ("root/usr", "root"),
            ("loop", "loop"),
        ];
        for (name, link) in cases {
            let facts = SourceFacts::read(&path(name));
            assert_eq!((facts.link, facts.kind), (Some(path(link)), None), "{name}");
        }
        assert_eq!(SourceFacts::read(Path::new("/proc/self/cwd")).link, Some("/proc/self".into()));
        if rustix::process::geteuid().is_root() {
            lchown(path("link"), Some(4242), Some(4242)).unwrap();
            assert_eq!(SourceFacts::read(&path("link/data")).link, Some(path("link")));
        }
    }

    #[test]
    fn a_mount_below_proc_covers_it() {
        let line = |point: &str| format!("36 35 98:0 / {point} rw,nosuid - proc proc rw\n");
        let covered = |points: &[&str]| {
            let text: String = points.iter().map(|point| line(point)).collect();
            is_covered(text.as_bytes(), "/proc")
        };
        assert!(!covered(&["/", "/proc", "/procs/x", "/proc/sys/fs/binfmt_misc"]));
        assert!(covered(&["/proc", "/proc/kcore"]));
        assert!(covered(&["/proc/sys"]));
    }

    /// `/bin` is such a link where `/usr` holds everything.
    #[test]
    fn roots_links_directly_in_the_root_are_followed() {
        for entry in fs::read_dir("/").unwrap().flatten() {
            let (path, metadata) = (entry.path(), entry.metadata().unwrap());
            if metadata.is_symlink() && metadata.uid() == 0 {
                let facts = SourceFacts::read(&path);
                assert_eq!((facts.link, facts.resolved), (None, fs::canonicalize(&path).unwrap()));
            }
        }
    }

    #[test]
    fn dots_are_walked_as_the_kernel_does() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::create_dir_all(path("a/b")).unwrap();
        for name in ["a/b", "a/../a", "a/b/..", "../../../.."] {
            let resolved = SourceFacts::read(&path(name)).resolved;
            assert_eq!(resolved, fs::canonicalize(path(name)).unwrap(), "{name}");
        }
        assert!(SourceFacts::read(&path("absent")).error.is_some());
        fs::write(path("file"), "").unwrap();
        assert!(SourceFacts::read(&path("file/../a")).error.is_some());
    }

    #[test]
    fn a_directory_is_private_below_one_that_only_root_enters() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let private = |name: &str| SourceFacts::read(&path(name)).private;
        fs::create_dir_all(path("outer/inner/deep")).unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(!private("outer/inner"));
        fs::set_permissions(path("outer"), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(private("outer/inner") && private("outer/inner/deep"));
        // Its owner inside could open it again.
        assert!(!private("outer"));
        chown(path("outer"), Some(4242), None).unwrap();
        assert!(!private("outer/inner"), "4242 enters too");
    }
}
