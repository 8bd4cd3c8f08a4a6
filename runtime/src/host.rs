//! What the plan needs to know of this host: plain data, read once before planning.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::process::Resource;
use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};

use crate::cgroups::CgroupFacts;
use crate::ids::HostIds;
use crate::spec::{RootKind, Spec, Writable};
use crate::sys;

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
    /// Control group trees and the caller's place in them.
    pub cgroups: CgroupFacts,
    /// Ids that the sandbox may use.
    pub ids: HostIds,
    /// The host paths that the spec names: sources of bind mounts, the root, the kept upper directory.
    pub sources: BTreeMap<PathBuf, SourceFacts>,
}

/// What a path of the host is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFacts {
    /// Its type, links followed; `None`: it is not there or may not be looked at, `error` says which.
    pub kind: Option<FileKind>,
    /// Why `kind` is unknown.
    pub error: Option<String>,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The path with all links followed.
    pub resolved: PathBuf,
    /// Somewhere at or above it stands a directory that only its owner can enter.
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
    /// The control group facts could not be read.
    #[error(transparent)]
    Cgroups(#[from] crate::cgroups::CgroupError),
    /// The host's kernel is older than what Airlock builds on.
    #[error("kernel {0}.{1} is too old: Airlock needs 5.14 or newer (Landlock, mount_setattr, idmapped mounts, cgroup.kill)")]
    OldKernel(u32, u32),
}

impl HostFacts {
    /// Reads the facts. `ids` were allocated before (see [`crate::ids`]).
    pub fn read(spec: &Spec, ids: HostIds) -> Result<HostFacts, HostError> {
        Ok(HostFacts::without_spec()?.with_spec(spec, ids))
    }

    /// Reads what is the same for every spec: no ids are given, and nothing is known of any path.
    pub fn without_spec() -> Result<HostFacts, HostError> {
        let kernel = kernel_release();
        if kernel < (5, 14) {
            return Err(HostError::OldKernel(kernel.0, kernel.1));
        }
        let gid = rustix::process::getegid().as_raw();
        let groups = rustix::process::getgroups()
            .map_err(|error| HostError::Read { path: "getgroups".into(), source: error.into() })?;
        Ok(HostFacts {
            kernel,
            root: is_root(),
            uid: rustix::process::geteuid().as_raw(),
            gid,
            groups: groups.into_iter().map(|group| group.as_raw()).filter(|group| *group != gid).collect(),
            last_capability: last_capability()?,
            landlock_abi: sys::landlock_abi(),
            open_files: rustix::process::getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX),
            cgroups: CgroupFacts::read()?,
            ids: HostIds::Caller,
            sources: BTreeMap::new(),
        })
    }

    /// Adds what belongs to one spec.
    #[must_use]
    pub fn with_spec(self, spec: &Spec, ids: HostIds) -> HostFacts {
        let sources = named_paths(spec).map(|path| (path.to_path_buf(), SourceFacts::read(path))).collect();
        HostFacts { ids, sources, ..self }
    }
}

impl SourceFacts {
    /// Looks at `path`, following links.
    pub fn read(path: &Path) -> SourceFacts {
        let resolved = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        match fs::metadata(path) {
            Ok(metadata) => SourceFacts {
                kind: file_kind(metadata.file_type()),
                error: None,
                uid: metadata.uid(),
                gid: metadata.gid(),
                private: is_private(&resolved),
                resolved,
            },
            Err(error) => SourceFacts {
                kind: None,
                error: Some(error.to_string()),
                uid: 0,
                gid: 0,
                private: false,
                resolved,
            },
        }
    }
}

/// The caller can act as root of the host: uid 0, the capabilities that building needs, and the initial
/// user namespace (root of a container is treated as an ordinary user).
pub fn is_root() -> bool {
    let needed = CapabilitySet::SYS_ADMIN
        | CapabilitySet::SETUID
        | CapabilitySet::SETGID
        | CapabilitySet::CHOWN
        | CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::MKNOD;
    rustix::process::geteuid().is_root()
        && rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
        && in_initial_user_namespace()
}

/// The initial user namespace maps every id to itself.
fn in_initial_user_namespace() -> bool {
    fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
}

fn kernel_release() -> (u32, u32) {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn last_capability() -> Result<u8, HostError> {
    let path = "/proc/sys/kernel/cap_last_cap";
    let read = || fs::read_to_string(path)?.trim().parse().map_err(io::Error::other);
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

/// Nobody but the owner of some directory at or above `path` gets to it.
fn is_private(path: &Path) -> bool {
    path.ancestors()
        .any(|directory| fs::metadata(directory).is_ok_and(|m| m.is_dir() && m.mode() & 0o011 == 0))
}
