//! A task, whole and checked.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use airlock_policy::{Duration, MountMode, Policy, Size};
use serde::{Deserialize, Serialize, Serializer};

use super::checkpoint::CheckpointName;
use super::harbor::Unused;
use super::schema::{Handover, Lifecycle, PhaseName, Submission, Visibility};
use crate::Digest;
use crate::gate::{ArtifactRules, PatchRules};
use crate::score::{Decimal, Ladder, Metric};

/// A task, whole and checked. It serializes to what a run binds; where the directory lies is no part of that.
#[derive(Clone, Debug, Serialize)]
pub struct Task {
    /// The task directory.
    #[serde(skip)]
    pub dir: PathBuf,
    /// Its name.
    pub id: String,
    /// One line for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// How a candidate comes to its final score.
    pub lifecycle: Lifecycle,
    /// What a candidate is.
    pub submission: Submission,
    /// What of the frozen source a candidate may change.
    pub editable: Editable,
    /// The clock.
    pub budget: Budget,
    /// The most that a candidate may weigh, where the task says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<Size>,
    /// The sandboxes. `explore` and `score` are always there.
    pub phases: BTreeMap<PhaseName, Phase>,
    /// Data and models that phases mount, by name.
    pub assets: BTreeMap<String, Asset>,
    /// What a replay leaves behind; there under [`Lifecycle::Replay`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<Checkpoints>,
    /// What the agent may measure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,
    /// What the final score is.
    pub metric: NamedMetric,
    /// From the final score to a number between 0 and 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ladder: Option<Ladder>,
    /// What a candidate must satisfy before anything of it runs.
    pub gates: Gates,
    /// Known scores, by name.
    pub references: BTreeMap<String, Decimal>,
    /// Keys of `task.toml` that Airlock makes no use of.
    #[serde(skip)]
    pub unused: Vec<Unused>,
}

/// Globs of paths of the frozen source; `*` stays within a directory, `**` does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Editable {
    /// Files may be added where the globs match.
    pub allow_create: bool,
    /// The training data.
    pub data: Vec<String>,
    /// The training algorithm.
    pub trainer: Vec<String>,
    /// The program around the model at inference.
    pub harness: Vec<String>,
    /// What is never part of a candidate, nor a change: caches that running it leaves.
    pub ignore: Vec<String>,
}

impl Editable {
    /// The globs of all components.
    pub fn globs(&self) -> impl Iterator<Item = &str> {
        [&self.data, &self.trainer, &self.harness].into_iter().flatten().map(String::as_str)
    }
}

/// The clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Budget {
    /// Wall-clock time of `explore`.
    pub explore: Duration,
    /// Wall-clock time of `replay`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<Duration>,
    /// From the request to end to the end by force.
    pub grace: Duration,
    /// Waiting for a validation and running it takes from `explore`. Otherwise the clock stands meanwhile, and research is
    /// frozen.
    pub validation_counts: bool,
}

/// One sandbox of a task.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Phase {
    /// Which.
    pub name: PhaseName,
    /// Program and arguments; empty in `explore`, where the operator names the agent.
    pub command: Vec<String>,
    /// The policy with the phase's limits, network, GPUs, environment and working directory, and without its
    /// mounts, whose host paths only a run knows.
    #[serde(serialize_with = "name_and_digest")]
    pub policy: Policy,
    /// What is mounted over the policy's own mounts.
    pub mounts: Vec<PhaseMount>,
    /// How the scorer hands over its verdict; there in `validate` and `score`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Handover>,
}

impl Phase {
    /// The grading code runs inside the candidate's environment, which the receipt must say.
    pub fn in_process(&self) -> bool {
        self.verdict == Some(Handover::RewardFile)
    }
}

/// A mount whose host path only a run knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PhaseMount {
    /// What.
    pub source: MountSource,
    /// Absolute path inside.
    pub target: PathBuf,
    /// Whether it may be written.
    pub mode: MountMode,
    /// Programs may be run from it.
    pub exec: bool,
}

/// What a phase mounts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MountSource {
    /// `asset:NAME`.
    Asset(String),
    /// `run:NAME`.
    Run(RunSource),
    /// `task:PATH`, relative to the task directory.
    Task(PathBuf),
}

/// What a run has for its phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunSource {
    /// `run:workspace`: a fresh copy of the frozen source; in `replay` with the patch applied.
    Workspace,
    /// `run:output`: an empty directory where training leaves its checkpoints.
    Output,
    /// `run:frozen`: the frozen source, read-only.
    Frozen,
    /// `run:candidate`: the sealed candidate, read-only.
    Candidate,
    /// `run:copy`: a throw-away copy of the sealed candidate that may be written.
    Copy,
    /// `run:trajectories`: an empty directory for what the scorer wants kept.
    Trajectories,
    /// `run:reward`: an empty directory for a reward file.
    Reward,
}

impl RunSource {
    pub(crate) const NAMES: [(&'static str, RunSource); 7] = [
        ("workspace", RunSource::Workspace),
        ("output", RunSource::Output),
        ("frozen", RunSource::Frozen),
        ("candidate", RunSource::Candidate),
        ("copy", RunSource::Copy),
        ("trajectories", RunSource::Trajectories),
        ("reward", RunSource::Reward),
    ];

    /// Whether it is there to be written.
    pub fn writable(self) -> bool {
        !matches!(self, RunSource::Frozen | RunSource::Candidate)
    }
}

impl MountSource {
    /// Whether it is this one of the run's own.
    pub fn is_run(&self, source: RunSource) -> bool {
        *self == MountSource::Run(source)
    }
}

impl fmt::Display for MountSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MountSource::Asset(name) => write!(f, "asset:{name}"),
            MountSource::Task(path) => write!(f, "task:{}", path.display()),
            MountSource::Run(run) => {
                let name = RunSource::NAMES.iter().find(|(_, source)| source == run).map(|(name, _)| *name);
                write!(f, "run:{}", name.unwrap_or_default())
            }
        }
    }
}

impl Serialize for MountSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Data or a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Asset {
    /// Path in the task directory; none where the operator supplies it for each run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Who may see it.
    pub visibility: Visibility,
    /// What it must be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

/// What a replay leaves behind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checkpoints {
    /// How many are scored at most: the valid ones with the greatest progress.
    pub limit: u32,
    /// Name of the directories in `run:output`.
    pub name: CheckpointName,
    /// Globs of the files in it that are taken; each must match one at least.
    pub payload: Vec<String>,
    /// The frozen validation, run over one checkpoint; exit status 0 says that it is valid. None: the gates
    /// decide alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation: Option<Phase>,
}

/// A metric and what it is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedMetric {
    /// What it is called.
    pub name: String,
    /// What is measured, and over what.
    #[serde(flatten)]
    pub metric: Metric,
}

/// What the agent may measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Proxy {
    /// What is measured, and over what.
    #[serde(flatten)]
    pub metric: NamedMetric,
    /// What `fast_eval.sh` runs in the research sandbox; empty: nothing.
    pub command: Vec<String>,
}

/// What a candidate must satisfy before anything of it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gates {
    /// Assets whose rows must not occur in what a candidate changes.
    pub rows: Vec<String>,
    /// What a changeset may hold.
    pub patch: PatchRules,
    /// What a checkpoint or a tree may hold.
    pub artifact: ArtifactRules,
}

/// A part of a task whose bytes are fixed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// `environment`, `instruction.md`, `solution`, `task.toml`, `tests` or `asset:NAME`.
    pub name: String,
    /// Where it lies: a file or a directory.
    pub path: PathBuf,
}

/// Why the parts of a task have no digests.
#[derive(Debug, thiserror::Error)]
pub enum PartError<E: std::error::Error + 'static> {
    /// A part could not be read.
    #[error("digest {part}: {source}")]
    Digest {
        /// The part.
        part: String,
        /// What went wrong.
        source: E,
    },
    /// An asset is not what the task says.
    #[error("asset `{name}` is {found}, and task.toml says {expected}")]
    Changed {
        /// The asset.
        name: String,
        /// What task.toml says.
        expected: Digest,
        /// What it is.
        found: Digest,
    },
}

/// The parts that every task has or may have beside its assets.
pub(crate) const PARTS: [&str; 5] = ["environment", "instruction.md", "solution", "task.toml", "tests"];

impl Task {
    /// The frozen parts that are there, by name. Assets that the operator supplies are not among them.
    pub fn parts(&self) -> Vec<Part> {
        let own = PARTS.iter().map(|name| Part { name: (*name).to_owned(), path: self.dir.join(name) });
        let assets = self.assets.iter().filter_map(|(name, asset)| {
            let path = self.dir.join(asset.path.as_ref()?);
            Some(Part { name: format!("asset:{name}"), path })
        });
        own.filter(|part| part.path.symlink_metadata().is_ok()).chain(assets).collect()
    }

    /// The digest of each frozen part, as `digest` computes it of a file or a directory; assets that the task
    /// names a digest for are compared with it.
    pub fn digests<E: std::error::Error + 'static>(
        &self,
        digest: impl Fn(&Path) -> Result<Digest, E>,
    ) -> Result<BTreeMap<String, Digest>, PartError<E>> {
        let mut digests = BTreeMap::new();
        for Part { name, path } in self.parts() {
            let found = digest(&path).map_err(|source| PartError::Digest { part: name.clone(), source })?;
            let asset =
                name.strip_prefix("asset:").and_then(|asset| Some((asset, self.assets.get(asset)?.digest?)));
            match asset {
                Some((asset, expected)) if expected != found => {
                    return Err(PartError::Changed { name: asset.to_owned(), expected, found });
                }
                _ => digests.insert(name, found),
            };
        }
        Ok(digests)
    }

    /// The assets that the operator must supply for each run.
    pub fn supplied(&self) -> impl Iterator<Item = &str> {
        self.assets.iter().filter(|(_, asset)| asset.path.is_none()).map(|(name, _)| name.as_str())
    }
}

fn name_and_digest<S: Serializer>(policy: &Policy, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Named<'a> {
        name: &'a str,
        digest: String,
    }

    let digest = policy.digest().map_err(serde::ser::Error::custom)?;
    Named { name: &policy.name, digest }.serialize(serializer)
}
