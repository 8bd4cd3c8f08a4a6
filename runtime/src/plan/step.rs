//! The steps of a plan: plain data, one variant per kernel-facing act.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use crate::cgroups::{CgroupTarget, DeviceFilter};
use crate::host::FileKind;
use crate::ids::IdMaps;
use crate::seccomp::{self, Program};

/// A step and the policy clause that asks for it.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// The clause, as a person would look for it in the policy: `[[mount]] /data`, `network.mode`.
    pub clause: String,
    /// What is done.
    #[serde(flatten)]
    pub action: Action,
}

/// Symbolic name of a mount that is built detached and attached later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct MountId(pub u16);

/// Flags of a mount; nosuid and private propagation are always set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MountFlags {
    /// No writes.
    pub read_only: bool,
    /// No execution.
    pub no_exec: bool,
    /// No device nodes.
    pub no_dev: bool,
}

/// An id map on a mount (mount_setattr(2), MOUNT_ATTR_IDMAP).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Idmap {
    /// Ids on disk (`inside`) and the host ids that they appear as (`outside`).
    pub maps: IdMaps,
    /// Without it the mount is useless; otherwise a file system that refuses leaves only less in reach.
    pub required: bool,
}

/// A uid and a gid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Owner {
    /// User id: of the host on the host side, inside on the child side.
    pub uid: u32,
    /// Group id, likewise.
    pub gid: u32,
}

/// What is put at a path of a mount under construction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "entry")]
pub enum Entry {
    /// A directory.
    Dir {
        /// Permission bits.
        mode: u32,
    },
    /// A regular file with this content.
    File {
        /// Permission bits.
        mode: u32,
        /// Its bytes.
        #[serde(serialize_with = "text")]
        content: Vec<u8>,
    },
    /// A copy of a small regular file of the host; left out where the host has none that everybody may read.
    Copy {
        /// The host's file.
        source: PathBuf,
    },
    /// A symbolic link.
    Link {
        /// Its text.
        target: PathBuf,
    },
    /// A character device.
    Device {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
}

/// What a Landlock rule lets a path be used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Access {
    /// Open for reading.
    pub read: bool,
    /// Execute.
    pub exec: bool,
    /// List directories.
    pub list: bool,
    /// Write to existing files.
    pub write: bool,
    /// Create, remove, rename and link.
    pub create: bool,
    /// ioctl on device files.
    pub ioctl: bool,
}

/// A Landlock rule: what may be done at and beneath a path inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LandlockRule {
    /// Path inside.
    pub path: PathBuf,
    /// Rights.
    pub access: Access,
}

/// A resource limit (getrlimit(2)); hard and soft.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// `RLIMIT_*` number.
    pub resource: u32,
    /// Soft limit.
    pub soft: u64,
    /// Hard limit.
    pub hard: u64,
}

/// One kernel-facing act.
#[derive(Clone, Debug, Serialize, strum::VariantNames)]
#[serde(rename_all = "kebab-case", tag = "action")]
#[strum(serialize_all = "kebab-case")]
pub enum Action {
    /// Make the control group's v2 directory, into which init is cloned.
    CreateCgroup {
        /// Where.
        #[serde(serialize_with = "paths")]
        target: CgroupTarget,
    },
    /// Make its v1 directories and set its limits, while init is already at work.
    LimitCgroup {
        /// Where.
        #[serde(serialize_with = "paths")]
        target: CgroupTarget,
        /// What is limited.
        resources: Box<oci_spec::runtime::LinuxResources>,
    },
    /// Allow these devices and no others (v1 list, v2 program, or both).
    FilterDevices {
        /// The allow list.
        #[serde(skip)]
        filter: DeviceFilter,
    },
    /// clone3(2) the sandbox's init into new namespaces, into the v2 group where there is one.
    CloneInit {
        /// `CLONE_NEW*` flags, by name.
        namespaces: Vec<Namespace>,
    },
    /// Write the id maps of the new user namespace.
    WriteIdMaps {
        /// The maps.
        maps: IdMaps,
        /// Write `deny` to setgroups first (needed by an ordinary user).
        deny_setgroups: bool,
        /// Through newuidmap(1) and newgidmap(1).
        helper: bool,
    },
    /// Wait until they are written.
    AwaitIdMaps,

    /// Make a tmpfs.
    NewTmpfs {
        /// Name of the new mount.
        mount: MountId,
        /// Size in bytes.
        size: u64,
        /// Permission bits of its root.
        mode: u32,
        /// Owner of its root.
        owner: Owner,
        /// Mount flags.
        flags: MountFlags,
    },
    /// Clone a directory or file of the host as a mount of its own.
    CloneTree {
        /// Name of the new mount.
        mount: MountId,
        /// The host's path.
        source: PathBuf,
        /// The type that it must have.
        kind: FileKind,
        /// Mount flags.
        flags: MountFlags,
        /// Id map on it.
        idmap: Option<Idmap>,
    },
    /// Clone a device node of the host as a mount of its own.
    CloneDevice {
        /// Name of the new mount.
        mount: MountId,
        /// The host's path.
        source: PathBuf,
        /// Major number that it must have.
        major: u32,
        /// Minor number that it must have.
        minor: u32,
    },
    /// Put an entry into a mount under construction.
    Make {
        /// The mount.
        mount: MountId,
        /// Absolute path inside that mount.
        path: PathBuf,
        /// Owner.
        owner: Owner,
        /// What.
        #[serde(flatten)]
        entry: Entry,
    },
    /// Make a finished mount read-only.
    Seal {
        /// The mount.
        mount: MountId,
    },
    /// Make a procfs of the new PID namespace, foreign processes hidden. On the host side where the kernel would
    /// refuse it to the child.
    NewProc {
        /// Name of the new mount.
        mount: MountId,
    },
    /// Make a devpts instance.
    NewDevpts {
        /// Name of the new mount.
        mount: MountId,
    },
    /// Lay an overlay over mounts attached below the scratch directory.
    NewOverlay {
        /// Name of the new mount.
        mount: MountId,
        /// Lower layers, topmost first.
        lower: Vec<MountId>,
        /// Mount that holds the upper and work directories; none: read-only.
        upper: Option<MountId>,
        /// Directory below the upper mount.
        name: String,
        /// Mount flags.
        flags: MountFlags,
    },
    /// Hand the mounts built on the host side to the child, with the v1 groups to join.
    HandOver {
        /// In this order.
        mounts: Vec<MountId>,
    },
    /// Receive them.
    Receive {
        /// In this order.
        mounts: Vec<MountId>,
    },

    /// Open the pseudo-terminal and hand its other end to the monitor.
    OpenTerminal,
    /// Become the sandbox's root before any id is dropped.
    BecomeRoot,
    /// Unshare namespaces that are better made by the child.
    Unshare {
        /// Which.
        namespaces: Vec<Namespace>,
    },
    /// Leave the caller's session (setsid(2)) and keyring.
    NewSession,
    /// Keep mount events of the host out: `/` recursively private.
    PrivateMounts,
    /// Move the new root onto `/`.
    AttachRoot {
        /// The mount.
        mount: MountId,
    },
    /// Move a mount to its place.
    Attach {
        /// The mount.
        mount: MountId,
        /// Absolute path inside, resolved below the new root without following links.
        target: PathBuf,
    },
    /// Pivot into the new root and detach the old one.
    Pivot,
    /// Hide paths: directories under an empty read-only tmpfs, files under /dev/null.
    Mask {
        /// Absolute paths inside; absent ones are passed over.
        paths: Vec<PathBuf>,
    },
    /// Make paths read-only.
    ReadOnly {
        /// Absolute paths inside; absent ones are passed over.
        paths: Vec<PathBuf>,
    },
    /// Set the host name.
    Hostname {
        /// It.
        name: String,
    },
    /// Bring the loopback interface up.
    LoopbackUp,
    /// Forbid user namespaces inside (`user.max_user_namespaces`).
    ForbidUserNamespaces,
    /// Limit what the kernel counts for the namespace's owner too: inotify, namespaces. A new user namespace has
    /// no limits of its own, so each of these is lower.
    LimitQuotas,
    /// Set resource limits.
    Limits {
        /// Which.
        limits: Vec<Limit>,
    },
    /// Drop capabilities from the bounding set.
    DropBounding {
        /// Those to keep.
        keep: Vec<u8>,
        /// Highest number that the kernel knows.
        last: u8,
    },
    /// Become the payload's user.
    SetIds {
        /// Inside.
        uid: u32,
        /// Inside.
        gid: u32,
        /// Supplementary groups inside; `None` leaves those that the kernel does not let go.
        groups: Option<Vec<u32>>,
    },
    /// Set the permitted, effective, inheritable and ambient sets.
    SetCapabilities {
        /// Those to keep; the others go.
        keep: Vec<u8>,
    },
    /// Die with the monitor (an extra; see the design's process model).
    DieWithMonitor,
    /// no_new_privs.
    NoNewPrivileges,
    /// Restrict to these rules and prove it by an open that must now fail.
    Landlock {
        /// ABI to use, at most the kernel's.
        abi: u8,
        /// The rules.
        rules: Vec<LandlockRule>,
    },
    /// Leave nothing inherited open but what was asked for; reset umask.
    CloseDescriptors,
    /// Enter the working directory and check that it lies inside.
    EnterWorkingDirectory {
        /// Absolute path inside.
        path: PathBuf,
    },
    /// Install the filter.
    Seccomp {
        /// The program.
        #[serde(skip)]
        program: Program,
        /// How it is installed.
        #[serde(skip)]
        flags: seccomp::Flags,
        /// Its length.
        instructions: usize,
    },
}

impl Action {
    /// The name of each kind, as a plan that is printed as JSON has it.
    pub const NAMES: &'static [&'static str] = <Action as strum::VariantNames>::VARIANTS;
}

/// A kind of namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Namespace {
    /// user_namespaces(7)
    User,
    /// mount_namespaces(7)
    Mount,
    /// pid_namespaces(7)
    Pid,
    /// network_namespaces(7)
    Network,
    /// ipc_namespaces(7)
    Ipc,
    /// uts_namespaces(7)
    Uts,
    /// cgroup_namespaces(7)
    Cgroup,
}

impl Namespace {
    /// All kinds, in the order of `/proc/PID/ns`.
    pub const ALL: [Namespace; 7] = [
        Namespace::User,
        Namespace::Mount,
        Namespace::Pid,
        Namespace::Network,
        Namespace::Ipc,
        Namespace::Uts,
        Namespace::Cgroup,
    ];

    /// Its `CLONE_NEW*` flag.
    pub fn flag(self) -> i32 {
        match self {
            Namespace::User => libc::CLONE_NEWUSER,
            Namespace::Mount => libc::CLONE_NEWNS,
            Namespace::Pid => libc::CLONE_NEWPID,
            Namespace::Network => libc::CLONE_NEWNET,
            Namespace::Ipc => libc::CLONE_NEWIPC,
            Namespace::Uts => libc::CLONE_NEWUTS,
            Namespace::Cgroup => libc::CLONE_NEWCGROUP,
        }
    }

    /// Its name below `/proc/PID/ns`.
    pub fn proc_name(self) -> &'static str {
        match self {
            Namespace::User => "user",
            Namespace::Mount => "mnt",
            Namespace::Pid => "pid",
            Namespace::Network => "net",
            Namespace::Ipc => "ipc",
            Namespace::Uts => "uts",
            Namespace::Cgroup => "cgroup",
        }
    }
}

/// Serializes a target as the directories that it names.
fn paths<S: serde::Serializer>(target: &CgroupTarget, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(target.trees.iter().map(|tree| tree.path()))
}

/// Serializes bytes as the text that they mostly are.
fn text<S: serde::Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&String::from_utf8_lossy(bytes))
}

impl fmt::Display for MountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{}", self.0)
    }
}
