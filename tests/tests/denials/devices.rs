//! Devices.

use airlock_tests::{Outcome, Site};

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
        site.inside(clauses, ["mknod", "/tmp/node", "1", "3"])
            .refused(&["EPERM"]);
    }
    // A user namespace never holds the capability that counts.
    let keep = format!("{STRIPPED}[capabilities]\nkeep = [\"CAP_MKNOD\"]\n");
    site.inside(&keep, ["mknod", "/tmp/node", "1", "3"])
        .refused(&["EPERM"]);
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
        airlock_tests::skip!("an ordinary user has no node to mount");
    }
    site.outside(["mknod", node.to_str().unwrap(), "1", "3"]).done();
    site.outside(["open", node.to_str().unwrap(), "r"]).done();
    let mount = format!(
        "\n[[mount]]\nsource = \"{}\"\ntarget = \"/data\"\n",
        data.display()
    );
    site.inside(&mount, ["open", "/data/node", "r"])
        .refused(&["EACCES", "EPERM"]);
    site.inside(&format!("{STRIPPED}{mount}"), ["open", "/data/node", "r"])
        .refused(&["EACCES", "EPERM"]);
}

/// Masks and nodes of `/dev` must be what they seem (CVE-2025-31133).
#[test]
fn null_is_null() {
    let site = Site::new();
    let script = "stat -c '%t:%T' /dev/null /dev/zero /dev/urandom";
    let ended = site
        .run()
        .policy(site.policy(""))
        .end(["/bin/sh", "-c", script])
        .succeeded();
    assert_eq!(ended.stdout, "1:3\n1:5\n1:9\n");
    let written = site.inside("", ["write", "/dev/null", "x"]);
    assert_eq!(written, Outcome::Done("written".into()));
}
