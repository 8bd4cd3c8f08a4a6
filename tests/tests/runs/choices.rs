//! How research ends: in time, too late, without a word, or with one.

use airlock_tests::Graded;

/// Ignores TERM, asks for what may still be had then, and goes on until it is killed.
const LATE: &str = r#"
import signal, subprocess, time
def late(*_):
    print("told to end", flush=True)
    for words in (["submit"], ["validate", "."], ["no-candidate", "late"], ["timer"]):
        done = subprocess.run(["/opt/harness/airlock-harness", *words], capture_output=True, text=True)
        print(done.returncode, done.stdout.strip(), done.stderr.strip(), flush=True)
    open("note", "w").write("still here")
signal.signal(signal.SIGTERM, late)
print("begun", flush=True)
while True:
    time.sleep(1)
"#;

/// AI4AI-Bench: the deadline capture exists for recovery and is no submission.
#[test]
fn who_is_late_is_ended_and_what_lay_there_is_kept_but_not_scored() {
    let task = Graded::of("digits-direct").edit(
        "task.toml",
        "explore = \"10m\"",
        "explore = \"10m\"\ngrace = \"2s\"",
    );
    let run = task.python(LATE).option("--explore", "2s").end().closed("deadline_passed");
    assert_eq!(run.end_of("explore")["reason"], "wall-timeout");
    let printed = run.printed("explore");
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines[..2], ["begun", "told to end"], "{printed}");
    // In its grace it may tidy up. What is asked for then came too late.
    assert_eq!(lines.len(), 6, "{printed}");
    assert!(lines[2..5].iter().all(|line| line.contains("the budget is used up")), "{printed}");
    assert!(lines[5].contains("00:00:00 left"), "{printed}");
    let capture = run.event("deadline_capture");
    assert_eq!(capture["early"], false);
    let note = run.sealed(&capture["candidate"]).join("note");
    assert_eq!(std::fs::read_to_string(note).unwrap(), "still here");
    for never in ["chosen", "submitted", "final_claimed", "verdict", "scored", "no_candidate"] {
        assert!(run.all(never).is_empty(), "{never}");
    }
    // A run without a candidate has its place on the ladder too, and an override its name.
    let receipt = run.receipt();
    assert_eq!(receipt["result"]["sigma"], "0.000000");
    let words = "research has 2000 ms instead of 600000 ms";
    assert_eq!(run.json("run.json")["overrides"][0], words);
    assert!(receipt["weaker"].to_string().contains(words), "{receipt}");
}

#[test]
fn who_says_nothing_has_submitted_nothing() {
    let task = Graded::of("digits-soup");
    for (agent, code, signal) in
        [("exit 0", Some(0), None), ("exit 7", Some(7), None), ("kill -SEGV $$", None, Some(11))]
    {
        let run = task.shell(&format!("echo mine > note; {agent}")).end().closed("nothing_submitted");
        let end = run.end_of("explore");
        assert_eq!((end["exit_code"].as_i64(), end["signal"].as_i64()), (code, signal), "{agent}");
        assert_eq!(run.event("deadline_capture")["early"], true);
        assert!(run.sealed(&run.event("deadline_capture")["candidate"]).join("note").exists());
        assert!(run.all("final_claimed").is_empty());
        assert_eq!(run.receipt()["result"]["sigma"], "0.000000");
    }
}

#[test]
fn who_gives_up_says_why() {
    let task = Graded::of("digits-soup");
    let run =
        task.shell("/opt/harness/no_candidate.sh 'the pool is poor'; sleep 60").end().closed("no_candidate");
    assert_eq!(run.event("no_candidate")["reason"], "the pool is poor");
    assert!(run.all("submitted").is_empty() && run.all("deadline_capture").is_empty());
    assert_eq!(run.receipt()["result"]["sigma"], "0.000000");
    // Official, unless this caller had to lower something.
    let overrides = run.json("run.json")["overrides"].as_array().unwrap().len();
    assert_eq!(overrides == 0, task.site().limits() && task.site().caller().is_root());
}

/// AI4AI-Bench: after submission the agent can no longer modify or interact.
#[test]
fn a_choice_is_made_once_and_is_the_end() {
    let task = Graded::of("digits-direct");
    let agent = "/opt/harness/submit.sh; for turn in 1 2 3; do /opt/harness/submit.sh 2>&1; done; sleep 60";
    let run = task.shell(agent).end().closed("scored");
    let printed = run.printed("explore");
    assert!(printed.starts_with("accepted\n") && printed.matches("accepted").count() == 1, "{printed}");
    assert!(printed.contains("the run has its final choice"), "{printed}");
    run.event("chosen");
    assert_eq!(run.all("final_claimed").len(), 1);
}

#[test]
fn a_choice_that_is_nothing_is_refused_by_name() {
    let task = Graded::of("digits-direct");
    let agent = "rm predict.py; ln -s /etc/passwd predict.py; /opt/harness/submit.sh";
    let run = task.shell(agent).end().closed("gate_failed");
    let words = run.event("choice_refused")["cause"].as_str().unwrap();
    assert!(words.contains("predict.py"), "{words}");
    assert!(run.all("final_claimed").is_empty());
    assert_eq!(run.sigma(), 0.0);
}

#[test]
fn a_slip_of_the_pen_does_not_end_research() {
    let task = Graded::of("digits-direct");
    let agent =
        "! /opt/harness/submit.sh nowhere && ! /opt/harness/submit.sh predict.py && /opt/harness/submit.sh";
    let run = task.shell(agent).end().closed("scored");
    assert_eq!(run.all("chosen").len(), 1);
    assert_eq!(run.score(), "180/400");
}
