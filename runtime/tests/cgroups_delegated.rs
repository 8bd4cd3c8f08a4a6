//! A caller in a delegated cgroup v2 of its own, on the running kernel. Root only, as the test delegates.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use airlock_runtime::cgroups::{Cgroup, CgroupError, CgroupFacts, CgroupTarget, Controller, Needs};
use oci_spec::runtime::{LinuxPidsBuilder, LinuxResources, LinuxResourcesBuilder};

const PATIENCE: Duration = Duration::from_secs(5);

/// Runs an ignored test of this file in a v2 cgroup that holds nothing else; `None` if this host has no v2
/// controllers to hand out.
fn run_alone(test: &str, neighbour: bool) -> Option<()> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return None;
    }
    let facts = CgroupFacts::read().unwrap();
    let Some(tree) = facts.v2.filter(|tree| tree.root_controllers.contains(&Controller::Pids)) else {
        eprintln!("skipped: the v2 tree has no controllers");
        return None;
    };
    let scope = tree.mount.join(format!("airlock-test-{}-{test}", std::process::id()));
    fs::create_dir(&scope).unwrap();
    // What systemd's Delegate=yes does for a scope.
    fs::write(tree.mount.join("cgroup.subtree_control"), "+pids +memory").unwrap();
    let enter = |mut command: Command| {
        let procs: OwnedFd =
            fs::OpenOptions::new().write(true).open(scope.join("cgroup.procs")).unwrap().into();
        let write = move || {
            // SAFETY: a plain write of one static byte to a descriptor that the closure owns.
            match unsafe { libc::write(procs.as_raw_fd(), b"0".as_ptr().cast(), 1) } {
                1 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: the closure only calls write(2), which is async-signal-safe.
        unsafe { command.pre_exec(write) };
        command
    };
    let mut sleep = Command::new("/bin/sleep");
    sleep.arg("60");
    let other = neighbour.then(|| enter(sleep).spawn().unwrap());
    let mut alone = Command::new(std::env::current_exe().unwrap());
    alone.args(["--ignored", "--exact", test]);
    let output = enter(alone).output().unwrap();
    if let Some(mut other) = other {
        other.kill().unwrap();
        other.wait().unwrap();
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    for entry in fs::read_dir(&scope).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
        assert!(entry.file_name().to_string_lossy().starts_with("supervisor-"), "{entry:?} is left");
        fs::remove_dir(entry.path()).unwrap();
    }
    fs::remove_dir(&scope).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    Some(())
}

fn pids_limit() -> LinuxResources {
    let pids = LinuxPidsBuilder::default().limit(8).build().unwrap();
    LinuxResourcesBuilder::default().pids(pids).build().unwrap()
}

/// runc#2298, nsjail#196: EBUSY on subtree_control, because the caller sits in the parent.
#[test]
fn alone_in_a_delegated_cgroup_the_caller_makes_room_for_controllers() {
    run_alone("inside_alone", false);
}

#[test]
#[ignore = "run by the test above, in a cgroup of its own"]
fn inside_alone() {
    let resources = pids_limit();
    let needs = Needs::new(&resources, &BTreeSet::new()).unwrap();
    for name in ["first", "second"] {
        let facts = CgroupFacts::read().unwrap();
        let group = Cgroup::create(&CgroupTarget::new(&facts, None, name, &needs).unwrap()).unwrap();
        group.limit(&resources).unwrap();
        let kind = fs::read_to_string(group.paths().next().unwrap().1.join("cgroup.type")).unwrap();
        assert_eq!(kind.trim(), "domain", "processes can enter");
        assert!(group.read_limits(&resources).unwrap().iter().all(|reading| reading.holds));
        let (_, path) = group.paths().next().unwrap();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let leaf = format!("supervisor-{}", std::process::id());
        assert!(own.trim().ends_with(&leaf), "{own}");
        assert!(path.parent().unwrap().join(leaf).is_dir(), "the sandbox is beside the leaf");
        group.remove(PATIENCE).unwrap();
    }
}

#[test]
fn a_neighbour_in_the_callers_cgroup_is_named_and_not_moved() {
    run_alone("inside_with_a_neighbour", true);
}

#[test]
#[ignore = "run by the test above, in a cgroup of its own"]
fn inside_with_a_neighbour() {
    let needs = Needs::new(&pids_limit(), &BTreeSet::new()).unwrap();
    let facts = CgroupFacts::read().unwrap();
    let result = Cgroup::create(&CgroupTarget::new(&facts, None, "box", &needs).unwrap());
    assert!(
        matches!(&result, Err(CgroupError::InnerProcesses { pids, .. }) if pids.len() == 2),
        "{result:?}"
    );
}
