//! The policy file as it is written: TOML tables and keys, each value with its place.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use airlock_runtime::spec::GpuFeature;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

/// A value and the byte range of the file that it was read from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At<T>(toml::Spanned<T>);

impl<T> At<T> {
    /// A value that was read from `span`.
    pub fn new(span: Range<usize>, value: T) -> Self {
        At(toml::Spanned::new(span, value))
    }

    /// The byte range.
    pub fn span(&self) -> Range<usize> {
        self.0.span()
    }

    /// The value alone.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T> std::ops::Deref for At<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.get_ref()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        toml::Spanned::deserialize(deserializer).map(At)
    }
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// The text of a limit. A bare number is kept as text, so that the missing unit can be named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quantity(pub(crate) String);

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl serde::de::Visitor<'_> for Visitor {
            type Value = Quantity;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number, or a number and its unit in quotes")
            }

            fn visit_str<E>(self, text: &str) -> Result<Quantity, E> {
                Ok(Quantity(text.to_owned()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Quantity, E> {
                Ok(Quantity(number.to_string()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Quantity, E> {
                Ok(Quantity(number.to_string()))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Quantity, E> {
                Ok(Quantity(number.to_string()))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Quantity {
    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Sizes and durations are strings with a unit (\"64GiB\", \"4h\"); \
                            counts are numbers; \"unlimited\" lifts an inherited limit.",
            "type": ["string", "number"],
        })
    }
}

/// An Airlock policy.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Document {
    /// Version of the policy language: 1.
    pub(crate) version: Option<At<i64>>,
    /// Name of the policy; default: the file's name.
    pub(crate) name: Option<At<String>>,
    /// The policy that this one changes: a built-in name, or a file (with `/` or ending in `.toml`,
    /// relative to this file). Default: `base`.
    pub(crate) extends: Option<At<String>>,
    /// Namespaces may be made inside. Landlock refuses every mount in them, so a nested sandbox with a root of
    /// its own needs `landlock.enabled = false` too.
    pub(crate) nesting: Option<At<bool>>,
    /// Clauses that may be lowered to what the host can do; the end report says which were.
    pub(crate) best_effort: Option<At<Vec<At<BestEffort>>>>,
    /// What `/` is.
    #[serde(default)]
    pub(crate) root: RootTable,
    /// Files and directories of the host, by target.
    #[serde(default)]
    pub(crate) mount: Vec<At<MountTable>>,
    /// The command's start.
    #[serde(default)]
    pub(crate) process: ProcessTable,
    /// Who the command runs as.
    #[serde(default)]
    pub(crate) identity: IdentityTable,
    /// What the network namespace contains.
    #[serde(default)]
    pub(crate) network: NetworkTable,
    /// Capabilities of the command.
    #[serde(default)]
    pub(crate) capabilities: CapabilitiesTable,
    /// Which system calls are let through.
    #[serde(default)]
    pub(crate) seccomp: SeccompTable,
    /// Landlock's floor, and what narrows the rights that the mounts imply.
    #[serde(default)]
    pub(crate) landlock: LandlockTable,
    /// Limits; each is a number or `"unlimited"`.
    #[serde(default)]
    pub(crate) limits: LimitsTable,
    /// GPUs.
    pub(crate) gpu: Option<At<GpuTable>>,
    /// The environment.
    #[serde(default)]
    pub(crate) env: EnvTable,
}

/// What `/` is.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RootTable {
    /// Where `/` comes from.
    pub(crate) kind: Option<At<RootKind>>,
    /// The directory, for kind `dir`.
    pub(crate) path: Option<At<String>>,
    /// Where writes to `/` go: `none`, `tmpfs` (of the size `limits.tmp`), or an existing directory that
    /// keeps them (written with a `/`).
    pub(crate) writable: Option<At<String>>,
    /// Programs may be run from `/tmp` and the home directory.
    pub(crate) tmp_exec: Option<At<bool>>,
}

/// Where `/` comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RootKind {
    /// The host's programs (`/usr`, `/opt`), read-only, and an `/etc` made for the sandbox.
    Host,
    /// A directory of the host.
    Dir,
    /// An image. Not built yet.
    Image,
    /// Nothing but what the policy mounts.
    #[default]
    Empty,
}

/// A file or directory of the host, seen inside.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MountTable {
    /// Path on the host, relative to the policy file.
    pub(crate) source: At<String>,
    /// Absolute path inside.
    pub(crate) target: At<String>,
    /// Default: `ro`.
    #[serde(default)]
    pub(crate) mode: MountMode,
    /// Programs may be run from it. Default: false.
    #[serde(default)]
    pub(crate) exec: bool,
    /// Left out where the host has no such source. Default: false.
    #[serde(default)]
    pub(crate) optional: bool,
    /// The source is a Unix socket, and what listens on it can be connected to from inside. Default: false.
    #[serde(default)]
    pub(crate) socket: bool,
}

/// Whether a mount may be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MountMode {
    /// Read-only.
    #[default]
    Ro,
    /// Read and write.
    Rw,
}

/// The command's start.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProcessTable {
    /// Working directory inside. Default: the home directory.
    pub(crate) cwd: Option<At<String>>,
}

/// Who the command runs as.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct IdentityTable {
    /// `"uid:gid"` inside.
    pub(crate) user: Option<At<String>>,
    /// Host name inside.
    pub(crate) hostname: Option<At<String>>,
    /// How ids inside relate to ids of the host.
    pub(crate) ids: Option<At<Ids>>,
    /// What becomes of the caller's supplementary groups.
    pub(crate) groups: Option<At<Groups>>,
}

/// How ids inside relate to ids of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ids {
    /// `range` for root, `single` for an ordinary user.
    #[default]
    Auto,
    /// Root: 65,536 ids that no other sandbox has.
    Range,
    /// Root: a range, but the command's id is the host owner of the writable mounts.
    Direct,
    /// Ordinary user: the caller's id alone.
    Single,
    /// Ordinary user: the caller's id and a range of `/etc/subuid`.
    Subids,
}

/// What becomes of the caller's supplementary groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Groups {
    /// Dropped where the kernel lets the caller drop them, and reported where not.
    #[default]
    Auto,
    /// Dropped, or the launch is refused.
    None,
}

/// What the network namespace contains.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NetworkTable {
    /// Default: `none`.
    pub(crate) mode: Option<At<NetworkMode>>,
    /// `host:port` pairs, for `broker`. Not built yet.
    pub(crate) allow: Option<At<Vec<String>>>,
}

/// What the network namespace contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum NetworkMode {
    /// A loopback interface that is down, and no netlink sockets.
    #[default]
    None,
    /// A loopback interface that is up, and netlink route sockets, by which programs list interfaces. What waits in
    /// the buffers of netlink, and on cgroup v1 of TCP, may be memory of the host beyond `limits.memory`.
    Loopback,
    /// Connections to an allow list, through one relayed socket. Not built yet.
    Broker,
}

/// Capabilities of the command.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CapabilitiesTable {
    /// Capabilities kept in all five sets, as `CAP_NAME`.
    pub(crate) keep: Option<At<Vec<At<String>>>>,
}

/// Which system calls are let through.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SeccompTable {
    /// `default`, `strict`, `none`, or a file in OCI's JSON format (with `/`, relative to this file).
    pub(crate) profile: Option<At<String>>,
    /// System calls allowed with any arguments, whatever the profile says of them.
    pub(crate) allow: Option<At<Vec<At<String>>>>,
    /// System calls that fail with EPERM, whatever the profile says of them.
    pub(crate) deny: Option<At<Vec<At<String>>>>,
    /// System calls allowed and written to the audit log.
    pub(crate) log: Option<At<Vec<At<String>>>>,
}

/// Landlock's floor, and what narrows the rights that the mounts imply.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LandlockTable {
    /// Default: true.
    pub(crate) enabled: Option<At<bool>>,
    /// Lowest ABI accepted (1 to 10); 0: best effort, said in the report.
    pub(crate) min_abi: Option<At<i64>>,
    /// Paths inside that may be read and executed. Default: all mounts.
    pub(crate) read: Option<At<Vec<At<String>>>>,
    /// Paths inside that may be written. Default: all writable mounts.
    pub(crate) write: Option<At<Vec<At<String>>>>,
}

/// Limits.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitsTable {
    /// Memory of all processes together, with a unit.
    pub(crate) memory: Option<At<Quantity>>,
    /// Swap on top of `memory`, with a unit.
    pub(crate) swap: Option<At<Quantity>>,
    /// CPUs' worth of time.
    pub(crate) cpus: Option<At<Quantity>>,
    /// Which CPUs, as a list of ranges: `"0-3,8"`.
    pub(crate) cpuset: Option<At<String>>,
    /// Processes and threads.
    pub(crate) pids: Option<At<Quantity>>,
    /// Weight among competitors for block devices, 10 to 1000.
    pub(crate) io_weight: Option<At<Quantity>>,
    /// Size of `/tmp`, with a unit.
    pub(crate) tmp: Option<At<Quantity>>,
    /// Size of `/dev/shm`, with a unit.
    pub(crate) shm: Option<At<Quantity>>,
    /// Wall-clock time, with a unit.
    pub wall: Option<At<Quantity>>,
    /// Open files of a process; a lower limit of the caller holds.
    pub(crate) nofile: Option<At<Quantity>>,
    /// Size of a core file, with a unit. With 0 the command has the limit 1, at which the kernel neither writes
    /// a file nor starts the program of a piped core pattern; with more, a crash does start that program on the
    /// host. A hard limit of the caller below that holds.
    pub(crate) core: Option<At<Quantity>>,
}

/// GPUs.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GpuTable {
    /// How many, of any kind.
    pub(crate) count: Option<At<i64>>,
    /// Or exactly these: index, UUID, MIG UUID or PCI address.
    pub(crate) devices: Option<At<Vec<At<String>>>>,
    /// Driver capabilities, as the vendor names them: `compute`, `utility`, `graphics`, `video`. Default: `compute`
    /// and `utility`.
    pub(crate) capabilities: Option<At<Vec<At<String>>>>,
    /// Others may hold the same GPUs at the same time. Default: false.
    pub(crate) shared: Option<At<bool>>,
    /// Most memory that the sandbox may use of each of these GPUs and slices, with a unit. It is looked at twice a second;
    /// a sandbox that has more is ended. Default: unlimited.
    pub(crate) memory: Option<At<Quantity>>,
    /// Most energy that each of these GPUs may take while the sandbox runs, with a unit. Default: unlimited.
    pub(crate) energy: Option<At<Quantity>>,
    /// Most that each of these GPUs may be busy, as a mean over a minute, such as `"80%"`. Default: unlimited.
    pub(crate) utilisation: Option<At<Quantity>>,
    /// Root resets these GPUs when the sandbox has ended, before others get them. Default: false.
    pub(crate) reset: Option<At<bool>>,
    /// Further parts of NVIDIA's driver, and services of it on the host, that are let in.
    pub(crate) features: Option<At<Vec<At<GpuFeature>>>>,
    /// Devices of the CDI documents in `/etc/cdi` and `/var/run/cdi`, as `vendor.com/class=name`.
    pub(crate) cdi: Option<At<Vec<At<String>>>>,
    /// What becomes of a CDI device that wants programs of the host to be run. Default: `refuse`.
    pub(crate) cdi_hooks: Option<At<CdiHooks>>,
    /// Render nodes of other vendors' drivers: `/dev/dri/renderD128` and so on, `/dev/kfd`.
    pub(crate) nodes: Option<At<Vec<At<String>>>>,
}

/// What becomes of a CDI device that wants programs of the host to be run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CdiHooks {
    /// The launch is refused.
    #[default]
    Refuse,
    /// They are left out; Airlock makes the links and the loader's cache of NVIDIA's driver itself.
    Skip,
}

/// The environment.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EnvTable {
    /// Variables taken from the caller, where the caller has them.
    pub(crate) pass: Option<At<Vec<At<String>>>>,
    /// Variables and their values.
    #[serde(default)]
    pub(crate) set: BTreeMap<At<String>, At<String>>,
}

/// Clauses that may be lowered to what the host can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BestEffort {
    /// Memory, cpus, cpuset and pids.
    Limits,
    /// The device filter.
    Devices,
}

impl BestEffort {
    /// As policies write it.
    pub fn word(self) -> &'static str {
        match self {
            BestEffort::Limits => "limits",
            BestEffort::Devices => "devices",
        }
    }
}
