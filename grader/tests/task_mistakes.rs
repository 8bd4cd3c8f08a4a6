//! Every mistake in a task is shown where it stands, with what to write instead.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use airlock_grader::task::{Finding, Task, TaskError};
use proptest::prelude::*;

/// A good task of lifecycle `replay`.
const REPLAY: &str = r#"[airlock]
version = 1
lifecycle = "replay"
submission = "patch"
[airlock.editable]
trainer = ["train.py"]
[airlock.budget]
explore = "4h"
replay = "12h"
[airlock.checkpoints]
name = "step-{progress}"
[airlock.proxy]
name = "proxy"
direction = "max"
items = { count = 2 }
[airlock.metric]
name = "accuracy"
direction = "max"
items = ["a", "b"]
[airlock.ladder]
phi = "identity"
uninformative = 0
baseline = 0.5
optimum = 1
[[airlock.asset]]
name = "test"
path = "assets/test"
visibility = "hidden"
[[airlock.asset]]
name = "dev"
path = "assets/dev"
visibility = "validation"
[[airlock.phase]]
name = "explore"
[[airlock.phase]]
name = "replay"
command = ["python3", "train.py"]
[[airlock.phase]]
name = "validate"
command = ["python3", "-I", "/tests/score.py"]
mounts = [{ source = "asset:dev", target = "/data" }]
[[airlock.phase]]
name = "score"
command = ["python3", "-I", "/tests/final.py"]
mounts = [{ source = "asset:test", target = "/data" }]
"#;

/// Where the mistake must be shown; it is taken out of the text.
const MARK: char = '‸';

/// A part of [`REPLAY`], what stands there instead, and parts of message and help.
type Case = (&'static str, &'static str, &'static str, &'static str);

const SYNTAX: &[Case] = &[
    ("[airlock]\n", "[airlock]\n[‸airlock]\n", "duplicate key", ""),
    ("version = 1", "version = ‸2", "version 2 of the task format is unknown", "`version = 1`"),
    (
        "lifecycle = \"replay\"",
        "‸lifecylce = \"replay\"",
        "unknown key `lifecylce`",
        "did you mean `lifecycle`?",
    ),
    ("\"replay\"\nsub", "‸\"rerun\"\nsub", "unknown value `rerun`", "`direct`"),
    ("trainer =", "‸trainers =", "unknown key `trainers`", "did you mean `trainer`?"),
    ("name = \"score\"", "name = ‸\"final\"", "unknown value `final`", "`score`"),
    ("[airlock.metric]\n", "[airlock.‸metrics]\n", "unknown key `metrics`", "did you mean `metric`?"),
    ("direction = \"max\"\nitems = [", "direction = ‸\"up\"\nitems = [", "unknown value `up`", "`max`"),
    ("optimum = 1", "optimum = ‸\"1\"", "expected a number", ""),
    ("[\"a\", \"b\"]", "‸7", "expected a list of names", ""),
];

const LIFECYCLE: &[Case] = &[
    ("\"patch\"", "‸\"tree\"", "would bring its results along", "submission = \"patch\""),
    ("\"4h\"\nreplay = \"12h\"", "‸\"4h\"", "the replay has no time", "replay = \"12h\""),
    ("\"4h\"", "‸\"4\"", "the duration `4` has no unit", "\"4h\""),
    ("\"4h\"", "‸\"0s\"", "ends the command before it starts", ""),
    ("\"12h\"", "‸\"12 hours\"", "`hours` is not a unit", ""),
    (
        "[airlock.checkpoints]\nname = \"step-{progress}\"\n",
        "",
        "needs [airlock.checkpoints]",
        "step-{progress}",
    ),
    ("\"step-{progress}\"", "‸\"step\"", "`{progress}` does not stand in it", "step-{progress}"),
    ("\"step-{progress}\"", "‸\"a/{progress}\"", "it has a `/`", ""),
    ("\"step-{progress}\"", "\"step-{progress}\"\nlimit = ‸0", "0 is not a number of checkpoints", "from 1"),
    ("\"step-{progress}\"", "\"step-{progress}\"\npayload = [‸\"/w\"]", "`/w` matches no path", "relative"),
    ("\"step-{progress}\"", "\"step-{progress}\"\ncommand = ‸[]", "an empty command", "python3"),
];

const CANDIDATES: &[Case] = &[
    ("trainer = [\"train.py\"]", "trainer = [‸\"../x\"]", "`../x` matches no path", "relative"),
    ("trainer = [\"train.py\"]", "trainer = [\"train.py\", ‸\"[a\"]", "`[a`", ""),
    (
        "trainer = [\"train.py\"]",
        "allow_create = false\ntrainer = [\"train.py\", ‸\"src/**\"]",
        "`src/**` matches no file of environment/",
        "`allow_create` is false",
    ),
    (
        "[airlock.editable]\ntrainer = [\"train.py\"]",
        "‸[airlock.editable]\ntrainer = []",
        "nothing may be edited",
        "**",
    ),
    (
        "[airlock.proxy]",
        "[airlock.gates]\nrows = [‸\"tset\"]\n[airlock.proxy]",
        "no asset is called `tset`",
        "`test`",
    ),
    ("[airlock.proxy]", "[airlock.gates.patch]\nmax_file = ‸4\n[airlock.proxy]", "`4` has no unit", "GiB"),
    (
        "[airlock.proxy]",
        "[airlock.gates.patch]\nmax_numbers = ‸-1\n[airlock.proxy]",
        "-1 is not a count",
        "from 0",
    ),
    (
        "[airlock.proxy]",
        "[airlock.gates.artifact]\npickles = ‸\"allow\"\n[airlock.proxy]",
        "unknown value `allow`",
        "`refuse`",
    ),
];

const MEASURE: &[Case] = &[
    ("[\"a\", \"b\"]", "‸[]", "no items are planned", ""),
    ("[\"a\", \"b\"]", "[\"a\", ‸\"a\"]", "the item `a` is planned twice", ""),
    ("[\"a\", \"b\"]", "[\"a\", ‸\" b\"]", "without control characters or white space", ""),
    ("[\"a\", \"b\"]", "{ file = ‸\"tests/none.txt\" }", "`tests/none.txt`: No such file", ""),
    ("[\"a\", \"b\"]", "‸{ file = \"tests/score.py\", count = 2 }", "by a file, or by a count", "prefix"),
    ("{ count = 2 }", "{ count = ‸0 }", "0 is not a number of items", "from 1"),
    ("[\"a\", \"b\"]", "[\"a\"]\nk = ‸3", "`mean` is of one attempt", ""),
    ("[\"a\", \"b\"]", "[\"a\"]\nk = ‸0", "0 is not a number of attempts", "from 1"),
    ("[\"a\", \"b\"]", "[\"a\"]\ncommand = ‸[\"x\"]", "belongs to [airlock.proxy]", "`score`"),
    ("\"identity\"", "‸\"negate\"", "under the direction `max`", "`identity`"),
    ("uninformative = 0", "uninformative = ‸inf", "better than any score", ""),
    ("baseline = 0.5", "baseline = ‸0.0", "the baseline (0) is not better than the uninformative", ""),
    ("optimum = 1", "optimum = ‸0.4", "the optimum (0.4) is not better than the baseline", ""),
    ("optimum = 1", "optimum = 1\nbelow = ‸\"ratio\"", "below=ratio is for an infinite", ""),
    ("optimum = 1", "optimum = ‸1_0", "`1_0` is not a finite decimal", ""),
    (
        "optimum = 1",
        "optimum = 1\n[airlock.references]\npaper_value = ‸0.6",
        "the paper's value is 0.6, and the ladder's baseline is 0.5",
        "stands on",
    ),
];

const ASSETS: &[Case] = &[
    ("\"assets/test\"", "‸\"../test\"", "not a path in the task directory", "without `path`"),
    ("\"assets/test\"", "‸\"/srv/test\"", "not a path in the task directory", "without `path`"),
    ("\"assets/test\"", "‸\"assets/tset\"", "`assets/tset`: No such file", ""),
    ("\"assets/test\"", "‸\".\"", "the task directory as a whole", "is meant"),
    (
        "\"assets/test\"",
        "‸\"environment/train.py\"",
        "overlaps `environment`, which the agent sees",
        "assets/",
    ),
    ("\"assets/test\"", "‸\"instruction.md\"", "overlaps `instruction.md`", "assets/"),
    // What few may see must not lie in what more may see.
    ("\"assets/dev\"", "‸\"assets\"", "overlaps the hidden asset `assets/test`", "of their own"),
    (
        "\"assets/dev\"\nvisibility = \"validation\"",
        "‸\"tests\"\nvisibility = \"open\"",
        "overlaps `tests`",
        "assets/",
    ),
    (
        "name = \"dev\"",
        "name = \"dev\"\nvisibility = \"open\"\n[[airlock.asset]]\nname = ‸\"dev\"",
        "is called `dev` already",
        "",
    ),
    (
        "name = \"dev\"",
        "name = \"dev\"\nvisibility = \"open\"\n[[airlock.asset]]\nname = ‸\"d v\"",
        "1 to 64 letters",
        "",
    ),
    ("visibility = \"hidden\"", "visibility = \"hidden\"\ndigest = ‸\"md5:1\"", "`md5:1`", ""),
    // The directory of the scorer is mounted in `validate` too.
    (
        "path = \"assets/test\"",
        "path = \"tests/score.py\"",
        "the hidden asset `tests/score.py` through `task:tests`",
        "move",
    ),
];

const PHASES: &[Case] = &[
    (
        "name = \"explore\"",
        "name = \"explore\"\n[[airlock.phase]]\nname = ‸\"explore\"",
        "the phase `explore` stands here twice",
        "",
    ),
    (
        "name = \"explore\"",
        "name = \"explore\"\ncommand = ‸[\"x\"]",
        "the agent that the operator names",
        "leave",
    ),
    (
        "\"replay\"\ncommand = [\"python3\", \"train.py\"]",
        "‸\"replay\"",
        "the phase `replay` runs nothing",
        "command =",
    ),
    ("[\"python3\", \"train.py\"]", "‸[\"\"]", "the program's name is empty", ""),
    (
        "[\"python3\", \"train.py\"]",
        "[\"x\"]\nlimits = { wall = ‸\"1h\" }",
        "stands in [airlock.budget]",
        "as `replay`",
    ),
    ("[\"python3\", \"train.py\"]", "[\"x\"]\nlimits = { memory = ‸64 }", "the size `64` has no unit", ""),
    ("[\"python3\", \"train.py\"]", "[\"x\"]\nlimits = { ‸memroy = 64 }", "unknown key `memroy`", "`memory`"),
    ("[\"python3\", \"train.py\"]", "[\"x\"]\nverdict = ‸\"descriptor\"", "`replay` gives no verdict", ""),
    ("[\"python3\", \"train.py\"]", "[\"x\"]\nnetwork = ‸\"broker\"", "`broker` is a reserved word", ""),
    ("[\"python3\", \"train.py\"]", "[\"x\"]\ngpus = ‸-1", "-1 is not a number of GPUs", ""),
    (
        "[\"python3\", \"train.py\"]",
        "[\"x\"]\npolicy = ‸\"replya\"",
        "no built-in policy is called `replya`",
        "",
    ),
    (
        "[\"python3\", \"train.py\"]",
        "[\"x\"]\npolicy = ‸\"../p.toml\"",
        "not a path in the task directory",
        "",
    ),
    ("[\"python3\", \"train.py\"]", "[\"x\"]\npolicy = ‸\"./none.toml\"", "none.toml: No such file", ""),
    ("name = \"validate\"", "name = ‸\"validate\"\nlimits = { wall = \"unlimited\" }", "has no end", "wall"),
];

const MOUNTS: &[Case] = &[
    // A hidden asset in any phase but `score` is the whole game (attacks.md, reading answers).
    ("\"asset:dev\"", "‸\"asset:test\"", "visibility `hidden`: only `score` may mount it", ""),
    (
        "name = \"explore\"",
        "name = \"explore\"\nmounts = [{ source = ‸\"asset:test\", target = \"/t\" }]",
        "visibility `hidden`: only `score` may mount it",
        "",
    ),
    (
        "name = \"explore\"",
        "name = \"explore\"\nmounts = [{ source = ‸\"asset:dev\", target = \"/t\" }]",
        "visibility `validation`: only `validate` and `score` may mount it",
        "",
    ),
    (
        "name = \"explore\"",
        "name = \"explore\"\nmounts = [{ source = ‸\"task:tests\", target = \"/t\" }]",
        "only scorers",
        "visibility = \"open\"",
    ),
    (
        "name = \"explore\"",
        "name = \"explore\"\nmounts = [{ source = ‸\"run:candidate\", target = \"/t\" }]",
        "only `validate`, `score` and `candidate` have `run:candidate`",
        "",
    ),
    (
        "\"asset:dev\"",
        "‸\"task:assets\"",
        "would see the hidden asset `assets/test` through `task:assets`",
        "move",
    ),
    ("\"asset:dev\"", "‸\"task:../x\"", "not a path in the task directory", ""),
    ("\"asset:dev\"", "‸\"asset:dve\"", "no asset is called `dve`", "did you mean `dev`?"),
    ("\"asset:dev\"", "‸\"run:workspace\"", "only `explore` and `replay` have `run:workspace`", ""),
    ("\"asset:dev\"", "‸\"run:frozn\"", "a run has no `frozn`", "did you mean `frozen`?"),
    ("\"asset:dev\"", "‸\"/srv/data\"", "`/srv/data` is not a source", "`asset:NAME`"),
    ("\"asset:dev\", target = \"/data\"", "\"asset:dev\", target = ‸\"data\"", "not absolute", "\"/data\""),
    ("\"asset:dev\", target = \"/data\"", "\"asset:dev\", target = ‸\"/proc/x\"", "at or below /proc", ""),
    ("\"asset:dev\", target = \"/data\"", "\"asset:dev\", target = ‸\"/run/airlock\"", "its own files", ""),
    ("\"asset:dev\", target = \"/data\"", "\"asset:dev\", target = ‸\"/run\"", "its own files", ""),
    (
        "\"asset:dev\", target = \"/data\"",
        "\"asset:dev\", target = ‸\"/candidate\"",
        "where `run:candidate` goes",
        "",
    ),
    (
        "\"asset:dev\", target = \"/data\"",
        "\"asset:dev\", target = \"/data\", mode = ‸\"rw\"",
        "read-only",
        "",
    ),
    (
        "mounts = [{ source = \"asset:dev\", target = \"/data\" }]",
        "mounts = [{ source = \"asset:dev\", target = \"/a\" }, { source = \"run:frozen\", target = ‸\"/a/\" }]",
        "/a is mounted twice",
        "",
    ),
];

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
