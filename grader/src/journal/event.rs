//! What can happen in a run.

use airlock_runtime::report::Reason;
use serde::{Deserialize, Serialize};

use crate::Digest;
use crate::score::{Counts, Score, Sigma};

/// An event of a run. Its JSON has the variant's name in snake case as `type`, beside the fields.
///
/// Texts that come from an untrusted side are named so; whoever shows them escapes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// The run exists; always the first event.
    RunCreated {
        /// The run's name.
        run_id: String,
        /// Of `run.json`.
        run: Digest,
    },
    /// A phase's sandbox is about to start.
    PhaseStarted {
        /// Counted from zero, over all phases of the run.
        phase: u32,
        /// What it is called in the task.
        name: String,
        /// Of the sandbox's spec.
        spec: Digest,
        /// When its time is over, on the boot-time clock in nanoseconds.
        deadline_ns: Option<u64>,
    },
    /// A phase's sandbox has ended.
    PhaseEnded {
        /// The phase.
        phase: u32,
        /// Why.
        reason: Reason,
        /// Exit code of its command, where it exited.
        exit_code: Option<i32>,
        /// Signal that ended its command, where one did.
        signal: Option<i32>,
        /// Of its end report.
        report: Digest,
    },
    /// A candidate was copied into the store.
    CandidateSealed {
        /// The tree digest of the copy, which is its name.
        candidate: Digest,
        /// Patch or tree.
        kind: CandidateKind,
        /// What for.
        sealed_for: SealedFor,
        /// Regular files in it.
        files: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// Research asked for a validation.
    ValidationRequested {
        /// Counted from one.
        ticket: u64,
        /// What is to be validated.
        candidate: Digest,
        /// Only these items; none: all that the proxy metric plans.
        items: Option<Vec<String>>,
    },
    /// Research dropped a queued validation.
    ValidationCancelled {
        /// The ticket.
        ticket: u64,
    },
    /// A validation was graded.
    ValidationResult {
        /// The ticket.
        ticket: u64,
        /// The phase that graded it.
        phase: u32,
        /// None if void.
        score: Option<Score>,
        /// What became of the planned attempts.
        counts: Counts,
        /// Of the verdict.
        verdict: Digest,
    },
    /// A validation could not be graded; research goes on.
    ValidationFailed {
        /// The ticket.
        ticket: u64,
        /// The phase that was to grade it.
        phase: Option<u32>,
        /// Airlock's own words.
        cause: String,
    },
    /// Research chose its candidate and is over. It is killed now, and the candidate is sealed after that.
    Chosen {
        /// Untrusted: where the candidate lies in the workspace.
        name: String,
    },
    /// The choice cannot be sealed or compared; nothing of it is scored.
    ChoiceRefused {
        /// Airlock's own words.
        cause: String,
    },
    /// The choice, sealed.
    Submitted {
        /// The choice.
        candidate: Digest,
    },
    /// Research ended without a candidate.
    NoCandidate {
        /// Untrusted: the agent's words.
        reason: String,
    },
    /// Research ended without a choice; what lay there was kept as evidence and is not submitted.
    DeadlineCapture {
        /// The sealed copy, if there was something to seal.
        candidate: Option<Digest>,
        /// Whether research ended by itself, before its time was over.
        early: bool,
    },
    /// A gate looked at a candidate.
    GateResult {
        /// The gate.
        gate: String,
        /// What it looked at.
        candidate: Digest,
        /// Whether it let it pass.
        passed: bool,
        /// Of its report.
        report: Digest,
    },
    /// A checkpoint of the replay was looked at by the frozen loader.
    CheckpointValidated {
        /// The sealed copy.
        checkpoint: Digest,
        /// Untrusted: its directory's name.
        name: String,
        /// The number in the name.
        progress: u64,
        /// Whether it can be scored.
        valid: bool,
    },
    /// The valid checkpoints with the greatest progress; nothing else of the replay is scored.
    CheckpointsSelected {
        /// By progress, greatest first.
        checkpoints: Vec<Digest>,
    },
    /// A candidate's one final scoring is about to start. Never twice for one candidate.
    FinalClaimed {
        /// What is scored: the candidate, or a checkpoint of its replay.
        candidate: Digest,
        /// The phase that scores it.
        phase: u32,
    },
    /// A scorer's verdict was taken in.
    Verdict {
        /// The phase that gave it.
        phase: u32,
        /// What was scored.
        candidate: Digest,
        /// None if void.
        score: Option<Score>,
        /// What became of the planned attempts.
        counts: Counts,
        /// Of the verdict.
        verdict: Digest,
    },
    /// The run has its result.
    Scored {
        /// What was best; none if nothing was valid.
        candidate: Option<Digest>,
        /// Its score.
        score: Option<Score>,
        /// Its place, where the task has a ladder.
        sigma: Option<Sigma>,
    },
    /// The run cannot go on by itself.
    Interrupted {
        /// Airlock's own words.
        cause: String,
    },
    /// A supervisor took the run up again.
    Resumed {},
    /// An operator decided what becomes of an interrupted run.
    Decided {
        /// What.
        decision: Decision,
    },
    /// A write that a crash had cut short was removed when the journal was opened.
    Recovered {
        /// How much of a line had been written.
        dropped_bytes: u64,
    },
    /// The run is over; always the last event.
    Closed {
        /// How.
        outcome: Outcome,
    },
}

/// What becomes of an interrupted run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// What was interrupted is done once more, and the receipt says so.
    Again,
    /// The run ends without a score.
    Close,
}

/// What a candidate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CandidateKind {
    /// A changeset.
    Patch,
    /// A directory.
    Tree,
}

/// Why a candidate was sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SealedFor {
    /// To be validated.
    Validation,
    /// To be scored.
    Submission,
    /// As a product of the replay.
    Checkpoint,
    /// As what lay there at the deadline.
    Deadline,
    /// As the unmodified initial system.
    Baseline,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// With a score.
    Scored,
    /// Research submitted nothing, and said so.
    NoCandidate,
    /// Research submitted nothing before its time was over.
    DeadlinePassed,
    /// Research ended before its time, without a word.
    NothingSubmitted,
    /// A gate refused the submission.
    GateFailed,
    /// Nothing that could be scored came of the submission.
    NothingValid,
    /// An operator closed an interrupted run.
    Interrupted,
}

impl Event {
    /// Whether the disk reserve may be spent on it: on what ends something, not on what asks for more.
    pub(super) fn may_use_reserve(&self) -> bool {
        match self {
            Event::RunCreated { .. }
            | Event::PhaseStarted { .. }
            | Event::CandidateSealed { .. }
            | Event::ValidationRequested { .. }
            | Event::FinalClaimed { .. } => false,
            Event::PhaseEnded { .. }
            | Event::ValidationCancelled { .. }
            | Event::ValidationResult { .. }
            | Event::ValidationFailed { .. }
            | Event::Chosen { .. }
            | Event::ChoiceRefused { .. }
            | Event::Submitted { .. }
            | Event::NoCandidate { .. }
            | Event::DeadlineCapture { .. }
            | Event::GateResult { .. }
            | Event::CheckpointValidated { .. }
            | Event::CheckpointsSelected { .. }
            | Event::Verdict { .. }
            | Event::Scored { .. }
            | Event::Interrupted { .. }
            | Event::Resumed {}
            | Event::Decided { .. }
            | Event::Recovered { .. }
            | Event::Closed { .. } => true,
        }
    }
}
