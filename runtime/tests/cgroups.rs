//! Cgroups on the running kernel, in top-level cgroups of the test's own. Root only.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use airlock_runtime::cgroups::{
    Cgroup, CgroupError, CgroupFacts, CgroupPath, CgroupRecord, CgroupTarget, Layout, Needs, Version,
};
use oci_spec::runtime::{
    LinuxCpuBuilder, LinuxMemoryBuilder, LinuxPidsBuilder, LinuxResources, LinuxResourcesBuilder,
};

const PATIENCE: Duration = Duration::from_secs(5);

/// A cgroup below a fresh top-level parent; ends and removes it when dropped.
struct Fixture {
    group: Cgroup,
    resources: LinuxResources,
}

impl Fixture {
    /// Absent, with the reason printed, where the test cannot run.
    fn new(resources: LinuxResources) -> Option<Self> {
        let facts = usable()?;
        let needs = Needs::new(&resources, &BTreeSet::new()).unwrap();
        let group = Cgroup::create(&target(&facts, &fresh_parent(), "box", &needs)).unwrap();
        group.limit(&resources).unwrap();
        Some(Self { group, resources })
    }

    /// A command that runs inside.
    fn command(&self, script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdin(Stdio::null());
        join(&mut command, &self.group);
        command
    }

    fn spawn(&self, script: &str) -> Child {
        self.command(script)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.group.kill(PATIENCE).unwrap();
            self.group.remove(PATIENCE).unwrap();
        } else if self.group.kill(PATIENCE).is_ok() {
            let _ = self.group.remove(PATIENCE);
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
    Needs {
        statistics: true,
        control: true,
        ..Needs::default()
    }
}

/// Makes the command enter the cgroup before it executes.
fn join(command: &mut Command, group: &Cgroup) {
    let mut files: Vec<OwnedFd> = group.join_descriptors().unwrap();
    for (version, path) in group.paths() {
        if version == Version::V2 {
            files.push(
                fs::OpenOptions::new()
                    .write(true)
                    .open(path.join("cgroup.procs"))
                    .unwrap()
                    .into(),
            );
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
    let Some(fixture) = Fixture::new(LinuxResources::default()) else {
        return;
    };
    let output = fixture.command("cat /proc/self/cgroup").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let facts = CgroupFacts::read().unwrap();
    for (version, path) in fixture.group.paths() {
        let mount = match version {
            Version::V1 => facts
                .v1
                .iter()
                .map(|tree| &tree.mount)
                .find(|mount| path.starts_with(mount))
                .unwrap()
                .clone(),
            Version::V2 => facts.v2.clone().unwrap().mount,
        };
        let inside = format!("/{}", path.strip_prefix(mount).unwrap().display());
        let joined = text.lines().any(|line| {
            line.ends_with(&format!(":{inside}")) && line.starts_with("0:") == (version == Version::V2)
        });
        assert!(joined, "{inside} ({version}) is missing in\n{text}");
    }
    assert!(
        text.lines().count() > fixture.group.paths().count(),
        "trees that are not needed are left alone"
    );
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
