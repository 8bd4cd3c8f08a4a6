//! The replay and its checkpoints.

use airlock_tests::{Graded, GradedRun};

use crate::soup;

/// What the programs below share: writes a soup of these shares under a name.
const WRITE: &str = r#"
import os, sys, time
from pathlib import Path
import model
INGREDIENTS = [model.read(path) for path in sorted(Path("ingredients").glob("*.json"))]
def write(name, *shares):
    place = Path(sys.argv[1]) / name
    place.mkdir()
    model.write(place / "weights.json", model.mix(INGREDIENTS[: len(shares)], shares))
"#;

fn replay<'a>(task: &'a Graded, program: &str) -> GradedRun<'a> {
    soup(task, &format!("{WRITE}{program}")).end()
}

/// Name, progress and validity of what was looked at, in order.
fn looked_at<'a>(run: &'a GradedRun<'_>) -> Vec<(&'a str, u64, bool)> {
    let all = run.all("checkpoint_validated").into_iter();
    all.map(|event| {
        (event["name"].as_str().unwrap(), event["progress"].as_u64().unwrap(), event["valid"] == true)
    })
    .collect()
}

/// AI4AI-Bench: the valid ones with the greatest numeric progress; progress stands in the directory's name.
#[test]
fn of_many_checkpoints_the_last_three_valid_ones_are_scored() {
    let program = r#"
write("soup-1", 0, 1)
write("soup-9", 1)
write("soup-010", 1 + 1e-9, -1e-9)
write("soup-8", 0.5, 0.5)
write("soup-12", 0.5, 0.4)
for odd in ("soup-+11", "soup-13x", "Soup-14", "soup-1e3", "soup--15", "soup-", "soup-16 ", "soup-99999999999999999999"):
    write(odd, 1)
out = Path(sys.argv[1])
(out / "soup-17").write_text("a file")
(out / "soup-18").symlink_to("soup-9")
(out / "soup-19").mkdir()
(out / "soup-20").mkdir()
(out / "soup-20" / "weights.json").symlink_to("../soup-9/weights.json")
(out / "soup-21").mkdir()
os.mkfifo(out / "soup-21" / "weights.json")
"#;
    let task = Graded::of("digits-soup");
    let run = replay(&task, program).closed("scored");
    // 21 and 20 cannot be sealed; 19 has no payload and 12 is no soup: neither takes a place. 1 is not looked at.
    let expected = [
        ("soup-19", 19, false),
        ("soup-12", 12, false),
        ("soup-010", 10, true),
        ("soup-9", 9, true),
        ("soup-8", 8, true),
    ];
    assert_eq!(looked_at(&run), expected);
    assert_eq!(run.event("checkpoints_selected")["checkpoints"].as_array().unwrap().len(), 3);
    assert_eq!(run.all("verdict").len(), 3);
    // Two of them score the same: the tie goes to later progress.
    let digest = |name: &str| {
        let all = run.all("checkpoint_validated");
        all.into_iter().find(|event| event["name"] == name).unwrap()["checkpoint"].clone()
    };
    let score = |name: &str| {
        let all = run.all("verdict");
        let digest = digest(name);
        all.into_iter().find(|event| event["candidate"] == digest).unwrap()["score"].clone()
    };
    assert_eq!(score("soup-9"), score("soup-010"));
    assert_ne!(digest("soup-9"), digest("soup-010"));
    assert_eq!(run.event("scored")["candidate"], digest("soup-010"));
}

#[test]
fn what_was_written_before_a_crash_is_scored() {
    let program = "write('soup-1', 1)\nwrite('soup-2', 0.5, 0.5)\nos.kill(os.getpid(), 9)";
    let task = Graded::of("digits-soup");
    let run = replay(&task, program).closed("scored");
    assert_eq!(run.end_of("replay")["reason"], "signalled");
    assert_eq!(looked_at(&run), [("soup-2", 2, true), ("soup-1", 1, true)]);
    assert_eq!(run.all("verdict").len(), 2);
    let scores: Vec<_> = run.all("verdict").iter().map(|event| event["counts"]["ok"].as_u64()).collect();
    assert_eq!(
        run.event("scored")["score"]["sum"].as_str().unwrap().parse::<u64>().ok(),
        scores.into_iter().max().flatten()
    );
}

#[test]
fn what_was_written_before_the_time_was_over_is_scored() {
    let task = Graded::of("digits-soup").edit("task.toml", "replay = \"1m\"", "replay = \"2s\"");
    let run = replay(&task, "write('soup-1', 1)\nwrite('soup-2', 0.5, 0.5)\ntime.sleep(60)").closed("scored");
    assert_eq!(run.end_of("replay")["reason"], "wall-timeout");
    assert_eq!(looked_at(&run), [("soup-2", 2, true), ("soup-1", 1, true)]);
}

/// AI4AI-Bench, failure accounting: a replay that produced nothing valid is a class of its own, and scores zero.
#[test]
fn a_replay_without_anything_valid_scores_nothing() {
    let task = Graded::of("digits-soup");
    for program in ["sys.exit(1)", "write('soup-3', 0.1)"] {
        let run = replay(&task, program).closed("nothing_valid");
        assert!(run.all("final_claimed").is_empty());
        assert_eq!((run.sigma(), run.score()), (0.0, "void".into()));
    }
}

/// Each that is not valid costs the host something, so that there is an end to it.
#[test]
fn of_checkpoints_that_are_not_valid_a_hundred_are_looked_at() {
    let task = Graded::of("digits-soup");
    let program = |last: u32| {
        format!(
            "write('soup-1', 1)\nfor number in range(2, {last} + 1): os.mkdir(f'/output/soup-{{number}}')"
        )
    };
    let run = replay(&task, &program(100)).closed("scored");
    assert_eq!(looked_at(&run).len(), 100);
    let run = replay(&task, &program(101)).closed("nothing_valid");
    assert_eq!(looked_at(&run).len(), 100);
    assert_eq!(looked_at(&run)[0], ("soup-101", 101, false));
}

/// AI4AI-Bench: the replay inherits no rollouts, caches, outputs or shell exports; it invokes one entry command.
#[test]
fn nothing_of_research_is_there_in_the_replay() {
    let places = r#"
PLACES = ["/tmp/left", "/dev/shm/left", "/home/user/left", "/output/left", "/workspace/left", "/workspace/data/left"]
"#;
    let see = format!(
        "{places}{}",
        r#"
import ctypes
def traces():
    found = [place for place in PLACES if os.path.exists(place)]
    found += ["environment"] * ("LEFT" in os.environ)
    found += ["memory"] * (ctypes.CDLL(None).shmget(0x4c454654, 64, 0) != -1)
    others = [open(f"/proc/{name}/cmdline", "rb").read() for name in os.listdir("/proc") if name.isdigit()
        and int(name) != os.getpid()]
    found += ["process"] * any(b"left-running" in line for line in others)
    return found
"#
    );
    let task = Graded::of("digits-soup");
    let program = format!("{WRITE}{see}print(traces())\nwrite('soup-1', 1)");
    let agent = format!(
        "import os, subprocess, ctypes, time\n{see}
os.environ['LEFT'] = '1'
for place in PLACES: open(place, 'w').write('left')
ctypes.CDLL(None).shmget(0x4c454654, 64, 0o1666)
subprocess.Popen(['sh', '-c', 'sleep 60; true left-running'], start_new_session=True)
time.sleep(0.3)
print(len(traces()), flush=True)
open('soup.py', 'w').write({program:?})
os.remove('/workspace/left'); os.remove('/workspace/data/left')
subprocess.run(['/opt/harness/submit.sh'])"
    );
    let run = task.python(&agent).end().closed("scored");
    // Where they were left, the same code finds them all.
    assert_eq!(run.printed("explore").lines().next(), Some("9"), "{}", run.printed("explore"));
    assert_eq!(run.printed("replay"), "[]\n");
}
