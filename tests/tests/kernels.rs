//! What must be the same on every kernel and under every layout of control groups.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::fs;

use airlock_tests::{Live, Report, Site, reader::Reading, record_refusal, skip};
use nix::sys::signal::Signal;

const PROBE: &str = "/probe/probe";

/// The payload's number on the host: the only child of the sandbox's init.
fn payload(site: &Site, live: &mut Live) -> i32 {
    live.printed("ready");
    let list = site.airlock_with(["list", "--json"]).succeeded().stdout;
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let ours = |record: &&serde_json::Value| record["monitor"]["pid"] == live.pid().as_raw();
    let record = list.as_array().unwrap().iter().find(ours).unwrap_or_else(|| panic!("{list}"));
    let init = record["init"]["pid"].as_i64().unwrap();
    let children = fs::read_to_string(format!("/proc/{init}/task/{init}/children")).unwrap();
    children.trim().parse().unwrap_or_else(|_| panic!("children of {init}: {children}"))
}

/// Every line of `enforced` is true, read by another than who wrote it.
fn confirm(reading: &Reading, report: &Report) {
    let list = report.field("enforced").as_array().unwrap();
    let lines = || list.iter().map(|line| (line["clause"].as_str().unwrap(), line["what"].as_str().unwrap()));
    // What the process itself has proven, and what its end proves, is tried below.
    let tried = |what: &str| {
        ["opening the host's / ", "unshare(0)", "dies with "].iter().any(|word| what.starts_with(word))
    };
    let wrong: Vec<String> = lines()
        .filter(|(_, what)| !tried(what))
        .filter_map(|(clause, what)| reading.confirms(clause, what).err())
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    for what in lines().map(|(_, what)| what).filter(|what| what.contains("which cannot restrict")) {
        record_refusal("Landlock", what);
    }
    for (point, options) in
        reading.mounts().filter(|(point, _)| *point != "/proc" && !point.starts_with("/proc/"))
    {
        let said = format!("{point} mounted {options}");
        assert!(lines().any(|(_, what)| what == said), "{said}: not in the report");
    }
}

#[test]
fn what_the_report_calls_enforced_is_true() {
    let site = Site::new();
    if !airlock_tests::is_root() {
        skip!("needs root, to look into the sandbox");
    }
    let data = site.folder("data");
    let policy = |landlock: &str| {
        let data = data.display();
        let limits = if site.limits() { "[limits]\nmemory = \"96MiB\"\npids = 64\ncpus = 0.5\n" } else { "" };
        site.policy(&format!(
            "{limits}{landlock}\n[[mount]]\nsource = \"{data}\"\ntarget = \"/data\"\nmode = \"rw\"\n"
        ))
    };
    let mut live = site.run().policy(policy("")).start([PROBE, "rest", "120"]);
    let pid = payload(&site, &mut live);
    let groups = site.cgroups().map(|parent| parent.children()).unwrap_or_default();
    let reading = Reading::take(pid, groups);
    live.signal(Signal::SIGTERM);
    let ended = live.end();
    confirm(&reading, ended.report());
    let clauses: Vec<&str> = ended.report().enforced().into_iter().map(|(clause, _)| clause).collect();
    let filters = ended.report().field("enforced").to_string().contains("v1 list: ");
    assert_eq!(filters, site.limits() && site.caller().is_root(), "{}", ended.report());
    for clause in ["identity.ids", "namespaces", "capabilities.keep", "seccomp.profile", "root.writable"] {
        assert!(clauses.contains(&clause), "{clause}");
    }

    // "opening the host's /": the same path, the same mode, with a rule and without.
    let write = |landlock| site.run().policy(policy(landlock)).probe(["write", "/data/x", "y"]);
    write("").done();
    if clauses.contains(&"landlock") {
        write("[landlock]\nwrite = [\"/tmp\"]\n").refused(&["EACCES"]);
    }
    // "unshare(0)".
    site.inside("", ["call", "unshare", "0"]).refused(&["EPERM"]);
    site.inside("[seccomp]\nallow = [\"unshare\"]\n", ["call", "unshare", "0"]).done();
}

/// "dies with the monitor".
#[test]
fn the_sandbox_dies_with_its_monitor() {
    Site::new().dies_with_its_monitor();
}

/// The choice for a memory limit: the kernel kills the largest process of the sandbox, not all of them, on version 1
/// and 2 alike; the report tells it.
#[test]
fn beyond_the_memory_limit_one_process_is_killed_and_the_others_go_on() {
    let site = Site::new();
    if !site.limits() {
        skip!("needs cgroups of its own");
    }
    let script = "/probe/probe eat 134217728; echo survived $?";
    let run = |memory: &str| {
        let policy = site.policy(&format!("[limits]\nmemory = \"{memory}\"\n"));
        site.run().policy(policy).end(["/bin/sh", "-c", script])
    };
    let small = run("64MiB");
    assert!(small.stdout.contains("survived 137"), "{small}");
    assert_eq!(small.report().number("oom_kills"), 1, "{}", small.report());
    let large = run("256MiB");
    assert!(large.stdout.contains("survived 0"), "{large}");
    assert_eq!(large.report().number("oom_kills"), 0, "{}", large.report());
    assert!(large.report().number("memory_peak") >= 128 << 20, "{}", large.report());
}
