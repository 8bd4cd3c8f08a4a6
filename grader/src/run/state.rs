//! The state of a run, and what is to be done next: nothing but a fold over its journal.
//!
//! The supervisor does what [`State::next`] says and journals what came of it, until nothing is left to do. A run
//! that is taken up after a crash goes on by the same rule, so that there is no second way through. What a crash
//! means at each point:
//!
//! | the supervisor died | the run then |
//! | --- | --- |
//! | before research began | begins it |
//! | during research | gives the agent the rest of its time, in the workspace as it was left; the clock has not stopped |
//! | with validations open | puts them into the queue again |
//! | after the choice was acknowledged | kills what is left, seals the choice, goes on |
//! | between sealing, gates and replay | goes on |
//! | during the replay | is interrupted: a second replay would be a second try |
//! | while checkpoints were validated | validates those that have no result yet |
//! | between two final scorings | goes on |
//! | during a final scoring | is interrupted: the final is claimed once |
//! | after the result | writes the receipt |
//!
//! | killed, while the supervisor lives | the run then |
//! | --- | --- |
//! | the launcher | stops with an error when it next needs a sandbox, and can be resumed: nothing was started |
//! | a monitor | has lost that sandbox, as if the supervisor had died: research begins again in the same workspace, the clock going on; a validation and the check of a checkpoint are done once more, then given up; a replay or a final scoring, its candidate's sandbox too, is interrupted |
//! | the grader process | starts another one; who waits is served by that |
//! | the agent | ends research, as if it had ended by itself |
//! | a scorer, or the candidate that it asks | counts as that program's own failure: nobody can tell it from a crash |
//!
//! The supervisor itself lets go of a sandbox in the same way when the disk of the run directory is nearly full, and
//! starts none until there is room.
//!
//! Interrupted, a run waits for an operator's [`Decision`]. So it does when the machine was started anew during
//! research, since the time that research took cannot be told then. A sandbox that could not be set up has run
//! nothing: that is the host's failure, and is retried once.

use std::collections::BTreeMap;

use airlock_runtime::report::Reason;

use crate::Digest;
use crate::journal::{Decision, Event, Outcome, Record, SealedFor};
use crate::score::{Checkpoint, Counts, Score};
use crate::task::Lifecycle;

/// How often a sandbox that could not be set up is tried.
pub(crate) const TRIES: usize = 2;

/// A run as its journal tells it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// All phases, by number.
    pub phases: Vec<PhaseState>,
    /// When research first began.
    pub research: Option<Research>,
    /// Validations by ticket.
    pub tickets: BTreeMap<u64, TicketRecord>,
    /// How often a candidate was sealed for validation.
    pub sealed_for_validation: u64,
    /// Where the chosen candidate lies.
    pub chosen: Option<String>,
    /// Why there is no candidate.
    pub no_candidate: Option<String>,
    /// Research ended without a choice, and what lay there was kept; whether that was before its time was over.
    pub captured: Option<bool>,
    /// Why the choice is nothing that can be scored.
    pub refused: Option<String>,
    /// The sealed choice.
    pub submitted: Option<Digest>,
    /// Gates that looked at the submission, and whether they let it pass.
    pub gates: Vec<(String, bool)>,
    /// Checkpoints that were looked at.
    pub checkpoints: Vec<CheckpointRecord>,
    /// The checkpoints that are scored.
    pub selected: Option<Vec<Digest>>,
    /// Final scorings.
    pub claims: Vec<Claim>,
    /// The result.
    pub result: Option<(Option<Digest>, Option<Score>)>,
    /// Why the run waits for an operator.
    pub interrupted: Option<String>,
    /// What operators decided.
    pub decisions: Vec<Decision>,
    /// How the run ended.
    pub closed: Option<Outcome>,
}

/// When research began, on the boot-time clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Research {
    /// The boot.
    pub boot_id: String,
    /// `CLOCK_BOOTTIME` in nanoseconds.
    pub boot_ns: u64,
    /// The last event of this boot.
    pub last_ns: u64,
    /// What research took during earlier boots.
    pub spent_ns: u64,
}

/// A phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseState {
    /// What it is called.
    pub name: String,
    /// When it began, `CLOCK_BOOTTIME` in nanoseconds.
    pub started_ns: u64,
    /// How it ended.
    pub ended: Option<PhaseEnd>,
    /// A later try took its place, or an operator set it aside.
    pub void: bool,
}

/// How a phase ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseEnd {
    /// Why.
    pub reason: Reason,
    /// Exit code of its command.
    pub exit_code: Option<i32>,
}

/// A validation.
#[derive(Clone, Debug, PartialEq)]
pub struct TicketRecord {
    /// What is validated.
    pub candidate: Digest,
    /// Only these items.
    pub items: Option<Vec<String>>,
    /// When it was asked for, `CLOCK_BOOTTIME` in nanoseconds.
    pub asked_ns: u64,
    /// When it ended.
    pub ended_ns: Option<u64>,
    /// What became of it.
    pub fate: Fate,
}

/// What became of a validation.
#[derive(Clone, Debug, PartialEq)]
pub enum Fate {
    /// Queued or running.
    Open,
    /// Graded in this phase.
    Graded {
        /// The phase.
        phase: u32,
        /// None if void.
        score: Option<Score>,
        /// What became of the planned attempts.
        counts: Counts,
    },
    /// Not graded.
    Failed(String),
    /// Dropped by research.
    Cancelled,
}

/// A checkpoint of the replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointRecord {
    /// The sealed copy.
    pub digest: Digest,
    /// Its directory's name.
    pub name: String,
    /// The number in it.
    pub progress: u64,
    /// Whether it can be scored.
    pub valid: bool,
}

/// A final scoring.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// What is scored.
    pub candidate: Digest,
    /// The phase that scores it.
    pub phase: u32,
    /// The verdict.
    pub verdict: Option<(Option<Score>, Counts)>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Begin research, or go on with it.
    Research,
    /// Keep what lies in the workspace as evidence.
    Capture,
    /// Seal the choice, the unmodified source for a baseline.
    Seal,
    /// Let the gates look at the submission.
    Gate,
    /// Run the changed source from scratch.
    Replay,
    /// Seal and validate the checkpoints of the replay, and select among them.
    Checkpoints,
    /// Score this one finally.
    Score(Digest),
    /// Write down the result.
    Conclude,
    /// Close.
    Close(Outcome),
    /// Wait for an operator.
    Decide,
    /// Nothing; the run is over.
    Nothing,
}

impl State {
    /// The state after these events.
    pub fn of<'a>(records: impl IntoIterator<Item = &'a Record>) -> State {
        let mut state = State::default();
        records.into_iter().for_each(|record| state.apply(record));
        state
    }

    /// Takes one more event in.
    pub fn apply(&mut self, record: &Record) {
        if let Some(research) = self.research.as_mut().filter(|research| research.boot_id == record.boot_id) {
            research.last_ns = record.boot_ns;
        }
        match &record.event {
            Event::PhaseStarted { name, .. } => {
                if name == names::EXPLORE && self.research.is_none() {
                    self.research = Some(Research::begin(record, 0));
                }
                let (name, started_ns) = (name.clone(), record.boot_ns);
                self.phases.push(PhaseState { name, started_ns, ended: None, void: false });
            }
            Event::PhaseEnded { phase, reason, exit_code, .. } => {
                if let Some(phase) = self.phase_mut(*phase) {
                    phase.ended = Some(PhaseEnd { reason: *reason, exit_code: *exit_code });
                }
            }
            Event::ValidationRequested { ticket, candidate, items } => {
                let (candidate, items, asked_ns) = (*candidate, items.clone(), record.boot_ns);
                let record = TicketRecord { candidate, items, asked_ns, ended_ns: None, fate: Fate::Open };
                self.tickets.insert(*ticket, record);
            }
            Event::ValidationCancelled { ticket } => self.settle(*ticket, record, Fate::Cancelled),
            Event::ValidationResult { ticket, phase, score, counts, .. } => {
                let fate = Fate::Graded { phase: *phase, score: *score, counts: *counts };
                self.settle(*ticket, record, fate);
            }
            Event::ValidationFailed { ticket, cause, .. } => {
                self.settle(*ticket, record, Fate::Failed(cause.clone()));
            }
            Event::Chosen { name } => self.chosen = Some(name.clone()),
            Event::NoCandidate { reason } => self.no_candidate = Some(reason.clone()),
            Event::DeadlineCapture { early, .. } => self.captured = Some(*early),
            Event::ChoiceRefused { cause } => self.refused = Some(cause.clone()),
            Event::Submitted { candidate } => self.submitted = Some(*candidate),
            Event::GateResult { gate, candidate, passed, .. } if self.submitted == Some(*candidate) => {
                self.gates.push((gate.clone(), *passed));
            }
            Event::CheckpointValidated { checkpoint, name, progress, valid } => {
                let (digest, name) = (*checkpoint, name.clone());
                let (progress, valid) = (*progress, *valid);
                self.checkpoints.push(CheckpointRecord { digest, name, progress, valid });
            }
            Event::CheckpointsSelected { checkpoints } => self.selected = Some(checkpoints.clone()),
            Event::FinalClaimed { candidate, phase } => {
                self.claims.push(Claim { candidate: *candidate, phase: *phase, verdict: None });
            }
            Event::Verdict { phase, score, counts, .. } => {
                let claim = self.claims.iter_mut().rfind(|claim| claim.phase == *phase);
                if let Some(claim) = claim {
                    claim.verdict = Some((*score, *counts));
                }
            }
            Event::Scored { candidate, score, .. } => self.result = Some((*candidate, *score)),
            Event::Interrupted { cause } => self.interrupted = Some(cause.clone()),
            Event::Decided { decision } => self.decide(*decision, record),
            Event::Closed { outcome } => self.closed = Some(*outcome),
            Event::CandidateSealed { sealed_for: SealedFor::Validation, .. } => {
                self.sealed_for_validation += 1
            }
            Event::RunCreated { .. }
            | Event::CandidateSealed { .. }
            | Event::GateResult { .. }
            | Event::Resumed {}
            | Event::Recovered { .. } => {}
        }
    }

    /// What is to be done, for a run with an agent or (without) a baseline.
    pub fn next(&self, lifecycle: Lifecycle, agent: bool) -> Next {
        if self.closed.is_some() {
            return Next::Nothing;
        }
        if self.decisions.last() == Some(&Decision::Close) {
            return Next::Close(Outcome::Interrupted);
        }
        if self.interrupted.is_some() {
            return Next::Decide;
        }
        if self.result.is_some() {
            return Next::Close(self.outcome());
        }
        if self.refused.is_some() {
            return Next::Conclude;
        }
        let Some(submitted) = self.submitted else {
            return self.next_in_research(agent);
        };
        if self.gates.is_empty() {
            return Next::Gate;
        }
        if self.gates.iter().any(|(_, passed)| !passed) {
            return Next::Conclude;
        }
        let scored: &[Digest] = match (lifecycle, &self.selected) {
            (Lifecycle::Direct, _) => &[submitted],
            (Lifecycle::Replay, Some(selected)) => selected,
            (Lifecycle::Replay, None) if self.replayed() => return Next::Checkpoints,
            (Lifecycle::Replay, None) => return Next::Replay,
        };
        let open = scored.iter().find(|candidate| self.verdict(**candidate).is_none());
        open.map_or(Next::Conclude, |candidate| Next::Score(*candidate))
    }

    fn next_in_research(&self, agent: bool) -> Next {
        if !agent || self.chosen.is_some() {
            return Next::Seal;
        }
        if self.no_candidate.is_some() {
            return Next::Close(Outcome::NoCandidate);
        }
        if let Some(early) = self.captured {
            return Next::Close(if early { Outcome::NothingSubmitted } else { Outcome::DeadlinePassed });
        }
        match self.last(names::EXPLORE).and_then(|phase| phase.ended) {
            // The agent's own end, whatever it was, is the end of research.
            Some(end) if !matches!(end.reason, Reason::SupervisorLost | Reason::SetupFailed) => Next::Capture,
            _ => Next::Research,
        }
    }

    /// How a run with a result ends.
    fn outcome(&self) -> Outcome {
        match &self.result {
            Some((_, Some(_))) => Outcome::Scored,
            _ if self.refused.is_some() || self.gates.iter().any(|(_, passed)| !passed) => {
                Outcome::GateFailed
            }
            _ => Outcome::NothingValid,
        }
    }

    /// The time that research has left, in nanoseconds. Where validations do not count, the clock stands still while
    /// one is open.
    pub fn research_left_ns(&self, now_ns: u64, budget_ms: u64, validations_count: bool) -> u64 {
        let budget = budget_ms.saturating_mul(1_000_000);
        let Some(research) = &self.research else { return budget };
        let elapsed = research.spent_ns.saturating_add(now_ns.saturating_sub(research.boot_ns));
        let credit = if validations_count { 0 } else { self.validating_ns(research.boot_ns, now_ns) };
        budget.saturating_sub(elapsed.saturating_sub(credit))
    }

    /// How long at least one validation was open.
    fn validating_ns(&self, since_ns: u64, now_ns: u64) -> u64 {
        let (mut sum, mut covered) = (0, since_ns);
        for ticket in self.tickets.values() {
            let (begin, end) = (ticket.asked_ns.max(covered), ticket.ended_ns.unwrap_or(now_ns).min(now_ns));
            if end > begin {
                sum += end - begin;
                covered = end;
            }
        }
        sum
    }

    /// The number that the next phase gets.
    pub fn next_phase(&self) -> u32 {
        u32::try_from(self.phases.len()).unwrap_or(u32::MAX)
    }

    /// The number that the next validation gets.
    pub fn next_ticket(&self) -> u64 {
        self.tickets.keys().last().map_or(1, |last| last + 1)
    }

    /// Validations that are queued or running, in order.
    pub fn open_tickets(&self) -> impl Iterator<Item = (u64, &TicketRecord)> {
        self.tickets.iter().filter(|(_, record)| record.fate == Fate::Open).map(|(n, record)| (*n, record))
    }

    /// Phases without an end.
    pub fn unended(&self) -> impl Iterator<Item = (u32, &str)> {
        let numbered = (0..).zip(&self.phases);
        numbered.filter(|(_, phase)| phase.ended.is_none()).map(|(number, phase)| (number, &*phase.name))
    }

    /// The verdict on a final candidate.
    pub fn verdict(&self, candidate: Digest) -> Option<(Option<Score>, Counts)> {
        self.claims.iter().rfind(|claim| claim.candidate == candidate).and_then(|claim| claim.verdict)
    }

    /// How often a final scoring of this candidate could not be set up.
    pub fn failed_setups(&self, candidate: Digest) -> usize {
        let failed = |claim: &&Claim| {
            self.phase(claim.phase).is_some_and(|phase| !phase.void && phase.has_run_nothing())
        };
        self.claims.iter().filter(|claim| claim.candidate == candidate).filter(failed).count()
    }

    /// Selected checkpoints with their scores, for the choice of the best.
    pub fn scored_checkpoints(&self) -> Vec<(Digest, Checkpoint)> {
        let selected = self.selected.iter().flatten();
        let scored = selected.map(|digest| {
            let of = |record: &&CheckpointRecord| record.valid && record.digest == *digest;
            let progress = self.checkpoints.iter().filter(of).map(|record| record.progress).max();
            let score = self.verdict(*digest).and_then(|(score, _)| score);
            (*digest, Checkpoint { progress: progress.unwrap_or_default(), score })
        });
        scored.collect()
    }

    /// A phase by number.
    pub fn phase(&self, number: u32) -> Option<&PhaseState> {
        self.phases.get(usize::try_from(number).ok()?)
    }

    /// What was cut off by no doing of its own, and may not be done again without a word from an operator; none while
    /// one is waited for. To be asked while no phase runs.
    pub fn cut_off(&self, lifecycle: Lifecycle) -> Option<String> {
        let over = self.closed.is_some() || self.decisions.last() == Some(&Decision::Close);
        if over || self.interrupted.is_some() {
            return None;
        }
        let replay =
            self.last(names::REPLAY).filter(|_| lifecycle == Lifecycle::Replay && self.selected.is_none());
        if replay.is_some_and(PhaseState::is_lost) {
            return Some("the replay was cut off; a second one would be a second try".into());
        }
        let claim = self.claims.iter().rfind(|claim| claim.verdict.is_none())?;
        // The claim is in the journal before the phase is, so a claim without a phase has run nothing.
        let phase = self.phase(claim.phase).filter(|phase| !phase.void)?;
        (!phase.has_run_nothing())
            .then(|| format!("the final scoring of {} was cut off, and it is claimed once", claim.candidate))
    }

    fn last(&self, name: &str) -> Option<&PhaseState> {
        self.phases.iter().rfind(|phase| phase.name == name && !phase.void)
    }

    /// Whether the replay was run: it has an end of its own.
    fn replayed(&self) -> bool {
        let end = self.last(names::REPLAY).and_then(|phase| phase.ended);
        end.is_some_and(|end| {
            !matches!(end.reason, Reason::SetupFailed) || self.tries(names::REPLAY) >= TRIES
        })
    }

    /// How often a phase of this name was tried and could not be set up.
    pub fn tries(&self, name: &str) -> usize {
        let failed = |phase: &&PhaseState| phase.name == name && !phase.void && phase.has_run_nothing();
        self.phases.iter().filter(failed).count()
    }

    fn phase_mut(&mut self, number: u32) -> Option<&mut PhaseState> {
        self.phases.get_mut(usize::try_from(number).ok()?)
    }

    fn settle(&mut self, ticket: u64, record: &Record, fate: Fate) {
        if let Some(open) = self.tickets.get_mut(&ticket) {
            open.fate = fate;
            open.ended_ns = Some(record.boot_ns);
        }
    }

    fn decide(&mut self, decision: Decision, record: &Record) {
        self.decisions.push(decision);
        self.interrupted = None;
        if decision == Decision::Close {
            return;
        }
        let unanswered = self.claims.iter().filter(|claim| claim.verdict.is_none()).map(|claim| claim.phase);
        let unanswered: Vec<u32> = unanswered.collect();
        for (number, phase) in (0..).zip(&mut self.phases) {
            phase.void |= phase.is_lost() || phase.has_run_nothing() || unanswered.contains(&number);
        }
        if let Some(research) = self.research.as_ref().filter(|research| research.boot_id != record.boot_id) {
            let spent = research.spent_ns + (research.last_ns - research.boot_ns);
            self.research = Some(Research::begin(record, spent));
        }
    }
}

impl PhaseState {
    /// It ended with its supervisor, if at all.
    fn is_lost(&self) -> bool {
        self.ended.is_none_or(|end| end.reason == Reason::SupervisorLost)
    }

    /// Its sandbox could not be set up.
    fn has_run_nothing(&self) -> bool {
        self.ended.is_some_and(|end| end.reason == Reason::SetupFailed)
    }
}

impl Research {
    fn begin(record: &Record, spent_ns: u64) -> Research {
        let (boot_id, boot_ns) = (record.boot_id.clone(), record.boot_ns);
        Research { boot_id, boot_ns, last_ns: boot_ns, spent_ns }
    }
}

/// What phases are called in the journal.
pub(crate) mod names {
    pub(crate) const EXPLORE: &str = "explore";
    pub(crate) const GRADER: &str = "grader";
    pub(crate) const REPLAY: &str = "replay";
    pub(crate) const VALIDATE: &str = "validate";
    pub(crate) const CHECKPOINT: &str = "checkpoint";
    pub(crate) const SCORE: &str = "score";
    pub(crate) const CANDIDATE: &str = "candidate";
}

#[cfg(test)]
mod tests;
