//! Two supervisors at a time, and operators who change what lies under a run.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use airlock_tests::skip;

use crate::support::{Bench, HONEST, events, score};

const WAITS: &str = "echo good > answer; test -e begun && exec /opt/harness/submit.sh; touch begun; sleep 60";

/// A run whose supervisor was killed during research.
fn killed(bench: &Bench) -> PathBuf {
    let mut led = bench.run(WAITS);
    led.until(|led| led.run.join("work/workspace/begun").exists());
    led.kill()
}

#[test]
fn a_second_supervisor_is_refused() {
    let bench = Bench::direct();
    let mut led = bench.run(WAITS);
    led.until(|led| led.run.join("work/workspace/begun").exists());
    let run = led.run.clone();
    let before = fs::read(run.join("journal.jsonl")).unwrap();
    for options in [&[][..], &["--again"], &["--close"]] {
        bench.resume(&run, options).end().with(125, &["another supervisor is at work on this run"]);
    }
    bench.run_at(run.clone(), HONEST, &[]).end().with(125, &["it is not empty"]);
    assert_eq!(fs::read(run.join("journal.jsonl")).unwrap(), before);
    assert_eq!(bench.site().processes().values().filter(|name| *name == "airlock").count(), 1);
    led.kill();
    bench.resume(&run, &[]).end().with(0, &[]);
    assert_eq!(score(&run), "2");
}

/// Who made the key may have been killed before its public half was there.
#[test]
fn the_public_half_of_a_key_is_written_again() {
    let bench = Bench::direct();
    let run = killed(&bench);
    let public = bench.site().path("private/signing.pub");
    let text = fs::read_to_string(&public).unwrap();
    fs::remove_file(&public).unwrap();
    bench.resume(&run, &[]).end().with(0, &[]);
    assert_eq!(fs::read_to_string(&public).unwrap(), text);
    assert_eq!(
        fs::read_dir(bench.site().path("private"))
            .unwrap()
            .filter(|entry| { entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("signing") })
            .count(),
        2
    );
    bench.receipt(&run);
}

#[test]
fn a_run_of_another_key_or_another_task_is_refused_by_name() {
    let bench = Bench::direct();
    let run = killed(&bench);
    let before = events(&run);
    let halves = ["signing.key", "signing.pub"].map(|name| bench.site().path(&format!("private/{name}")));
    let kept = ["kept.key", "kept.pub"].map(|name| bench.site().path(&format!("private/{name}")));
    (0..2).for_each(|half| fs::rename(&halves[half], &kept[half]).unwrap());
    bench.resume(&run, &[]).end().with(125, &["the run was made for the key"]);
    (0..2).for_each(|half| fs::rename(&kept[half], &halves[half]).unwrap());

    for (path, part) in
        [("assets/rows", "asset:rows"), ("tests/score.sh", "tests"), ("environment/answer", "environment")]
    {
        let text = fs::read_to_string(bench.task(path)).unwrap();
        bench.write(path, "changed\n");
        bench.resume(&run, &[]).end().with(125, &[part, "and was", "when the run was made"]);
        bench.write(path, &text);
    }
    bench.edit("task.toml", "explore = \"1m\"", "explore = \"2m\"");
    bench.resume(&run, &[]).end().with(125, &["when the run was made"]);
    bench.edit("task.toml", "explore = \"2m\"", "explore = \"1m\"");

    let (task, moved) = (bench.task(""), bench.site().path("private/moved"));
    fs::rename(&task, &moved).unwrap();
    bench.resume(&run, &[]).end().with(125, &["private/task"]);
    fs::rename(&moved, &task).unwrap();

    // Another program, and another client in the run.
    for program in [bench.site().path("bin/airlock-grader"), run.join("harness/airlock-harness")] {
        let bytes = fs::read(&program).unwrap();
        fs::write(&program, [&bytes[..], b"\n"].concat()).unwrap();
        bench
            .resume(&run, &[])
            .end()
            .with(125, &["when the run was made", "resume with the Airlock that made it"]);
        fs::write(&program, bytes).unwrap();
    }

    assert_eq!(events(&run), before, "a refusal leaves the journal alone");
    bench.resume(&run, &[]).end().with(0, &[]);
    assert_eq!(score(&run), "2");
    bench.receipt(&run);
}

#[test]
fn a_run_whose_task_has_changed_can_be_closed() {
    let bench = Bench::direct();
    let run = killed(&bench);
    bench.write("assets/rows", "changed\n");
    bench.resume(&run, &["--close"]).end().with(1, &["interrupted"]);
    bench.receipt(&run);
}

#[test]
fn an_asset_that_changes_during_research_is_found_before_it_is_used() {
    let bench = Bench::direct();
    let mut led = bench.run("touch begun; while test -e begun; do sleep 0.01; done; /opt/harness/submit.sh");
    led.until(|led| led.run.join("work/workspace/begun").exists());
    bench.write("assets/rows", "changed\n");
    let run = led.run.clone();
    fs::remove_file(run.join("work/workspace/begun")).unwrap();
    led.end().with(125, &["asset:rows of the task is"]);
    bench.write("assets/rows", "hidden\n");
    bench.resume(&run, &[]).end().with(0, &[]);
    assert!(bench.receipt(&run).predicate.weaker.iter().all(|words| !words.contains("operator")));
}

#[test]
fn a_closed_run_is_left_as_it_is() {
    let bench = Bench::direct();
    let led = bench.run(HONEST);
    let run = led.run.clone();
    led.end().with(0, &[]);
    let receipt = fs::read(run.join("receipt.json")).unwrap();
    bench.resume(&run, &[]).end().with(0, &[]);
    bench.resume(&run, &["--again"]).end().with(125, &["nothing is left to decide"]);
    assert_eq!(fs::read(run.join("receipt.json")).unwrap(), receipt);
    bench.receipt(&run);
}

/// The clock is the host's boot-time clock: what a supervisor took to come back is gone.
#[test]
fn a_restart_gives_no_time_back() {
    let bench = Bench::direct();
    let run = killed(&bench);
    std::thread::sleep(Duration::from_millis(1500));
    bench.resume(&run, &[]).end().with(0, &[]);
    let ends: Vec<u64> = events(&run).iter().filter_map(|event| event["deadline_ns"].as_u64()).collect();
    assert_eq!(ends.len(), 2);
    assert!(ends[0].abs_diff(ends[1]) < 700_000_000, "{ends:?}");
}

/// A time namespace moves the boot-time clock, which nothing else can.
#[test]
fn the_boot_time_clock_decides() {
    let bench = Bench::direct();
    if !bench.site().caller().is_root() {
        skip!("needs root to make a time namespace");
    }
    let resume = |run: &Path, clock: &str| {
        let lead = bench.lead("resume");
        let mut command = bench.command("unshare");
        command.args(["--time", "--fork", "--boottime", clock]).arg(lead.get_program()).args(lead.get_args());
        bench.start(command.arg(run), run.to_owned()).end()
    };
    let run = killed(&bench);
    let before = events(&run);
    resume(&run, "-600").with(125, &["the boot-time clock is behind the last event"]);
    assert_eq!(events(&run), before);
    resume(&run, "61").with(1, &["deadline_passed"]);
    bench.receipt(&run);
}
