//! Cgroup limits and devices.

use oci_spec::OciSpecError;
use oci_spec::runtime::{
    LinuxBlockIoBuilder, LinuxCpuBuilder, LinuxDevice, LinuxDeviceBuilder, LinuxDeviceCgroup,
    LinuxDeviceCgroupBuilder, LinuxDeviceType, LinuxMemoryBuilder, LinuxPidsBuilder, LinuxResources,
    LinuxResourcesBuilder,
};

use crate::merged::Policy;

/// The kernel's default CPU period in microseconds.
const PERIOD_US: u64 = 100_000;

/// The device nodes of `/dev`, by major and minor (Documentation/admin-guide/devices.txt).
const NODES: [(&str, i64, i64); 6] = [
    ("/dev/null", 1, 3),
    ("/dev/zero", 1, 5),
    ("/dev/full", 1, 7),
    ("/dev/random", 1, 8),
    ("/dev/urandom", 1, 9),
    ("/dev/tty", 5, 0),
];

/// `ptmx`, and the terminals of the sandbox's own devpts.
const TERMINALS: [(i64, Option<i64>); 2] = [(5, Some(2)), (136, None)];

pub(super) fn resources(policy: &Policy) -> Result<LinuxResources, OciSpecError> {
    let limits = &policy.limits;
    let mut resources = LinuxResourcesBuilder::default().devices(device_rules()?);
    if let Some(memory) = limits.memory {
        let memory = i64::try_from(memory.0).unwrap_or(i64::MAX);
        // OCI counts memory and swap together; -1 is unlimited.
        let both = match limits.swap {
            Some(swap) => memory.saturating_add_unsigned(swap.0),
            None => -1,
        };
        resources = resources.memory(LinuxMemoryBuilder::default().limit(memory).swap(both).build()?);
    }
    if limits.cpus.is_some() || limits.cpuset.is_some() {
        let mut cpu = LinuxCpuBuilder::default();
        if let Some(cpus) = limits.cpus {
            cpu = cpu.period(PERIOD_US).quota(quota_us(cpus));
        }
        if let Some(cpuset) = &limits.cpuset {
            cpu = cpu.cpus(cpuset.clone());
        }
        resources = resources.cpu(cpu.build()?);
    }
    if let Some(pids) = limits.pids {
        let limit = i64::try_from(pids).unwrap_or(i64::MAX);
        resources = resources.pids(LinuxPidsBuilder::default().limit(limit).build()?);
    }
    if let Some(weight) = limits.io_weight {
        resources = resources.block_io(LinuxBlockIoBuilder::default().weight(weight).build()?);
    }
    resources.build()
}

/// Microseconds of CPU time per period.
fn quota_us(cpus: f64) -> i64 {
    // At most 100,000 CPUs are accepted, so that the product has 34 bits and a double holds it exactly.
    #[allow(clippy::cast_possible_truncation)]
    let quota = (cpus * PERIOD_US as f64).round() as i64;
    quota
}

pub(super) fn devices() -> Result<Vec<LinuxDevice>, OciSpecError> {
    NODES
        .iter()
        .map(|(path, major, minor)| {
            LinuxDeviceBuilder::default()
                .path(path)
                .typ(LinuxDeviceType::C)
                .major(*major)
                .minor(*minor)
                .file_mode(0o666u32)
                .uid(0u32)
                .gid(0u32)
                .build()
        })
        .collect()
}

/// Nothing, then read and write (never mknod) of the nodes and terminals.
fn device_rules() -> Result<Vec<LinuxDeviceCgroup>, OciSpecError> {
    let deny = LinuxDeviceCgroupBuilder::default().allow(false).access("rwm").build();
    let nodes = NODES.iter().map(|(_, major, minor)| (*major, Some(*minor)));
    let allow = nodes.chain(TERMINALS).map(|(major, minor)| {
        let mut rule =
            LinuxDeviceCgroupBuilder::default().allow(true).typ(LinuxDeviceType::C).major(major).access("rw");
        if let Some(minor) = minor {
            rule = rule.minor(minor);
        }
        rule.build()
    });
    std::iter::once(deny).chain(allow).collect()
}
