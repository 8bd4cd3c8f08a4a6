//! Devices.

use std::fs::File;
use std::io::Write;

use airlock_tests::{Outcome, Site, skip};

use crate::STRIPPED;

#[test]
fn only_the_needed_nodes_are_there() {
    let needed = [
        "console", "core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin",
        "stdout", "tty", "urandom", "zero",
    ];
    let site = Site::new();
    let listed = site.inside("", ["list", "/dev"]).done();
    assert!(listed.split(' ').all(|name| needed.contains(&name)), "{listed}");
    for node in ["/dev/null", "/dev/zero", "/dev/urandom"] {
        site.inside("", ["open", node, "r"]).done();
    }
    site.inside("", ["open", "/dev/null", "w"]).done();
}

#[test]
fn nodes_are_not_made() {
    let site = Site::new();
    for clauses in ["", STRIPPED] {
        site.inside(clauses, ["mknod", "/tmp/node", "1", "3"]).refused(&["EPERM"]);
    }
    // A user namespace never holds the capability that counts.
    let keep = format!("{STRIPPED}[capabilities]\nkeep = [\"CAP_MKNOD\"]\n");
    site.inside(&keep, ["mknod", "/tmp/node", "1", "3"]).refused(&["EPERM"]);
    if site.caller().is_root() {
        let node = site.path("node");
        site.outside(["mknod", node.to_str().unwrap(), "1", "3"]).done();
    }
}

/// ENXIO would mean that a filter had let the open through.
#[test]
fn a_mounted_node_is_not_opened() {
    let site = Site::new();
    let data = site.folder("data");
    let node = data.join("node");
    if !site.caller().is_root() {
        skip!("an ordinary user has no node to mount");
    }
    site.outside(["mknod", node.to_str().unwrap(), "1", "3"]).done();
    site.outside(["open", node.to_str().unwrap(), "r"]).done();
    let mount = format!("\n[[mount]]\nsource = \"{}\"\ntarget = \"/data\"\n", data.display());
    site.inside(&mount, ["open", "/data/node", "r"]).refused(&["EACCES", "EPERM"]);
    site.inside(&format!("{STRIPPED}{mount}"), ["open", "/data/node", "r"]).refused(&["EACCES", "EPERM"]);
}

/// The filter alone: in the sandbox's own `/dev`, which is mounted with devices allowed, the host makes nodes. No
/// driver has numbers of major 120 (local use), so whoever passes the filter is told ENXIO.
#[test]
fn the_filter_refuses_what_is_not_listed() {
    let Some(site) = Site::root() else { skip!("needs root") };
    let Some(group) = site.cgroups() else { skip!("needs cgroups of its own") };
    let open = |major: &str, minor: &str| {
        let (input, typed) = nix::unistd::pipe().unwrap();
        let script = "echo ready; read line; exec /probe/probe open /dev/extra r";
        let run = site.run().policy(site.policy("")).stdin(input);
        let mut live = run.start(["/bin/sh", "-c", script]);
        live.printed("ready");
        let pid = *group.processes().first().unwrap();
        let node = format!("/proc/{pid}/root/dev/extra");
        site.outside(["mknod", &node, major, minor]).done();
        let outside = site.outside(["open", &node, "r"]);
        File::from(typed).write_all(b"go\n").unwrap();
        let mut ended = live.end();
        ended.stdout = ended.stdout.replace("ready\n", "");
        (Outcome::of(&ended), outside)
    };
    let (null, _) = open("1", "3");
    null.done();
    let (inside, outside) = open("120", "7");
    inside.refused(&["EPERM"]);
    outside.refused(&["ENXIO"]);
}

/// Masks and nodes of `/dev` must be what they seem (CVE-2025-31133).
#[test]
fn null_is_null() {
    let site = Site::new();
    let script = "stat -c '%t:%T' /dev/null /dev/zero /dev/urandom";
    let ended = site.run().policy(site.policy("")).end(["/bin/sh", "-c", script]).succeeded();
    assert_eq!(ended.stdout, "1:3\n1:5\n1:9\n");
    let written = site.inside("", ["write", "/dev/null", "x"]);
    assert_eq!(written, Outcome::Done("written".into()));
}
