//! The main job: untrusted training code under `research`.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use airlock_tests::{Site, record_measure, skip};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde_json::Value;

const PYTHON: &str = "/usr/bin/python3";

fn accuracy(stdout: &str) -> f64 {
    let line: Value = serde_json::from_str(stdout.trim()).unwrap_or_else(|error| panic!("{error}: {stdout}"));
    line["accuracy"].as_f64().expect("an accuracy")
}

#[test]
fn the_digits_are_learnt_as_well_inside_as_outside() {
    if !Path::new(PYTHON).exists() {
        skip!("{PYTHON} is not installed");
    }
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/digits");
    let site = Site::new();
    let workspace = site.folder("workspace");
    for name in ["train.py", "digits.csv"] {
        site.file(&format!("workspace/{name}"), fs::read(example.join(name)).unwrap());
    }

    let started = Instant::now();
    let outside = Command::new(PYTHON)
        .arg(workspace.join("train.py"))
        .arg(workspace.join("digits.csv"))
        .arg(site.path("outside.json"))
        .output()
        .unwrap();
    let outside_wall = started.elapsed();
    let outside_user = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().user_time();
    let outside_user = u64::try_from(outside_user.num_milliseconds()).unwrap();
    assert!(outside.status.success(), "{}", String::from_utf8_lossy(&outside.stderr));
    let expected = accuracy(&String::from_utf8_lossy(&outside.stdout));
    assert!(expected > 0.95, "{expected}");

    let job = [PYTHON, "/workspace/train.py", "/workspace/digits.csv", "/workspace/inside.json"];
    let inside = site.run().built_in("research").workspace(&workspace).end(job).succeeded();
    assert_eq!(accuracy(&inside.stdout), expected);
    let model = |path| fs::read(path).unwrap();
    assert!(model(site.path("outside.json")) == model(workspace.join("inside.json")), "the models differ");
    record_measure(&format!(
        "digits: accuracy {expected}; inside {:.2} s, outside {:.2} s, overhead inside / outside {:.3}",
        inside.wall.as_secs_f64(),
        outside_wall.as_secs_f64(),
        inside.wall.as_secs_f64() / outside_wall.as_secs_f64(),
    ));

    let report = inside.report();
    assert_eq!(report.reason(), "exited");
    assert_eq!(report.number("exit_code"), 0);
    assert_eq!(report.number("version"), 1);
    assert_eq!(report.text("policy"), "research");
    assert!(report.field("signal").is_null());
    assert!(!report.text("id").is_empty());
    for digest in ["policy_digest", "spec_digest"] {
        assert!(report.text(digest).starts_with("sha256:"), "{report}");
    }
    let (wall, user) = (report.number("wall_ms"), report.number("user_ms"));
    assert!(wall > 0 && u128::from(wall) <= inside.wall.as_millis() + 1, "{report}");
    // A busy machine stretches the wall time, not this.
    assert!((outside_user / 2..outside_user * 2).contains(&user), "{outside_user} ms outside: {report}");
    report.number("sys_ms");
    report.field("io");
    report.field("refused_syscalls");
    if site.limits() {
        assert!(report.number("memory_peak") > 1 << 20, "{report}");
        assert!(report.number("pids_peak") >= 1, "{report}");
        assert_eq!(report.number("oom_kills"), 0, "{report}");
    }
    let enforced = report.enforced();
    assert!(enforced.len() >= 10, "{report}");
    let kinds = ["kernel-read", "child-probe", "step-ok"];
    assert!(enforced.iter().all(|(_, evidence)| kinds.contains(evidence)), "{report}");
    for clause in ["capabilities", "identity", "landlock", "[[mount]] /workspace", "network", "seccomp"] {
        assert!(!report.evidence(clause).is_empty(), "nothing is said of `{clause}`: {report}");
    }
}
