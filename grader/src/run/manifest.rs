//! `RUN/run.json`: what a run is, fixed before it begins.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use airlock_policy::BestEffort;
use serde::{Deserialize, Serialize};

use crate::Digest;
use crate::journal::{CanonicalError, Genesis, Moment, canonical};
use crate::score::{ItemResult, Score, Sigma};
use crate::score::{Ladder, Metric, Tally, TallyError};
use crate::task::{Lifecycle, NamedMetric, PhaseName, Submission};

/// Its name in the run directory.
pub(crate) const RUN_JSON: &str = "run.json";

/// Version of the form.
pub const MANIFEST_VERSION: u32 = 1;

/// What a run is. Its bytes are bound by the first line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of this form.
    pub version: u32,
    /// The run's name.
    pub run_id: String,
    /// Version of Airlock.
    pub airlock: String,
    /// When it was made.
    pub created: Created,
    /// The task.
    pub task: TaskFacts,
    /// Digests of everything that is fixed.
    pub digests: Digests,
    /// Who does the research; none for a baseline, which scores the frozen source itself.
    pub agent: Option<Agent>,
    /// The clock, as it is applied.
    pub budget: BudgetFacts,
    /// GPUs that phases may lease, by id.
    pub gpus: Vec<String>,
    /// Clauses that every policy may lower to what the host can do.
    pub best_effort: BTreeSet<BestEffort>,
    /// Every departure from the task as its author wrote it, in words; empty for an official run.
    pub overrides: Vec<String>,
    /// The public key that its receipt will be verified with.
    pub key: Digest,
}

/// Why bytes are no manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct ManifestFault {
    /// The first byte that does not fit, where they are one but not in canonical form.
    pub byte: Option<usize>,
    /// What is wrong.
    pub why: String,
}

/// When a run was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Created {
    /// The boot.
    pub boot_id: String,
    /// `CLOCK_BOOTTIME` in nanoseconds.
    pub boot_ns: u64,
    /// Milliseconds since 1970, for people.
    pub wall_ms: u64,
}

/// What a run knows of its task once the task directory is out of reach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskFacts {
    /// The task's name.
    pub id: String,
    /// One line for people.
    pub title: Option<String>,
    /// Where it lay, an absolute path.
    pub dir: PathBuf,
    /// How a candidate comes to its final score.
    pub lifecycle: Lifecycle,
    /// What a candidate is.
    pub submission: Submission,
    /// The final metric.
    pub metric: NamedMetric,
    /// What a validation measures, where the agent can ask for any.
    pub proxy: Option<NamedMetric>,
    /// From the final score to a number between 0 and 1.
    pub ladder: Option<Ladder>,
    /// How many checkpoints are scored at most, under lifecycle `replay`.
    pub checkpoints: Option<u32>,
    /// The tests run within the candidate's own environment.
    pub in_process: bool,
}

/// Digests of everything that is fixed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Digests {
    /// Of the canonical JSON of the whole task.
    pub task: Digest,
    /// Of the task's parts by name.
    pub parts: BTreeMap<String, Digest>,
    /// Of what the operator supplied, by the asset's name.
    pub supplied: BTreeMap<String, Supplied>,
    /// Tree digest of the frozen source.
    pub frozen: Digest,
    /// Tree digest of what is mounted at `/opt/harness`.
    pub harness: Digest,
    /// Of the program that decodes the socket.
    pub grader: Digest,
    /// Of each phase's policy, without what a run mounts.
    pub policies: BTreeMap<PhaseName, Digest>,
}

/// An asset that the operator supplied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Supplied {
    /// Where it lay, an absolute path.
    pub path: PathBuf,
    /// What it was.
    pub digest: Digest,
}

/// Who does the research.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    /// Program and arguments, as they are started inside.
    pub command: Vec<String>,
    /// Where the agent's own files lay on the host, and their tree digest: the copy in the store is mounted read-only at
    /// `/opt/agent`.
    pub files: Option<Supplied>,
}

/// The clock, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetFacts {
    /// Of `explore`.
    pub explore_ms: u64,
    /// Of `replay`.
    pub replay_ms: Option<u64>,
    /// From the request to end to the end by force.
    pub grace_ms: u64,
    /// Waiting for a validation and running it takes from `explore`.
    pub validation_counts: bool,
}

impl From<&Moment> for Created {
    fn from(moment: &Moment) -> Created {
        Created { boot_id: moment.boot_id.clone(), boot_ns: moment.boot_ns, wall_ms: moment.wall_ms }
    }
}

impl Manifest {
    /// The bytes of `run.json`: canonical JSON and a newline.
    pub fn to_bytes(&self) -> Result<Vec<u8>, CanonicalError> {
        let mut bytes = canonical(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Reads exactly what [`to_bytes`](Self::to_bytes) writes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Manifest, ManifestFault> {
        let wrong = |why: String| ManifestFault { byte: None, why };
        let manifest: Manifest = serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
        if manifest.version != MANIFEST_VERSION {
            let version = manifest.version;
            return Err(wrong(format!("it has version {version}, and this is {MANIFEST_VERSION}")));
        }
        let written = manifest.to_bytes().map_err(|error| wrong(error.to_string()))?;
        if written != bytes {
            let byte = written.iter().zip(bytes).take_while(|(a, b)| a == b).count();
            return Err(ManifestFault { byte: Some(byte), why: "it is not in canonical form".into() });
        }
        Ok(manifest)
    }

    /// What the journal hangs on, given the bytes of `run.json`.
    pub fn genesis(&self, bytes: &[u8]) -> Genesis {
        Genesis { run_id: self.run_id.clone(), run: Digest::of(bytes) }
    }
}

impl TaskFacts {
    /// The final metric's value, as the results of a scorer give it.
    pub fn tally(&self, results: &[ItemResult]) -> Result<Tally, TallyError> {
        self.metric.metric.tally(results)
    }

    /// The metric of a validation: the proxy's, over these items only if some were asked for.
    pub fn proxy_metric(&self, items: Option<&[String]>) -> Option<Metric> {
        let metric = &self.proxy.as_ref()?.metric;
        match items {
            None => Some(metric.clone()),
            Some(items) => metric.only(items),
        }
    }

    /// The place of a score on the ladder; without a score it is the lowest.
    pub fn sigma(&self, score: Option<Score>) -> Result<Option<Sigma>, crate::score::LadderError> {
        self.ladder.as_ref().map(|ladder| ladder.sigma(score)).transpose()
    }
}
