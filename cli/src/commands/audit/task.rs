//! A task directory as the audit's rules see it.

use std::path::{Path, PathBuf};

use airlock_grader::task::{MountSource, Phase, PhaseName, RunSource, Task, Visibility};
use airlock_policy::audit::{Audited, Kind, PhaseFacts, PhaseSource, Role, Subject, TaskFacts, TaskMount};
use airlock_policy::{MountMode, Policy};
use anyhow::{Context, Result};

/// The task as a whole, then the policy of each of its phases.
pub(super) fn audit(dir: &Path) -> Result<Vec<Audited>> {
    let task = Task::load(dir)?;
    let manifest = dir.join("task.toml");
    let text = airlock_policy::embed::read_file(&manifest).context("task.toml")?;
    let name = manifest.display().to_string();
    let mut facts = TaskFacts::new(&name, &text, task.phases.values().map(phase).collect());
    facts.answers = answers(&task);
    let closed = task.assets.iter().filter(|(_, asset)| asset.visibility != Visibility::Open);
    facts.closed = closed.map(|(name, _)| name.clone()).collect();
    facts.gated = task.gates.rows.clone();
    let whole = Audited::new(name.clone(), Kind::Task, facts.findings());
    let mut audited = vec![whole];
    for phase in &facts.phases {
        let findings = Subject::of_policy(phase.policy.clone())?.findings();
        audited.push(Audited::new(format!("{name} ({})", phase.name), Kind::Phase, findings));
    }
    Ok(audited)
}

/// What no untrusted phase may see: assets that are not open, the scorer's tests, the solution.
fn answers(task: &Task) -> Vec<(String, PathBuf)> {
    let assets = task.assets.iter().filter(|(_, asset)| asset.visibility != Visibility::Open);
    let assets =
        assets.filter_map(|(name, asset)| Some((format!("asset `{name}`"), asset.path.as_ref()?.clone())));
    let parts = ["tests", "solution"].map(|part| (format!("`{part}`"), PathBuf::from(part)));
    let all = assets.chain(parts).map(|(what, path)| (what, real(&task.dir.join(path))));
    all.filter(|(_, path)| path.exists()).collect()
}

fn phase(phase: &Phase) -> PhaseFacts {
    let scores = matches!(phase.name, PhaseName::Validate | PhaseName::Score);
    let mounts = phase.mounts.iter().map(|mount| TaskMount {
        source: match &mount.source {
            MountSource::Run(RunSource::Candidate | RunSource::Copy) => PhaseSource::Candidate,
            MountSource::Asset(name) => PhaseSource::Asset(name.clone()),
            _ => PhaseSource::Other,
        },
        target: mount.target.clone(),
        writable: mount.mode == MountMode::Rw,
        exec: mount.exec,
    });
    PhaseFacts {
        name: phase.name.word().to_owned(),
        role: if scores { Role::Scorer } else { Role::Untrusted },
        policy: resolved(&phase.policy),
        mounts: mounts.collect(),
        in_process: phase.in_process(),
    }
}

/// The policy with its sources as they are, links followed, so that they can be compared with the task's parts.
fn resolved(policy: &Policy) -> Policy {
    let mut policy = policy.clone();
    for mount in &mut policy.mount {
        mount.source = real(&mount.source);
    }
    policy.root.path = policy.root.path.as_deref().map(real);
    policy
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
