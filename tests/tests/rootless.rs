//! What an ordinary user gets. As root, each command is run as a user whom nobody else uses.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use airlock_tests::{Site, skip};

const PROBE: &str = "/probe/probe";

#[test]
fn a_users_sandbox_runs_and_says_what_was_lowered() {
    let site = Site::user();
    let ended = site.run().policy(site.policy("")).end([PROBE, "cwd"]).succeeded();
    assert_eq!(ended.report().reason(), "exited");
    assert!(ended.report().lowered().contains("limits"), "{}", ended.report());
}

#[test]
fn one_id_is_mapped() {
    let site = Site::user();
    let map = site.inside("[identity]\nids = \"single\"\n", ["read", "/proc/self/uid_map"]).done();
    let numbers: Vec<u32> = map.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert_eq!(numbers, [1000, site.caller().uid(), 1]);
}

#[test]
fn a_users_sandbox_is_closed() {
    let site = Site::user();
    let data = site.folder("data");
    let secret = site.file("secret", "hidden");
    let mount = |mode: &str| {
        let data = data.display();
        format!("\n[[mount]]\nsource = \"{data}\"\ntarget = \"/data\"\nmode = \"{mode}\"\n")
    };
    site.inside("", ["read", secret.to_str().unwrap()]).refused(&["ENOENT"]);
    site.inside(&mount("ro"), ["write", "/data/x", "hello"]).refused(&["EROFS", "EACCES"]);
    site.inside(&mount("rw"), ["write", "/data/x", "hello"]).done();
    assert_eq!(fs::metadata(data.join("x")).unwrap().uid(), site.caller().uid());
    site.inside("", ["call", "keyctl", "0", "-3", "0"]).refused(&["EPERM"]);
    site.inside("[seccomp]\nallow = [\"keyctl\"]\n", ["call", "keyctl", "0", "-3", "0"]).done();
    site.inside("", ["talk-to-self"]).refused(&["ENETUNREACH", "EADDRNOTAVAIL"]);
    let loopback = "[network]\nmode = \"loopback\"\n";
    site.inside(loopback, ["talk-to-self"]).done();
    assert_eq!(site.inside(loopback, ["interfaces"]).done(), "lo");
}

#[test]
fn a_user_has_no_capabilities_inside() {
    let site = Site::user();
    let status = site.inside("", ["read", "/proc/self/status"]).done();
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert!(status.contains(&format!("{set}:\t0000000000000000")), "{set}: {status}");
    }
}

#[test]
fn a_users_clock_stops_the_sandbox() {
    let site = Site::user();
    let ended = site.run().policy(site.policy("")).flag("--wall", "300ms").end([PROBE, "stay"]);
    assert_eq!(ended.report().reason(), "wall-timeout", "{ended}");
}

#[test]
fn killing_a_users_airlock_kills_the_sandbox() {
    Site::user().dies_with_its_monitor();
}

#[test]
fn a_delegated_cgroup_limits() {
    let Some(site) = Site::delegated() else { skip!("needs root, to delegate a cgroup") };
    let eat = |memory: &str| {
        let policy = site.policy(&format!("[limits]\nmemory = \"{memory}\"\n"));
        site.run().policy(policy).end([PROBE, "eat", "134217728"])
    };
    let small = eat("64MiB");
    assert_eq!(small.report().reason(), "oom", "{small}");
    eat("256MiB").succeeded();
    site.inside("[limits]\npids = 16\n", ["children", "30"]).refused(&["EAGAIN"]);
    site.inside("[limits]\npids = 64\n", ["children", "30"]).done();
}

/// The kernel puts a new process only into a version 2 group that shares an ancestor of the user's with the group
/// that the user is in.
#[test]
fn outside_of_the_delegated_cgroup_a_user_is_told_to_enter_it() {
    let Some(mut site) = Site::delegated() else { skip!("needs root, to delegate a cgroup") };
    let unified = |folder: &PathBuf| folder.join("cgroup.controllers").exists();
    if !site.cgroups().unwrap().folders().iter().any(unified) {
        skip!("no version 2 hierarchy here");
    }
    site.run().policy(site.policy("")).end(["true"]).succeeded();
    site.stay_outside();
    let refused = site.run().policy(site.policy("")).end(["true"]);
    refused.refused(&["Permission denied", "start airlock inside the delegated group"]);
}

/// A user's runtime state is the user's: nobody else may enter it.
#[test]
fn the_state_is_private() {
    let site = Site::user();
    site.run().policy(site.policy("")).end([PROBE, "cwd"]).succeeded();
    let state = site.path("state/airlock");
    if let Ok(found) = fs::metadata(&state) {
        assert_eq!(found.mode() & 0o077, 0, "{:o}", found.mode());
        assert_eq!(found.uid(), site.caller().uid());
    }
}

/// A range of `/etc/subuid`, by `newuidmap`. The test's own mount namespace has a passwd and a subuid file
/// that know the user; the machine's stay as they are.
#[test]
fn subordinate_ids_are_used() {
    let site = Site::user();
    if !airlock_tests::is_root() {
        skip!("needs root, to give a user subordinate ids");
    }
    if Command::new("newuidmap").output().is_err() {
        skip!("newuidmap is not installed");
    }
    let uid = site.caller().uid();
    let first = 0x5000_0000;
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let user = format!("airlock-user:x:{uid}:{uid}::/nonexistent:/usr/sbin/nologin\n");
    let passwd = site.file("passwd", passwd + &user);
    let ranges = site.file("subids", format!("airlock-user:{first}:65536\n"));
    for file in [&passwd, &ranges] {
        std::os::unix::fs::chown(file, Some(0), Some(0)).unwrap();
    }
    let policy = site.policy("[identity]\nids = \"subids\"\n");
    let script = "set -e\n\
        mount --bind \"$1\" /etc/passwd\n\
        mount --bind \"$2\" /etc/subuid\n\
        mount --bind \"$2\" /etc/subgid\n\
        shift 2\n\
        exec setpriv --reuid \"$1\" --regid \"$1\" --clear-groups \"$@\"\n";
    let script = script.replace("\"$@\"", "\"${@:2}\"");
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "bash", "-c", &script, "bash"])
        .args([&passwd, &ranges])
        .arg(uid.to_string())
        .arg(site.airlock())
        .args(["run", "--policy"])
        .arg(policy)
        .args(["--", PROBE, "read", "/proc/self/uid_map"])
        .env("XDG_RUNTIME_DIR", site.path("state"))
        .current_dir(site.path(""))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains(&first.to_string()), "{text}");
}
