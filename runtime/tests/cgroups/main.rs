//! Cgroups on the running kernel, in top-level cgroups of the test's own. Root only.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod life;

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use airlock_runtime::cgroups::{
    Cgroup, CgroupError, CgroupFacts, CgroupPath, CgroupRecord, CgroupTarget, DeviceFilter, Layout, Needs,
    TreeRecord, V2Tree, Version,
};
use oci_spec::runtime::{
    LinuxBlockIoBuilder, LinuxCpuBuilder, LinuxDeviceCgroupBuilder, LinuxDeviceType, LinuxMemoryBuilder,
    LinuxPidsBuilder, LinuxResources, LinuxResourcesBuilder, LinuxThrottleDeviceBuilder,
};

const PATIENCE: Duration = Duration::from_secs(5);

/// A cgroup below a fresh top-level parent; ends and removes it when dropped.
struct Fixture(Cgroup);

impl Fixture {
    /// Absent, with the reason printed, where the test cannot run.
    fn new(resources: &LinuxResources) -> Option<Self> {
        let facts = usable()?;
        let needs = Needs::new(resources, &BTreeSet::new()).unwrap();
        let target = match CgroupTarget::new(&facts, Some(&fresh_parent()), "box", &needs) {
            Err(error @ CgroupError::NoController { .. }) => {
                eprintln!("skipped: {error}");
                return None;
            }
            target => target.unwrap(),
        };
        let group = Cgroup::create(&target).unwrap();
        group.limit(resources).unwrap();
        Some(Self(group))
    }

    /// One for each way in which the host's trees can be used: together, v1 alone, v2 alone.
    fn each_view(needs: &Needs) -> Vec<Self> {
        let Some(facts) = usable() else { return vec![] };
        let mut views = vec![facts.clone()];
        if facts.layout == Layout::Hybrid {
            views.push(CgroupFacts { layout: Layout::V1, v2: None, ..facts.clone() });
            views.push(CgroupFacts { layout: Layout::V2, v1: vec![], ..facts });
        }
        let make = |facts| Self(Cgroup::create(&target(facts, &fresh_parent(), "box", needs)).unwrap());
        views.iter().map(make).collect()
    }

    /// A command that runs inside.
    fn command(&self, script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdin(Stdio::null());
        join(&mut command, &self.0);
        command
    }

    fn spawn(&self, script: &str) -> Child {
        self.command(script).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.0.kill(PATIENCE).unwrap();
            self.0.remove(PATIENCE).unwrap();
        } else if self.0.kill(PATIENCE).is_ok() {
            let _ = self.0.remove(PATIENCE);
        }
    }
}

fn usable() -> Option<CgroupFacts> {
    let facts = CgroupFacts::read().unwrap();
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return None;
    }
    if facts.layout == Layout::None {
        eprintln!("skipped: no cgroup file system is mounted");
        return None;
    }
    Some(facts)
}

fn fresh_parent() -> CgroupPath {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    CgroupPath::new(format!("/airlock-test-{}-{number}", std::process::id())).unwrap()
}

fn target(facts: &CgroupFacts, parent: &CgroupPath, name: &str, needs: &Needs) -> CgroupTarget {
    CgroupTarget::new(facts, Some(parent), name, needs).unwrap()
}

fn statistics() -> Needs {
    Needs { statistics: true, control: true, ..Needs::default() }
}

/// Makes the command enter the cgroup before it executes.
fn join(command: &mut Command, group: &Cgroup) {
    let mut files: Vec<OwnedFd> = group.join_descriptors().unwrap();
    for (version, path) in group.paths() {
        if version == Version::V2 {
            files.push(fs::OpenOptions::new().write(true).open(path.join("cgroup.procs")).unwrap().into());
        }
    }
    let enter = move || {
        for file in &files {
            // SAFETY: a plain write of one static byte to a descriptor that the closure owns.
            if unsafe { libc::write(file.as_raw_fd(), b"0".as_ptr().cast(), 1) } != 1 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the closure only calls write(2), which is async-signal-safe.
    unsafe { command.pre_exec(enter) };
}

#[test]
fn a_child_joins_every_directory_by_writing_0_to_the_inherited_descriptors() {
    let Some(fixture) = Fixture::new(&LinuxResources::default()) else {
        return;
    };
    let output = fixture.command("cat /proc/self/cgroup").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let facts = CgroupFacts::read().unwrap();
    for (version, path) in fixture.0.paths() {
        let mount = match version {
            Version::V1 => {
                facts.v1.iter().map(|tree| &tree.mount).find(|mount| path.starts_with(mount)).unwrap().clone()
            }
            Version::V2 => facts.v2.clone().unwrap().mount,
        };
        let inside = format!("/{}", path.strip_prefix(mount).unwrap().display());
        let joined = text.lines().any(|line| {
            line.ends_with(&format!(":{inside}")) && line.starts_with("0:") == (version == Version::V2)
        });
        assert!(joined, "{inside} ({version}) is missing in\n{text}");
    }
}

const BUSY: &str = "while :; do :; done";

fn memory(bytes: i64) -> LinuxResources {
    let memory = LinuxMemoryBuilder::default().limit(bytes).swap(bytes).build().unwrap();
    LinuxResourcesBuilder::default().memory(memory).build().unwrap()
}

fn everything() -> LinuxResources {
    let memory = LinuxMemoryBuilder::default().limit(64 << 20).swap(96 << 20).reservation(32 << 20).build();
    let cpu =
        LinuxCpuBuilder::default().quota(50_000).period(100_000_u64).shares(512_u64).cpus("0").mems("0");
    LinuxResourcesBuilder::default()
        .memory(memory.unwrap())
        .cpu(cpu.build().unwrap())
        .pids(LinuxPidsBuilder::default().limit(32).build().unwrap())
        .build()
        .unwrap()
}

/// Everything denied but the null device.
fn null_alone() -> DeviceFilter {
    let rule = || LinuxDeviceCgroupBuilder::default().access("rwm");
    DeviceFilter::from_oci(&[
        rule().allow(false).build().unwrap(),
        rule().allow(true).typ(LinuxDeviceType::C).major(1).minor(3).build().unwrap(),
    ])
    .unwrap()
}

#[test]
fn a_process_beyond_the_memory_limit_is_killed_and_counted() {
    const EATER: &str = "exec dd if=/dev/zero of=/dev/null bs=64M count=1";
    let Some(limited) = Fixture::new(&memory(16 << 20)) else {
        return;
    };
    assert_eq!(limited.spawn(EATER).wait().unwrap().signal(), Some(libc::SIGKILL));
    let stats = limited.0.stats().unwrap();
    assert_eq!(stats.oom_kills, Some(1));
    let peak = stats.memory_peak.unwrap();
    assert!((8 << 20..=16 << 20).contains(&peak), "peak {peak}");

    let Some(free) = Fixture::new(&LinuxResources::default()) else {
        return;
    };
    assert!(free.spawn(EATER).wait().unwrap().success(), "without the limit it runs");
    let stats = free.0.stats().unwrap();
    assert_eq!(stats.oom_kills, Some(0));
    assert!(stats.memory_peak.unwrap() >= 64 << 20);
}

#[test]
fn a_fork_loop_stops_at_the_pids_limit() {
    const FORKS: &str = "i=0; while [ $i -lt 20 ]; do sleep 9 & i=$((i+1)); done";
    let pids = LinuxPidsBuilder::default().limit(8).build().unwrap();
    let Some(limited) = Fixture::new(&LinuxResourcesBuilder::default().pids(pids).build().unwrap()) else {
        return;
    };
    assert!(!limited.spawn(FORKS).wait().unwrap().success());
    let stats = limited.0.stats().unwrap();
    assert!(stats.pids_max_events.unwrap() >= 1, "{stats:?}");
    assert!(stats.pids_peak.is_none_or(|peak| peak == 8), "{stats:?}");

    let Some(free) = Fixture::new(&LinuxResources::default()) else {
        return;
    };
    assert!(free.spawn(FORKS).wait().unwrap().success(), "without the limit it runs");
    let stats = free.0.stats().unwrap();
    assert_eq!(stats.pids_max_events, Some(0));
    assert!(stats.pids_peak.is_none_or(|peak| peak > 8), "{stats:?}");
}

#[test]
fn a_cpu_quota_holds_a_busy_process_back() {
    let used = |resources| {
        let fixture = Fixture::new(&resources)?;
        let mut child = fixture.spawn(BUSY);
        let start = Instant::now();
        std::thread::sleep(Duration::from_millis(500));
        fixture.0.kill(PATIENCE).unwrap();
        child.wait().unwrap();
        Some((fixture.0.stats().unwrap().cpu_usage_ns?, start.elapsed().as_nanos()))
    };
    let cpu = LinuxCpuBuilder::default().quota(5_000).period(100_000_u64).build().unwrap();
    let Some((limited, wall)) = used(LinuxResourcesBuilder::default().cpu(cpu).build().unwrap()) else {
        return;
    };
    let (free, _) = used(LinuxResources::default()).unwrap();
    assert!(limited > 0 && u128::from(limited) < wall / 4, "{limited} ns of {wall} at 5 %");
    assert!(free > limited, "{free} ns without a quota, {limited} ns with");
}

#[test]
fn limits_read_back_as_they_were_written() {
    let resources = everything();
    let Some(fixture) = Fixture::new(&resources) else {
        return;
    };
    let readings = fixture.0.read_limits(&resources).unwrap();
    assert!(readings.len() >= 7);
    for reading in readings {
        assert!(reading.holds, "{reading:?}");
    }
    let other = memory(32 << 20);
    assert!(
        fixture.0.read_limits(&other).unwrap().iter().any(|reading| !reading.holds),
        "a difference is seen"
    );
}

/// What v1 does not limit of TCP it does not count either: 1 GiB of buffers passed a limit of 64 MiB.
#[test]
fn a_memory_limit_of_v1_holds_for_the_buffers_of_tcp() {
    use std::io::Write;
    const LIMIT: u64 = 4 << 20;
    let Some(facts) = usable() else { return };
    if facts.layout == Layout::V2 {
        eprintln!("skipped: cgroup v2 counts them as memory");
        return;
    }
    let counted = |resources: &LinuxResources| -> Option<u64> {
        let fixture = Fixture::new(resources)?;
        let mut folders = fixture.0.paths().filter(|(version, _)| *version == Version::V1);
        let folder = folders.find(|(_, path)| path.join("memory.kmem.tcp.usage_in_bytes").exists())?.1;
        // A socket is counted where it was made, so a thread makes the pairs inside.
        let joins = fixture.0.join_descriptors().unwrap();
        let inside = std::thread::spawn(move || {
            for tasks in joins {
                fs::File::from(tasks).write_all(b"0").unwrap();
            }
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let mut pairs = Vec::new();
            for _ in 0..16 {
                let mut near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let far = listener.accept().unwrap().0;
                near.set_nonblocking(true).unwrap();
                while near.write(&[0; 65536]).is_ok() {}
                pairs.push((near, far));
            }
            let text = fs::read_to_string(folder.join("memory.kmem.tcp.usage_in_bytes")).unwrap();
            text.trim().parse().unwrap()
        });
        Some(inside.join().unwrap())
    };
    let Some(free) = counted(&LinuxResources::default()) else {
        eprintln!("skipped: this kernel has no such limit");
        return;
    };
    assert_eq!(free, 0, "without a limit nothing is counted");
    let limited = counted(&memory(LIMIT.cast_signed())).unwrap();
    assert!((LIMIT / 8..=2 * LIMIT).contains(&limited), "{limited} bytes");
}

/// libcgroups, youki's library, is the oracle for the meaning of the settings.
#[test]
fn limits_are_what_libcgroups_writes() {
    use libcgroups::common::{CgroupManager, ControllerOpt};
    // Airlock limits these on its own, libcgroups only where it is asked to.
    const OWN: [&str; 2] = ["memory.kmem.tcp.", "hugetlb."];
    let Some(facts) = usable() else { return };
    let resources = everything();
    let mut needs = Needs::new(&resources, &BTreeSet::new()).unwrap();
    // Its v1 manager writes device rules whatever was asked.
    needs.devices = true;
    let parent = fresh_parent();
    let [ours, theirs] = ["ours", "theirs"]
        .map(|name| Fixture(Cgroup::create(&target(&facts, &parent, name, &needs)).unwrap()));
    ours.0.limit(&resources).unwrap();
    let options = ControllerOpt {
        resources: &resources,
        disable_oom_killer: false,
        oom_score_adj: None,
        freezer_state: None,
    };
    let tree =
        facts.v1.first().map(|tree| &tree.mount).or(facts.v2.as_ref().map(|tree| &tree.mount)).unwrap();
    let path = theirs.0.paths().next().unwrap().1;
    let below = PathBuf::from("/")
        .join(path.components().rev().take(2).collect::<Vec<_>>().iter().rev().collect::<PathBuf>());
    match facts.layout {
        Layout::V2 => {
            libcgroups::v2::manager::Manager::new(tree.clone(), below).unwrap().apply(&options).unwrap();
        }
        _ => libcgroups::v1::Manager::new(&below).unwrap().apply(&options).unwrap(),
    }
    let found = |fixture: &Fixture| {
        let readings = fixture.0.read_limits(&resources).unwrap();
        let read = readings.into_iter().map(|r| {
            let file = r.path.file_name().unwrap();
            (file.to_str().unwrap().to_owned(), r.found)
        });
        read.filter(|(file, _)| !OWN.iter().any(|own| file.starts_with(own))).collect::<Vec<_>>()
    };
    assert_eq!(found(&ours), found(&theirs));
}

/// The disk under the temporary directory, if it has a queue of its own to limit.
fn disk(directory: &std::path::Path) -> Option<(i64, i64)> {
    let device = rustix::fs::stat(directory).unwrap().st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let whole = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/queue")).exists();
    whole.then(|| (major.into(), minor.into()))
}

#[test]
fn a_limit_of_writes_to_a_disk_slows_them_down() {
    let directory = tempfile::tempdir().unwrap();
    let Some((major, minor)) = disk(directory.path()) else {
        eprintln!("skipped: temporary files lie on no whole disk");
        return;
    };
    let written = |resources: &LinuxResources| {
        let fixture = Fixture::new(resources)?;
        let file = directory.path().join("file");
        let start = Instant::now();
        let script = format!("dd if=/dev/zero of={} bs=256k count=8 oflag=direct", file.display());
        assert!(fixture.spawn(&script).wait().unwrap().success());
        assert!(fixture.0.read_limits(resources).unwrap().iter().all(|reading| reading.holds));
        Some((start.elapsed(), fixture.0.stats().unwrap().io_written_bytes.unwrap_or_default()))
    };
    let device = LinuxThrottleDeviceBuilder::default().major(major).minor(minor).rate(1_u64 << 20).build();
    let limit = LinuxBlockIoBuilder::default().throttle_write_bps_device([device.unwrap()]).build().unwrap();
    let Some((limited, bytes)) = written(&LinuxResourcesBuilder::default().block_io(limit).build().unwrap())
    else {
        return;
    };
    let (free, _) = written(&LinuxResources::default()).unwrap();
    assert!(bytes >= 2 << 20, "{bytes} bytes counted");
    // How long it takes without is the machine's affair; the limit adds to it.
    assert!(limited > free + Duration::from_secs(1), "{limited:?}, without {free:?}");
}

#[test]
fn only_the_allowed_device_opens() {
    let needs = Needs { devices: true, control: true, ..Needs::default() };
    let filter = null_alone();
    for mut fixture in Fixture::each_view(&needs) {
        let open = |fixture: &Fixture, node: &str| {
            let output = fixture.command(&format!("exec 3<{node}")).output().unwrap();
            (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
        };
        assert!(open(&fixture, "/dev/zero").0, "without the filter it opens");
        assert!(!fixture.0.read_device_filter(&filter).unwrap().holds);
        fixture.0.filter_devices(&filter).unwrap();
        let readback = fixture.0.read_device_filter(&filter).unwrap();
        assert!(readback.holds, "{readback:?}");
        assert!(open(&fixture, "/dev/null").0);
        let (opened, message) = open(&fixture, "/dev/zero");
        assert!(!opened && message.contains("not permitted"), "{message:?}");
        assert_eq!(fixture.0.lowered(), [""; 0]);
    }
}
