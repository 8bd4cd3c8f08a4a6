//! The supervisor is killed after each event of a run. What then follows is the table of the state's documentation.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{BUILDER, Bench, HONEST, count, events, score};

/// Kills the supervisor of a new run after so many events, and leads the run to its end; false if it had ended before.
fn killed_after(bench: &Bench, agent: &str, events_before: usize) -> bool {
    let mut led = bench.run(agent);
    led.until(|led| led.events().len() >= events_before);
    let run = led.kill();
    let before = events(&run);
    if before.is_empty() {
        // A run that never was can be neither resumed nor closed by name.
        bench.resume(&run, &[]).end().with(125, &[]);
        return true;
    }
    let whole = run.join("receipt.json").exists();
    let ended = bench.resume(&run, &[]).end();
    let after = events(&run);
    let why = || format!("killed after {} events: {ended:?}\n{after:#?}", before.len());
    assert_eq!(ended.code == Some(3), must_be_decided(&before, &after), "{}", why());
    if ended.code == Some(3) {
        assert_eq!(count(&after, "interrupted", None), 1, "{}", why());
        assert_eq!(count(&after, "scored", None), 0, "{}", why());
        // Asked again without a decision, it waits again, and tells so once.
        bench.resume(&run, &[]).end().with(3, &["interrupted"]);
        assert_eq!(count(&events(&run), "interrupted", None), 1);
        decide(bench, &run, events_before.is_multiple_of(2));
    } else {
        ended.with(0, &[]);
        assert!(bench.receipt(&run).predicate.weaker.iter().all(|words| !words.contains("operator")));
    }
    if run.join("receipt.json").exists() && count(&events(&run), "closed", Some(("outcome", "scored"))) == 1 {
        assert_eq!(score(&run), "2", "killed after {} events", before.len());
        let claims = count(&events(&run), "verdict", None);
        assert!(claims <= 2, "{claims} verdicts");
    }
    bench.is_empty();
    fs::remove_dir_all(&run).unwrap();
    !whole
}

/// An operator decides on an interrupted run.
fn decide(bench: &Bench, run: &Path, again: bool) {
    if again {
        bench.resume(run, &["--again"]).end().with(0, &[]);
        let weaker = bench.receipt(run).predicate.weaker;
        assert!(weaker.iter().any(|words| words.contains("operator")), "{weaker:?}");
    } else {
        bench.resume(run, &["--close"]).end().with(1, &[]);
        bench.receipt(run);
        assert_eq!(count(&events(run), "closed", Some(("outcome", "interrupted"))), 1);
    }
}

/// What the table says, of the events at the supervisor's death and those that the next one journaled: a replay or a
/// final scoring that had begun and has no outcome of its own waits for a decision. A sandbox whose set-up failed, as
/// when its launcher dies, has run nothing: that phase may begin again.
fn must_be_decided(before: &[Value], after: &[Value]) -> bool {
    let started = |name: &str| {
        let phase = before.iter().rfind(|event| event["type"] == "phase_started" && event["name"] == name);
        phase.map(|phase| phase["phase"].clone())
    };
    let ends = |phase: &Value| {
        let ended = after.iter().filter(|event| event["type"] == "phase_ended" && event["phase"] == *phase);
        ended.map(|event| event["reason"].clone()).collect::<Vec<_>>()
    };
    let lost = |phase: &Value| ends(phase).iter().all(|reason| reason == "supervisor-lost");
    let replay = started("replay").is_some_and(|phase| lost(&phase));
    let scoring = started("score").is_some_and(|phase| {
        let mut verdicts = before.iter().filter(|event| event["type"] == "verdict");
        verdicts.all(|event| event["phase"] != phase) && !ends(&phase).iter().any(|end| end == "setup-failed")
    });
    replay || scoring
}

fn walk(bench: &Bench, agent: &str, events: impl IntoIterator<Item = usize>) {
    for count in events {
        if !killed_after(bench, agent, count) {
            return;
        }
    }
}

#[test]
fn a_direct_run_survives_after_each_odd_event() {
    walk(&Bench::direct(), HONEST, (1..).step_by(2));
}

#[test]
fn a_direct_run_survives_after_each_even_event() {
    walk(&Bench::direct(), HONEST, (0..).step_by(2));
}

#[test]
fn a_replay_run_survives_from_the_choice_on() {
    walk(&Bench::replay(), BUILDER, 9..);
}
