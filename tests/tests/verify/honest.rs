//! Runs that nobody touched, and runs that are not over.

use std::fs;
use std::path::Path;
use std::time::Duration;

use airlock_tests::{Site, within};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::copies::{Original, copy};

fn verifies(original: &Original) -> Value {
    let ended = original.command(&original.run).succeeded();
    assert!(ended.stdout.starts_with("verified: digits-") && ended.stderr.is_empty(), "{ended}");
    let words = ["task", "verify", "--json", "elsewhere"];
    let answer: Value = serde_json::from_str(&original.site.airlock_with(words).succeeded().stdout).unwrap();
    assert_eq!(answer["verified"], true);
    let run = answer["run"].clone();
    assert_eq!(run["outcome"], "scored");
    run
}

#[test]
fn both_lifecycles_verify_elsewhere_without_their_task() {
    let soup = Original::soup(Site::new());
    let run = verifies(&soup);
    assert_eq!(run["checked"]["verdicts"], 3);
    assert_eq!(run["checked"]["validations"], 1);
    let status = soup.site.airlock_with(["task", "status", "--json", "elsewhere"]).succeeded();
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!((&status["stage"], &status["outcome"]), (&"closed".into(), &"scored".into()));
    assert_eq!(status["supervisor"], Value::Null);
    assert_eq!(status["result"]["sigma"], run["sigma"]);
    assert_eq!(status["checkpoints"].as_array().unwrap().len(), 3);

    let direct = Original::direct(Site::new());
    assert_eq!(verifies(&direct)["checked"]["verdicts"], 1);
}

#[test]
fn an_ordinary_users_run_verifies_and_says_what_was_weaker() {
    let original = Original::direct(Site::user());
    let run = verifies(&original);
    assert_eq!(run["official"], false);
    assert!(run["overrides"][0].as_str().unwrap().contains("policies may lower"), "{run}");
    let weaker: Vec<&str> =
        run["weaker"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    assert!(
        weaker.iter().any(|words| words.contains("explore") && words.contains(": devices: ")),
        "{weaker:?}"
    );
    assert!(weaker.iter().all(|words| !words.contains("{\"")), "{weaker:?}");
    let copy = original.copy();
    copy.edit("run.json", |bytes| bytes[30] ^= 1);
    let ended = original.command(&copy.run());
    assert_eq!(ended.code, 1, "{ended}");
    assert!(ended.stderr.starts_with("airlock: not verified: run.json"), "{ended}");
}

#[test]
fn a_run_that_is_not_over_is_shown_and_not_verified() {
    let site = Site::new();
    let agent = site.folder("agent");
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/tasks/digits-direct"), &site.path("task"));
    fs::write(agent.join("idle.sh"), "/opt/harness/validate.sh . --wait\nsleep 100\n").unwrap();
    let words =
        ["run", "task", "--run", "run", "--agent-files", "agent", "--agent", "sh", "/opt/agent/idle.sh"];
    let mut supervisor = site.lead(words);
    supervisor.printed("validation v-1: ");
    let status = || -> Value {
        serde_json::from_str(&site.airlock_with(["task", "status", "--json", "run"]).succeeded().stdout)
            .unwrap()
    };
    let live = status();
    assert_eq!(live["stage"], "research");
    assert_eq!(live["supervisor"], supervisor.pid().as_raw());
    assert_eq!(
        (&live["validations"][0]["state"], &live["validations"][0]["ticket"]),
        (&"done".into(), &1.into())
    );
    assert_eq!(live["validations"][0]["score"]["n"], 200);
    let left = live["research"]["left_ms"].as_u64().unwrap();
    assert!(left > 0 && left < live["research"]["budget_ms"].as_u64().unwrap(), "{live}");
    let words = site.airlock_with(["task", "status", "run"]).succeeded().stdout;
    assert!(words.contains("stage      research, phase 0 grader, phase 1 explore\n"), "{words}");

    std::thread::sleep(Duration::from_millis(1100));
    assert!(status()["research"]["left_ms"].as_u64().unwrap() + 1000 <= left);
    supervisor.signal(Signal::SIGKILL);
    supervisor.end();
    assert!(within(Duration::from_secs(10), || status()["supervisor"] == Value::Null));

    // What is no run says nothing about a run.
    for (path, said) in [("nosuch", "nosuch: No such file"), ("agent", "is no run: it has neither")] {
        let none = site.airlock_with(["task", "verify", path]);
        assert_eq!(none.code, 125, "{none}");
        assert!(none.stderr.contains(said) && !none.stderr.contains("not verified"), "{none}");
    }
    let verify = || site.airlock_with(["task", "verify", "run"]);
    let ended = verify();
    assert_eq!(ended.code, 1, "{ended}");
    assert!(
        ended.stderr.contains("the run is not over: it has no receipt.json; its journal is whole"),
        "{ended}"
    );
    // A crash may leave the beginning of a line; a byte within is another matter.
    let journal = site.path("run/journal.jsonl");
    let whole = fs::read(&journal).unwrap();
    fs::write(&journal, [&whole[..], b"{\"boot_id\":\"x"].concat()).unwrap();
    assert!(verify().stderr.contains("its journal is whole"));
    let mut bytes = whole;
    bytes[500] ^= 1;
    fs::write(&journal, bytes).unwrap();
    let ended = verify();
    assert_eq!(ended.code, 1, "{ended}");
    assert!(ended.stderr.contains("journal.jsonl: line ") && ended.stderr.contains(", byte "), "{ended}");
}

/// A baseline's changeset is empty; a final scoring that was cut off is claimed twice, by an operator's word.
#[test]
fn runs_that_went_another_way_verify() {
    let site = Site::new();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/tasks/digits-soup");
    copy(&example, &site.path("task"));
    let verify = |run: &str| site.airlock_with(["task", "verify", "--json", run]);
    let ended = site.lead(["run", "task", "--run", "base", "--baseline"]).end();
    assert_eq!(ended.code, 0, "{ended}");
    let base: Value = serde_json::from_str(&verify("base").succeeded().stdout).unwrap();
    assert_eq!(base["run"]["score"]["sum"], "440");

    let mut supervisor = site.lead(["run", "task", "--run", "cut", "--baseline"]);
    supervisor.printed("final scoring of");
    supervisor.printed("score starts");
    supervisor.signal(Signal::SIGKILL);
    supervisor.end();
    let ended = site.lead(["resume", "cut"]).end();
    // Where the scorer was faster than the signal, it is not claimed twice, and the run goes on by itself.
    let again = match ended.code {
        0 => false,
        _ => site.lead(["resume", "cut", "--again"]).end().succeeded().code == 0,
    };
    let cut: Value = serde_json::from_str(&verify("cut").succeeded().stdout).unwrap();
    let weaker = cut["run"]["weaker"].to_string();
    assert_eq!(weaker.contains("an operator let what was interrupted be done again"), again, "{weaker}");
    assert_eq!(cut["run"]["sigma"], base["run"]["sigma"]);
}

#[test]
fn what_is_no_run_is_a_failure_and_not_an_answer() {
    let site = Site::new();
    site.airlock_with(["task", "verify", "nothing"]).refused(&["there is no public key", "--key"]);
    fs::create_dir_all(site.path(".config/airlock")).unwrap();
    fs::write(site.path(".config/airlock/signing.pub"), "x").unwrap();
    site.airlock_with(["task", "verify", "nothing"]).refused(&["signing.pub", "not an Ed25519 public key"]);
    // The other half of a key.
    fs::write(site.path("k.key"), [0xff; 32]).unwrap();
    let ended = site.airlock_with(["task", "verify", "nothing", "--key", "k.key"]);
    ended.refused(&["k.key: not a PEM file", "its public half, k.pub"]);
    site.airlock_with(["task", "status", "nothing"]).refused(&["nothing"]);
}
