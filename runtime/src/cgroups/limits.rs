//! OCI resource limits as files and values, for both cgroup versions. Pure.
//!
//! Sources: OCI runtime-spec `config-linux.md` (meaning of the settings), cgroup-v1/*.rst and
//! cgroup-v2.rst (the files). Devices are not limits: see `devices`.

use std::collections::BTreeSet;

use oci_spec::runtime::{LinuxBlockIo, LinuxCpu, LinuxMemory, LinuxResources};

use super::error::CgroupError;
use super::facts::{Controller, Version};

/// `cfs_period_us` of a new cgroup.
const DEFAULT_PERIOD: u64 = 100_000;

/// The limit of TCP's buffers on v1.
const KERNEL_TCP: &str = "memory.kmem.tcp.limit_in_bytes";

/// One value for one control file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitWrite {
    /// The controller whose tree has the file.
    pub controller: Controller,
    /// Name of the control file.
    pub file: String,
    /// What is written to it.
    pub value: String,
    /// No setting of its own asks for it: a kernel without the file has nothing to limit.
    pub implied: bool,
}

impl LimitWrite {
    /// The file exists only on kernels built with swap.
    pub(super) fn is_swap(&self) -> bool {
        matches!(self.file.as_str(), "memory.swap.max" | "memory.memsw.limit_in_bytes")
    }
}

/// Files and their values, in the order in which the kernel takes them.
type Files = Vec<(String, String)>;

/// One OCI setting in both forms; absent where the version cannot express it.
struct Setting {
    controller: Controller,
    what: String,
    v1: Option<Files>,
    v2: Option<Files>,
    implied: bool,
}

/// The controllers that these limits need, and those that are of use where they can be had.
pub(super) fn controllers(
    resources: &LinuxResources,
) -> Result<(BTreeSet<Controller>, BTreeSet<Controller>), CgroupError> {
    let settings = Settings::of(resources)?.0;
    let of = |implied| settings.iter().filter(move |it| it.implied == implied).map(|it| it.controller);
    Ok((of(false).collect(), of(true).collect()))
}

/// The files and values that express the limits.
///
/// `version_of` says which interface has a controller; limits of the controllers in `skipped` are left out.
pub(super) fn writes(
    resources: &LinuxResources,
    version_of: impl Fn(Controller) -> Option<Version>,
    skipped: &BTreeSet<Controller>,
) -> Result<Vec<LimitWrite>, CgroupError> {
    let mut writes = Vec::new();
    for Setting { controller, what, v1, v2, implied } in Settings::of(resources)?.0 {
        if skipped.contains(&controller) {
            continue;
        }
        let version = match version_of(controller) {
            Some(version) => version,
            None if implied => continue,
            None => return Err(CgroupError::NoController { controller }),
        };
        let files = match version {
            Version::V1 => v1,
            Version::V2 => v2,
        };
        let files = files.ok_or(CgroupError::Unsupported { what, version })?;
        let write = |(file, value)| LimitWrite { controller, file, value, implied };
        writes.extend(files.into_iter().map(write));
    }
    Ok(writes)
}

fn file(name: &str, value: impl ToString) -> Files {
    vec![(name.into(), value.to_string())]
}

fn or_word(bytes: i64, unlimited: &str) -> String {
    if bytes < 0 { unlimited.into() } else { bytes.to_string() }
}

/// The v2 weight of v1 shares: 2, 1024 and 262144 become 1, 100 and 10000, in between a quadratic curve in
/// the logarithms, as runc has it since 1.3.2 (opencontainers/cgroups#20).
fn weight_of(shares: u64) -> u32 {
    let shares = u32::try_from(shares.clamp(2, 1 << 18)).unwrap_or(1 << 18);
    let log = f64::from(shares).log2();
    let exponent = (log * log + 125.0 * log) / 612.0 - 7.0 / 34.0;
    // The three exact points must not be rounded up past themselves.
    let weight = (10_f64.powf(exponent) - 1e-6).ceil();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it lies between 1 and 10000"
    )]
    let weight = weight as u32;
    weight
}

struct Settings(Vec<Setting>);

impl Settings {
    fn of(resources: &LinuxResources) -> Result<Self, CgroupError> {
        let mut settings = Self(Vec::new());
        if let Some(memory) = resources.memory() {
            settings.memory(memory)?;
        }
        if let Some(cpu) = resources.cpu() {
            settings.cpu(cpu)?;
        }
        if let Some(pids) = resources.pids() {
            // youki#3634: 0 was read as "no process" by some and as "no limit" by others.
            if pids.limit() == 0 {
                return Err(invalid("pids.limit", 0, "is ambiguous; give at least 1, or -1 for no limit"));
            }
            settings.same(Controller::Pids, "pids.limit", "pids.max", or_word(pids.limit(), "max"));
        }
        if let Some(io) = resources.block_io() {
            settings.io(io);
        }
        for limit in resources.hugepage_limits().iter().flatten() {
            let (size, bytes) = (limit.page_size(), limit.limit());
            if size.is_empty() || !size.bytes().all(|b| b.is_ascii_alphanumeric()) {
                return Err(invalid("hugepageLimits.pageSize", size, "is not a page size such as 2MB"));
            }
            let v1 = file(&format!("hugetlb.{size}.limit_in_bytes"), bytes);
            let v2 = file(&format!("hugetlb.{size}.max"), bytes);
            settings.add(Controller::HugeTlb, "hugepageLimits", Some(v1), Some(v2));
        }
        if resources.hugepage_limits().is_none() {
            settings.no_huge_pages();
        }
        let mut unified: Vec<_> = resources.unified().iter().flatten().collect();
        unified.sort();
        for (key, value) in unified {
            // `cgroup.*` files move, kill and freeze processes; the rest belongs to a controller.
            let controller = key.split_once('.').and_then(|(prefix, _)| Controller::from_name(prefix));
            match controller.filter(|_| !key.contains('/')) {
                Some(controller) => settings.add(controller, key, None, Some(file(key, value))),
                None => {
                    return Err(invalid("unified", key, "is not a file of a controller that Airlock knows"));
                }
            }
        }
        if resources.network().is_some() {
            return Err(invalid("network", "…", "net_cls and net_prio are not supported"));
        }
        if resources.rdma().as_ref().is_some_and(|rdma| !rdma.is_empty()) {
            return Err(invalid("rdma", "…", "rdma limits are not supported"));
        }
        Ok(settings)
    }

    fn add(&mut self, controller: Controller, what: &str, v1: Option<Files>, v2: Option<Files>) {
        self.0.push(Setting { controller, what: what.into(), v1, v2, implied: false });
    }

    /// A setting whose file and value both versions share.
    fn same(&mut self, controller: Controller, what: &str, name: &str, value: impl ToString) {
        let files = file(name, value);
        self.add(controller, what, Some(files.clone()), Some(files));
    }

    fn v1_only(&mut self, controller: Controller, what: &str, name: &str, value: impl ToString) {
        self.add(controller, what, Some(file(name, value)), None);
    }

    /// Files of v1 that go with the setting before, if the kernel has them.
    fn v1_implied(&mut self, controller: Controller, what: &str, files: Files) {
        let (v1, v2) = (Some(files), Some(Vec::new()));
        self.0.push(Setting { controller, what: what.into(), v1, v2, implied: true });
    }

    /// Huge pages are no memory to the memory controller (but for `memory_hugetlb_accounting` of cgroup-v2.rst):
    /// none for a sandbox that does not ask for them, and none set aside for it (hugetlbpage.rst; `rsvd` since
    /// Linux 5.7).
    fn no_huge_pages(&mut self) {
        // What x86-64 has; a processor without the second lacks its files.
        for size in ["2MB", "1GB"] {
            let files = |ends: [&str; 2]| -> Files {
                ends.iter().flat_map(|end| file(&format!("hugetlb.{size}.{end}"), 0)).collect()
            };
            let v1 = Some(files(["rsvd.limit_in_bytes", "limit_in_bytes"]));
            let v2 = Some(files(["rsvd.max", "max"]));
            let what = "hugepageLimits".into();
            self.0.push(Setting { controller: Controller::HugeTlb, what, v1, v2, implied: true });
        }
    }

    fn memory(&mut self, memory: &LinuxMemory) -> Result<(), CgroupError> {
        use Controller::Memory;
        let limit = memory.limit();
        if limit == Some(0) {
            return Err(invalid("memory.limit", 0, "would let nothing run; give a size, or -1 for no limit"));
        }
        if let Some(bytes) = limit {
            let v1 = file("memory.limit_in_bytes", or_word(bytes, "-1"));
            let v2 = file("memory.max", or_word(bytes, "max"));
            self.add(Memory, "memory.limit", Some(v1), Some(v2));
            // v1 counts the buffers of TCP apart from all else, and only where they have a limit
            // (cgroup-v1/memory.rst, "2.7.1"); v2 counts them as memory.
            if bytes > 0 && memory.kernel_tcp().is_none() {
                self.v1_implied(Memory, "memory.limit", file(KERNEL_TCP, bytes));
            }
        }
        if let Some(swap) = memory.swap() {
            // OCI counts memory plus swap, as v1 does; v2 counts swap alone.
            let alone = match limit {
                _ if swap < 0 => "max".to_owned(),
                Some(limit) if limit > 0 && swap >= limit => (swap - limit).to_string(),
                _ => {
                    let reason = "is memory plus swap, so it needs a memory limit that is not larger";
                    return Err(invalid("memory.swap", swap, reason));
                }
            };
            let v1 = file("memory.memsw.limit_in_bytes", or_word(swap, "-1"));
            self.add(Memory, "memory.swap", Some(v1), Some(file("memory.swap.max", alone)));
        }
        if let Some(bytes) = memory.reservation() {
            let v1 = file("memory.soft_limit_in_bytes", or_word(bytes, "-1"));
            let v2 = file("memory.low", or_word(bytes, "max"));
            self.add(Memory, "memory.reservation", Some(v1), Some(v2));
        }
        if let Some(percent) = memory.swappiness() {
            self.v1_only(Memory, "memory.swappiness", "memory.swappiness", percent);
        }
        if memory.disable_oom_killer() == Some(true) {
            self.v1_only(Memory, "memory.disableOOMKiller", "memory.oom_control", 1);
        }
        if let Some(bytes) = memory.kernel_tcp() {
            self.v1_only(Memory, "memory.kernelTCP", KERNEL_TCP, bytes);
        }
        Ok(())
    }

    fn cpu(&mut self, cpu: &LinuxCpu) -> Result<(), CgroupError> {
        use Controller::{Cpu, CpuSet};
        if cpu.quota() == Some(0) || cpu.period() == Some(0) {
            let reason = "is ambiguous; give microseconds, or a quota of -1 for no limit";
            return Err(invalid("cpu.quota, cpu.period", 0, reason));
        }
        if cpu.quota().is_some() || cpu.period().is_some() {
            let mut v1 = Vec::new();
            if let Some(period) = cpu.period() {
                v1.extend(file("cpu.cfs_period_us", period));
            }
            if let Some(quota) = cpu.quota() {
                v1.extend(file("cpu.cfs_quota_us", or_word(quota, "-1")));
            }
            let quota = or_word(cpu.quota().unwrap_or(-1), "max");
            let v2 = file("cpu.max", format!("{quota} {}", cpu.period().unwrap_or(DEFAULT_PERIOD)));
            self.add(Cpu, "cpu.quota", Some(v1), Some(v2));
        }
        if let Some(burst) = cpu.burst() {
            self.add(
                Cpu,
                "cpu.burst",
                Some(file("cpu.cfs_burst_us", burst)),
                Some(file("cpu.max.burst", burst)),
            );
        }
        if let Some(idle) = cpu.idle() {
            self.same(Cpu, "cpu.idle", "cpu.idle", idle);
        }
        // 0 means "not set" in documents of older engines.
        if let Some(shares) = cpu.shares().filter(|&shares| shares != 0) {
            let weight = weight_of(shares);
            self.add(Cpu, "cpu.shares", Some(file("cpu.shares", shares)), Some(file("cpu.weight", weight)));
        }
        if let Some(period) = cpu.realtime_period() {
            self.v1_only(Cpu, "cpu.realtimePeriod", "cpu.rt_period_us", period);
        }
        if let Some(runtime) = cpu.realtime_runtime() {
            self.v1_only(Cpu, "cpu.realtimeRuntime", "cpu.rt_runtime_us", runtime);
        }
        if let Some(cpus) = cpu.cpus() {
            self.same(CpuSet, "cpu.cpus", "cpuset.cpus", cpus);
        }
        if let Some(mems) = cpu.mems() {
            self.same(CpuSet, "cpu.mems", "cpuset.mems", mems);
        }
        Ok(())
    }

    fn io(&mut self, io: &LinuxBlockIo) {
        use Controller::Io;
        if let Some(weight) = io.weight().filter(|&weight| weight != 0) {
            let (v1, v2) = (file("blkio.bfq.weight", weight), file("io.bfq.weight", weight));
            self.add(Io, "blockIO.weight", Some(v1), Some(v2));
        }
        if io.leaf_weight().is_some_and(|weight| weight != 0) {
            self.add(Io, "blockIO.leafWeight", None, None);
        }
        if io.weight_device().as_ref().is_some_and(|devices| !devices.is_empty()) {
            self.add(Io, "blockIO.weightDevice", None, None);
        }
        let throttles = [
            (io.throttle_read_bps_device(), "read_bps", "rbps"),
            (io.throttle_write_bps_device(), "write_bps", "wbps"),
            (io.throttle_read_iops_device(), "read_iops", "riops"),
            (io.throttle_write_iops_device(), "write_iops", "wiops"),
        ];
        for (devices, old, new) in throttles {
            for device in devices.iter().flatten() {
                let (node, rate) = (format!("{}:{}", device.major(), device.minor()), device.rate());
                let v1 = file(&format!("blkio.throttle.{old}_device"), format!("{node} {rate}"));
                let v2 = file("io.max", format!("{node} {new}={rate}"));
                self.add(Io, "blockIO.throttle", Some(v1), Some(v2));
            }
        }
    }
}

fn invalid(what: &'static str, value: impl ToString, reason: &'static str) -> CgroupError {
    CgroupError::InvalidLimit { what, value: value.to_string(), reason }
}

#[cfg(test)]
mod tests {
    use oci_spec::runtime::{
        LinuxBlockIoBuilder, LinuxCpuBuilder, LinuxHugepageLimitBuilder, LinuxMemoryBuilder,
        LinuxPidsBuilder, LinuxResourcesBuilder, LinuxThrottleDeviceBuilder,
    };

    use super::*;

    fn write(resources: &LinuxResources, version: Version) -> Result<Vec<(String, String)>, CgroupError> {
        let has = |controller| controller != Controller::HugeTlb || resources.hugepage_limits().is_some();
        let writes = writes(resources, |controller| has(controller).then_some(version), &BTreeSet::new())?;
        Ok(writes.into_iter().map(|write| (write.file, write.value)).collect())
    }

    fn check(resources: &LinuxResources, v1: &[(&str, &str)], v2: &[(&str, &str)]) {
        for (version, expected) in [(Version::V1, v1), (Version::V2, v2)] {
            let found = write(resources, version).unwrap();
            let found: Vec<_> = found.iter().map(|(file, value)| (file.as_str(), value.as_str())).collect();
            assert_eq!(found, expected, "{version}");
        }
    }

    fn memory(memory: LinuxMemoryBuilder) -> LinuxResources {
        LinuxResourcesBuilder::default().memory(memory.build().unwrap()).build().unwrap()
    }

    fn cpu(cpu: LinuxCpuBuilder) -> LinuxResources {
        LinuxResourcesBuilder::default().cpu(cpu.build().unwrap()).build().unwrap()
    }

    #[test]
    fn swap_counts_memory_on_v1_and_not_on_v2() {
        check(
            &memory(LinuxMemoryBuilder::default().limit(1000).swap(1500)),
            &[
                ("memory.limit_in_bytes", "1000"),
                ("memory.kmem.tcp.limit_in_bytes", "1000"),
                ("memory.memsw.limit_in_bytes", "1500"),
            ],
            &[("memory.max", "1000"), ("memory.swap.max", "500")],
        );
        check(
            &memory(LinuxMemoryBuilder::default().limit(1000).swap(1000)),
            &[
                ("memory.limit_in_bytes", "1000"),
                ("memory.kmem.tcp.limit_in_bytes", "1000"),
                ("memory.memsw.limit_in_bytes", "1000"),
            ],
            &[("memory.max", "1000"), ("memory.swap.max", "0")],
        );
        check(
            &memory(LinuxMemoryBuilder::default().limit(-1).swap(-1)),
            &[("memory.limit_in_bytes", "-1"), ("memory.memsw.limit_in_bytes", "-1")],
            &[("memory.max", "max"), ("memory.swap.max", "max")],
        );
        for wrong in [
            LinuxMemoryBuilder::default().limit(1000).swap(999),
            LinuxMemoryBuilder::default().swap(1000),
            LinuxMemoryBuilder::default().limit(-1).swap(1000),
            LinuxMemoryBuilder::default().limit(0),
        ] {
            assert!(matches!(write(&memory(wrong), Version::V1), Err(CgroupError::InvalidLimit { .. })));
        }
    }

    #[test]
    fn a_memory_limit_of_v1_limits_the_buffers_of_tcp_too() {
        let own = memory(LinuxMemoryBuilder::default().limit(1000).kernel_tcp(500));
        let files = [("memory.limit_in_bytes", "1000"), ("memory.kmem.tcp.limit_in_bytes", "500")];
        let files = files.map(|(file, value)| (file.to_owned(), value.to_owned()));
        assert_eq!(write(&own, Version::V1).unwrap(), files, "as the document says, once");
        let implied = |resources| {
            let memory = |controller| (controller == Controller::Memory).then_some(Version::V1);
            let writes = writes(&resources, memory, &BTreeSet::new()).unwrap();
            writes.iter().map(|write| write.implied).collect::<Vec<_>>()
        };
        assert_eq!(implied(own), [false, false]);
        assert_eq!(implied(memory(LinuxMemoryBuilder::default().limit(1000))), [false, true]);
        assert_eq!(implied(memory(LinuxMemoryBuilder::default().limit(-1))), [false]);
    }

    #[test]
    fn cpu_quota_and_period_are_one_file_on_v2() {
        check(
            &cpu(LinuxCpuBuilder::default().quota(50_000).period(200_000_u64)),
            &[("cpu.cfs_period_us", "200000"), ("cpu.cfs_quota_us", "50000")],
            &[("cpu.max", "50000 200000")],
        );
        check(
            &cpu(LinuxCpuBuilder::default().quota(-1)),
            &[("cpu.cfs_quota_us", "-1")],
            &[("cpu.max", "max 100000")],
        );
        let zero = cpu(LinuxCpuBuilder::default().quota(0));
        assert!(matches!(write(&zero, Version::V2), Err(CgroupError::InvalidLimit { .. })));
    }

    #[test]
    fn shares_span_the_range_of_weights() {
        for (shares, weight) in
            [(1_u64, "1"), (2, "1"), (512, "59"), (1024, "100"), (262_144, "10000"), (1_000_000, "10000")]
        {
            let found = write(&cpu(LinuxCpuBuilder::default().shares(shares)), Version::V2).unwrap();
            assert_eq!(found, [("cpu.weight".to_owned(), weight.to_owned())]);
        }
        check(&cpu(LinuxCpuBuilder::default().shares(0_u64)), &[], &[]);
    }

    /// youki#3634: 0 became "max", that is unlimited.
    #[test]
    fn a_pids_limit_of_zero_is_refused() {
        let pids = |limit: i64| {
            LinuxResourcesBuilder::default()
                .pids(LinuxPidsBuilder::default().limit(limit).build().unwrap())
                .build()
                .unwrap()
        };
        assert!(matches!(write(&pids(0), Version::V1), Err(CgroupError::InvalidLimit { .. })));
        check(&pids(1), &[("pids.max", "1")], &[("pids.max", "1")]);
        check(&pids(-1), &[("pids.max", "max")], &[("pids.max", "max")]);
    }

    #[test]
    fn io_throttles_and_huge_pages() {
        let device =
            LinuxThrottleDeviceBuilder::default().major(8).minor(0).rate(1_000_000_u64).build().unwrap();
        let io = LinuxBlockIoBuilder::default().throttle_write_bps_device([device]).build().unwrap();
        check(
            &LinuxResourcesBuilder::default().block_io(io).build().unwrap(),
            &[("blkio.throttle.write_bps_device", "8:0 1000000")],
            &[("io.max", "8:0 wbps=1000000")],
        );
        let huge = LinuxHugepageLimitBuilder::default().page_size("2MB").limit(4096_i64).build().unwrap();
        check(
            &LinuxResourcesBuilder::default().hugepage_limits([huge]).build().unwrap(),
            &[("hugetlb.2MB.limit_in_bytes", "4096")],
            &[("hugetlb.2MB.max", "4096")],
        );
        let escape = LinuxHugepageLimitBuilder::default().page_size("../x").limit(1_i64).build().unwrap();
        let escape = LinuxResourcesBuilder::default().hugepage_limits([escape]).build().unwrap();
        assert!(write(&escape, Version::V2).is_err());
    }

    #[test]
    fn there_are_no_huge_pages_unless_asked_for() {
        let none = LinuxResources::default();
        let written = writes(&none, |_| Some(Version::V2), &BTreeSet::new()).unwrap();
        let files: Vec<_> = written.iter().map(|write| write.file.as_str()).collect();
        assert_eq!(
            files,
            ["hugetlb.2MB.rsvd.max", "hugetlb.2MB.max", "hugetlb.1GB.rsvd.max", "hugetlb.1GB.max"]
        );
        assert!(written.iter().all(|write| write.implied && write.value == "0"));
        assert_eq!(
            writes(&none, |_| None, &BTreeSet::new()).unwrap(),
            [],
            "nor are they an error without it"
        );
        let (needed, used) = controllers(&none).unwrap();
        assert_eq!((needed, used), (BTreeSet::new(), BTreeSet::from([Controller::HugeTlb])));
    }

    #[test]
    fn what_a_version_cannot_express_is_an_error() {
        let swappiness = memory(LinuxMemoryBuilder::default().swappiness(10_u64));
        assert!(write(&swappiness, Version::V1).is_ok());
        let error = write(&swappiness, Version::V2).unwrap_err();
        assert_eq!(error.to_string(), "memory.swappiness cannot be set through cgroup v2");
        let unified = |key: &str| {
            let map = std::collections::HashMap::from([(key.to_owned(), "1".to_owned())]);
            LinuxResourcesBuilder::default().unified(map).build().unwrap()
        };
        assert!(write(&unified("memory.oom.group"), Version::V2).is_ok());
        let v1 = write(&unified("memory.oom.group"), Version::V1);
        assert!(matches!(v1, Err(CgroupError::Unsupported { .. })));
        for key in ["cgroup.procs", "memory/../x.y", "memory", "misc.max"] {
            assert!(
                matches!(write(&unified(key), Version::V2), Err(CgroupError::InvalidLimit { .. })),
                "{key}"
            );
        }
    }

    #[test]
    fn lowered_controllers_are_left_out_and_absent_ones_are_errors() {
        let resources = memory(LinuxMemoryBuilder::default().limit(1000));
        assert_eq!(writes(&resources, |_| None, &BTreeSet::from([Controller::Memory])).unwrap(), []);
        assert!(matches!(
            writes(&resources, |_| None, &BTreeSet::new()),
            Err(CgroupError::NoController { controller: Controller::Memory })
        ));
    }
}
