//! What is signed: an in-toto Statement v1.

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
