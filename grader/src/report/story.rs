//! What the journal tells, put together by validation, candidate and phase.

use std::collections::BTreeMap;

use crate::Digest;
use crate::journal::{CandidateKind, Decision, Event, Outcome, Record, SealedFor};
use crate::score::{Counts, Score};
use crate::task::PhaseName;

/// A run, from its events.
#[derive(Default)]
pub(super) struct Story<'a> {
    /// None before the first phase called `explore`.
    pub(super) research: Option<Research<'a>>,
    /// By ticket.
    pub(super) validations: Vec<Validation<'a>>,
    /// What lies in the store, and what of it became of the replay; in the order of the journal.
    pub(super) sealed: Vec<Sealed>,
    /// What could be scored or was, in the order of the journal.
    pub(super) candidates: Vec<Candidate<'a>>,
    pub(super) gates: Vec<Gate<'a>>,
    /// By number.
    pub(super) phases: BTreeMap<u32, Phase<'a>>,
    /// Why the choice could not be sealed or compared.
    pub(super) refused: Option<&'a str>,
    /// The result, if there is one.
    pub(super) result: Option<Option<Digest>>,
    pub(super) state: State<'a>,
    /// How often an operator had something done once more that had been interrupted.
    pub(super) again: u64,
}

/// Where a run stands.
#[derive(Clone, Copy, Default)]
pub(super) enum State<'a> {
    /// Nothing has happened, or the phases that were begun are over.
    #[default]
    Between,
    /// A phase runs, or ran when the last line was written.
    In(&'a str),
    /// An operator must decide.
    Interrupted(&'a str),
    /// Over.
    Closed(Outcome),
}

/// The phase in which the agent works.
pub(super) struct Research<'a> {
    pub(super) started: &'a Record,
    pub(super) deadline_ns: Option<u64>,
    pub(super) ended: Option<(&'a Record, Choice<'a>)>,
    /// The last end of its sandbox, which is started anew after a crash of the supervisor.
    over: Option<&'a Record>,
}

/// How research ended.
#[derive(Clone, Copy)]
pub(super) enum Choice<'a> {
    /// The sealed copy, once there is one.
    Submitted(Option<Digest>),
    /// Untrusted: the agent's words.
    None(&'a str),
    /// What lay there at the deadline.
    Deadline(Option<Digest>),
    /// The agent ended without a word; what lay there.
    Nothing(Option<Digest>),
}

/// A ticket.
pub(super) struct Validation<'a> {
    pub(super) ticket: u64,
    pub(super) candidate: Digest,
    /// How many items it is over, where not over all.
    pub(super) subset: Option<usize>,
    pub(super) requested: &'a Record,
    pub(super) ended: Option<(&'a Record, Graded<'a>)>,
}

/// What became of a ticket.
#[derive(Clone, Copy)]
pub(super) enum Graded<'a> {
    Scored { phase: u32, score: Option<Score>, counts: Counts },
    Failed(&'a str),
    Cancelled,
}

/// A sealed copy.
pub(super) struct Sealed {
    pub(super) candidate: Digest,
    pub(super) kind: CandidateKind,
    pub(super) sealed_for: SealedFor,
    pub(super) files: u64,
    pub(super) bytes: u64,
}

/// What was scored, or looked at for it.
pub(super) struct Candidate<'a> {
    pub(super) digest: Digest,
    /// None for what is scored itself, not by its replay.
    pub(super) checkpoint: Option<Checkpoint<'a>>,
    /// The scoring that was claimed.
    pub(super) claimed: Option<u32>,
    /// It is not among the checkpoints that are scored.
    pub(super) passed_over: bool,
    pub(super) verdict: Option<(Option<Score>, Counts)>,
}

/// A checkpoint of the replay.
pub(super) struct Checkpoint<'a> {
    /// Untrusted: its directory's name.
    pub(super) name: &'a str,
    pub(super) progress: u64,
    pub(super) valid: bool,
}

/// What a gate said.
pub(super) struct Gate<'a> {
    pub(super) gate: &'a str,
    pub(super) candidate: Digest,
    pub(super) passed: bool,
    pub(super) report: Digest,
}

/// A phase as the journal has it.
pub(super) struct Phase<'a> {
    pub(super) name: &'a str,
    pub(super) over: bool,
}

impl Candidate<'_> {
    /// Untrusted: what it is called.
    pub(super) fn name(&self, story: &Story<'_>) -> &str {
        let baseline =
            || story.sealed(&self.digest).is_some_and(|found| found.sealed_for == SealedFor::Baseline);
        match &self.checkpoint {
            Some(checkpoint) => checkpoint.name,
            None if baseline() => "baseline",
            None => "submission",
        }
    }
}

impl Research<'_> {
    /// Nanoseconds from its start; none in another boot, whose clock tells nothing of this one's.
    pub(super) fn elapsed(&self, record: &Record) -> Option<u64> {
        (record.boot_id == self.started.boot_id).then(|| record.boot_ns.saturating_sub(self.started.boot_ns))
    }
}

impl<'a> Story<'a> {
    pub(super) fn new(records: &'a [Record]) -> Story<'a> {
        let mut story = Story::default();
        for record in records {
            story.happens(record);
        }
        story
    }

    /// The last time that it was sealed.
    pub(super) fn sealed(&self, candidate: &Digest) -> Option<&Sealed> {
        self.sealed.iter().rev().find(|sealed| sealed.candidate == *candidate)
    }

    fn happens(&mut self, record: &'a Record) {
        match &record.event {
            Event::RunCreated { .. } | Event::Resumed {} | Event::Recovered { .. } => {}
            Event::PhaseStarted { phase, name, deadline_ns, .. } => {
                self.phases.insert(*phase, Phase { name, over: false });
                self.state = State::In(name);
                if name == PhaseName::Explore.word() && self.research.is_none() {
                    self.research = Some(Research {
                        started: record,
                        deadline_ns: *deadline_ns,
                        ended: None,
                        over: None,
                    });
                }
            }
            Event::PhaseEnded { phase, .. } => {
                if let Some(phase) = self.phases.get_mut(phase) {
                    phase.over = true;
                    if let Some(research) =
                        self.research.as_mut().filter(|_| phase.name == PhaseName::Explore.word())
                    {
                        research.over = Some(record);
                    }
                }
                let running = self.phases.values().rev().find(|phase| !phase.over);
                self.state = running.map_or(State::Between, |phase| State::In(phase.name));
            }
            Event::CandidateSealed { candidate, kind, sealed_for, files, bytes } => {
                self.sealed.push(Sealed {
                    candidate: *candidate,
                    kind: *kind,
                    sealed_for: *sealed_for,
                    files: *files,
                    bytes: *bytes,
                });
            }
            Event::ValidationRequested { ticket, candidate, items } => self.validations.push(Validation {
                ticket: *ticket,
                candidate: *candidate,
                subset: items.as_ref().map(Vec::len),
                requested: record,
                ended: None,
            }),
            Event::ValidationCancelled { ticket } => self.graded(*ticket, record, Graded::Cancelled),
            Event::ValidationResult { ticket, phase, score, counts, .. } => {
                let graded = Graded::Scored { phase: *phase, score: *score, counts: *counts };
                self.graded(*ticket, record, graded);
            }
            Event::ValidationFailed { ticket, cause, .. } => {
                self.graded(*ticket, record, Graded::Failed(cause));
            }
            Event::Chosen { .. } => self.chosen(record, Choice::Submitted(None)),
            Event::Submitted { candidate } => {
                self.chosen(record, Choice::Submitted(None));
                if let Some((_, Choice::Submitted(sealed))) =
                    self.research.as_mut().and_then(|research| research.ended.as_mut())
                {
                    *sealed = Some(*candidate);
                }
            }
            Event::NoCandidate { reason } => self.chosen(record, Choice::None(reason)),
            Event::ChoiceRefused { cause } => self.refused = Some(cause),
            Event::DeadlineCapture { candidate, early } => {
                let choice = if *early { Choice::Nothing(*candidate) } else { Choice::Deadline(*candidate) };
                // It was captured after research had ended.
                let over = self.research.as_ref().and_then(|research| research.over);
                self.chosen(over.unwrap_or(record), choice);
            }
            Event::GateResult { gate, candidate, passed, report } => {
                self.gates.push(Gate { gate, candidate: *candidate, passed: *passed, report: *report });
            }
            Event::CheckpointValidated { checkpoint, name, progress, valid } => {
                self.candidates.push(Candidate {
                    digest: *checkpoint,
                    checkpoint: Some(Checkpoint { name, progress: *progress, valid: *valid }),
                    claimed: None,
                    passed_over: false,
                    verdict: None,
                });
            }
            Event::FinalClaimed { candidate, phase } => {
                self.candidate(candidate, |found| found.claimed = Some(*phase));
            }
            Event::Verdict { candidate, score, counts, .. } => {
                self.candidate(candidate, |found| found.verdict = Some((*score, *counts)));
            }
            Event::CheckpointsSelected { checkpoints } => {
                for candidate in &mut self.candidates {
                    candidate.passed_over =
                        candidate.checkpoint.is_some() && !checkpoints.contains(&candidate.digest);
                }
            }
            Event::Scored { candidate, .. } => self.result = Some(*candidate),
            Event::Interrupted { cause } => self.state = State::Interrupted(cause),
            Event::Decided { decision } => {
                self.state = State::Between;
                self.again += u64::from(*decision == Decision::Again);
            }
            Event::Closed { outcome } => {
                self.state = State::Closed(*outcome);
                let over = self.research.as_ref().and_then(|research| research.over);
                if let (Outcome::NothingSubmitted, Some(over)) = (outcome, over) {
                    self.chosen(over, Choice::Nothing(None));
                }
            }
        }
    }

    fn graded(&mut self, ticket: u64, record: &'a Record, graded: Graded<'a>) {
        if let Some(found) = self.validations.iter_mut().rev().find(|found| found.ticket == ticket) {
            found.ended = Some((record, graded));
        }
    }

    fn chosen(&mut self, record: &'a Record, choice: Choice<'a>) {
        if let Some(research) = &mut self.research {
            research.ended.get_or_insert((record, choice));
        }
    }

    /// Checkpoints of the same bytes are one candidate, so all of that name.
    fn candidate(&mut self, digest: &Digest, change: impl Fn(&mut Candidate<'a>)) {
        if !self.candidates.iter().any(|found| found.digest == *digest) {
            self.candidates.push(Candidate {
                digest: *digest,
                checkpoint: None,
                claimed: None,
                passed_over: false,
                verdict: None,
            });
        }
        self.candidates.iter_mut().filter(|found| found.digest == *digest).for_each(change);
    }
}
