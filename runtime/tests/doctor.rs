//! The examination on the real host: as the caller, as an ordinary user, and where a limit is in the way.
//!
//! Started without arguments it runs itself again, once for each role.

#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use airlock_runtime::doctor::{Check, Status, Table, examine, research_enforceable};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// An ordinary user that owns nothing.
const NOBODY: u32 = 65534;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("examined") => examined(),
        Some("walled") => walled(),
        Some("masked") => masked(),
        // What cargo-nextest asks of a test program without libtest ("Custom test harnesses" in its manual).
        Some("--list") => {
            if !std::env::args().any(|word| word == "--ignored") {
                println!("examination: test");
            }
        }
        // Without a role, or with what the test runner passes on.
        _ => {
            let root = rustix::process::geteuid().is_root();
            for role in ["examined", "walled", "masked"] {
                run(role, false);
                if root {
                    run(role, true);
                }
            }
        }
    }
}

fn run(role: &str, as_nobody: bool) {
    // Through the link, since another user may not reach the path.
    let mut command = Command::new("/proc/self/exe");
    command.arg(role).current_dir("/");
    if as_nobody {
        command.uid(NOBODY).gid(NOBODY).env_remove("XDG_RUNTIME_DIR");
    }
    let status = command.status().unwrap();
    assert!(status.success(), "{role}, as nobody: {as_nobody}: {status}");
}

fn find<'a>(checks: &'a [Check], id: &str) -> &'a Check {
    checks.iter().find(|check| check.id == id).unwrap()
}

/// What the host shows of this process and its traces.
fn traces() -> (String, usize, bool) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
    (mounts, descriptors, fs::exists("/run/airlock").unwrap_or(false))
}

fn examined() {
    let before = traces();
    let start = Instant::now();
    let checks = examine();
    let took = start.elapsed();
    println!("{}{took:?}", Table(&checks));
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert_eq!(traces(), before, "the examination leaves nothing behind");
    let children = fs::read_to_string(format!("/proc/self/task/{}/children", std::process::id()));
    assert_eq!(children.unwrap_or_default(), "", "every child is reaped");

    let ids: BTreeSet<&str> = checks.iter().map(|check| check.id).collect();
    assert_eq!(ids.len(), checks.len(), "ids are unique");
    for check in &checks {
        assert!(
            check.status == Status::Ok || check.remedy.as_ref().is_some_and(|text| !text.is_empty()),
            "{check:?}"
        );
        assert!(!check.found.is_empty(), "{check:?}");
    }
    let needed = checks.iter().filter(|check| check.needed_for_research);
    let whole = needed.clone().count() >= 10 && needed.clone().all(|check| check.status != Status::Lacking);
    assert_eq!(research_enforceable(&checks), whole);
    if !rustix::process::geteuid().is_root() {
        assert_eq!(find(&checks, "state-directory").status, Status::Lacking, "XDG_RUNTIME_DIR is not set");
        assert!(!research_enforceable(&checks));
    }
}

/// `user.max_user_namespaces` counts per user namespace, so a zero can be had without touching the host.
fn walled() {
    enter_namespaces(CloneFlags::CLONE_NEWUSER);
    let free = examine();
    assert_eq!(find(&free, "user-namespaces").status, Status::Ok, "{:?}", find(&free, "user-namespaces"));
    assert_eq!(find(&free, "proc").status, Status::Ok, "{:?}", find(&free, "proc"));

    fs::write("/proc/sys/user/max_user_namespaces", "0").unwrap();
    let walled = examine();
    let check = find(&walled, "user-namespaces");
    assert_eq!(check.status, Status::Lacking, "{check:?}");
    assert!(check.remedy.as_ref().unwrap().contains("user.max_user_namespaces"), "{check:?}");
    for id in ["namespace-privilege", "proc", "overlay"] {
        assert_eq!(find(&walled, id).status, Status::Lacking, "{id}");
    }
    assert!(!research_enforceable(&walled));
}

/// bubblewrap#505, #284, #134: a file of /proc covered, as container engines do, and no fresh one can be mounted.
fn masked() {
    enter_namespaces(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS);
    assert_eq!(find(&examine(), "proc").status, Status::Ok);
    mount(Some("/dev/null"), "/proc/interrupts", None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    let checks = examine();
    let check = find(&checks, "proc");
    assert_eq!(check.status, Status::Lacking, "{check:?}");
    assert!(check.found.contains("/proc/interrupts"), "{check:?}");
    assert_eq!(find(&checks, "user-namespaces").status, Status::Ok);
    assert!(!research_enforceable(&checks));
}

fn enter_namespaces(namespaces: CloneFlags) {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    unshare(namespaces).unwrap();
    fs::write("/proc/self/setgroups", "deny").unwrap();
    fs::write("/proc/self/uid_map", format!("0 {uid} 1")).unwrap();
    fs::write("/proc/self/gid_map", format!("0 {gid} 1")).unwrap();
}
