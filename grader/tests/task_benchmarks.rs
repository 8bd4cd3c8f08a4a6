//! The tasks of two published benchmarks can be said: the five of VibeTraining-Bench (arXiv 2610.26342, tables 2, 3
//! and 6) and the ten of AI4AI-Bench (arXiv 2608.20318, tables 1 and 2, and the released manifests).

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::path::Path;

use airlock_grader::journal::canonical;
use airlock_grader::score::{Decimal, Direction};
use airlock_grader::task::{Lifecycle, PhaseName, Submission, Task};
use airlock_policy::{Duration, NetworkMode, Size};
use serde_json::Value;

/// Task, planned attempts of the proxy and of the final metric, hours of research.
const DIRECT: [(&str, u64, u64, u64); 5] = [
    ("terminal_bench_2_1", 50, 89, 24),
    ("swe_bench_verified", 150, 350, 24),
    ("tau3_bench", 35, 340, 16),
    ("toolathlon", 3 * 2, 3 * 88, 16),
    ("aime", 120, 120, 16),
];

/// Task, planned attempts of the proxy and of the final metric, baseline, MiB of memory, seconds of scoring.
const REPLAY: [(&str, u64, u64, &str, u64, u64); 10] = [
    ("openr1_code_livecodebench", 1, 1750, "0.127", 131_072, 10_800),
    ("ragen_sokoban_grpo", 4, 512, "0.170", 131_072, 1800),
    ("opd_math_1p5b", 2000, 1920, "0.436", 131_072, 9000),
    ("ultrafeedback_bt_rm_rewardbench", 512, 4, "74.9", 65_536, 1800),
    ("dpo_preference_alignment", 128, 413, "0.424", 65_536, 14_400),
    ("ddpo_sd15_aesthetic", 64, 256, "5.84", 65_536, 7200),
    ("openunlearning_tofu_npo_llama3p2_1b", 2, 1, "0.887", 65_536, 14_400),
    ("digress_qm9_graph_diffusion", 1, 1, "65.8", 65_536, 3600),
    ("model_soup_clip_imagenetv2", 2000, 10_000, "0.686", 65_536, 7200),
    ("owl_wanda_opt6p7b_70pct", 1, 1, "53.4", 65_536, 3600),
];

/// Loads a manifest of `task_benchmarks/` in a directory that has what it names.
fn load(id: &str) -> Task {
    let dir = tempfile::tempdir().unwrap();
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/task_benchmarks/{id}.toml"));
    fs::copy(manifest, dir.path().join("task.toml")).unwrap();
    for (file, text) in [
        ("instruction.md", "Improve the model.\n"),
        ("environment/run.sh", "exit 0\n"),
        ("tests/score.py", "pass\n"),
        ("tests/load.py", "pass\n"),
        ("tests/toolgym.txt", "first\nsecond\n"),
    ] {
        let path = dir.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    Task::load(dir.path()).unwrap_or_else(|error| panic!("{id}: {error}"))
}

/// Planned attempts of the proxy and of the final metric.
fn planned(task: &Task) -> (u64, u64) {
    let planned = |metric: &airlock_grader::score::Metric| metric.tally(&[]).unwrap().counts.planned;
    (planned(&task.proxy.as_ref().unwrap().metric.metric), planned(&task.metric.metric))
}

#[test]
fn five_tasks_of_direct_research() {
    for (id, proxy, metric, hours) in DIRECT {
        let task = load(id);
        assert_eq!(
            (task.id.as_str(), task.lifecycle, task.submission),
            (id, Lifecycle::Direct, Submission::Tree)
        );
        assert_eq!(planned(&task), (proxy, metric), "{id}");
        assert_eq!(task.budget.explore, Duration(hours * 3_600_000), "{id}");
        assert!(task.budget.validation_counts && task.budget.replay.is_none() && task.checkpoints.is_none());
        assert_eq!(task.metric.metric.direction(), Direction::Max);
        let harness = matches!(id, "terminal_bench_2_1" | "swe_bench_verified");
        assert_eq!(!task.editable.harness.is_empty(), harness, "{id}");
        let gpus = |name| task.phases[&name].policy.gpu.as_ref().and_then(|gpu| gpu.count);
        assert_eq!(
            [PhaseName::Explore, PhaseName::Candidate, PhaseName::Score].map(gpus),
            [Some(8), Some(8), None]
        );
        assert_eq!(task.references.len(), 3);
        assert!(task.unused.is_empty(), "{id}: {:?}", task.unused);
    }
}

#[test]
fn ten_tasks_of_explore_and_replay() {
    for (id, proxy, metric, baseline, memory, score) in REPLAY {
        let task = load(id);
        assert_eq!(
            (task.id.as_str(), task.lifecycle, task.submission),
            (id, Lifecycle::Replay, Submission::Patch)
        );
        assert_eq!(planned(&task), (proxy, metric), "{id}");
        assert_eq!(task.budget.explore, Duration(4 * 3_600_000));
        assert_eq!(task.budget.replay, Some(Duration(12 * 3_600_000)));
        assert_eq!(task.checkpoints.as_ref().unwrap().limit, 3);
        let down = matches!(id, "digress_qm9_graph_diffusion" | "owl_wanda_opt6p7b_70pct");
        let direction = if down { Direction::Min } else { Direction::Max };
        assert_eq!(task.metric.metric.direction(), direction, "{id}");
        let baseline: Decimal = baseline.parse().unwrap();
        let sigma = task.ladder.as_ref().unwrap().sigma(Some(baseline.into())).unwrap();
        assert_eq!(sigma.to_string(), "0.100000", "{id}");
        assert_eq!(task.references["paper_value"], baseline, "{id}");
        for name in [PhaseName::Explore, PhaseName::Replay, PhaseName::Score] {
            let policy = &task.phases[&name].policy;
            assert_eq!(policy.limits.memory, Some(Size(memory << 20)), "{id}");
            assert_eq!(policy.gpu.as_ref().unwrap().count, Some(1), "{id}");
            assert_eq!(policy.network.mode, NetworkMode::None, "{id}");
        }
        let unused: Vec<_> = task.unused.iter().map(|unused| unused.key.as_str()).collect();
        assert_eq!(unused, ["agent.timeout_sec", "verifier.timeout_sec"], "the budget and the phases say it");
        let wall = |name| task.phases[&name].policy.limits.wall.unwrap();
        assert_eq!(wall(PhaseName::Replay), Duration(12 * 3_600_000));
        assert_eq!(wall(PhaseName::Score), Duration(score * 1000), "{id}");
    }
}

#[test]
fn the_frozen_validation_of_a_checkpoint_is_scoring_without_the_hidden_assets() {
    let task = load("opd_math_1p5b");
    let validation = task.checkpoints.as_ref().unwrap().validation.as_ref().unwrap();
    let sources = |phase: &airlock_grader::task::Phase| {
        phase.mounts.iter().map(|mount| mount.source.to_string()).collect::<Vec<_>>()
    };
    let rest = ["asset:start-model", "run:candidate", "run:trajectories", "task:tests"];
    assert_eq!(sources(validation), rest);
    let score = &task.phases[&PhaseName::Score];
    assert_eq!(sources(score), [&rest[..1], &["asset:inputs", "asset:verifier-model"], &rest[1..]].concat());
    assert_eq!(validation.policy, score.policy);
    assert_eq!(validation.command, ["python3", "-I", "/tests/load.py"]);
}

#[test]
fn the_resolved_task_has_one_text_that_holds_no_place() {
    for id in DIRECT.map(|task| task.0).into_iter().chain(REPLAY.map(|task| task.0)) {
        let (one, other) = (canonical(&load(id)).unwrap(), canonical(&load(id)).unwrap());
        assert!(one == other, "{id}: two loads from two directories differ");
        let value: Value = serde_json::from_slice(&one).unwrap();
        assert_eq!(value["id"], id);
        assert_eq!(value["phases"]["explore"]["policy"]["name"], "research");
        assert!(value["phases"]["score"]["policy"]["digest"].as_str().unwrap().len() >= 64);
    }
}
