//! What is signed: an in-toto Statement v1.

use airlock_runtime::gpu::{Counters, DeviceReport, GpuReport};
use serde::{Deserialize, Serialize};

use crate::Digest;
use crate::journal::{Head, Outcome};
use crate::score::{Counts, Score, Sigma};

/// `_type` of a statement (in-toto attestation framework, spec/v1/statement.md).
pub(super) const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";

/// `predicateType` of a receipt: the name of [`Predicate`]'s fields and their meaning.
pub(super) const PREDICATE_TYPE: &str = "urn:airlock:receipt:v1";

/// An in-toto statement with a receipt as its predicate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    #[serde(rename = "_type")]
    pub(super) statement_type: String,
    #[serde(rename = "predicateType")]
    pub(super) predicate_type: String,
    /// The run's files: `run.json`, `journal.jsonl`, verdicts, end reports.
    pub subject: Vec<Subject>,
    /// What is said of them.
    pub predicate: Predicate,
}

/// A file of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// Its path in the run directory.
    pub name: String,
    digest: DigestSet,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DigestSet {
    #[serde(with = "hex")]
    sha256: Digest,
}

/// How the run went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Predicate {
    /// The version of Airlock that ran it.
    pub airlock: String,
    /// The run's name.
    pub run_id: String,
    /// Of the task's frozen parts.
    pub task: Digest,
    /// The result.
    pub result: Summary,
    /// The journal's length and head.
    pub journal: Head,
    /// What confined each phase.
    pub phases: Vec<PhaseEvidence>,
    /// What was weaker than the policies ask for by default, and why; empty if nothing was.
    pub weaker: Vec<String>,
}

/// A run's result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// How it ended.
    pub outcome: Outcome,
    /// What was scored.
    pub candidate: Option<Digest>,
    /// Its score; none if nothing was valid.
    pub score: Option<Score>,
    /// Its place, where the task has a ladder.
    pub sigma: Option<Sigma>,
    /// What became of the planned attempts.
    pub counts: Option<Counts>,
    /// Whether the tests ran within the candidate's own process, which could then lie to them.
    pub in_process: bool,
}

/// What confined a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseEvidence {
    /// The phase.
    pub phase: u32,
    /// What it is called in the task.
    pub name: String,
    /// Of the policy with everything that it extends.
    pub policy: Digest,
    /// Of the spec.
    pub spec: Digest,
    /// Of the canonical JSON of the end report's list of evidence.
    pub evidence: Digest,
    /// The GPUs that it had; none if it had none.
    pub gpus: Option<PhaseGpus>,
}

/// The GPUs of a phase, as its end report has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseGpus {
    /// Version of the driver.
    pub driver: String,
    /// Newest CUDA version that it serves.
    pub cuda: String,
    /// Each GPU and slice.
    pub devices: Vec<PhaseGpu>,
    /// What was left on them.
    pub left: Vec<String>,
    /// Which limit was exceeded.
    pub exceeded: Option<String>,
    /// Whether they were reset afterwards; none if nobody asked for it.
    pub reset: Option<bool>,
}

/// One GPU or slice of a phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseGpu {
    /// Its UUID.
    pub uuid: String,
    /// UUID of the GPU that it is a slice of.
    pub slice_of: Option<String>,
    /// Product name.
    pub name: String,
    /// Memory in use, ECC errors, clocks and power limit before the phase.
    pub before: Counters,
    /// And after it, if the driver still answered.
    pub after: Option<Counters>,
    /// Most memory in use during the phase, in bytes.
    pub memory_peak: Option<u64>,
    /// Energy of the whole GPU, in millijoules.
    pub energy: Option<u64>,
    /// XID errors of the phase.
    pub xids: Vec<u64>,
}

impl From<GpuReport> for PhaseGpus {
    fn from(report: GpuReport) -> PhaseGpus {
        let GpuReport { driver, cuda, devices, left, exceeded, reset, unwatched: _ } = report;
        PhaseGpus {
            driver,
            cuda,
            devices: devices.into_iter().map(PhaseGpu::from).collect(),
            left,
            exceeded,
            reset,
        }
    }
}

impl From<DeviceReport> for PhaseGpu {
    fn from(device: DeviceReport) -> PhaseGpu {
        let DeviceReport { uuid, slice_of, name, before, after, memory_peak, energy, xids, .. } = device;
        PhaseGpu { uuid, slice_of, name, before, after, memory_peak, energy, xids }
    }
}

impl Statement {
    /// A statement about these files.
    pub fn new(subject: Vec<Subject>, predicate: Predicate) -> Statement {
        Statement {
            statement_type: STATEMENT_TYPE.to_owned(),
            predicate_type: PREDICATE_TYPE.to_owned(),
            subject,
            predicate,
        }
    }
}

impl Subject {
    /// A file by its path in the run directory and the digest of its bytes.
    pub fn new(name: impl Into<String>, sha256: Digest) -> Subject {
        Subject { name: name.into(), digest: DigestSet { sha256 } }
    }

    /// Of its bytes.
    pub fn digest(&self) -> Digest {
        self.digest.sha256
    }
}

/// Digests as in-toto writes them, without the algorithm's name.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::Digest;

    pub(super) fn serialize<S: Serializer>(digest: &Digest, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&digest.hex())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Digest, D::Error> {
        Digest::from_hex(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}
