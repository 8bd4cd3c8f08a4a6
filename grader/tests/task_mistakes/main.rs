//! Every mistake in a task is shown where it stands, with what to write instead.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod cases;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use airlock_grader::task::{Finding, Task, TaskError};
use proptest::prelude::*;

use cases::{ASSETS, CANDIDATES, Case, LIFECYCLE, MARK, MEASURE, MOUNTS, PHASES, REPLAY, SYNTAX};

/// Makes a task directory with this manifest.
fn task(manifest: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in
        ["environment/train.py", "tests/score.py", "tests/final.py", "assets/test/rows", "assets/dev/rows"]
    {
        let path = dir.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x\n").unwrap();
    }
    fs::write(dir.path().join("instruction.md"), "Train.\n").unwrap();
    fs::write(dir.path().join("task.toml"), manifest).unwrap();
    dir
}

fn findings(dir: &Path) -> Vec<Finding> {
    match Task::load(dir) {
        Err(TaskError::Invalid(findings)) => findings,
        Err(error) => panic!("refused by {error}"),
        Ok(_) => Vec::new(),
    }
}

fn shown(findings: &[Finding]) -> String {
    findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n\n")
}

/// What is wrong with the outcome of a case; none if it is as expected.
fn wrong((from, to, message, help): &Case) -> Option<String> {
    assert_eq!(REPLAY.matches(from).count(), 1, "{from:?} does not stand in the task once");
    let marked = REPLAY.replacen(from, to, 1);
    let at = marked.find(MARK);
    let dir = task(&marked.replace(MARK, ""));
    let found = findings(dir.path());
    let right = match found.first() {
        Some(Finding::Text(first)) => {
            let place = at.is_none_or(|at| {
                let before = &marked[..at];
                let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
                (first.place.line, first.place.column) == (before.matches('\n').count() + 1, column)
            });
            place
                && first.place.file.ends_with("/task.toml")
                && first.message.contains(message)
                && first.help.as_deref().unwrap_or_default().contains(help)
        }
        _ => false,
    };
    (!right || found.len() != 1).then(|| format!("{to:?}:\n{}", shown(&found)))
}

fn all_shown(cases: &[Case]) {
    let wrong: Vec<String> = cases.iter().filter_map(wrong).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n\n"));
}

#[test]
fn mistakes_of_syntax() {
    all_shown(SYNTAX);
}

#[test]
fn mistakes_of_the_lifecycle() {
    all_shown(LIFECYCLE);
}

#[test]
fn mistakes_about_candidates() {
    all_shown(CANDIDATES);
}

#[test]
fn mistakes_in_what_is_measured() {
    all_shown(MEASURE);
}

#[test]
fn mistakes_about_assets() {
    all_shown(ASSETS);
}

#[test]
fn mistakes_in_phases() {
    all_shown(PHASES);
}

#[test]
fn mistakes_in_mounts() {
    all_shown(MOUNTS);
}

#[test]
fn the_task_without_a_mistake_loads() {
    Task::load(task(REPLAY).path()).unwrap();
}

/// The place and the message of each finding.
fn lines(found: &[Finding]) -> Vec<String> {
    let line = |finding: &Finding| match finding {
        Finding::Text(text) => format!("{}:{}: {}", text.place.line, text.place.column, text.message),
        Finding::Tree { path, message, .. } => {
            format!("{}: {message}", path.file_name().unwrap().to_string_lossy())
        }
    };
    found.iter().map(line).collect()
}

fn edited(edits: &[(&str, &str)]) -> String {
    edits.iter().fold(REPLAY.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    })
}

#[test]
fn all_mistakes_are_shown_at_once_in_the_order_of_the_text() {
    let dir = task(&edited(&[
        ("lifecycle = \"replay\"", "lifecycle = \"direct\""),
        ("optimum = 1", "optimum = 0"),
        ("\"asset:dev\"", "\"asset:test\""),
    ]));
    fs::remove_file(dir.path().join("instruction.md")).unwrap();
    let found = findings(dir.path());
    assert_eq!(
        lines(&found),
        [
            "9:10: `replay` belongs to lifecycle `replay`",
            "10:1: [airlock.checkpoints] belongs to lifecycle `replay`",
            "24:11: the optimum (0) is not better than the baseline (0.5) under this phi",
            "36:8: `replay` belongs to lifecycle `replay`",
            "41:22: asset `test` has visibility `hidden`: only `score` may mount it",
            "instruction.md: No such file or directory (os error 2)",
        ]
    );
}

#[test]
fn what_a_lifecycle_needs_is_missed_at_the_table() {
    let missing = |edits: &[(&str, &str)]| lines(&findings(task(&edited(edits)).path()));
    assert_eq!(
        missing(&[("[airlock.checkpoints]\nname = \"step-{progress}\"\n", "")]),
        ["1:1: lifecycle `replay` needs [airlock.checkpoints]"]
    );
    let explore = ("[[airlock.phase]]\nname = \"explore\"\n", "");
    assert_eq!(missing(&[explore]), ["1:1: the phase `explore` is missing"]);
    let replay = ("[[airlock.phase]]\nname = \"replay\"\ncommand = [\"python3\", \"train.py\"]\n", "");
    assert_eq!(missing(&[replay]), ["1:1: the phase `replay` is missing"]);
    let proxy = ("[airlock.proxy]\nname = \"proxy\"\ndirection = \"max\"\nitems = { count = 2 }\n", "");
    assert_eq!(missing(&[proxy]), ["35:8: the phase `validate` measures the proxy, and there is none"]);
    let validate = "[[airlock.phase]]\nname = \"validate\"\ncommand = [\"python3\", \"-I\", \"/tests/score.py\"]\n\
                    mounts = [{ source = \"asset:dev\", target = \"/data\" }]\n";
    assert_eq!(missing(&[(validate, "")]), ["12:1: nobody can measure the proxy"]);
    let reward = ("name = \"score\"", "name = \"score\"\nverdict = \"reward-file\"");
    assert_eq!(missing(&[reward]), ["19:9: a reward file holds one number"]);
}

#[test]
fn a_mistake_in_another_file_of_the_task_is_shown_there() {
    let dir = task(&edited(&[("[\"a\", \"b\"]", "{ file = \"tests/items\" }")]));
    let items = dir.path().join("tests/items");
    fs::write(&items, "one\ntwo\n\none\n").unwrap();
    let found = findings(dir.path());
    assert_eq!(lines(&found)[1], "4:1: the item `one` is planned twice");
    assert!(lines(&found)[0].starts_with("3:1: an item's name is 1 to 200 bytes"));
    assert!(shown(&found).contains("tests/items:4:1: "), "{}", shown(&found));
    fs::write(&items, "").unwrap();
    assert!(lines(&findings(dir.path()))[0].contains("tests/items plans no item"));
    fs::write(&items, "one\r\ntwo").unwrap();
    assert_eq!(Task::load(dir.path()).unwrap().metric.metric.items(), ["one", "two"]);

    let dir = task(&edited(&[("name = \"explore\"", "name = \"explore\"\npolicy = \"p.toml\"")]));
    fs::write(dir.path().join("p.toml"), "version = 1\n[limits]\nmemroy = 1\n").unwrap();
    let found = shown(&findings(dir.path()));
    assert!(found.contains("/p.toml:3:1: unknown key `memroy`"), "{found}");
}

#[test]
fn no_policy_shows_the_task_directory() {
    let dir = task(&edited(&[("name = \"explore\"", "name = \"explore\"\npolicy = \"./p.toml\"")]));
    let elsewhere = tempfile::tempdir().unwrap();
    let mount = |source: &Path| {
        let source = source.display();
        let text = format!("version = 1\n[[mount]]\nsource = \"{source}\"\ntarget = \"/mnt\"\n");
        fs::write(dir.path().join("p.toml"), text).unwrap();
        lines(&findings(dir.path()))
    };
    assert!(mount(elsewhere.path()).is_empty());
    symlink(dir.path(), elsewhere.path().join("link")).unwrap();
    let parent = dir.path().parent().unwrap();
    for source in [dir.path(), &dir.path().join("assets/test"), parent, &elsewhere.path().join("link/assets")]
    {
        let found = mount(source);
        assert!(found.len() == 1 && found[0].contains("which shows the task directory"), "{found:?}");
    }
}

/// A scorer that is not there was found when research was over.
#[test]
fn what_a_command_names_of_the_task_is_there() {
    let dir = task(REPLAY);
    fs::remove_file(dir.path().join("tests/final.py")).unwrap();
    let found = lines(&findings(dir.path()));
    assert_eq!(found, ["final.py: nothing is there, and the phase `score` names it as /tests/final.py"]);
    // Neither is what a command of the checkpoints names, nor anything where the directory is missing.
    let dir = task(&REPLAY.replace(
        "name = \"step-{progress}\"\n",
        "name = \"step-{progress}\"\ncommand = [\"/tests/look\"]\n",
    ));
    fs::remove_dir_all(dir.path().join("tests")).unwrap();
    let found = lines(&findings(dir.path()));
    let names = |name: &str| found.iter().any(|line| line.starts_with(name));
    assert!(["score.py", "final.py", "look"].into_iter().all(names), "{found:#?}");
    // A task without a table of Airlock's runs tests/test.sh; that it is missing is told once.
    let dir = task("version = \"1.0\"\n");
    let found = lines(&findings(dir.path()));
    assert!(found.len() == 1 && found[0].starts_with("test.sh: No such file"), "{found:?}");
}

#[test]
fn a_task_is_made_of_files_and_directories() {
    let dir = task(REPLAY);
    let at = |path: &str| dir.path().join(path);
    symlink("/etc/passwd", at("environment/passwd")).unwrap();
    symlink("train.py", at("environment/alias")).unwrap();
    symlink("../../..", at("assets/test/up")).unwrap();
    assert!(Command::new("mkfifo").arg(at("tests/pipe")).status().unwrap().success());
    let found = lines(&findings(dir.path()));
    assert_eq!(
        found,
        ["up: a symbolic link", "alias: a symbolic link", "passwd: a symbolic link", "pipe: a named pipe"]
    );

    let dir = task(REPLAY);
    let environment = dir.path().join("environment");
    fs::rename(&environment, dir.path().join("elsewhere")).unwrap();
    symlink("elsewhere", &environment).unwrap();
    assert_eq!(lines(&findings(dir.path())), ["environment: a symbolic link"]);
    fs::remove_file(&environment).unwrap();
    assert!(lines(&findings(dir.path()))[0].starts_with("environment: No such file"));
}

#[test]
fn a_manifest_that_cannot_be_read_is_named() {
    let dir = task(REPLAY);
    let manifest = dir.path().join("task.toml");
    let error = || Task::load(dir.path()).map(drop).unwrap_err().to_string();
    fs::write(&manifest, b"# \xff\n").unwrap();
    assert!(error().ends_with("task.toml: line 1 is not UTF-8"), "{}", error());
    fs::write(&manifest, vec![b' '; (1 << 20) + 1]).unwrap();
    assert!(error().ends_with("more than 1 MiB"), "{}", error());
    fs::remove_file(&manifest).unwrap();
    assert!(error().contains("No such file"), "{}", error());
}

/// Lines that are nearly those of a task, so that what lies behind the parser is reached.
fn line() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        any::<String>().prop_map(|text| format!("{text:?}")),
        "[0-9.eE+-]{1,12}",
        "\"[a-z:/.{}*-]{0,16}\"",
        "\\[\"[a-z*/]{0,6}\", \"[a-z{}]{0,8}\"\\]",
        "\\{ (count|file|prefix) = (-?[0-9]{1,19}|\"[a-z/]{0,9}\") \\}",
        "\\[\\{ source = \"(asset|run|task):[a-z/.]{0,6}\", target = \"/[a-z/.]{0,6}\" \\}\\]",
    ];
    let lines = REPLAY.lines().map(str::to_owned).collect::<Vec<_>>();
    (prop::sample::select(lines), value).prop_map(|(line, value)| match line.split_once(" = ") {
        Some((key, _)) => format!("{key} = {value}"),
        None => line,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Some lines of a good task are changed; whatever comes of it is a task or can be shown.
    #[test]
    fn no_text_makes_the_loader_panic(edits in prop::collection::vec((0..43usize, line()), 1..4)) {
        let mut text: Vec<String> = REPLAY.lines().map(str::to_owned).collect();
        for (at, line) in edits {
            text[at] = line;
        }
        let dir = task(&text.join("\n"));
        if let Err(error) = Task::load(dir.path()) {
            prop_assert!(error.to_string().contains("task.toml:"));
        }
    }
}
