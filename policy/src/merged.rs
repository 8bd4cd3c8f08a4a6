//! A policy after `extends`, the command line and defaults were merged.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use airlock_runtime::spec::GpuFeature;
use oci_spec::runtime::{Capability, LinuxSeccomp};
use serde::{Serialize, Serializer};

use crate::diagnostic::{Diagnostic, Fault, Place, PolicyError, Spot};
use crate::host::TOP;
use crate::schema::{BestEffort, CdiHooks, Groups, Ids, MountMode, NetworkMode, RootKind};
use crate::units::{Duration, Energy, Percent, Size};

/// A policy, whole and checked. It serializes to a policy file that needs no other.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Policy {
    /// Version of the policy language.
    pub version: u32,
    /// Its name.
    pub name: String,
    /// Namespaces may be made inside.
    pub nesting: bool,
    /// Clauses that may be lowered to what the host can do.
    pub best_effort: BTreeSet<BestEffort>,
    /// What `/` is.
    pub root: Root,
    /// The command's start.
    pub process: Process,
    /// Who the command runs as.
    pub identity: Identity,
    /// What the network namespace contains.
    pub network: Network,
    /// Capabilities of the command.
    pub capabilities: Capabilities,
    /// Which system calls are let through.
    pub seccomp: Seccomp,
    /// Landlock.
    pub landlock: Landlock,
    /// Limits.
    pub limits: Limits,
    /// GPUs asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<Gpu>,
    /// The environment.
    pub env: Env,
    /// Files and directories of the host, in the order of the policy files.
    pub mount: Vec<Mount>,
    /// Where each clause was last set, see [`Policy::place`].
    #[serde(skip)]
    pub(crate) spots: BTreeMap<String, Spot>,
}

/// What `/` is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Root {
    /// Where `/` comes from.
    pub kind: RootKind,
    /// The directory, for kind `dir`: absolute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Where writes to `/` go.
    pub writable: Writable,
    /// Programs may be run from `/tmp` and the home directory.
    pub tmp_exec: bool,
}

/// Where writes to `/` go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Writable {
    /// Nowhere.
    #[default]
    None,
    /// Into memory, of the size `limits.tmp`.
    Tmpfs,
    /// Into this absolute directory of the host.
    Dir(PathBuf),
}

/// A file or directory of the host, seen inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mount {
    /// Absolute path on the host.
    pub source: PathBuf,
    /// Absolute path inside.
    pub target: PathBuf,
    /// Whether it may be written.
    pub mode: MountMode,
    /// Programs may be run from it.
    pub exec: bool,
    /// Left out where the host has no such source.
    pub optional: bool,
    /// The source is a Unix socket, and what listens on it can be connected to from inside.
    pub socket: bool,
}

/// The command's start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Working directory inside; `None`: the home directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
}

/// Who the command runs as.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// User and group inside.
    pub user: User,
    /// Host name inside.
    pub hostname: String,
    /// How ids inside relate to ids of the host.
    pub ids: Ids,
    /// What becomes of the caller's supplementary groups.
    pub groups: Groups,
}

/// A user and a group, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// User id inside.
    pub uid: u32,
    /// Group id inside.
    pub gid: u32,
}

/// What the network namespace contains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Network {
    /// What the network namespace contains.
    pub mode: NetworkMode,
}

/// Capabilities of the command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// Kept in all five sets, in the order of the policy file.
    pub keep: Vec<Capability>,
}

/// Which system calls are let through.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Seccomp {
    /// The profile that the lists change.
    pub profile: Profile,
    /// System calls allowed with any arguments.
    pub allow: Vec<String>,
    /// System calls that fail with EPERM.
    pub deny: Vec<String>,
    /// System calls allowed and logged.
    pub log: Vec<String>,
}

/// A seccomp profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Profile {
    /// Airlock's `default`.
    #[default]
    Default,
    /// Airlock's `strict`.
    Strict,
    /// No filter.
    None,
    /// A file in OCI's format.
    File {
        /// Its absolute path.
        path: PathBuf,
        /// What it says.
        content: Box<LinuxSeccomp>,
    },
}

/// Landlock's floor, and what narrows the rights that the mounts imply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Landlock {
    /// Whether it is used at all.
    pub enabled: bool,
    /// Lowest ABI accepted; 0: best effort.
    pub min_abi: u8,
    /// Paths inside that may be read and executed; `None`: all mounts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<Vec<PathBuf>>,
    /// Paths inside that may be written; `None`: all writable mounts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<Vec<PathBuf>>,
}

/// Limits; `None` is unlimited.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Limits {
    /// Memory of all processes together.
    #[serde(serialize_with = "unlimited")]
    pub memory: Option<Size>,
    /// Swap on top of `memory`.
    #[serde(serialize_with = "unlimited")]
    pub swap: Option<Size>,
    /// CPUs' worth of time.
    #[serde(serialize_with = "unlimited")]
    pub cpus: Option<f64>,
    /// Which CPUs, in the kernel's list format.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpuset: Option<String>,
    /// Processes and threads.
    #[serde(serialize_with = "unlimited")]
    pub pids: Option<u64>,
    /// Weight among competitors for block devices; `None`: the kernel's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_weight: Option<u16>,
    /// Size of `/tmp`, of the home directory and of a writable root.
    pub tmp: Size,
    /// Size of `/dev/shm`.
    pub shm: Size,
    /// Wall-clock time.
    #[serde(serialize_with = "unlimited")]
    pub wall: Option<Duration>,
    /// Open files of a process; a lower limit of the caller holds.
    pub nofile: u64,
    /// Size of a core file; 0: no core dump of any kind.
    pub core: Size,
}

/// GPUs asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Gpu {
    /// How many, of any kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Or exactly these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// Driver capabilities; none stands for `compute` and `utility`.
    pub capabilities: Vec<String>,
    /// Others may hold the same GPUs at the same time.
    pub shared: bool,
    /// Most memory that may be used of each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
    /// Most energy that each may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy: Option<Energy>,
    /// Most that each may be busy, as a mean over a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<Percent>,
    /// They are reset when the sandbox has ended.
    pub reset: bool,
    /// Further parts of the driver, and services of it on the host.
    pub features: BTreeSet<GpuFeature>,
    /// Devices of the host's CDI documents.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cdi: Vec<String>,
    /// What becomes of a CDI device with hooks.
    pub cdi_hooks: CdiHooks,
    /// Render nodes of other vendors' drivers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<PathBuf>,
}

/// The environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Env {
    /// Variables taken from the caller.
    pub pass: Vec<String>,
    /// Variables and their values.
    pub set: BTreeMap<String, String>,
}

impl Policy {
    /// `sha256:<hex>` of the JSON of the merged policy and of what its seccomp file says. Nothing in it is
    /// unordered, so that equal policies have equal digests.
    pub fn digest(&self) -> Result<String, PolicyError> {
        let json =
            |error: serde_json::Error| PolicyError::Write { format: "JSON", message: error.to_string() };
        let content = match &self.seccomp.profile {
            Profile::File { content, .. } => Some(content),
            Profile::Default | Profile::Strict | Profile::None => None,
        };
        let text = serde_json::to_string(&(self, content)).map_err(json)?;
        Ok(airlock_runtime::spec::digest(text.as_bytes()))
    }

    /// Places of the host that are seen inside, files in `/etc` apart.
    pub fn shows(&self) -> impl Iterator<Item = &Path> {
        let tops: &[&str] = if self.root.kind == RootKind::Host { &TOP } else { &[] };
        let root = self.root.path.as_deref().filter(|_| self.root.kind == RootKind::Dir);
        let sources = self.mount.iter().map(|mount| mount.source.as_path());
        tops.iter().map(Path::new).chain(root).chain(sources)
    }

    /// Where a clause was last set: `limits.memory`, `[[mount]] /data` (its target), `[[mount]] /data source`,
    /// `env.set.LANG`.
    pub fn place(&self, clause: &str) -> Option<Place> {
        self.spots.get(clause).map(Spot::place)
    }

    /// An error at the place where `clause` was set.
    pub(crate) fn fault(&self, clause: &str, fault: Fault) -> PolicyError {
        match self.place(clause) {
            Some(place) => fault.at(place).into(),
            None => PolicyError::Host { clause: clause.to_owned(), message: fault.message },
        }
    }

    /// All faults that were found, or none.
    pub(crate) fn check(faults: Vec<Diagnostic>) -> Result<(), PolicyError> {
        if faults.is_empty() { Ok(()) } else { Err(PolicyError::Invalid(faults)) }
    }
}

impl Mount {
    /// The clause that a mount is named by.
    pub(crate) fn clause(&self) -> String {
        format!("[[mount]] {}", self.target.display())
    }

    /// Its part that names what is mounted.
    pub(crate) fn source_clause(&self) -> String {
        format!("{} source", self.clause())
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

impl Serialize for User {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Writable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Writable::None => serializer.serialize_str("none"),
            Writable::Tmpfs => serializer.serialize_str("tmpfs"),
            Writable::Dir(path) => path.serialize(serializer),
        }
    }
}

impl Serialize for Profile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Profile::Default => serializer.serialize_str("default"),
            Profile::Strict => serializer.serialize_str("strict"),
            Profile::None => serializer.serialize_str("none"),
            Profile::File { path, .. } => path.serialize(serializer),
        }
    }
}

fn unlimited<T: Serialize, S: Serializer>(limit: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    match limit {
        Some(limit) => limit.serialize(serializer),
        None => serializer.serialize_str("unlimited"),
    }
}
