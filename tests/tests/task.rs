//! `airlock task`, and the programs of the bundled tasks run by hand.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use airlock_tests::schema;
use serde_json::Value;
use tempfile::TempDir;

/// The command under test where it was built: it needs no sandbox, so no site.
fn airlock() -> Command {
    let built = || {
        let own = std::env::current_exe().expect("own path");
        own.ancestors().nth(2).expect("a build directory").join("airlock")
    };
    Command::new(std::env::var_os("AIRLOCK_BIN").map_or_else(built, PathBuf::from))
}

fn end(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } =
        command.output().expect("build airlock first, or set AIRLOCK_BIN");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("no signal"), text(stdout), text(stderr))
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/tasks").join(name)
}

/// A copy of a bundled task's frozen source, with its solution if asked for.
fn workspace(task: &str, solved: bool) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    copy(&example(task).join("environment"), dir.path());
    if solved {
        let solve = example(task).join("solution/solve.sh");
        let status = Command::new("sh").arg(solve).arg(dir.path()).status().unwrap();
        assert!(status.success());
    }
    dir
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() { copy(&from, &to) } else { assert!(fs::copy(from, to).is_ok()) }
    }
}

/// How many attempts of a verdict ended this way.
fn count(verdict: &str, status: &str) -> usize {
    let verdict: Value = serde_json::from_str(verdict).unwrap();
    let items = verdict["items"].as_array().unwrap().clone();
    items.iter().filter(|item| item["attempts"][0]["status"] == status).count()
}

/// The three checkpoints of `soup.py`, by name.
fn soups(workspace: &Path) -> Vec<PathBuf> {
    let output = workspace.join("output");
    let (code, _, stderr) = end(Command::new("python3").arg(workspace.join("soup.py")).arg(&output));
    assert_eq!(code, 0, "{stderr}");
    let mut soups: Vec<_> = fs::read_dir(output).unwrap().map(|entry| entry.unwrap().path()).collect();
    soups.sort();
    soups
}

fn score_soup(candidate: &Path) -> String {
    let task = example("digits-soup");
    let script = "exec python3 -I \"$1/tests/score.py\" \"$1/assets/test.csv\" \"$2\" 3>&1 >/dev/null";
    let (code, verdict, stderr) = end(Command::new("sh").args(["-c", script, "sh"]).arg(task).arg(candidate));
    assert_eq!(code, 0, "{stderr}");
    verdict
}

fn is_soup(candidate: &Path) -> bool {
    let task = example("digits-soup");
    let check = ["tests/check.py", "environment"].map(|path| task.join(path));
    end(Command::new("python3").arg("-I").args(check).arg(candidate)).0 == 0
}

fn score_direct(workspace: &Path) -> String {
    let task = example("digits-direct");
    let pair = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/task/pair.py");
    let programs = [workspace.join("predict.py"), task.join("tests/score.py"), task.join("assets/test.csv")];
    let (code, verdict, stderr) = end(Command::new("python3").arg(pair).args(programs));
    assert_eq!(code, 0, "{stderr}");
    verdict
}

#[test]
fn the_bundled_tasks_are_well_formed() {
    let tasks = ["digits-soup", "digits-direct"].map(example);
    let (code, stdout, stderr) = end(airlock().args(["task", "check"]).args(&tasks));
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert_eq!(stdout.matches(": ok\n").count(), 2, "{stdout}");
    let (_, stdout, _) = end(airlock().args(["task", "check", "--json"]).args(&tasks));
    let checked: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(checked[0]["task"]["lifecycle"], "replay");
    assert_eq!(checked[1]["task"]["metric"]["items"].as_array().unwrap().len(), 400);
}

#[test]
fn mistakes_are_shown_with_line_and_column_and_fail_the_command() {
    let dir = tempfile::tempdir().unwrap();
    copy(&example("digits-soup"), dir.path());
    let manifest = dir.path().join("task.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    let text = text.replace("optimum = 1\n", "optimum = 0.5\n");
    fs::write(&manifest, text.replace("asset:validation-rows", "asset:test-row")).unwrap();
    fs::remove_file(dir.path().join("instruction.md")).unwrap();
    let check = |json: bool| {
        let good = example("digits-direct");
        end(airlock().args(["task", "check"]).args(json.then_some("--json")).arg(dir.path()).arg(good))
    };
    let (code, stdout, stderr) = check(false);
    assert_eq!(code, 125);
    assert!(stdout.contains("digits-direct: ok"), "{stdout}");
    assert!(stderr.contains("task.toml:49:11: the optimum (0.5) is not better"), "{stderr}");
    assert!(stderr.contains("no asset is called `test-row`") && stderr.contains("did you mean `test-rows`?"));
    assert!(stderr.contains("instruction.md: No such file"), "{stderr}");
    let (code, stdout, _) = check(true);
    let checked: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        (code, checked[0]["ok"].as_bool(), checked[1]["ok"].as_bool()),
        (125, Some(false), Some(true))
    );
    let errors = checked[0]["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 3, "{errors:?}");
    assert_eq!((&errors[0]["line"], &errors[0]["column"]), (&49.into(), &11.into()));
}

/// Where the directory that is the default cannot be made, the flag that names another is told.
#[test]
fn a_run_that_cannot_be_made_here_asks_for_a_place() {
    let home = tempfile::tempdir().unwrap();
    let mut command = airlock();
    command.args(["task", "run"]).arg(example("digits-soup").canonicalize().unwrap());
    command.args(["--baseline", "--best-effort", "limits,devices"]).current_dir("/proc");
    command.env("HOME", home.path()).env("XDG_RUNTIME_DIR", home.path()).env_remove("XDG_CONFIG_HOME");
    let (code, _, stderr) = end(&mut command);
    assert_eq!(code, 125, "{stderr}");
    assert!(stderr.contains("name its directory with --run"), "{stderr}");
    let (_, _, stderr) = end(command.args(["--run", "/proc/run"]));
    assert!(stderr.contains("making /proc/run") && !stderr.contains("--run"), "{stderr}");
}

#[test]
fn the_schema_accepts_the_bundled_manifests() {
    let (code, stdout, _) = end(airlock().args(["task", "schema"]));
    assert_eq!(code, 0);
    let schema: Value = serde_json::from_str(&stdout).unwrap();
    for name in ["digits-soup", "digits-direct"] {
        let manifest = example(name).join("task.toml");
        let script = "import json,sys,tomllib;print(json.dumps(tomllib.load(open(sys.argv[1],'rb'))))";
        let (code, stdout, stderr) = end(Command::new("python3").args(["-c", script]).arg(manifest));
        assert_eq!(code, 0, "{stderr}");
        let mut value: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(schema::check(&schema, &value), Ok(()), "{name}");
        value["airlock"]["lifecylce"] = "replay".into();
        assert!(schema::check(&schema, &value).is_err());
    }
}

#[test]
fn soups_are_scored_from_their_weights() {
    let frozen = workspace("digits-soup", false);
    let solved = workspace("digits-soup", true);
    let best = |workspace: &TempDir| {
        let soups = soups(workspace.path());
        assert_eq!(soups.len(), 3);
        assert!(soups.iter().all(|soup| is_soup(soup)));
        soups.iter().map(|soup| count(&score_soup(soup), "ok")).max().unwrap()
    };
    // What task.toml calls the baseline.
    assert_eq!(best(&frozen), 440);
    assert!(best(&solved) > 480);
}

#[test]
fn what_is_no_soup_is_not_valid() {
    let dir = tempfile::tempdir().unwrap();
    let weights = dir.path().join("weights.json");
    assert!(!is_soup(dir.path()), "no weights at all");
    let row = |cell: &str| format!("[{}]", vec![cell; 65].join(","));
    let zeros = format!("[{}]", vec![row("0.0"); 10].join(","));
    let nested = "[".repeat(50_000);
    for (text, read) in [
        (zeros.as_str(), true),
        (&zeros.replacen("0.0", "NaN", 1), false),
        (&zeros.replacen("0.0", "1e999", 1), false),
        (&zeros.replacen("0.0", "\"1\"", 1), false),
        (&zeros.replacen("0.0", "true", 1), false),
        ("[]", false),
        (nested.as_str(), false),
    ] {
        fs::write(&weights, text).unwrap();
        assert!(!is_soup(dir.path()), "{text:.40}");
        // Even unchecked, it scores every planned row.
        let verdict = score_soup(dir.path());
        let (failed, ok) = (count(&verdict, "exec_failure"), count(&verdict, "ok"));
        assert_eq!(failed, if read { 0 } else { 600 }, "{text:.40}");
        assert!(ok < 100);
    }
}

#[test]
fn a_program_is_asked_one_row_at_a_time() {
    let frozen = workspace("digits-direct", false);
    // What task.toml calls the baseline.
    assert_eq!(count(&score_direct(frozen.path()), "ok"), 180);
    let solved = workspace("digits-direct", true);
    assert!(count(&score_direct(solved.path()), "ok") > 360);
}

#[test]
fn a_program_that_cheats_or_ends_scores_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let scored = |program: &str| {
        fs::write(dir.path().join("predict.py"), program).unwrap();
        let verdict = score_direct(dir.path());
        (count(&verdict, "ok"), count(&verdict, "exec_failure"))
    };
    assert_eq!(scored(""), (0, 400), "it ends at once");
    assert_eq!(scored("import os\nos.write(4, b'x' * 300)\nos.read(4, 1)"), (0, 400), "no answer");
    let flood = "import os\nfor n in range(400): os.write(4, b'{\"id\":\"row-%d\",\"digit\":1}\\n' % n)\nos.read(4, 1)";
    assert_eq!(scored(flood), (0, 400), "answers before the questions");
    let other =
        "import os\nfor line in os.fdopen(4, 'rb', 0): os.write(4, b'{\"id\":\"row-0\",\"digit\":true}\\n')";
    assert_eq!(scored(other), (0, 400), "no digit");
}

/// Weights so large that the distance to every mixture is no number.
#[test]
fn the_soups_frozen_check_takes_mixtures_alone() {
    let task = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/tasks/digits-soup");
    let candidate = TempDir::new().unwrap();
    let ingredient = fs::read_to_string(task.join("environment/ingredients/0.json")).unwrap();
    let row = |weight: &str| format!("[{}]", vec![weight; 65].join(","));
    let even = |weight: &str| format!("[{}]", vec![row(weight); 10].join(","));
    for (weights, valid) in
        [(ingredient, true), (even("0.5"), false), (even("1e307"), false), (even("1e308"), false)]
    {
        fs::write(candidate.path().join("weights.json"), weights).unwrap();
        let mut check = Command::new("python3");
        check.arg("-I").arg(task.join("tests/check.py")).arg(task.join("environment")).arg(candidate.path());
        assert_eq!(check.output().unwrap().status.success(), valid);
    }
}
