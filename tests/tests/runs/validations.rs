//! Validation on request: queue, subsets, cancellation, failures, what is returned, and the clock.

use std::fs;

use airlock_tests::{Graded, GradedRun, fraction};
use nix::sys::signal::Signal;

/// The bundled scorer, that also keeps what it saw, and fails or waits where a file of the candidate says so.
fn task() -> Graded {
    let hook = "import hashlib\ndef main():\n    told = '/candidate/data/told'\n    \
        told = open(told).read().split() if os.path.exists(told) else []\n    \
        if 'crash' in told: os._exit(3)\n    \
        if 'twice' in told: os.write(VERDICT, b'{\"items\": []}{\"items\": []}'); return\n    \
        if 'hang' in told: time.sleep(600)\n    \
        if 'wait' in told: time.sleep(1.5)\n    \
        open('/trajectories/seen.txt', 'w').write(hashlib.sha256(open('/candidate/model.json', 'rb').read()).hexdigest())\n";
    Graded::of("digits-direct").edit("tests/score.py", "def main():\n", hook).edit(
        "task.toml",
        "limits = { wall = \"1m\" }\n\n[[airlock.phase]]\nname = \"score\"",
        "limits = { wall = \"5s\" }\n\n[[airlock.phase]]\nname = \"score\"",
    )
}

#[test]
fn candidates_are_validated_in_their_order_whole_or_in_part() {
    let agent = "exec 2>&1
        H=/opt/harness/airlock-harness
        mkdir -p data; echo wait > data/told
        $H validate .; $H validate . --item row-3 --item row-1; $H validate .; $H validate .
        $H cancel v-3; $H cancel v-9
        $H result v-2 --wait
        $H validate . --item row-9999
        rm data/told; $H validate . --wait > /dev/null
        cancel=$($H cancel v-1); echo $cancel
        cd /run/airlock/feedback; ls; cat v-1/seen.txt; echo; sha256sum < /workspace/model.json
        echo x > v-1/seen.txt; echo x > new; rm v-1/seen.txt
        /opt/harness/submit.sh";
    let task = task();
    let run = task.shell(agent).end().closed("scored");
    let printed = run.printed("explore");
    let all = run.all("validation_requested");
    assert_eq!(all.len(), 5, "{printed}");
    // The same bytes are one candidate; others are another.
    assert!(all[..4].iter().all(|event| event["candidate"] == all[0]["candidate"]));
    assert_ne!(all[4]["candidate"], all[0]["candidate"]);
    assert_eq!(run.event("validation_cancelled")["ticket"], 3);
    let results = run.all("validation_result");
    let tickets: Vec<_> = results.iter().map(|event| event["ticket"].as_u64().unwrap()).collect();
    assert_eq!(tickets, [1, 2, 4, 5]);
    // A part is told from the whole by its denominator, to the agent too.
    let planned: Vec<_> = results.iter().map(|event| event["counts"]["planned"].as_u64().unwrap()).collect();
    assert_eq!(planned, [200, 2, 200, 200]);
    assert_eq!(fraction(&results[0]["score"]), fraction(&results[2]["score"]));
    assert!(
        printed.contains("planned      2 (a subset)\n")
            && printed.contains("row-3")
            && printed.contains("row-1 "),
        "{printed}"
    );
    for refused in
        ["there is no such ticket", "the validation is not in the queue", "the parameters are not those"]
    {
        assert!(printed.contains(refused), "{refused}: {printed}");
    }
    // What the scorer kept is there to be read, for each ticket, and by nobody to be changed.
    assert!(printed.contains("v-1\nv-2\nv-4\nv-5\n"), "{printed}");
    let hashes: Vec<_> = printed.lines().filter(|line| line.len() >= 64).map(|line| &line[..64]).collect();
    assert_eq!(hashes[hashes.len() - 2], hashes[hashes.len() - 1]);
    assert_eq!(printed.matches("Read-only file system").count(), 3, "{printed}");
}

/// VibeTraining-Bench: a validation that fails is an event, and research goes on.
#[test]
fn a_validation_that_fails_does_not_end_research() {
    let agent = "exec 2>&1
        mkdir -p data
        for what in crash twice hang; do echo $what > data/told; /opt/harness/validate.sh . --wait; done
        rm data/told; /opt/harness/validate.sh . --wait > /dev/null
        /opt/harness/submit.sh";
    let task = task();
    let run = task.shell(agent).end().closed("scored");
    let causes: Vec<_> =
        run.all("validation_failed").iter().map(|event| event["cause"].as_str().unwrap()).collect();
    let none = "the scorer gave no verdict that counts";
    assert_eq!(causes, [none, none, "the scorer did not end in time"]);
    assert_eq!(run.event("validation_result")["ticket"], 4);
    let printed = run.printed("explore");
    assert_eq!(printed.matches("no_verdict").count() + printed.matches("no verdict").count(), 2, "{printed}");
    assert!(printed.contains("timeout"), "{printed}");
    // Of what a scorer says, nothing reaches research.
    assert!(!printed.contains("status 3"), "{printed}");
}

/// A second of work between two validations that take longer than the whole budget.
const SLOW: &str = "mkdir -p data; echo wait > data/told
    for turn in 1 2; do /opt/harness/validate.sh . --wait > /dev/null; done
    /opt/harness/timer.sh; /opt/harness/submit.sh";

#[test]
fn waiting_for_a_validation_takes_from_the_budget_unless_the_task_says_otherwise() {
    let grace = "explore = \"10m\"\ngrace = \"1s\"";
    let task = task().edit("task.toml", "explore = \"10m\"", grace);
    let run = task.shell(SLOW).option("--explore", "3s").end().closed("deadline_passed");
    assert_eq!(run.printed("explore"), "");
    if !task.site().limits() {
        // Research cannot be frozen: `a_clock_stands_only_where_research_does`.
        return;
    }
    let task = task.edit("task.toml", "validation_counts = true", "validation_counts = false");
    let run = task.shell(SLOW).option("--explore", "3s").end().closed("scored");
    assert_eq!(run.all("validation_result").len(), 2);
    assert!(run.printed("explore").contains("00:00:0"), "{}", run.printed("explore"));
}

/// A process beside the agent notes the boot-time clock as fast as it can, while a scorer takes its time.
const STEPS: &str = "mkdir -p data; echo wait > data/told
    python3 -c 'import time
while True:
    print(time.clock_gettime_ns(time.CLOCK_BOOTTIME), flush=True)
    time.sleep(0.005)' &
    sleep 0.3; /opt/harness/validate.sh . --wait > /dev/null 2>&1; sleep 0.3; exec /opt/harness/submit.sh > /dev/null";

/// How many steps were taken before the request for a validation, until its end, and after it.
fn steps(run: &GradedRun<'_>) -> [usize; 3] {
    let (asked, ended) = (run.moments("validation_requested")[0], run.moments("validation_result")[0]);
    let steps: Vec<u64> = run.printed("explore").lines().map(|line| line.parse().unwrap()).collect();
    let before = steps.iter().filter(|step| **step < asked).count();
    let after = steps.iter().filter(|step| **step > ended).count();
    [before, steps.len() - before - after, after]
}

/// A scorer that is slow must be no time for nothing.
#[test]
fn a_clock_stands_only_where_research_does() {
    let task = task();
    let [before, during, after] = steps(&task.shell(STEPS).end().closed("scored"));
    assert!(before > 0 && during > 20 && after > 0, "{before}, {during}, {after}");
    let task = task.edit("task.toml", "validation_counts = true", "validation_counts = false");
    if !task.site().limits() {
        let ended = task.shell(STEPS).end().ended;
        assert_eq!(ended.code, 125, "{ended}");
        assert!(
            ended.stderr.contains("research must be frozen") && ended.stderr.contains("Delegate=yes"),
            "{ended}"
        );
        // What is never validated needs no freezer.
        task.baseline().end().closed("scored");
        return;
    }
    let [before, during, after] = steps(&task.shell(STEPS).end().closed("scored"));
    assert!(before > 0 && during == 0 && after > 0, "{before}, {during}, {after}");
}

/// Whoever is frozen when the supervisor is killed is gone with it, and stands again as soon as the run is taken up.
#[test]
fn research_that_stands_ends_with_its_supervisor_and_stands_again() {
    let task = task().edit("task.toml", "validation_counts = true", "validation_counts = false");
    if !task.site().limits() {
        return;
    }
    let live = task.shell(STEPS).start();
    live.until(|live| live.events().iter().any(|event| event["type"] == "validation_requested"));
    live.live().signal(Signal::SIGKILL);
    let path = live.end().path;
    let run = task.resume(&path).end().closed("scored");
    let results = run.moments("validation_result");
    assert_eq!(results.len(), 2, "of the first agent, and of the second one");
    let steps = fs::read_to_string(run.phases("explore").last().unwrap().join("stdout.log")).unwrap();
    let first: u64 = steps.lines().next().unwrap().parse().unwrap();
    assert!(first > results[0], "the second one began when the clock went on");
}

/// Whoever leaves while scorers are being started gets no result, and the journal knows how each of them ended.
#[test]
fn validations_that_outlast_research_are_ended_and_told() {
    let task = task();
    let agent = "for turn in 1 2 3 4 5 6; do /opt/harness/airlock-harness validate .; done; exit 0";
    let run = task.shell(agent).option("--validations-at-once", "3").end().closed("nothing_submitted");
    let settled = run.all("validation_failed").len() + run.all("validation_result").len();
    assert_eq!((run.all("validation_requested").len(), settled), (6, 6));
    assert!(!run.all("validation_failed").is_empty());
    assert_eq!(run.all("phase_started").len(), run.all("phase_ended").len());
    for event in run.all("phase_ended") {
        let number = usize::try_from(event["phase"].as_u64().unwrap()).unwrap();
        let path = run.path.join(format!("phases/{number}-{}/end.json", run.phase_names()[number]));
        let hash = std::process::Command::new("sha256sum").arg(&path).output().unwrap().stdout;
        let hash = String::from_utf8(hash).unwrap();
        assert!(event["report"].as_str().unwrap().ends_with(&hash[..64]), "{}", path.display());
    }
}
