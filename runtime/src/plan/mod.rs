//! The plan: a spec compiled to the ordered kernel steps that build the sandbox.
//!
//! [`plan`] is a pure function of the spec, the host's facts and a name; it makes no system call. The
//! plan has two ordered lists, the host side and the child side, joined by symbolic mount names: root
//! builds mounts on the host side and hands them over, an ordinary user's child builds them itself.

mod identity;
mod landlock;
mod layout;
mod options;
mod step;
#[cfg(test)]
mod tests;
mod text;

use std::path::{Path, PathBuf};

use serde::Serialize;

pub use self::options::UnknownOption;
pub(crate) use self::options::{limit_name, rlimit_number};
pub use self::step::{
    Access, Action, Entry, Idmap, LandlockRule, Limit, MountFlags, MountId, Namespace, Owner, Step,
};
use crate::cgroups::{CgroupError, CgroupPath, CgroupTarget, DeviceFilter, Needs};
use crate::gpu::{self, GpuError};
use crate::host::HostFacts;
use crate::ids::IdMaps;
use crate::seccomp::{self, Program, SeccompError};
use crate::spec::{Landlock, Network, Spec};

/// The ordered steps that build a sandbox, what runs in it, and what must be true before it runs.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Name of the sandbox.
    pub id: String,
    /// Performed by the monitor.
    pub host: Vec<Step>,
    /// Performed by the sandbox's init.
    pub child: Vec<Step>,
    /// What runs when all is verified.
    pub payload: Payload,
    /// What is read back before the payload is released.
    pub expect: Expectations,
    /// Protections that the policy allowed to be lowered, and were: clause and what is missing.
    pub lowered: Vec<Lowered>,
    /// Wall-clock limit in milliseconds.
    pub wall_ms: Option<u64>,
}

/// What runs in the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Payload {
    /// Program and arguments; looked up in the sandbox's own `PATH`.
    pub args: Vec<String>,
    /// `KEY=VALUE`.
    pub env: Vec<String>,
}

/// The kernel's view of the finished sandbox, as far as it can be read back.
#[derive(Clone, Debug, Serialize)]
pub struct Expectations {
    /// Namespaces that must differ from the caller's.
    pub namespaces: Vec<Namespace>,
    /// Id maps.
    pub maps: IdMaps,
    /// Real, effective, saved and file-system uid and gid, as the host sees them.
    pub host_ids: (u32, u32),
    /// Supplementary groups, as the host sees them; `None` where they could not be dropped.
    pub groups: Option<Vec<u32>>,
    /// Capability numbers left in each set.
    pub capabilities: Vec<u8>,
    /// Mount points; nothing else may be mounted but what lies below a bind mount, with the bind mount's flags.
    pub mounts: Vec<ExpectedMount>,
    /// Paths that are covered or made read-only where they exist.
    pub covered: Vec<PathBuf>,
    /// A seccomp filter is installed.
    pub seccomp: bool,
    /// Host name inside.
    pub hostname: Option<String>,
    /// Limits and device rules of the control group.
    #[serde(skip)]
    pub resources: Option<oci_spec::runtime::LinuxResources>,
    /// Resource limits.
    pub limits: Vec<Limit>,
    /// The control group that init must be in.
    #[serde(skip)]
    pub cgroup: Option<CgroupTarget>,
}

/// A mount that must be there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExpectedMount {
    /// Clause.
    pub clause: String,
    /// Path inside.
    pub target: PathBuf,
    /// Flags, of the mounts below it too.
    pub flags: MountFlags,
    /// What is mounted there.
    pub file_system: FileSystem,
}

/// What is mounted at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileSystem {
    /// One of the sandbox's own, of this type.
    Own(&'static str),
    /// A part of the host's, with the mounts below it; none of the kernel's.
    Host,
    /// A device node of the host's.
    Device,
}

/// A protection that the host does not have and the policy does not insist on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Lowered {
    /// The clause.
    pub clause: String,
    /// What is missing and why.
    pub what: String,
}

/// Where a sandbox is put.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Its name.
    pub id: String,
    /// Group to work below instead of the caller's own.
    pub cgroup_parent: Option<CgroupPath>,
}

/// A spec cannot be built on this host.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The OCI document lacks something.
    #[error("{clause}: the spec has no {what}")]
    Missing {
        /// Clause.
        clause: &'static str,
        /// What is not there.
        what: &'static str,
    },
    /// The source of a mount cannot be used.
    #[error("{clause}: source {path}: {why}")]
    Source {
        /// Clause.
        clause: String,
        /// The host's path.
        path: PathBuf,
        /// What is wrong, and the remedy.
        why: String,
    },
    /// The target of a mount or entry cannot be used.
    #[error("{clause}: target {path:?}: {why}")]
    Target {
        /// Clause.
        clause: String,
        /// Path inside.
        path: PathBuf,
        /// What is wrong, and the remedy.
        why: String,
    },
    /// A mount option that is not understood.
    #[error("{clause}: {source}")]
    Option {
        /// Clause.
        clause: String,
        /// Which.
        source: UnknownOption,
    },
    /// The ids asked for cannot be had.
    #[error("identity: {0}")]
    Ids(String),
    /// A capability that would undo the mounts, or an unknown one.
    #[error("capabilities.keep: {0}")]
    Capability(String),
    /// Landlock below the policy's floor.
    #[error("landlock.min_abi: the policy asks for ABI {wanted}, this kernel has {found}; {remedy}")]
    Landlock {
        /// Floor.
        wanted: u8,
        /// Kernel's.
        found: u8,
        /// What to do.
        remedy: &'static str,
    },
    /// The filter cannot be compiled.
    #[error("seccomp.profile: {0}")]
    Seccomp(#[from] SeccompError),
    /// The control group cannot be placed.
    #[error("limits: {0}")]
    Cgroup(#[from] CgroupError),
    /// A working directory that is not absolute, an empty command, a NUL byte.
    #[error("process: {0}")]
    Process(String),
    /// Too much of something.
    #[error("{clause}: {found} {what}, at most {limit} are supported")]
    TooMany {
        /// Clause.
        clause: &'static str,
        /// What.
        what: &'static str,
        /// Count.
        found: usize,
        /// Limit.
        limit: usize,
    },
    /// GPUs cannot be given.
    #[error("gpu: {0}")]
    Gpu(#[from] GpuError),
    /// Named in the policy language but not built.
    #[error("{clause}: {what}")]
    Unsupported {
        /// Clause.
        clause: &'static str,
        /// What, and what to use instead.
        what: &'static str,
    },
}

/// Compiles a spec to a plan.
///
/// # Errors
/// Whatever the host's facts show to be impossible; each error names the policy clause.
pub fn plan(spec: &Spec, facts: &HostFacts, placement: &Placement) -> Result<Plan, PlanError> {
    plan_with(spec, facts, placement, None)
}

/// [`plan`] with the spec's seccomp filter, if that has been compiled before.
pub(crate) fn plan_with(
    spec: &Spec,
    facts: &HostFacts,
    placement: &Placement,
    filter: Option<&Program>,
) -> Result<Plan, PlanError> {
    let with_gpu = gpu::provided(spec, facts)?;
    let spec = with_gpu.as_ref().unwrap_or(spec);
    let process =
        spec.oci.process().as_ref().ok_or(PlanError::Missing { clause: "process", what: "process" })?;
    let linux = spec.oci.linux().as_ref().ok_or(PlanError::Missing { clause: "root", what: "linux" })?;
    let payload = payload(process)?;
    let identity = identity::resolve(spec, facts)?;
    let (mut layout, overlays) = layout::compile(spec, facts, &identity)?;
    let mut lowered = Vec::new();
    let mut host = Vec::new();
    let mut child = Vec::new();

    let CgroupSteps { target: cgroup, limit, filter: devices } =
        cgroup_steps(spec, facts, placement, &mut lowered)?;
    if let Some(target) = &cgroup {
        host.push(step("limits", Action::CreateCgroup { target: target.clone() }));
    }
    let namespaces = namespaces(spec, cgroup.is_some())?;
    let early = |namespace: &Namespace| !matches!(namespace, Namespace::Network | Namespace::Cgroup);
    host.push(step(
        "identity",
        Action::CloneInit { namespaces: namespaces.iter().copied().filter(early).collect() },
    ));
    host.push(step(
        "identity.ids",
        Action::WriteIdMaps {
            maps: identity.maps.clone(),
            deny_setgroups: identity.deny_setgroups,
            helper: identity.helper,
        },
    ));

    host.extend(limit);

    // The slowest step needs no ids, so the monitor maps them meanwhile.
    if namespaces.contains(&Namespace::Network) {
        child.push(step("network.mode", Action::Unshare { namespaces: vec![Namespace::Network] }));
        if spec.airlock.network == Network::Loopback {
            child.push(step("network.mode", Action::LoopbackUp));
        }
    }
    child.push(step("identity.ids", Action::AwaitIdMaps));
    if identity.root {
        child.push(step("identity.user", Action::BecomeRoot));
    }
    child.push(step("process", Action::NewSession));
    child.push(step("root", Action::PrivateMounts));
    child.append(&mut layout.made);
    if identity.root {
        host.append(&mut layout.brought);
        host.push(step("root", Action::HandOver { mounts: layout.handed_over.clone() }));
        child.push(step("root", Action::Receive { mounts: layout.handed_over.clone() }));
    } else {
        child.append(&mut layout.brought);
        host.push(step("limits", Action::HandOver { mounts: Vec::new() }));
        child.push(step("limits", Action::Receive { mounts: Vec::new() }));
    }
    // Init opens no device that the filter denies; the payload is released when all is in place.
    host.extend(devices);
    if namespaces.contains(&Namespace::Cgroup) {
        child.push(step("limits", Action::Unshare { namespaces: vec![Namespace::Cgroup] }));
    }
    child.extend(overlays);
    child.append(&mut layout.attach);
    child.push(step("root", Action::Pivot));
    if process.terminal().unwrap_or(false) {
        child.push(step("process", Action::OpenTerminal));
    }
    finish(spec, facts, process, &identity, filter, &mut child, &mut lowered)?;

    let expect = Expectations {
        namespaces,
        maps: identity.maps.clone(),
        host_ids: identity.host_ids,
        groups: identity.groups.clone(),
        capabilities: identity.capabilities.clone(),
        mounts: layout.expected,
        covered: linux
            .masked_paths()
            .iter()
            .chain(linux.readonly_paths())
            .flatten()
            .map(PathBuf::from)
            .collect(),
        seccomp: linux.seccomp().is_some(),
        hostname: spec.oci.hostname().clone(),
        resources: cgroup.is_some().then(|| linux.resources().clone()).flatten(),
        limits: rlimits(process, facts),
        cgroup,
    };
    let wall_ms = spec.airlock.wall_ms;
    Ok(Plan { id: placement.id.clone(), host, child, payload, expect, lowered, wall_ms })
}

/// What happens after the pivot, in the only order that works: ids before capabilities, Landlock after
/// the last mount, seccomp last.
fn finish(
    spec: &Spec,
    facts: &HostFacts,
    process: &oci_spec::runtime::Process,
    identity: &identity::Identity,
    filter: Option<&Program>,
    child: &mut Vec<Step>,
    lowered: &mut Vec<Lowered>,
) -> Result<(), PlanError> {
    let linux = spec.oci.linux().as_ref().ok_or(PlanError::Missing { clause: "root", what: "linux" })?;
    child.push(step("limits", Action::LimitQuotas));
    if !spec.airlock.nesting {
        child.push(step("nesting", Action::ForbidUserNamespaces));
    }
    let absolute =
        |paths: &Option<Vec<String>>| paths.iter().flatten().map(PathBuf::from).collect::<Vec<_>>();
    child.push(step("root", Action::Mask { paths: absolute(linux.masked_paths()) }));
    child.push(step("root", Action::ReadOnly { paths: absolute(linux.readonly_paths()) }));
    if let Some(name) = spec.oci.hostname() {
        child.push(step("identity.hostname", Action::Hostname { name: name.clone() }));
    }
    child.push(step("limits", Action::Limits { limits: rlimits(process, facts) }));
    child.push(step(
        "capabilities.keep",
        Action::DropBounding { keep: identity.capabilities.clone(), last: facts.last_capability },
    ));
    child.push(step(
        "identity.user",
        Action::SetIds {
            uid: identity.uid,
            gid: identity.gid,
            groups: identity.groups.as_ref().map(|_| identity.inner_groups.clone()),
        },
    ));
    child.push(step("capabilities.keep", Action::SetCapabilities { keep: identity.capabilities.clone() }));
    child.push(step("process", Action::DieWithMonitor));
    child.push(step("process", Action::NoNewPrivileges));
    if let Some(landlock) = &spec.airlock.landlock {
        child.extend(landlock_step(spec, landlock, facts, lowered)?);
    }
    child.push(step("process", Action::CloseDescriptors));
    child.push(step("process", Action::EnterWorkingDirectory { path: process.cwd().clone() }));
    if let Some(document) = linux.seccomp() {
        let program = filter.cloned().map_or_else(|| seccomp::compile(document), Ok)?;
        program.check_launch_set()?;
        child.push(step(
            "seccomp.profile",
            Action::Seccomp {
                instructions: program.instructions.len(),
                program,
                flags: seccomp::Flags::of(document),
            },
        ));
    }
    Ok(())
}

fn landlock_step(
    spec: &Spec,
    landlock: &Landlock,
    facts: &HostFacts,
    lowered: &mut Vec<Lowered>,
) -> Result<Option<Step>, PlanError> {
    if facts.landlock_abi < landlock.min_abi {
        let remedy = if facts.landlock_abi == 0 {
            "boot with `lsm=landlock,...` (or a kernel built with it), or set min_abi = 0 for best effort"
        } else {
            "use a newer kernel, or lower min_abi"
        };
        return Err(PlanError::Landlock { wanted: landlock.min_abi, found: facts.landlock_abi, remedy });
    }
    if facts.landlock_abi == 0 {
        let what =
            "no Landlock: this kernel has none, or it is off; the mounts alone say which files are reached";
        lowered.push(Lowered { clause: "landlock".into(), what: what.into() });
        return Ok(None);
    }
    let rules = landlock::rules(spec, landlock);
    Ok(Some(step("landlock", Action::Landlock { abi: facts.landlock_abi, rules })))
}

/// Where the control group goes, and the steps that wait until init has been cloned.
#[derive(Default)]
struct CgroupSteps {
    target: Option<CgroupTarget>,
    /// Before init joins the v1 groups.
    limit: Option<Step>,
    /// Before the payload is released.
    filter: Option<Step>,
}

fn cgroup_steps(
    spec: &Spec,
    facts: &HostFacts,
    placement: &Placement,
    lowered: &mut Vec<Lowered>,
) -> Result<CgroupSteps, PlanError> {
    let linux = spec.oci.linux().as_ref();
    let Some(resources) = linux.and_then(|linux| linux.resources().as_ref()) else {
        return Ok(CgroupSteps::default());
    };
    let mut needs = Needs::new(resources, &spec.airlock.best_effort)?;
    if needs.devices && !facts.root {
        needs.devices = false;
        lowered.push(Lowered {
            clause: "devices".into(),
            what: "no device filter: only root may install one; the nodes bound into /dev are all there is"
                .into(),
        });
    }
    let target = CgroupTarget::new(&facts.cgroups, placement.cgroup_parent.as_ref(), &placement.id, &needs)?;
    lowered.extend(target.lowered.iter().map(|what| Lowered { clause: "limits".into(), what: what.clone() }));
    if target.trees.is_empty() {
        return Ok(CgroupSteps::default());
    }
    let limit = Action::LimitCgroup { target: target.clone(), resources: Box::new(resources.clone()) };
    let rules = resources.devices().as_deref().unwrap_or_default();
    let filter = needs.devices.then(|| DeviceFilter::from_oci(rules)).transpose()?;
    Ok(CgroupSteps {
        target: Some(target),
        limit: Some(step("limits", limit)),
        filter: filter.map(|filter| step("devices", Action::FilterDevices { filter })),
    })
}

fn namespaces(spec: &Spec, cgroup: bool) -> Result<Vec<Namespace>, PlanError> {
    use oci_spec::runtime::LinuxNamespaceType as Oci;
    let linux = spec.oci.linux().as_ref().ok_or(PlanError::Missing { clause: "root", what: "linux" })?;
    let listed =
        linux.namespaces().as_ref().ok_or(PlanError::Missing { clause: "root", what: "namespaces" })?;
    let mut kinds = Vec::new();
    for namespace in listed {
        if namespace.path().is_some() {
            return Err(PlanError::Unsupported {
                clause: "namespaces",
                what: "joining an existing namespace by path is not part of this version",
            });
        }
        kinds.push(match namespace.typ() {
            Oci::User => Namespace::User,
            Oci::Mount => Namespace::Mount,
            Oci::Pid => Namespace::Pid,
            Oci::Network => Namespace::Network,
            Oci::Ipc => Namespace::Ipc,
            Oci::Uts => Namespace::Uts,
            // Without a group of its own the namespace would show the caller's group as the root.
            Oci::Cgroup if cgroup => Namespace::Cgroup,
            Oci::Cgroup => continue,
            Oci::Time => {
                return Err(PlanError::Unsupported {
                    clause: "namespaces",
                    what: "time namespaces are not part of this version",
                });
            }
        });
    }
    for needed in [Namespace::User, Namespace::Mount, Namespace::Pid] {
        if !kinds.contains(&needed) {
            return Err(PlanError::Unsupported {
                clause: "namespaces",
                what: "a sandbox without its own user, mount and pid namespaces cannot be verified",
            });
        }
    }
    kinds.sort_unstable();
    kinds.dedup();
    Ok(kinds)
}

fn payload(process: &oci_spec::runtime::Process) -> Result<Payload, PlanError> {
    let args = process.args().clone().unwrap_or_default();
    let env = process.env().clone().unwrap_or_default();
    if args.first().is_none_or(String::is_empty) {
        return Err(PlanError::Process("no command to run".into()));
    }
    if let Some(text) = args.iter().chain(&env).find(|text| text.contains('\0')) {
        return Err(PlanError::Process(format!("a NUL byte in {text:?} cannot be passed to a program")));
    }
    // MAX_ARG_STRLEN of execve(2): 32 pages.
    const LONGEST: usize = 131_071;
    if let Some(text) = args.iter().chain(&env).find(|text| text.len() > LONGEST) {
        return Err(PlanError::Process(format!(
            "an argument of {} bytes starting with {:?} is longer than the kernel's limit of {LONGEST}; pass it by a file",
            text.len(),
            text.chars().take(20).collect::<String>(),
        )));
    }
    if !process.cwd().is_absolute() {
        return Err(PlanError::Process(format!("the working directory {:?} is not absolute", process.cwd())));
    }
    Ok(Payload { args, env })
}

/// The resource limits. The caller's own limits of open files and waiting signals stay in force where the policy's
/// are higher: the tighter of the two confines, and raising it would need CAP_SYS_RESOURCE.
fn rlimits(process: &oci_spec::runtime::Process, facts: &HostFacts) -> Vec<Limit> {
    let limit = |limit: &oci_spec::runtime::PosixRlimit| {
        let resource = rlimit_number(limit.typ());
        let most = match resource {
            libc::RLIMIT_NOFILE => facts.open_files,
            libc::RLIMIT_SIGPENDING => facts.pending_signals,
            _ => u64::MAX,
        };
        Limit { resource, soft: limit.soft().min(most), hard: limit.hard().min(most) }
    };
    process.rlimits().iter().flatten().map(limit).collect()
}

fn step(clause: impl Into<String>, action: Action) -> Step {
    Step { clause: clause.into(), action }
}

/// `path` without its leading slash, for *at calls.
pub(crate) fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}
