//! `airlock demo`, and a task that says nothing beyond Harbor's keys, as their users run them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use airlock_tests::Site;
use nix::sys::signal::Signal;
use serde_json::Value;

/// A site with Airlock's three programs.
fn site() -> Site {
    let site = Site::new();
    let built = || {
        let own = std::env::current_exe().expect("own path");
        own.ancestors().nth(2).expect("a build directory").join("airlock")
    };
    let airlock = std::env::var_os("AIRLOCK_BIN").map_or_else(built, PathBuf::from);
    for program in ["airlock-harness", "airlock-grader"] {
        let copy = site.airlock().with_file_name(program);
        fs::copy(airlock.with_file_name(program), copy).expect("build it first");
    }
    site
}

fn entries(path: &std::path::Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries
}

#[test]
fn the_demo_scores_an_honest_agent_and_no_other() {
    let site = site();
    site.folder("place");
    let place = site.path("place/demo");
    let started = Instant::now();
    let ended = site.airlock_with(["demo", "--run", place.to_str().unwrap()]).succeeded();
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
    let last = ended.stdout.lines().last().unwrap();
    assert!(
        last.starts_with("demo: the honest agent is scored, and 17 of 17 attempts to cheat failed"),
        "{last}"
    );
    for line in [
        "   honest                  0.8517  0.499375",
        "   cheat                     none  0.000000",
        "   refused               soup.py, hunk 1, line 32: 2443 characters in a row look",
    ] {
        assert!(ended.stdout.lines().any(|printed| printed == line), "{line}:\n{}", ended.stdout);
    }
    let directory = place.to_str().unwrap();
    let wide = ended.stdout.lines().find(|line| line.chars().count() > 80 && !line.contains(directory));
    assert_eq!(wide, None);
    let unlimited = ended.stdout.contains("This caller has no delegated cgroup");
    // Root's commands are not in the site's cgroup, but where root itself may set limits.
    assert_eq!(unlimited, !site.caller().is_root(), "{}", ended.stdout);
    for run in ["baseline", "honest", "cheat"] {
        for file in ["receipt.json", "report.html", "journal.jsonl"] {
            assert!(place.join(run).join(file).is_file(), "{run}/{file}");
        }
    }
    assert!(place.join("signing.pub").is_file() && !place.join("signing.key").exists());
    let state = site.path(".config");
    assert!(!state.exists(), "the user's own key is not touched");
    let again = site.airlock_with(["demo", "--run", directory]);
    assert!(again.stderr.contains("is not empty; a demo needs a directory of its own"), "{}", again.stderr);
}

#[test]
fn the_demo_speaks_to_programs_too() {
    let site = site();
    site.folder("place");
    let place = site.path("place/demo");
    let ended = site.airlock_with(["demo", "--json", "--run", place.to_str().unwrap()]).succeeded();
    let demo: Value = serde_json::from_str(&ended.stdout).unwrap();
    let run = |index: usize, key: &str| demo["runs"][index][key].clone();
    assert_eq!(demo["held"], true);
    assert_eq!((run(0, "outcome"), run(0, "sigma")), ("scored".into(), "0.100000".into()));
    assert_eq!((run(1, "outcome"), run(1, "score")["sum"].clone()), ("scored".into(), "511".into()));
    assert_eq!((run(2, "outcome"), run(2, "score")), ("gate_failed".into(), Value::Null));
    let verified = demo["verified"].as_array().unwrap();
    assert!(verified.len() == 3 && verified.iter().all(|run| run["verified"] == true), "{verified:?}");
    let (tampered, says) = (&demo["tampered"], demo["tampered"]["says"].as_str().unwrap());
    assert_eq!(tampered["verified"], false);
    assert!(says.contains("-score/verdict.json, byte ") && says.contains("but the receipt names"), "{says}");
    assert!(!place.join("tampered").exists());
    let attempts = demo["attempts"].as_array().unwrap();
    assert!(attempts.len() == 17 && attempts.iter().all(|attempt| attempt["held"] == true), "{attempts:?}");
    let walk =
        attempts.iter().find(|attempt| attempt["tried"] == "look for a hidden row in every file").unwrap();
    let happened = walk["happened"].as_str().unwrap();
    assert!(happened.ends_with("only a copy that it had made itself"), "{happened}");
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    let site = site();
    site.folder("place");
    let place = site.path("place/demo");
    let start = |keep: bool| {
        let words = ["demo", "--run", place.to_str().unwrap()].into_iter().chain(keep.then_some("--keep"));
        site.start_airlock(words)
    };
    for (keep, moment) in [(false, "patch gate"), (false, "validation v-1"), (true, "validation v-1")] {
        let mut demo = start(keep);
        demo.printed(moment);
        demo.signal(Signal::SIGINT);
        let ended = demo.end();
        assert_eq!((ended.code, ended.stderr.as_str()), (125, "airlock: interrupted\n"));
        assert_eq!(place.exists(), keep, "{moment}");
    }
    assert!(!place.join("signing.key").exists() && place.join("honest/journal.jsonl").is_file());
}

/// A task of that ecosystem: nothing of Airlock's in it, and a Dockerfile that is not built.
const HARBOR: [(&str, &str); 6] = [
    (
        "task.toml",
        "version = \"1.0\"\n\n[metadata]\ndifficulty = \"easy\"\n\n[verifier]\ntimeout_sec = 30.0\n\n[agent]\n\
         timeout_sec = 60.0\n\n[environment]\nbuild_timeout_sec = 600.0\ncpus = 1\nmemory_mb = 256\n",
    ),
    ("instruction.md", "Write `Hello, world!` to `hello.txt` in the working directory.\n"),
    ("environment/Dockerfile", "FROM debian:12\nWORKDIR /app\nCOPY start.txt .\n"),
    ("environment/start.txt", "start\n"),
    ("solution/solve.sh", "#!/bin/sh\nset -eu\necho 'Hello, world!' >/app/hello.txt\n"),
    (
        "tests/test.sh",
        "#!/bin/bash\ncd /app\ntest -e start.txt && [ \"$(cat hello.txt)\" = 'Hello, world!' ]\nstatus=$?\n\
         echo $((1 - status)) >/logs/verifier/reward.txt\nexit $status\n",
    ),
];

#[test]
fn a_task_with_harbors_keys_alone_is_graded_by_its_own_tests() {
    let site = site();
    for directory in ["", "environment", "solution", "tests"] {
        site.folder(&format!("task/{directory}"));
    }
    for (name, text) in HARBOR {
        site.file(&format!("task/{name}"), text);
    }
    let place = site.folder("place");
    fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    site.caller().own(&place);
    let lead = |name: &str, agent: &[&str]| {
        let run = place.join(name);
        let (task, run_word) = (site.path("task"), run.display().to_string());
        let solution = task.join("solution").display().to_string();
        let mut words = vec!["task", "run", task.to_str().unwrap(), "--run", &run_word];
        words.extend(["--agent-files", &solution]);
        if !site.caller().is_root() {
            words.extend(["--best-effort", "limits"]);
        }
        words.push("--agent");
        words.extend(agent);
        (site.airlock_with(words), run)
    };
    let solved = ["sh", "-c", "sh /opt/agent/solve.sh && /opt/harness/submit.sh"];
    let (ended, run) = lead("solved", &solved);
    assert!(ended.stdout.contains("\nscore 1\nclosed: scored\n"), "{ended}");
    assert_eq!(ended.code, 0);
    // The tests are shown to nobody but the tests.
    let (ended, _) = lead("peek", &["sh", "-c", "ls /tests; /opt/harness/submit.sh"]);
    assert!(ended.stdout.contains("\nscore 0\nclosed: scored\n"), "{ended}");
    let peek =
        entries(&place.join("peek/phases")).into_iter().find(|path| path.ends_with("1-explore")).unwrap();
    let said = fs::read_to_string(peek.join("stderr.log")).unwrap();
    assert!(said.contains("/tests") && said.contains("No such file"), "{said}");
    // What they run is the candidate's, in its own process; the page says so.
    let page = fs::read_to_string(run.join("report.html")).unwrap();
    assert!(page.contains("in-process"), "it is marked");
    let (ended, _) = lead("silent", &["true"]);
    assert!(ended.code == 1 && ended.stdout.contains("closed: nothing_submitted"), "{ended}");
    // An ordinary user's supervisor cannot read what this agent leaves, and ends the run all the same.
    let unreadable = "mkdir -p d/e && chmod 0 d";
    let (ended, run) = lead("unreadable", &["sh", "-c", &format!("{unreadable} && /opt/harness/submit.sh")]);
    let outcome = if site.caller().is_root() { "scored" } else { "gate_failed" };
    assert!(
        ended.stdout.contains(&format!("closed: {outcome}")) && run.join("receipt.json").is_file(),
        "{ended}"
    );
    let (ended, _) = lead("left", &["sh", "-c", unreadable]);
    assert!(ended.stdout.contains("closed: nothing_submitted"), "{ended}");
}
