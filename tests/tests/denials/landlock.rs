//! Landlock narrows what the mounts allow.

use std::path::Path;

use airlock_tests::{Site, skip};

const PROBES: &str = "\"/probe\"";

/// The kernel's Landlock ABI; 0 if it has none or it is off.
fn abi() -> i64 {
    // SAFETY: with the flag LANDLOCK_CREATE_RULESET_VERSION the call reads no pointer.
    unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0, 0, 1) }.max(0)
}

fn clauses(table: &str, data: &Path) -> String {
    let data = data.display();
    format!("[landlock]\n{table}\n[[mount]]\nsource = \"{data}\"\ntarget = \"/data\"\nmode = \"rw\"\n")
}

#[test]
fn only_listed_paths_are_read() {
    if abi() == 0 {
        skip!("this kernel has no Landlock");
    }
    let site = Site::new();
    let data = site.folder("data");
    site.file("data/x", "hello");
    let with =
        |read: &str| site.inside(&clauses(&format!("read = [{PROBES}{read}]"), &data), ["read", "/data/x"]);
    with("").refused(&["EACCES"]);
    with(", \"/data\"").done();
    site.inside(&clauses("", &data), ["read", "/data/x"]).done();
}

#[test]
fn only_listed_paths_are_written() {
    if abi() == 0 {
        skip!("this kernel has no Landlock");
    }
    let site = Site::new();
    let data = site.folder("data");
    let with = |write: &str| {
        site.inside(&clauses(&format!("write = [\"/tmp\"{write}]"), &data), ["write", "/data/x", "hello"])
    };
    with("").refused(&["EACCES"]);
    with(", \"/data\"").done();
    site.inside(&clauses("", &data), ["write", "/data/x", "hello"]).done();
}

/// A floor that the kernel does not reach is an error; only 0 is best effort.
#[test]
fn the_floor_is_hard() {
    if abi() >= 10 {
        skip!("this kernel has the newest Landlock");
    }
    let site = Site::new();
    let above = site.policy("[landlock]\nmin_abi = 10\n");
    site.run().policy(above).end(["true"]).refused(&["landlock", "10"]);
    site.run().policy(site.policy("[landlock]\nmin_abi = 0\n")).end(["true"]).succeeded();
}

/// It cannot be read back from the kernel, so the child proves it by a forbidden open.
#[test]
fn the_report_says_how_it_was_proven() {
    if abi() == 0 {
        skip!("this kernel has no Landlock");
    }
    let site = Site::new();
    let ended = site.run().policy(site.policy("")).end(["true"]).succeeded();
    assert!(ended.report().evidence("landlock").contains(&"child-probe"), "{}", ended.report());
}
