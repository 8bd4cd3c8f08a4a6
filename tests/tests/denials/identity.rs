//! Ids, capabilities, names and the environment.

use std::collections::HashMap;

use airlock_tests::{Site, skip};

use crate::{STRIPPED, refused_then_done};

const LOOPBACK: &str = "[network]\nmode = \"loopback\"\n";

/// The fields of the payload's `/proc/self/status`.
fn status(site: &Site, clauses: &str) -> HashMap<String, String> {
    let text = site.inside(clauses, ["read", "/proc/self/status"]).done();
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

#[test]
fn the_payload_is_the_policys_user() {
    let site = Site::new();
    let plain = status(&site, "");
    assert_eq!(plain["Uid"], "1000\t1000\t1000\t1000");
    assert_eq!(plain["Gid"], "1000\t1000\t1000\t1000");
    let other = status(&site, "[identity]\nuser = \"2000:3000\"\n");
    assert_eq!(other["Uid"], "2000\t2000\t2000\t2000");
    assert_eq!(other["Gid"], "3000\t3000\t3000\t3000");
}

#[test]
fn the_payload_has_no_groups() {
    let site = Site::new();
    if !site.caller().is_root() {
        skip!("an ordinary user cannot drop groups");
    }
    assert_eq!(status(&site, "")["Groups"], "");
}

#[test]
fn roots_payload_is_nobody_on_the_host() {
    let Some(site) = Site::root() else { skip!("needs root") };
    let mut live = site.run().policy(site.policy("")).start([Site::probe_inside(), "rest", "20"]);
    live.printed("ready");
    let uids: Vec<u32> = site
        .cgroups()
        .expect("root has cgroups")
        .processes()
        .iter()
        .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/status")).ok())
        .filter_map(|text| {
            text.lines().find(|line| line.starts_with("Uid:"))?.split('\t').nth(1)?.parse().ok()
        })
        .collect();
    assert!(uids.len() >= 2 && uids.iter().all(|uid| *uid >= 0x7000_0000), "{uids:?}");
    live.signal(nix::sys::signal::Signal::SIGTERM);
    live.end();
}

#[test]
fn all_five_capability_sets_are_empty() {
    let site = Site::new();
    let plain = status(&site, "");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(plain[set], "0000000000000000", "{set}");
    }
    let kept = status(&site, "[capabilities]\nkeep = [\"CAP_NET_BIND_SERVICE\"]\n");
    for set in ["CapPrm", "CapEff", "CapBnd"] {
        assert_eq!(kept[set], "0000000000000400", "{set}");
    }
}

#[test]
fn a_low_port_needs_the_capability() {
    let keep = format!("{LOOPBACK}[capabilities]\nkeep = [\"CAP_NET_BIND_SERVICE\"]\n");
    refused_then_done(LOOPBACK, &keep, &["bind-tcp", "80"], &["EACCES"]);
}

#[test]
fn no_new_privileges() {
    let site = Site::new();
    for clauses in ["", STRIPPED] {
        assert_eq!(status(&site, clauses)["NoNewPrivs"], "1");
    }
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    assert!(own.contains("NoNewPrivs:\t0"), "the tests run with it already");
}

#[test]
fn the_filter_is_on() {
    let site = Site::new();
    assert_eq!(status(&site, "")["Seccomp"], "2");
    assert_eq!(status(&site, STRIPPED)["Seccomp"], "0");
}

#[test]
fn the_host_name_is_the_policys() {
    let site = Site::new();
    let clauses = "[identity]\nhostname = \"box\"\n";
    assert_eq!(site.inside(clauses, ["read", "/proc/sys/kernel/hostname"]).done().trim(), "box");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let default = site.inside("", ["read", "/proc/sys/kernel/hostname"]).done();
    assert_ne!(default.trim(), host.trim());
}

#[test]
fn the_host_name_is_not_changed() {
    let site = Site::new();
    let before = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    // The filter alone, where the payload is root of a name space of its own.
    let loose = "nesting = true\n";
    let strict = format!("{loose}[seccomp]\ndeny = [\"sethostname\"]\n");
    site.inside("", ["set-host-name", "mine"]).refused(&["EPERM"]);
    site.inside(STRIPPED, ["set-host-name", "mine"]).refused(&["EPERM"]);
    site.inside(&strict, ["nested", "set-host-name", "mine"]).refused(&["EPERM"]);
    site.inside(loose, ["nested", "set-host-name", "mine"]).done();
    assert_eq!(std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap(), before);
}

#[test]
fn the_callers_environment_stays_outside() {
    let site = Site::new();
    let seen = |clauses: &str| {
        let run = site.run().policy(site.policy(clauses)).caller_env("AIRLOCK_SECRET", "hush");
        run.end(["/usr/bin/env"]).succeeded().stdout
    };
    assert!(!seen("").contains("hush"));
    assert!(seen("[env]\npass = [\"AIRLOCK_SECRET\"]\n").contains("AIRLOCK_SECRET=hush"));
}

#[test]
fn the_environment_is_the_policys_and_the_command_lines() {
    let site = Site::new();
    let policy = site.policy("[env]\nset = { COLOUR = \"green\", SHAPE = \"round\" }\n");
    let seen =
        site.run().policy(policy).flag("--env", "SHAPE=square").end(["/usr/bin/env"]).succeeded().stdout;
    assert!(seen.contains("COLOUR=green\n") && seen.contains("SHAPE=square\n"), "{seen}");
}

#[test]
fn signals_are_as_a_new_program_expects_them() {
    let site = Site::new();
    let state = status(&site, "");
    assert_eq!(state["SigIgn"], "0000000000000000");
    assert_eq!(state["SigBlk"], "0000000000000000");
}
