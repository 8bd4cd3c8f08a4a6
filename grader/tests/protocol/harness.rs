//! The client's program and its scripts against a server.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{Grader, ITEMS, digest, wide};

pub(crate) const HARNESS: &str = env!("CARGO_BIN_EXE_airlock-harness");

fn run(program: &Path, socket: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(program).args(arguments).arg("--socket").arg(socket).output().unwrap();
    let Output { status, stdout, stderr } = output;
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn harness(grader: &Grader, arguments: &[&str]) -> (i32, String, String) {
    run(Path::new(HARNESS), &grader.socket, arguments)
}

#[test]
fn each_command_prints_its_reply_and_ends_with_its_status() {
    let grader = Grader::start(wide());
    for (arguments, status, output, error) in [
        (&["hello"][..], 0, "run          run-1\n", ""),
        (&["status"], 0, "remaining    03:47:57\n", ""),
        (&["timer"], 0, "03:47:57 left, 00:12:03 used\n", ""),
        (&["validate", "out/m"], 0, "v-1 sha256:0123", ""),
        (
            &["validate", "out/m", "--item", "a", "--item", "b", "--wait"],
            1,
            "failure      no_verdict\n",
            "v-2 failed",
        ),
        (&["result", "v-1", "--wait"], 0, "graded       750\n", ""),
        (&["result", "v-3"], 0, "state        queued\n", ""),
        (&["result", "v-2"], 1, "state        failed\n", "v-2 failed"),
        (&["result", "v-99"], 1, "", "there is no such ticket (-32011)"),
        (&["validate", "missing"], 1, "", "the candidate is refused (-32012): nothing there\n"),
        (&["validate", "linked"], 1, "", "symbolic link at weights/\\u{1b}[2J\n"),
        (&["validate", "/etc"], 2, "", "candidate \"/etc\" is not a path below the workspace"),
        (&["cancel", "v-3"], 0, "v-3 is cancelled\n", ""),
        (&["cancel", "v-1"], 1, "", "the validation is not in the queue"),
        (&["submit"], 0, "accepted\n", ""),
        (&["no-candidate", "none"], 1, "", "the run has its final choice"),
        (&["score"], 2, "", "there is no command"),
    ] {
        let found = harness(&grader, arguments);
        assert_eq!(found.0, status, "{arguments:?}: {found:?}");
        assert!(found.1.contains(output) && found.2.contains(error), "{arguments:?}: {found:?}");
        assert_eq!(
            (found.1.is_empty(), found.2.is_empty()),
            (output.is_empty(), error.is_empty()),
            "{found:?}"
        );
    }
    let nowhere = run(Path::new(HARNESS), Path::new("/nowhere/s"), &["status"]);
    assert_eq!(nowhere.0, 3);
    assert!(nowhere.2.contains("connecting to /nowhere/s: No such file"), "{nowhere:?}");
}

#[test]
fn json_is_the_reply_and_results_come_whole() {
    let grader = Grader::start(wide());
    let json = |arguments: &[&str]| -> Value {
        let (status, output, _) = harness(&grader, arguments);
        assert_eq!(status, 0);
        serde_json::from_str(&output).unwrap()
    };
    assert_eq!(json(&["validate", "m", "--json"])["candidate"], digest().to_string());
    let feedback = &json(&["result", "v-1", "--json"])["feedback"];
    assert_eq!(feedback["items"].as_array().unwrap().len(), ITEMS as usize);
    assert_eq!(feedback["items"][1499]["item"], "item-1499");
    assert!(feedback["next"].is_null());
}

#[test]
fn the_scripts_call_the_program_beside_them() {
    let grader = Grader::start(wide());
    let place = tempfile::tempdir().unwrap();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("harness");
    for script in ["timer", "fast_eval", "validate", "submit", "no_candidate"] {
        let name = format!("{script}.sh");
        fs::copy(scripts.join(&name), place.path().join(&name)).unwrap();
    }
    symlink(HARNESS, place.path().join("airlock-harness")).unwrap();
    let script = |name: &str, arguments: &[&str]| run(&place.path().join(name), &grader.socket, arguments);
    assert!(script("timer.sh", &[]).1.contains("03:47:57 left"));
    assert!(script("validate.sh", &["out/my model"]).1.starts_with("v-1 "));
    assert_eq!(script("no_candidate.sh", &["no improvement"]).1, "accepted\n");
    assert!(script("submit.sh", &[]).2.contains("the run has its final choice"));
    let none = script("fast_eval.sh", &["ckpt"]);
    assert_eq!((none.0, none.2.as_str()), (1, "fast_eval.sh: this task has no proxy metric\n"));
    symlink("/bin/echo", place.path().join("proxy")).unwrap();
    assert!(script("fast_eval.sh", &["a  b"]).1.starts_with("a  b --socket"));
}

#[test]
fn export_makes_a_tree_without_links() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("cache")).unwrap();
    fs::write(place.path().join("blob"), "weights").unwrap();
    symlink("../blob", place.path().join("cache/model")).unwrap();
    let export = || {
        let output =
            Command::new(HARNESS).args(["export", "cache", "out"]).current_dir(&place).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(export(), (Some(0), "1 files, 7 bytes\n".to_owned()));
    assert!(place.path().join("out/model").symlink_metadata().unwrap().is_file());
    assert_eq!(export().0, Some(1));
}

/// elf(5): a program header of type `PT_INTERP` names the dynamic loader.
#[test]
fn the_program_needs_nothing_of_a_root_file_system() {
    let program = fs::read(HARNESS).unwrap();
    let number = |at: usize, length: usize| {
        program[at..at + length].iter().rev().fold(0_usize, |number, byte| number << 8 | usize::from(*byte))
    };
    let (offset, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    let kinds: Vec<usize> = (0..count).map(|index| number(offset + index * size, 4)).collect();
    assert!(kinds.contains(&1), "PT_LOAD");
    assert!(!kinds.contains(&3), "PT_INTERP");
}
