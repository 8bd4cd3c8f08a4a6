//! OCI resource limits as files and values, for both cgroup versions. Pure.
//!
//! Sources: OCI runtime-spec `config-linux.md` (meaning of the settings), cgroup-v1/*.rst and
//! cgroup-v2.rst (the files). Devices are not limits: see `devices`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use oci_spec::runtime::{LinuxBlockIo, LinuxCpu, LinuxMemory, LinuxResources, LinuxThrottleDevice};

use super::error::CgroupError;
use super::facts::{Controller, Version};

/// `cfs_period_us` of a new cgroup.
const DEFAULT_PERIOD: u64 = 100_000;

/// One value for one control file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitWrite {
    /// The controller whose tree has the file.
    pub controller: Controller,
    /// Name of the control file.
    pub file: String,
    /// What is written to it.
    pub value: String,
}

impl LimitWrite {
    /// The file exists only on kernels built with swap.
    pub(super) fn is_swap(&self) -> bool {
        matches!(
            self.file.as_str(),
            "memory.swap.max" | "memory.memsw.limit_in_bytes"
        )
    }
}

/// A limit as the kernel tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitReading {
    /// The control file.
    pub path: PathBuf,
    /// What was written to it.
    pub wanted: String,
    /// What it reads.
    pub found: String,
    /// Both say the same: the kernel may only have rounded down to a page or renamed "no limit".
    pub holds: bool,
}

impl LimitReading {
    pub(super) fn new(path: PathBuf, write: &LimitWrite, found: &str) -> Self {
        let found = found.trim();
        Self {
            path,
            wanted: write.value.clone(),
            found: found.into(),
            holds: holds(write, found),
        }
    }
}

/// One OCI setting in both forms; `None` where the version cannot express it.
struct Setting {
    controller: Controller,
    what: String,
    v1: Option<Vec<(String, String)>>,
    v2: Option<Vec<(String, String)>>,
}

type Files = Option<Vec<(String, String)>>;

fn file(name: &str, value: impl ToString) -> Files {
    Some(vec![(name.into(), value.to_string())])
}

/// The controllers that these limits need.
pub(super) fn controllers(resources: &LinuxResources) -> Result<BTreeSet<Controller>, CgroupError> {
    Ok(settings(resources)?
        .into_iter()
        .map(|setting| setting.controller)
        .collect())
}

/// The files and values that express the limits, in the order in which the kernel takes them.
///
/// `version_of` says which interface has a controller; limits of the controllers in `skipped` are left out.
pub(super) fn writes(
    resources: &LinuxResources,
    version_of: impl Fn(Controller) -> Option<Version>,
    skipped: &BTreeSet<Controller>,
) -> Result<Vec<LimitWrite>, CgroupError> {
    let mut writes = Vec::new();
    for setting in settings(resources)? {
        let controller = setting.controller;
        if skipped.contains(&controller) {
            continue;
        }
        let version = version_of(controller).ok_or(CgroupError::NoController { controller })?;
        let files = match version {
            Version::V1 => setting.v1,
            Version::V2 => setting.v2,
        };
        let files = files.ok_or(CgroupError::Unsupported {
            what: setting.what,
            version,
        })?;
        writes.extend(files.into_iter().map(|(file, value)| LimitWrite {
            controller,
            file,
            value,
        }));
    }
    Ok(writes)
}

fn settings(resources: &LinuxResources) -> Result<Vec<Setting>, CgroupError> {
    let mut settings = Vec::new();
    let mut add = |controller, what: &str, v1: Files, v2: Files| {
        settings.push(Setting {
            controller,
            what: what.into(),
            v1,
            v2,
        });
    };
    if let Some(memory) = resources.memory() {
        add_memory(memory, &mut add)?;
    }
    if let Some(cpu) = resources.cpu() {
        add_cpu(cpu, &mut add)?;
    }
    if let Some(pids) = resources.pids() {
        // youki#3634: 0 was read as "no process" by some and as "no limit" by others.
        let value = match pids.limit() {
            0 => {
                return Err(invalid(
                    "pids.limit",
                    0,
                    "is ambiguous; give at least 1, or -1 for no limit",
                ));
            }
            limit if limit < 0 => "max".to_owned(),
            limit => limit.to_string(),
        };
        add(
            Controller::Pids,
            "pids.limit",
            file("pids.max", &value),
            file("pids.max", &value),
        );
    }
    if let Some(io) = resources.block_io() {
        add_io(io, &mut add);
    }
    for limit in resources.hugepage_limits().iter().flatten() {
        let (size, bytes) = (limit.page_size(), limit.limit());
        if size.is_empty() || !size.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(invalid(
                "hugepageLimits.pageSize",
                size,
                "is not a page size such as 2MB",
            ));
        }
        add(
            Controller::HugeTlb,
            "hugepageLimits",
            file(&format!("hugetlb.{size}.limit_in_bytes"), bytes),
            file(&format!("hugetlb.{size}.max"), bytes),
        );
    }
    let mut unified: Vec<_> = resources.unified().iter().flatten().collect();
    unified.sort();
    for (key, value) in unified {
        // `cgroup.*` files move, kill and freeze processes; the rest belongs to a controller.
        let controller = key
            .split_once('.')
            .and_then(|(prefix, _)| Controller::from_name(prefix));
        let (Some(controller), false) = (controller, key.contains('/')) else {
            return Err(invalid(
                "unified",
                key,
                "is not a file of a controller that Airlock knows",
            ));
        };
        add(controller, key, None, file(key, value));
    }
    if resources.network().is_some() {
        return Err(invalid("network", "…", "net_cls and net_prio are not supported"));
    }
    if resources.rdma().as_ref().is_some_and(|rdma| !rdma.is_empty()) {
        return Err(invalid("rdma", "…", "rdma limits are not supported"));
    }
    Ok(settings)
}

fn add_memory(
    memory: &LinuxMemory,
    add: &mut impl FnMut(Controller, &str, Files, Files),
) -> Result<(), CgroupError> {
    use Controller::Memory;
    let unlimited = |bytes: i64, word: &str| {
        if bytes < 0 {
            word.to_owned()
        } else {
            bytes.to_string()
        }
    };
    let limit = memory.limit();
    if limit == Some(0) {
        return Err(invalid(
            "memory.limit",
            0,
            "would let nothing run; give a size, or -1 for no limit",
        ));
    }
    if let Some(bytes) = limit {
        add(
            Memory,
            "memory.limit",
            file("memory.limit_in_bytes", unlimited(bytes, "-1")),
            file("memory.max", unlimited(bytes, "max")),
        );
    }
    if let Some(swap) = memory.swap() {
        // OCI counts memory plus swap, as v1 does; v2 counts swap alone.
        let alone = match limit {
            _ if swap < 0 => "max".to_owned(),
            Some(limit) if limit > 0 && swap >= limit => (swap - limit).to_string(),
            _ => {
                return Err(invalid(
                    "memory.swap",
                    swap,
                    "is memory plus swap, so it needs a memory limit below it",
                ));
            }
        };
        add(
            Memory,
            "memory.swap",
            file("memory.memsw.limit_in_bytes", unlimited(swap, "-1")),
            file("memory.swap.max", alone),
        );
    }
    if let Some(bytes) = memory.reservation() {
        add(
            Memory,
            "memory.reservation",
            file("memory.soft_limit_in_bytes", unlimited(bytes, "-1")),
            file("memory.low", unlimited(bytes, "max")),
        );
    }
    if let Some(percent) = memory.swappiness() {
        add(
            Memory,
            "memory.swappiness",
            file("memory.swappiness", percent),
            None,
        );
    }
    if memory.disable_oom_killer() == Some(true) {
        add(
            Memory,
            "memory.disableOOMKiller",
            file("memory.oom_control", 1),
            None,
        );
    }
    if let Some(bytes) = memory.kernel_tcp() {
        add(
            Memory,
            "memory.kernelTCP",
            file("memory.kmem.tcp.limit_in_bytes", bytes),
            None,
        );
    }
    Ok(())
}

fn add_cpu(cpu: &LinuxCpu, add: &mut impl FnMut(Controller, &str, Files, Files)) -> Result<(), CgroupError> {
    use Controller::{Cpu, CpuSet};
    if cpu.quota() == Some(0) || cpu.period() == Some(0) {
        return Err(invalid(
            "cpu.quota, cpu.period",
            0,
            "is ambiguous; give microseconds, or a quota of -1 for no limit",
        ));
    }
    if cpu.quota().is_some() || cpu.period().is_some() {
        let quota = cpu.quota().filter(|&quota| quota > 0);
        let mut v1 = Vec::new();
        if let Some(period) = cpu.period() {
            v1.push(("cpu.cfs_period_us".to_owned(), period.to_string()));
        }
        if cpu.quota().is_some() {
            v1.push(("cpu.cfs_quota_us".to_owned(), quota.unwrap_or(-1).to_string()));
        }
        let quota = quota.map_or_else(|| "max".to_owned(), |quota| quota.to_string());
        let v2 = file(
            "cpu.max",
            format!("{quota} {}", cpu.period().unwrap_or(DEFAULT_PERIOD)),
        );
        add(Cpu, "cpu.quota", Some(v1), v2);
    }
    if let Some(burst) = cpu.burst() {
        add(
            Cpu,
            "cpu.burst",
            file("cpu.cfs_burst_us", burst),
            file("cpu.max.burst", burst),
        );
    }
    if let Some(idle) = cpu.idle() {
        add(Cpu, "cpu.idle", file("cpu.idle", idle), file("cpu.idle", idle));
    }
    // 0 means "not set" in documents of older engines.
    if let Some(shares) = cpu.shares().filter(|&shares| shares != 0) {
        // The range 2-262144 of shares onto the range 1-10000 of weights, as the OCI runtimes do it.
        let weight = 1 + (shares.clamp(2, 262_144) - 2) * 9_999 / 262_142;
        add(
            Cpu,
            "cpu.shares",
            file("cpu.shares", shares),
            file("cpu.weight", weight),
        );
    }
    if let Some(period) = cpu.realtime_period() {
        add(Cpu, "cpu.realtimePeriod", file("cpu.rt_period_us", period), None);
    }
    if let Some(runtime) = cpu.realtime_runtime() {
        add(
            Cpu,
            "cpu.realtimeRuntime",
            file("cpu.rt_runtime_us", runtime),
            None,
        );
    }
    if let Some(cpus) = cpu.cpus() {
        add(
            CpuSet,
            "cpu.cpus",
            file("cpuset.cpus", cpus),
            file("cpuset.cpus", cpus),
        );
    }
    if let Some(mems) = cpu.mems() {
        add(
            CpuSet,
            "cpu.mems",
            file("cpuset.mems", mems),
            file("cpuset.mems", mems),
        );
    }
    Ok(())
}

fn add_io(io: &LinuxBlockIo, add: &mut impl FnMut(Controller, &str, Files, Files)) {
    use Controller::Io;
    if let Some(weight) = io.weight().filter(|&weight| weight != 0) {
        add(
            Io,
            "blockIO.weight",
            file("blkio.bfq.weight", weight),
            file("io.bfq.weight", weight),
        );
    }
    if io.leaf_weight().is_some_and(|weight| weight != 0) {
        add(Io, "blockIO.leafWeight", None, None);
    }
    if io
        .weight_device()
        .as_ref()
        .is_some_and(|devices| !devices.is_empty())
    {
        add(Io, "blockIO.weightDevice", None, None);
    }
    let mut throttle = |devices: &Option<Vec<LinuxThrottleDevice>>, v1: &str, v2: &str| {
        for device in devices.iter().flatten() {
            let (node, rate) = (format!("{}:{}", device.major(), device.minor()), device.rate());
            add(
                Io,
                v1,
                file(v1, format!("{node} {rate}")),
                file("io.max", format!("{node} {v2}={rate}")),
            );
        }
    };
    throttle(
        io.throttle_read_bps_device(),
        "blkio.throttle.read_bps_device",
        "rbps",
    );
    throttle(
        io.throttle_write_bps_device(),
        "blkio.throttle.write_bps_device",
        "wbps",
    );
    throttle(
        io.throttle_read_iops_device(),
        "blkio.throttle.read_iops_device",
        "riops",
    );
    throttle(
        io.throttle_write_iops_device(),
        "blkio.throttle.write_iops_device",
        "wiops",
    );
}

fn invalid(what: &'static str, value: impl ToString, reason: &'static str) -> CgroupError {
    CgroupError::InvalidLimit {
        what,
        value: value.to_string(),
        reason,
    }
}

/// Largest page that a size is rounded down to (arm64 and ppc64 have 64 KiB).
const LARGEST_PAGE: u64 = 64 * 1024;

fn holds(write: &LimitWrite, found: &str) -> bool {
    let wanted = write.value.trim();
    if wanted == found {
        return true;
    }
    match write.controller {
        Controller::Memory | Controller::HugeTlb => match (wanted.parse::<u64>(), found.parse::<u64>()) {
            (Ok(wanted), Ok(found)) => found <= wanted && wanted - found < LARGEST_PAGE,
            // v1 shows "no limit" as the largest page-aligned number.
            (Err(_), Ok(found)) => matches!(wanted, "-1" | "max") && found > (1 << 63) - 1 - LARGEST_PAGE,
            // `memory.oom_control` is a table.
            _ => {
                write.file == "memory.oom_control"
                    && found.starts_with(&format!("oom_kill_disable {wanted}\n"))
            }
        },
        Controller::CpuSet => match (id_set(wanted), id_set(found)) {
            (Some(wanted), Some(found)) => wanted == found,
            _ => false,
        },
        Controller::Io => {
            let mut wanted = wanted.split_ascii_whitespace();
            let device = wanted.next();
            found.lines().any(|line| {
                let mut fields = line.split_ascii_whitespace();
                fields.next() == device
                    && wanted
                        .clone()
                        .all(|word| fields.clone().any(|field| field == word))
            })
        }
        _ => false,
    }
}

/// `0-2,4` as a set (cpuset(7), "List format").
fn id_set(text: &str) -> Option<BTreeSet<u32>> {
    const HIGHEST: u32 = 1 << 16;
    let mut ids = BTreeSet::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let last: u32 = last.parse().ok().filter(|&last| last < HIGHEST)?;
        ids.extend(first.parse().ok()?..=last);
    }
    Some(ids)
}
