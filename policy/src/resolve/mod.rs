//! A policy and a host's tree, compiled to a spec. Nothing here touches the host.

mod process;
mod resources;
mod root;
mod seccomp;

use std::collections::BTreeMap;

use airlock_runtime::Spec;
use airlock_runtime::spec;
use oci_spec::OciSpecError;
use oci_spec::runtime::{
    LinuxBuilder, LinuxNamespace, LinuxNamespaceBuilder, LinuxNamespaceType, SpecBuilder,
};

use crate::diagnostic::PolicyError;
use crate::host::HostTree;
use crate::merged::{Gpu, Policy, Writable};
use crate::schema::{BestEffort, CdiHooks, Groups, Ids, NetworkMode, RootKind};

pub(crate) use seccomp::filter;

/// What a policy is resolved against.
#[derive(Clone, Debug, Default)]
pub struct ResolveInput {
    /// The command and its arguments.
    pub args: Vec<String>,
    /// The caller's environment; only what `env.pass` names is taken from it.
    pub caller_env: BTreeMap<String, String>,
    /// The host's tree.
    pub host: HostTree,
}

/// Every namespace that a sandbox has of its own.
const NAMESPACES: [LinuxNamespaceType; 7] = [
    LinuxNamespaceType::User,
    LinuxNamespaceType::Mount,
    LinuxNamespaceType::Pid,
    LinuxNamespaceType::Network,
    LinuxNamespaceType::Ipc,
    LinuxNamespaceType::Uts,
    LinuxNamespaceType::Cgroup,
];

/// Parts of `/proc` that show or reach the host's kernel: a superset of what OCI engines mask. `/sys` is
/// never mounted. `/proc/kallsyms` holds addresses where kernel.kptr_restrict and kernel.perf_event_paranoid are
/// low, as profilers like it. `/proc/driver` lists every GPU; a sandbox with some has one with these alone.
/// `/proc/modules` stays: the NVIDIA libraries look there for their driver.
const MASKED: [&str; 20] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/config.gz",
    "/proc/driver",
    "/proc/interrupts",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/kmsg",
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/latency_stats",
    "/proc/pressure",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/softirqs",
    "/proc/timer_list",
    "/proc/timer_stats",
];

/// Parts of `/proc` that programs read and nobody inside may write.
const READONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Compiles a policy to the spec of a sandbox on this host.
///
/// # Errors
/// A clause that this Airlock cannot keep, or that the host has no ground for, with its place in the policy.
pub fn resolve(policy: &Policy, input: &ResolveInput) -> Result<Spec, PolicyError> {
    let root = root::assemble(policy, &input.host)?;
    let process = process::process(policy, &input.args, &input.caller_env, &root.home)?;
    let mut linux = LinuxBuilder::default()
        .namespaces(namespaces()?)
        .resources(resources::resources(policy).map_err(oci("limits"))?)
        .devices(resources::devices().map_err(oci("devices"))?)
        .masked_paths(MASKED.map(String::from))
        .readonly_paths(READONLY.map(String::from))
        .build()
        .map_err(oci("linux"))?;
    linux.set_seccomp(filter(policy)?);
    let oci = SpecBuilder::default()
        .version("1.2.0")
        .hostname(policy.identity.hostname.clone())
        .root(root.oci)
        .mounts(root.mounts)
        .process(process)
        .linux(linux)
        .build()
        .map_err(oci("policy"))?;
    Ok(Spec { oci, airlock: extension(policy, root.skeleton, root.origins)? })
}

fn extension(
    policy: &Policy,
    skeleton: Vec<spec::Node>,
    origins: BTreeMap<std::path::PathBuf, String>,
) -> Result<spec::Extension, PolicyError> {
    let landlock = policy.landlock.enabled.then(|| spec::Landlock {
        min_abi: policy.landlock.min_abi,
        read: policy.landlock.read.clone(),
        write: policy.landlock.write.clone(),
    });
    Ok(spec::Extension {
        policy: policy.name.clone(),
        policy_digest: policy.digest()?,
        root: match (policy.root.kind, &policy.root.path) {
            (RootKind::Host, _) => spec::RootKind::Host,
            (RootKind::Dir, Some(path)) => spec::RootKind::Dir(path.clone()),
            _ => spec::RootKind::Empty,
        },
        writable: match &policy.root.writable {
            Writable::None => spec::Writable::None,
            Writable::Tmpfs => spec::Writable::Tmpfs { size: policy.limits.tmp.0 },
            Writable::Dir(path) => spec::Writable::Dir { path: path.clone() },
        },
        skeleton,
        ids: match policy.identity.ids {
            Ids::Auto => spec::IdMode::Auto,
            Ids::Range => spec::IdMode::Range,
            Ids::Direct => spec::IdMode::Direct,
            Ids::Single => spec::IdMode::Single,
            Ids::Subids => spec::IdMode::Subids,
        },
        groups: match policy.identity.groups {
            Groups::Auto => spec::Groups::Auto,
            Groups::None => spec::Groups::None,
        },
        network: match policy.network.mode {
            NetworkMode::Loopback => spec::Network::Loopback,
            NetworkMode::None | NetworkMode::Broker => spec::Network::None,
        },
        landlock,
        wall_ms: policy.limits.wall.map(|wall| wall.0),
        nesting: policy.nesting,
        best_effort: policy
            .best_effort
            .iter()
            .map(|clause| match clause {
                BestEffort::Limits => spec::BestEffort::Limits,
                BestEffort::Devices => spec::BestEffort::Devices,
            })
            .collect(),
        gpu: policy.gpu.as_ref().map(spec::Gpu::from),
        origins,
    })
}

impl From<&Gpu> for spec::Gpu {
    fn from(gpu: &Gpu) -> spec::Gpu {
        spec::Gpu {
            count: gpu.count,
            devices: gpu.devices.clone(),
            capabilities: gpu.capabilities.clone(),
            shared: gpu.shared,
            memory: gpu.memory.map(|memory| memory.0),
            energy: gpu.energy.map(|energy| energy.0),
            utilisation: gpu.utilisation.map(|share| share.0),
            reset: gpu.reset,
            features: gpu.features.clone(),
            cdi: gpu.cdi.clone(),
            skip_hooks: gpu.cdi_hooks == CdiHooks::Skip,
            nodes: gpu.nodes.clone(),
        }
    }
}

fn namespaces() -> Result<Vec<LinuxNamespace>, PolicyError> {
    NAMESPACES
        .iter()
        .map(|kind| LinuxNamespaceBuilder::default().typ(*kind).build())
        .collect::<Result<_, _>>()
        .map_err(oci("linux"))
}

/// Names the clause whose compilation oci-spec refused.
fn oci(clause: &'static str) -> impl Fn(OciSpecError) -> PolicyError {
    move |source| PolicyError::Oci { clause, source }
}

#[cfg(test)]
mod tests;
