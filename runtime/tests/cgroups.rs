//! Cgroups on the running kernel, in top-level cgroups of the test's own. Root only.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

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
    assert!(free > 2 * limited, "{free} ns without a quota, {limited} ns with");
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
    assert!(limited > Duration::from_millis(1200) && limited > 2 * free, "{limited:?}, without {free:?}");
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

#[test]
fn a_frozen_process_stands_still_and_can_be_killed() {
    let needs = Needs { control: true, statistics: true, ..Needs::default() };
    for fixture in Fixture::each_view(&needs) {
        let mut child = fixture.spawn(BUSY);
        let used = || fixture.0.stats().unwrap().cpu_usage_ns.unwrap();
        fixture.0.freeze(PATIENCE).unwrap();
        let before = used();
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(used(), before, "frozen");
        fixture.0.thaw().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while used() == before {
            assert!(Instant::now() < deadline, "thawed");
            std::thread::sleep(Duration::from_millis(5));
        }
        fixture.0.freeze(PATIENCE).unwrap();
        fixture.0.kill(PATIENCE).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert_eq!(fixture.0.pids().unwrap(), [0; 0]);
    }
}

#[test]
fn kill_ends_every_process_of_a_forking_tree_that_ignores_sigterm() {
    for fixture in Fixture::each_view(&Needs { control: true, ..Needs::default() }) {
        let script = "trap '' TERM; (setsid sleep 60 &) ; i=0; while [ $i -lt 30 ]; do sleep 60 & i=$((i+1)); done; wait";
        let mut child = fixture.spawn(script);
        let deadline = Instant::now() + PATIENCE;
        while fixture.0.pids().unwrap().len() < 10 {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(2));
        }
        fixture.0.kill(PATIENCE).unwrap();
        assert_eq!(fixture.0.pids().unwrap(), [0; 0]);
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }
}

/// crun#868: a process that does not go made removal loop for ever.
#[test]
fn removal_of_an_inhabited_cgroup_ends_and_names_the_process() {
    for fixture in Fixture::each_view(&Needs { control: true, ..Needs::default() }) {
        let mut child = fixture.spawn("exec sleep 60");
        let error = fixture.0.remove(Duration::from_millis(30)).unwrap_err();
        assert!(matches!(&error, CgroupError::StillAlive { pids, .. } if *pids == [child.id()]), "{error}");
        fixture.0.kill(PATIENCE).unwrap();
        child.wait().unwrap();
    }
}

/// runc#4040: a cgroup left behind.
#[test]
fn removal_takes_nested_directories_and_can_be_repeated() {
    for fixture in Fixture::each_view(&Needs { control: true, statistics: true, ..Needs::default() }) {
        let paths: Vec<PathBuf> = fixture.0.paths().map(|(_, path)| path).collect();
        for path in &paths {
            fs::create_dir_all(path.join("a/b/c")).unwrap();
            fs::create_dir_all(path.join("a/d")).unwrap();
        }
        let deep: PathBuf = paths[0].join(vec!["n"; 100].join("/"));
        fs::create_dir_all(deep).unwrap();
        fixture.0.remove(PATIENCE).unwrap();
        assert!(!paths.is_empty() && paths.iter().all(|path| !path.parent().unwrap().exists()));
        fixture.0.remove(PATIENCE).unwrap();
    }
}

#[test]
fn a_recorded_cgroup_is_opened_killed_and_removed() {
    let Some(fixture) = Fixture::new(&LinuxResources::default()) else {
        return;
    };
    let mut child = fixture.spawn("exec sleep 60");
    let text = serde_json::to_string(&fixture.0.record()).unwrap();
    let record: CgroupRecord = serde_json::from_str(&text).unwrap();
    let opened = Cgroup::open(&record, &CgroupFacts::read().unwrap()).unwrap();
    assert_eq!(opened.record(), record);
    opened.kill(PATIENCE).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    opened.remove(PATIENCE).unwrap();
    assert!(fixture.0.paths().all(|(_, path)| !path.parent().unwrap().exists()));
    assert_eq!(Cgroup::open(&record, &CgroupFacts::read().unwrap()).unwrap().paths().count(), 0);
}

#[test]
fn a_record_that_names_an_ordinary_directory_is_refused() {
    let Some(fixture) = Fixture::new(&LinuxResources::default()) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir_all(directory.path().join("box")).unwrap();
    let mut record = fixture.0.record();
    record.trees[0].path = directory.path().join("box");
    let facts = CgroupFacts::read().unwrap();
    assert!(matches!(Cgroup::open(&record, &facts), Err(CgroupError::Record { .. })));
    record.trees[0].mount = directory.path().into();
    assert!(matches!(Cgroup::open(&record, &facts), Err(CgroupError::Record { .. })));
    assert!(directory.path().join("box").exists());
}

#[test]
fn a_directory_that_exists_is_not_adopted_and_nothing_is_left_of_the_attempt() {
    let Some(facts) = usable() else { return };
    let parent = fresh_parent();
    let target = target(&facts, &parent, "box", &statistics());
    let taken = target.trees.last().unwrap().path();
    fs::create_dir_all(&taken).unwrap();
    let result = Cgroup::create(&target);
    assert!(matches!(&result, Err(CgroupError::Exists { path }) if *path == taken), "{result:?}");
    assert!(taken.exists());
    for tree in &target.trees[..target.trees.len() - 1] {
        assert!(!tree.path().parent().unwrap().exists());
    }
    fs::remove_dir(&taken).unwrap();
    Cgroup::create(&target).unwrap().remove(PATIENCE).unwrap();
    let found = taken.parent().unwrap();
    assert!(found.exists(), "a parent that was found is left");
    fs::remove_dir(found).unwrap();
}

#[test]
fn sandboxes_that_share_a_new_parent_do_not_disturb_each_other() {
    let Some(facts) = usable() else { return };
    let parent = fresh_parent();
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (facts, parent) = (&facts, &parent);
            scope.spawn(move || {
                for _ in 0..25 {
                    let target = target(facts, parent, &format!("box{number}"), &statistics());
                    Cgroup::create(&target).unwrap().remove(PATIENCE).unwrap();
                }
            });
        }
    });
    for tree in target(&facts, &parent, "box", &statistics()).trees {
        assert!(!tree.path().parent().unwrap().exists(), "{} is left", tree.path().display());
    }
}

/// Whoever made it: the last in it removes it, also as a later process that has only the record.
#[test]
fn a_new_parent_goes_with_the_last_sandbox_in_it() {
    let Some(facts) = usable() else { return };
    let top = fresh_parent();
    let parent = target(&facts, &top, "box", &statistics()).trees[0].path();
    let below =
        CgroupPath::new(PathBuf::from("/").join(parent.parent().unwrap().file_name().unwrap()).join("inner"))
            .unwrap();
    let [first, second] =
        ["first", "second"].map(|name| Cgroup::create(&target(&facts, &below, name, &statistics())).unwrap());
    let paths: Vec<PathBuf> = second.paths().map(|(_, path)| path).collect();
    first.remove(PATIENCE).unwrap();
    assert!(paths.iter().all(|path| path.exists()));
    Cgroup::open(&second.record(), &facts).unwrap().remove(PATIENCE).unwrap();
    for path in paths {
        let parents = path.ancestors().skip(1).take(2);
        assert!(parents.clone().all(|parent| !parent.exists()), "{} is left", path.display());
    }
}

/// Leaves into which callers moved themselves: those of the dead go, those of the living stay.
#[test]
fn leaves_of_dead_callers_are_removed() {
    let Some(facts) = usable() else { return };
    let Some(tree) = facts.v2.clone() else {
        eprintln!("skipped: no v2 tree");
        return;
    };
    let own = PathBuf::from(format!("/airlock-test-{}-leaves", std::process::id()));
    let scope = tree.mount.join(own.strip_prefix("/").unwrap());
    let mut dead = Command::new("true").spawn().unwrap();
    dead.wait().unwrap();
    let leaf = |pid: u32| scope.join(format!("supervisor-{pid}"));
    let (living, gone, other) = (leaf(std::process::id()), leaf(dead.id()), scope.join("supervisor-x"));
    let make = || [&living, &gone, &other].map(|path| fs::create_dir_all(path).unwrap());
    let record = CgroupRecord {
        name: "box".into(),
        trees: vec![TreeRecord {
            version: Version::V2,
            mount: tree.mount.clone(),
            path: scope.join("box"),
            controllers: BTreeSet::new(),
            above: 0,
        }],
    };
    let callers = CgroupFacts { v2: Some(V2Tree { own: Some(own), ..tree }), ..facts.clone() };
    for (facts, record) in [(&callers, None), (&facts, Some(&record))] {
        make();
        facts.remove_leaves(record);
        assert!(living.exists() && other.exists() && !gone.exists(), "{record:?}");
        for path in [&living, &other] {
            fs::remove_dir(path).unwrap();
        }
    }
    fs::remove_dir(scope).unwrap();
}

#[test]
fn two_hundred_create_and_remove_cycles_leave_nothing() {
    let Some(facts) = usable() else { return };
    let parent = fresh_parent();
    let mut paths: Vec<PathBuf> = vec![];
    for _ in 0..200 {
        let group = Cgroup::create(&target(&facts, &parent, "box", &statistics())).unwrap();
        paths = group.paths().map(|(_, path)| path).collect();
        assert!(paths.iter().all(|path| path.is_dir()));
        group.remove(PATIENCE).unwrap();
    }
    assert!(!paths.is_empty());
    for path in paths {
        assert!(!path.parent().unwrap().exists(), "{} is left", path.display());
    }
}
