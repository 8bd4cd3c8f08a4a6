//! Scorers and candidates that do not behave. Whatever they do, the run has an end, and what was planned is counted.

use std::fs;
use std::path::Path;

use airlock_tests::within;
use std::time::Duration;

use crate::support::{ASK, Bench, HONEST, SERVE, count, events, score};

const SUBMIT: &str = "echo good > answer; /opt/harness/submit.sh";

/// What became of a run that is scored by this.
fn scored_by(script: &str) -> (Option<i32>, String, String) {
    let bench = Bench::direct();
    bench.write("tests/score.sh", script);
    let led = bench.run(SUBMIT);
    let run = led.run.clone();
    let ended = led.end();
    assert_eq!(count(&events(&run), "verdict", None), 1, "{script}: {ended:?}");
    bench.receipt(&run);
    bench.is_empty();
    (ended.code, score(&run), fault(&run))
}

fn fault(run: &Path) -> String {
    let phases = fs::read_dir(run.join("phases")).unwrap().flatten();
    let place =
        phases.map(|phase| phase.path()).find(|path| path.to_str().unwrap().ends_with("-score")).unwrap();
    fs::read_to_string(place.join("fault.txt")).unwrap_or_default()
}

#[test]
fn a_scorer_that_fails_gives_no_points_and_ends() {
    let two = format!("{ASK}echo '{{\"items\":[]}}' >&3\n");
    let late = format!("{ASK}exit 3\n");
    for (script, why) in [
        (two.as_str(), "another document follows the verdict"),
        (late.as_str(), "ended with status 3"),
        ("exit 0", "wrote no verdict"),
        ("kill -9 $$", "signal"),
        ("sleep 60", "did not end in time"),
        ("head -c 100000 /dev/urandom >&3", "verdict"),
        ("printf '{\"items\":[' >&3", "ends within its document"),
        ("exec 4>&-; sleep 0.1; exit 1", "ended with status 1"),
    ] {
        let (code, score, fault) = scored_by(script);
        assert!(fault.contains(why), "{script}: {fault}");
        assert!(["0", "void"].contains(&score.as_str()), "{script}: {score} {code:?}");
    }
}

/// A gigabyte each; of the log 16 MiB are kept, of the verdict nothing.
#[test]
fn a_scorer_that_floods_its_descriptors_fills_no_disk() {
    let (_, _, fault) = scored_by("head -c 1G /dev/zero >&3");
    assert!(fault.contains("bytes were written"), "{fault}");
    let bench = Bench::direct();
    bench.write("tests/score.sh", &format!("head -c 1G /dev/zero; head -c 1G /dev/zero >&2\n{ASK}"));
    bench.edit(
        "task.toml",
        "mounts = [{ source = \"asset:rows\", target = \"/rows\" }]\nlimits = { wall = \"3s\" }",
        "mounts = [{ source = \"asset:rows\", target = \"/rows\" }]\nlimits = { wall = \"40s\" }",
    );
    let led = bench.run(SUBMIT);
    let run = led.run.clone();
    led.end().with(0, &[]);
    assert_eq!(score(&run), "2");
    let size: u64 = walkdir(&run);
    assert!(size < 40 << 20, "{size}");
    bench.receipt(&run);
}

fn walkdir(path: &Path) -> u64 {
    let entries = fs::read_dir(path).unwrap().flatten();
    let size = |entry: fs::DirEntry| match entry.file_type().unwrap().is_dir() {
        true => walkdir(&entry.path()),
        false => entry.metadata().unwrap().len(),
    };
    entries.map(size).sum()
}

/// The end of its sandbox is the end of all that could still write.
#[test]
fn a_child_that_keeps_the_verdicts_descriptor_holds_nothing_up() {
    let (code, score, _) = scored_by(&format!("{ASK}( setsid sleep 60 & ) \n"));
    assert_eq!((code, score.as_str()), (Some(0), "2"));
}

/// What became of a run of such a candidate.
fn served_by(serve: &str) -> String {
    let bench = Bench::direct();
    bench.write("environment/serve.sh", serve);
    let led = bench.run(SUBMIT);
    let run = led.run.clone();
    let ended = led.end();
    assert_eq!(count(&events(&run), "verdict", None), 1, "{serve}: {ended:?}");
    bench.receipt(&run);
    bench.is_empty();
    score(&run)
}

#[test]
fn a_candidate_that_does_not_behave_scores_nothing() {
    assert_eq!(served_by(SERVE), "2");
    for serve in [
        "exit 0",
        "cat /dev/zero >&4",
        "yes bad >&4",
        "sleep 60",
        "while read -r item <&4; do exec 4>&-; done; sleep 60",
        "head -c 2M /dev/zero | tr '\\0' x >&4; echo good >&4; sleep 1",
    ] {
        let score = served_by(serve);
        assert!(["0", "void"].contains(&score.as_str()), "{serve}: {score}");
    }
}

/// A scorer that does not end is no reason for research to wait longer than it has to.
#[test]
fn a_validation_that_hangs_fails_and_research_goes_on() {
    let bench = Bench::direct();
    bench.edit("tests/score.sh", "for item", "test -e /rows || sleep 60\nfor item");
    let agent = HONEST.replace("&&", ";");
    let mut led = bench.run(&agent);
    led.until(|led| count(&led.events(), "validation_requested", None) == 1);
    let run = led.run.clone();
    led.end().with(0, &[]);
    assert_eq!(
        count(&events(&run), "validation_failed", Some(("cause", "the scorer did not end in time"))),
        1
    );
    assert!(within(Duration::from_secs(1), || score(&run) == "2"));
    bench.receipt(&run);
}
