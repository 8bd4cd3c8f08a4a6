//! Each process of a run but the supervisor is killed, and the supervisor is asked to end.

use std::fs;
use std::time::{Duration, Instant};

use airlock_tests::within;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{BUILDER, Bench, HONEST, count, score};

/// An agent that makes a good candidate, and submits it when it is told to by a second start of itself.
const TWICE: &str = "echo good > answer; test -e begun && exec /opt/harness/submit.sh; touch begun; sleep 60";

fn end(pid: i32) {
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

/// The child of a process that is called so.
fn child(parent: i32, name: &str) -> i32 {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    let mut pids = children.split_whitespace().filter_map(|pid| pid.parse().ok());
    pids.find(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name))
        .unwrap()
}

#[test]
fn without_its_launcher_a_run_stops_with_an_error_and_can_be_resumed() {
    let bench = Bench::direct();
    let mut led = bench.run(TWICE);
    led.until(|led| led.run.join("work/workspace/begun").exists());
    end(child(led.pid(), "airlock-launch"));
    // Nothing needs a sandbox yet; the next thing that does is a grader process.
    let (_, init) = led.sandbox("grader");
    end(init);
    let run = led.run.clone();
    led.end().with(125, &["launcher: it has ended"]);
    bench.resume(&run, &[]).end().with(0, &[]);
    assert_eq!(score(&run), "2");
    bench.receipt(&run);
    bench.is_empty();
}

#[test]
fn a_final_scoring_that_no_launcher_could_begin_is_not_cut_off() {
    let bench = Bench::direct();
    let mut led = bench.run(HONEST);
    led.until(|led| count(&led.events(), "chosen", None) == 1);
    end(child(led.pid(), "airlock-launch"));
    let run = led.run.clone();
    led.end().with(125, &["launcher: it has ended"]);
    bench.resume(&run, &[]).end().with(0, &[]);
    assert_eq!(score(&run), "2");
    assert!(bench.receipt(&run).predicate.weaker.iter().all(|words| !words.contains("operator")));
}

#[test]
fn research_begins_again_when_its_monitor_is_killed() {
    let bench = Bench::direct();
    let mut led = bench.run(TWICE);
    led.until(|led| led.run.join("work/workspace/begun").exists());
    end(led.sandbox("explore").0);
    let run = led.run.clone();
    led.end().with(0, &[]);
    let events = crate::support::events(&run);
    assert_eq!(count(&events, "phase_started", Some(("name", "explore"))), 2);
    assert_eq!(count(&events, "phase_ended", Some(("reason", "supervisor-lost"))), 1, "{events:#?}");
    // The clock has gone on: both have the same end.
    let ends: Vec<u64> = events.iter().filter_map(|event| event["deadline_ns"].as_u64()).collect();
    assert!(ends[0].abs_diff(ends[1]) < 50_000_000, "{ends:?}");
    assert_eq!(score(&run), "2");
    bench.receipt(&run);
    bench.is_empty();
}

#[test]
fn the_agents_own_death_ends_research() {
    let bench = Bench::direct();
    let mut led = bench.run("echo good > answer; sleep 60");
    let (_, init) = led.sandbox("explore");
    let run = led.run.clone();
    led.until(|led| {
        fs::read_to_string(led.run.join("work/workspace/answer")).is_ok_and(|text| text == "good\n")
    });
    end(init);
    led.end().with(1, &["nothing_submitted"]);
    bench.receipt(&run);
}

#[test]
fn a_grader_process_is_replaced_and_who_waits_is_served() {
    let bench = Bench::direct();
    let agent = "touch begun; while test -e begun; do sleep 0.01; done
/opt/harness/airlock-harness hello > hello || exit 1; echo good > answer; /opt/harness/submit.sh";
    let mut led = bench.run(agent);
    led.until(|led| led.run.join("work/workspace/begun").exists());
    let (monitor, init) = led.sandbox("grader");
    end(init);
    let run = led.run.clone();
    fs::remove_file(run.join("work/workspace/begun")).unwrap();
    let mut second = (0, 0);
    led.until(|led| count(&led.events(), "phase_started", Some(("name", "grader"))) == 2);
    assert!(within(Duration::from_secs(5), || {
        second = led.sandbox("grader");
        second.0 != monitor
    }));
    led.end().with(0, &[]);
    assert_eq!(score(&run), "2");
    bench.receipt(&run);
}

/// A scorer that waits for a file in its assets, which the test makes.
fn waits(bench: &Bench) {
    bench.edit("tests/score.sh", "for item", "sleep 1\nfor item");
}

#[test]
fn a_validation_whose_monitor_is_killed_is_done_once_more() {
    for phase in ["validate", "candidate"] {
        let bench = Bench::direct();
        waits(&bench);
        let mut led = bench.run(HONEST);
        end(led.sandbox(phase).0);
        let run = led.run.clone();
        led.end().with(0, &[]);
        let events = crate::support::events(&run);
        assert_eq!(count(&events, "phase_started", Some(("name", "validate"))), 2, "{phase}: {events:#?}");
        assert_eq!(count(&events, "validation_result", None), 1, "{phase}: {events:#?}");
        bench.receipt(&run);
        bench.is_empty();
    }
}

#[test]
fn a_final_scoring_whose_monitor_is_killed_is_interrupted() {
    for phase in ["score", "candidate"] {
        let bench = Bench::direct();
        waits(&bench);
        let mut led = bench.run("echo good > answer; /opt/harness/submit.sh");
        end(led.sandbox(phase).0);
        let run = led.run.clone();
        led.end().with(3, &["was cut off, and it is claimed once"]);
        bench.is_empty();
        bench.resume(&run, &[]).end().with(3, &[]);
        bench.resume(&run, &["--again"]).end().with(0, &[]);
        assert_eq!(score(&run), "2");
        assert!(bench.receipt(&run).predicate.weaker.iter().any(|words| words.contains("operator")));
    }
}

#[test]
fn a_replay_whose_monitor_is_killed_is_interrupted() {
    let bench = Bench::replay();
    bench.edit("environment/build.sh", "done", "done; sleep 1");
    let mut led = bench.run(BUILDER);
    end(led.sandbox("replay").0);
    let run = led.run.clone();
    led.end().with(3, &["the replay was cut off"]);
    bench.resume(&run, &["--again"]).end().with(0, &[]);
    assert_eq!(score(&run), "2");
    bench.receipt(&run);
}

/// Nobody can tell it from a crash of the scorer's own.
#[test]
fn a_scorer_that_is_killed_has_failed() {
    let bench = Bench::direct();
    waits(&bench);
    let mut led = bench.run("echo good > answer; /opt/harness/submit.sh");
    end(led.sandbox("score").1);
    let run = led.run.clone();
    led.end();
    let events = crate::support::events(&run);
    assert_eq!(count(&events, "verdict", None), 1, "{events:#?}");
    assert_eq!(count(&events, "interrupted", None), 0);
    bench.receipt(&run);
}

#[test]
fn signals_end_the_supervisor_and_its_sandboxes_and_the_run_goes_on_later() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let bench = Bench::direct();
        let agent = "echo good > answer; test -e begun && exec /opt/harness/submit.sh
trap '' TERM; touch begun; while :; do sleep 1; done";
        let mut led = bench.run(agent);
        led.until(|led| led.run.join("work/workspace/begun").exists());
        let run = led.run.clone();
        let sent = Instant::now();
        led.signal(signal);
        led.end().with(125, &["goes on"]);
        // The agent ignores the request, and is killed when its grace is over.
        assert!(within(Duration::from_secs(3), || bench.site().processes().is_empty()), "{signal}");
        assert!(sent.elapsed() < Duration::from_secs(3));
        bench.resume(&run, &[]).end().with(0, &[]);
        assert_eq!(score(&run), "2");
        bench.receipt(&run);
        bench.is_empty();
    }
}

/// The next supervisor does not wait for the grace of the one before.
#[test]
fn an_agent_that_ignores_its_end_is_gone_when_the_run_goes_on() {
    let bench = Bench::direct();
    let agent =
        "echo good > answer; test -e begun && { test -e late && exit 1; exec /opt/harness/submit.sh; }
trap '' TERM; touch begun; sleep 0.7; touch late; sleep 60";
    for _ in 0..3 {
        let mut led = bench.run(agent);
        led.until(|led| led.run.join("work/workspace/begun").exists());
        let run = led.kill();
        bench.resume(&run, &[]).end().with(0, &[]);
        bench.receipt(&run);
    }
}
