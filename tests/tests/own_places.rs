//! What belongs to a sandbox's caller, or to another sandbox, is no place for this one to write.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::fs;
use std::path::{Path, PathBuf};

use airlock_tests::{Ended, Site};
use nix::sys::signal::Signal;

fn mount(source: &Path, mode: &str) -> String {
    format!("[[mount]]\nsource = {source:?}\ntarget = \"/data\"\nmode = {mode:?}\n")
}

/// Two overlays on one upper directory: "undefined behavior" (overlayfs.rst), and a way from one payload to the other.
#[test]
fn a_kept_directory_is_one_sandboxs_at_a_time() {
    let site = Site::new();
    let (kept, other) = (site.folder("kept"), site.folder("other"));
    let writing_to = |kept: &Path| site.run().policy(site.policy(&format!("[root]\nwritable = {kept:?}\n")));
    let mut first = writing_to(&kept).start(["/probe/probe", "rest", "60"]);
    first.printed("ready");
    writing_to(&kept)
        .end(["true"])
        .refused(&[kept.to_str().unwrap(), "another sandbox keeps its writes there"]);
    writing_to(&other).end(["true"]).succeeded();
    first.signal(Signal::SIGTERM);
    first.end();
    writing_to(&kept).end(["true"]).succeeded();
}

/// A payload that can write its report's directory can leave a report of its own there.
#[test]
fn a_report_lies_where_the_payload_cannot_write() {
    let site = Site::new();
    let data = site.folder("data");
    let report = data.join("report.json");
    let run = || site.run_reporting_to(&report);
    let with = |mode: &str| run().policy(site.policy(&mount(&data, mode))).end(["true"]);
    let words = ["--report", report.to_str().unwrap(), "which the sandbox can write to"];
    with("rw").refused(&words);
    run().policy(site.policy("")).workspace(&data).end(["true"]).refused(&words);
    // Nor by another name of the directory above.
    let above = site.folder("data/inner");
    let inner = above.join("report.json");
    site.run_reporting_to(&inner)
        .policy(site.policy(&mount(&data, "rw")))
        .end(["true"])
        .refused(&["--report", "which the sandbox can write to"]);
    assert!(!report.exists() && !inner.exists());
    with("ro").succeeded();
    assert!(report.exists());
}

/// Where Airlock keeps what it would act upon: pids to kill and directories to remove.
fn state(site: &Site) -> PathBuf {
    if site.caller().is_root() { "/run/airlock".into() } else { site.path("state/airlock") }
}

#[test]
fn the_runtime_state_is_no_source() {
    let site = Site::new();
    let run = |source: &Path| -> Ended { site.run().policy(site.policy(&mount(source, "ro"))).end(["true"]) };
    let state = state(&site);
    let beside = site.folder("beside");
    run(&beside).succeeded();
    let refused = |source: &Path| {
        run(source).refused(&[source.to_str().unwrap(), "Airlock's own state", state.to_str().unwrap()]);
    };
    refused(&state);
    refused(&state.join("sandboxes"));
    // A name that only begins alike is another place.
    if !site.caller().is_root() {
        refused(&site.path("state"));
        fs::create_dir(site.path("state/airlock-data")).unwrap();
        site.caller().own(&site.path("state/airlock-data"));
        run(&site.path("state/airlock-data")).succeeded();
    }
}
