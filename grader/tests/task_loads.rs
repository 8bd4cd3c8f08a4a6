//! What a good task becomes: those of Harbor, those beside this project's examples.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use airlock_grader::Digest;
use airlock_grader::journal::canonical;
use airlock_grader::task::{
    Handover, Lifecycle, MountSource, PartError, PhaseName, RunSource, Submission, Task, TaskError,
    json_schema,
};
use airlock_policy::{Duration, MountMode, Size};

/// As the ecosystem's own tools make one.
const HARBOR: &str = r#"version = "1.0"

[metadata]
author_name = "A. Author"
difficulty = "easy"
tags = ["trivial"]

[verifier]
timeout_sec = 120.0

[verifier.env]
JUDGE = "none"

[agent]
timeout_sec = 90.5

[environment]
build_timeout_sec = 600.0
docker_image = "example/image"
cpus = 2
memory_mb = 2048
storage_mb = 10240
allow_internet = true
"#;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/tasks").join(name)
}

fn harbor(manifest: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (file, text) in [
        ("task.toml", manifest),
        ("instruction.md", "Write hello.txt.\n"),
        ("environment/Dockerfile", "FROM scratch\n"),
        ("tests/test.sh", "echo 1 > /logs/verifier/reward.txt\n"),
        ("solution/solve.sh", "echo hello > hello.txt\n"),
    ] {
        let path = dir.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

fn error(dir: &Path) -> String {
    Task::load(dir).map(drop).unwrap_err().to_string()
}

#[test]
fn a_task_of_harbor_is_one_research_phase_and_a_separate_scorer() {
    let dir = harbor(HARBOR);
    let task = Task::load(dir.path()).unwrap();
    assert_eq!((task.lifecycle, task.submission), (Lifecycle::Direct, Submission::Tree));
    assert_eq!(task.phases.keys().copied().collect::<Vec<_>>(), [PhaseName::Explore, PhaseName::Score]);
    assert_eq!(task.budget.explore, Duration(90_500));
    assert_eq!(task.storage, Some(Size(10_240 << 20)));
    assert_eq!(task.metric.metric.items(), ["reward"]);
    assert!(task.assets.is_empty() && task.ladder.is_none() && task.proxy.is_none());

    let explore = &task.phases[&PhaseName::Explore];
    assert_eq!(explore.policy.name, "research");
    assert_eq!(explore.policy.limits.cpus, Some(2.0));
    assert_eq!(explore.policy.limits.wall, Some(Duration(90_500)));
    assert_eq!(explore.policy.process.cwd.as_deref(), Some(Path::new("/app")));
    let sources = |phase: &airlock_grader::task::Phase| {
        phase.mounts.iter().map(|mount| (mount.source.to_string(), mount.mode)).collect::<Vec<_>>()
    };
    // Neither tests nor solution, and no reward directory (dawn issue 14).
    assert_eq!(sources(explore), [("run:workspace".to_owned(), MountMode::Rw)]);

    let score = &task.phases[&PhaseName::Score];
    assert_eq!(score.policy.name, "candidate");
    assert_eq!(score.policy.limits.wall, Some(Duration(120_000)));
    assert_eq!(score.policy.limits.memory, Some(Size(2048 << 20)));
    assert_eq!(score.verdict, Some(Handover::RewardFile));
    assert!(score.in_process() && !explore.in_process());
    assert_eq!(
        sources(score),
        [("run:copy", MountMode::Rw), ("run:reward", MountMode::Rw), ("task:tests", MountMode::Ro)]
            .map(|(source, mode)| (source.to_owned(), mode))
    );
    let reward = score.mounts.iter().find(|mount| mount.source == MountSource::Run(RunSource::Reward));
    assert_eq!(reward.unwrap().target, Path::new("/logs/verifier"));

    let unused: Vec<_> = task.unused.iter().map(|unused| (unused.key.as_str(), unused.place.line)).collect();
    assert_eq!(unused, [("verifier.env", 11), ("environment.docker_image", 19)]);
}

#[test]
fn a_task_of_harbor_may_say_next_to_nothing() {
    let dir = harbor("");
    let task = Task::load(dir.path()).unwrap();
    assert_eq!(task.budget.explore, Duration(4 * 3_600_000));
    assert_eq!(task.phases[&PhaseName::Score].policy.limits.wall, Some(Duration(600_000)));
    let old = harbor("[environment]\nmemory = \"2G\"\nstorage = \"512m\"\n");
    let task = Task::load(old.path()).unwrap();
    assert_eq!(task.phases[&PhaseName::Explore].policy.limits.memory, Some(Size(2 << 30)));
    assert_eq!(task.storage, Some(Size(512 << 20)));
}

#[test]
fn what_harbor_s_keys_cannot_mean_is_an_error() {
    for (text, message) in [
        ("[agent]\ntimeout_sec = -1.0\n", "task.toml:2:15: -1 is not a time"),
        ("[agent]\ntimeout_sec = nan\n", "task.toml:2:15: NaN is not a time"),
        ("[verifier]\ntimeout_sec = \"1m\"\n", "task.toml:2:15: expected a number, found the text"),
        ("[environment]\ncpus = 0\n", "task.toml:2:8: 0 is not a number of CPUs"),
        ("[environment]\nmemory_mb = 0\n", "task.toml:2:13: 0 is not a number of MiB"),
        ("[environment]\nmemory = \"2T\"\n", "task.toml:2:10: `2T` is not a size"),
        ("[environment]\ngpus = -1\n", "task.toml:2:8: -1 is not a number of GPUs"),
        ("[[steps]]\nname = \"one\"\n", "task.toml:1:1: tasks of several steps cannot be run"),
    ] {
        let dir = harbor(text);
        assert!(error(dir.path()).contains(message), "{text}: {}", error(dir.path()));
    }
    let dir = harbor(HARBOR);
    fs::remove_file(dir.path().join("tests/test.sh")).unwrap();
    assert!(error(dir.path()).contains("tests/test.sh: No such file"), "{}", error(dir.path()));
}

#[test]
fn the_examples_load() {
    let soup = Task::load(&example("digits-soup")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((soup.lifecycle, soup.submission), (Lifecycle::Replay, Submission::Patch));
    assert_eq!(soup.metric.metric.items().len(), 600);
    assert_eq!(soup.phases[&PhaseName::Replay].command, ["python3", "soup.py", "/output"]);
    assert_eq!(soup.checkpoints.unwrap().name.progress("soup-12"), Some(12));
    assert_eq!(soup.gates.patch.editable, ["soup.py"]);
    assert!(!soup.gates.patch.allow_create && !soup.gates.artifact.code.is_empty());

    let direct = Task::load(&example("digits-direct")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((direct.lifecycle, direct.submission), (Lifecycle::Direct, Submission::Tree));
    assert!(direct.phases.contains_key(&PhaseName::Candidate) && direct.checkpoints.is_none());
    assert_eq!(
        direct.editable.globs().collect::<Vec<_>>(),
        ["data/**", "train.py", "model.json", "predict.py"]
    );
    assert!(direct.gates.artifact.code.is_empty());
    for task in ["digits-soup", "digits-direct"].map(|name| Task::load(&example(name)).unwrap()) {
        canonical(&task).unwrap();
        assert!(task.unused.is_empty());
    }
}

#[test]
fn planned_items_are_as_many_as_the_rows() {
    for (name, asset, proxy) in [
        ("digits-soup", "test-rows", false),
        ("digits-soup", "validation-rows", true),
        ("digits-direct", "test-rows", false),
        ("digits-direct", "validation-rows", true),
    ] {
        let task = Task::load(&example(name)).unwrap();
        let path = task.dir.join(task.assets[asset].path.as_ref().unwrap());
        let rows = fs::read_to_string(path).unwrap().lines().count();
        let metric = if proxy { &task.proxy.as_ref().unwrap().metric } else { &task.metric };
        assert_eq!(metric.metric.items().len(), rows, "{name} {asset}");
    }
}

/// The digest of a file, or of the names in a directory.
fn digest(path: &Path) -> Result<Digest, io::Error> {
    if path.is_file() {
        return Ok(Digest::of(&fs::read(path)?));
    }
    let mut names: Vec<_> =
        fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>()?;
    names.sort();
    Ok(Digest::of(format!("{names:?}").as_bytes()))
}

#[test]
fn every_frozen_part_has_a_digest_and_a_changed_asset_is_named() {
    let task = Task::load(&example("digits-soup")).unwrap();
    let digests = task.digests(digest).unwrap();
    let names: Vec<&str> = digests.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "asset:test-rows",
            "asset:validation-rows",
            "environment",
            "instruction.md",
            "solution",
            "task.toml",
            "tests"
        ]
    );

    let dir = harbor(HARBOR);
    fs::write(dir.path().join("rows"), "1\n").unwrap();
    let manifest = |digest: Digest| {
        format!(
            "[airlock]\nversion = 1\nlifecycle = \"direct\"\nsubmission = \"tree\"\n\
             editable = {{ trainer = [\"**\"] }}\nbudget = {{ explore = \"1h\" }}\n\
             metric = {{ name = \"m\", direction = \"max\", items = [\"a\"] }}\n\
             [[airlock.asset]]\nname = \"rows\"\npath = \"rows\"\nvisibility = \"hidden\"\ndigest = \"{digest}\"\n\
             [[airlock.asset]]\nname = \"weights\"\nvisibility = \"open\"\n\
             [[airlock.phase]]\nname = \"explore\"\n[[airlock.phase]]\nname = \"score\"\ncommand = [\"x\"]\n"
        )
    };
    fs::write(dir.path().join("task.toml"), manifest(Digest::of(b"1\n"))).unwrap();
    let task = Task::load(dir.path()).unwrap();
    assert_eq!(task.supplied().collect::<Vec<_>>(), ["weights"]);
    assert!(task.digests(digest).unwrap().contains_key("asset:rows"));
    fs::write(dir.path().join("rows"), "2\n").unwrap();
    let changed = task.digests(digest).unwrap_err();
    assert!(matches!(&changed, PartError::Changed { name, .. } if name == "rows"), "{changed}");
    fs::remove_file(dir.path().join("rows")).unwrap();
    // A part that is gone is no part that never was.
    assert!(matches!(task.digests(digest), Err(PartError::Digest { .. })));
    assert!(matches!(Task::load(dir.path()), Err(TaskError::Invalid(_))));
}

#[test]
fn the_json_schema_is_strict_about_airlock_and_open_about_harbor() {
    let schema = json_schema();
    assert!(schema.get("additionalProperties").is_none());
    assert!(schema["properties"]["airlock"].is_object());
    let definitions = &schema["$defs"];
    for table in ["AirlockTable", "PhaseTable", "AssetTable", "MetricTable", "LadderTable", "LimitsTable"] {
        assert_eq!(definitions[table]["additionalProperties"], false, "{table}");
    }
    assert!(definitions["PhaseTable"]["properties"]["limits"].is_object());
}
