//! Answering what the grader process asks for. It is untrusted: each act is checked against the run's own state.

use std::rc::Rc;
use std::time::Duration;

use super::candidate::{Found, gate_refusal, open_below, refusal};
use super::directory::read_file;
use super::error::{RunError, call};
use super::grader::{Grader, RunningGrader};
use super::research::Room;
use super::state::{Fate, TicketRecord, names};
use super::{Supervisor, verdict::Verdict};
use crate::Digest;
use crate::changeset::between;
use crate::journal::{Event, SealedFor};
use crate::protocol::link::{Act, Answer, Ask, Done};
use crate::protocol::messages::{
    self, Counts, Failure, Feedback, Finite, Item, Method, OpenTicket, Outcome, Phase, Queued, RunFacts,
    Status, Subset, TicketState, page,
};
use crate::protocol::names::{CandidateName, Label, Ticket};
use crate::protocol::refusal::{ErrorCode, Refusal};
use crate::task::{Lifecycle, PhaseName};

/// Most validations that are open at a time.
pub(crate) const OPEN_TICKETS: u32 = 64;
/// Most candidates that are being sealed at a time: each may be large.
const SEALING: usize = 4;
/// Candidates that a run may seal for validation: so many, and so many more for each second of research.
const SEALS: (u64, u64) = (256, 4);
/// First and longest pause before a grader process that ended is started again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

impl Supervisor {
    /// Answers acts while research lasts. A grader process that ends, or says anything but acts, is replaced.
    pub(crate) async fn attend(
        self: Rc<Self>,
        grader: Grader,
        first: RunningGrader,
        room: Rc<Room>,
    ) -> Result<(), RunError> {
        let (mut running, mut pause) = (first, PAUSES.0);
        loop {
            let mut answers = tokio::task::JoinSet::new();
            let why = loop {
                tokio::select! {
                    ask = running.acts.next() => match ask {
                        Ok(Some(ask)) => {
                            let (supervisor, room) = (Rc::clone(&self), Rc::clone(&room));
                            answers.spawn_local(async move { supervisor.answer(ask, &room).await });
                        }
                        Ok(None) => break "it has ended".to_owned(),
                        Err(error) => break error.to_string(),
                    },
                    () = room.over.notified() => return running.end(&self).await,
                    Some(answered) = answers.join_next() => match answered {
                        Ok(result) => result?,
                        Err(error) => return Err(call("answering")(std::io::Error::other(error))),
                    },
                }
            };
            tracing::warn!(why, "the grader process is started again");
            running.end(&self).await?;
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = room.over.notified() => return Ok(()),
            }
            pause = (pause * 2).min(PAUSES.1);
            running = grader.start(&self).await?;
        }
    }

    /// Answers one act. An error is the host's, and ends the supervisor; the caller is told that something failed.
    async fn answer(&self, ask: Ask, room: &Room) -> Result<(), RunError> {
        let answer = self.perform(ask.act(), room).await;
        let (answer, failed) = match answer {
            Ok(answer) => (answer, Ok(())),
            Err(error) if error.is_full() => (Err(ErrorCode::NoSpace.into()), Ok(())),
            Err(error) => (Err(ErrorCode::Internal.into()), Err(error)),
        };
        let choice = matches!(ask.act(), Act::Submit { .. } | Act::NoCandidate { .. }) && answer.is_ok();
        // A grader that does not take its answer is replaced when its next act comes to nothing.
        let _ = ask.answer(answer).await;
        if choice {
            room.chosen.notify_one();
        }
        failed
    }

    async fn perform(&self, act: &Act, room: &Room) -> Result<Answer, RunError> {
        let research = || match (self.in_research(), self.research_left()) {
            (false, _) => Err(Refusal::from(ErrorCode::AlreadyEnded)),
            (true, Duration::ZERO) => Err(ErrorCode::BudgetEnded.into()),
            (true, _) => Ok(()),
        };
        match act {
            Act::Facts => Ok(self.facts().map(Done::Facts)),
            Act::Status => Ok(Ok(Done::Status(self.status()))),
            Act::Outcome { ticket, from } => self.outcome(*ticket, *from),
            Act::Seal { candidate } => match research().and_then(|()| self.can_validate()) {
                Ok(()) => self.seal_for_validation(candidate, room).await,
                Err(refusal) => Ok(Err(refusal)),
            },
            Act::QueueValidation { candidate, items } => {
                match research().and_then(|()| self.can_validate()) {
                    Ok(()) => self.queue(*candidate, items.as_ref(), room).await,
                    Err(refusal) => Ok(Err(refusal)),
                }
            }
            Act::CancelValidation { ticket } => self.cancel(*ticket, room),
            Act::Submit { candidate } => match research().and_then(|()| self.is_there(candidate)) {
                Ok(()) => {
                    self.append(Event::Chosen { name: candidate.as_str().to_owned() })?;
                    Ok(Ok(Done::Accepted))
                }
                Err(refusal) => Ok(Err(refusal)),
            },
            Act::NoCandidate { reason } => match research() {
                Ok(()) => {
                    self.append(Event::NoCandidate { reason: reason.as_str().to_owned() })?;
                    Ok(Ok(Done::Accepted))
                }
                Err(refusal) => Ok(Err(refusal)),
            },
        }
    }

    /// Whether there is a directory of this name, so that a slip of the pen does not end research.
    fn is_there(&self, candidate: &CandidateName) -> Result<(), Refusal> {
        match open_below(&self.directory.join("work/workspace"), candidate.as_str()) {
            Ok(_) => Ok(()),
            Err(error) => Err(refusal(&error).unwrap_or_else(|| ErrorCode::Internal.into())),
        }
    }

    fn facts(&self) -> Result<RunFacts, Refusal> {
        let label = |text: &str| text.parse::<Label>().map_err(|_| Refusal::from(ErrorCode::Internal));
        let mut methods = vec![Method::Hello, Method::Status];
        if self.can_validate().is_ok() {
            methods.extend([Method::Validate, Method::Result, Method::Cancel]);
        }
        methods.extend([Method::Submit, Method::NoCandidate]);
        Ok(RunFacts {
            run: label(&self.manifest.run_id)?,
            task: label(&self.task.id)?,
            phase: self.protocol_phase(),
            methods,
            budget_ms: self.manifest.budget.explore_ms,
            open_tickets: OPEN_TICKETS,
        })
    }

    fn protocol_phase(&self) -> Phase {
        match self.task.lifecycle {
            _ if !self.in_research() => Phase::Ended,
            Lifecycle::Replay => Phase::Explore,
            Lifecycle::Direct => Phase::Research,
        }
    }

    fn can_validate(&self) -> Result<(), Refusal> {
        let can = self.task.phases.contains_key(&PhaseName::Validate) && self.task.proxy.is_some();
        if can { Ok(()) } else { Err(ErrorCode::WrongPhase.into()) }
    }

    fn status(&self) -> Status {
        let remaining = self.research_left();
        let budget = Duration::from_millis(self.manifest.budget.explore_ms);
        let state = self.state();
        let open = state.open_tickets().map(|(number, record)| OpenTicket {
            ticket: ticket(number),
            candidate: record.candidate,
            state: self.ticket_state(number, record),
        });
        Status {
            phase: self.protocol_phase(),
            elapsed_ms: millis(budget.saturating_sub(remaining)),
            remaining_ms: millis(remaining),
            validations: u32::try_from(state.tickets.len()).unwrap_or(u32::MAX),
            open: open.collect(),
        }
    }

    fn ticket_state(&self, number: u64, record: &TicketRecord) -> TicketState {
        match &record.fate {
            Fate::Open if self.is_running(number) => TicketState::Running,
            Fate::Open => TicketState::Queued,
            Fate::Graded { .. } => TicketState::Done,
            Fate::Failed(_) => TicketState::Failed,
            Fate::Cancelled => TicketState::Cancelled,
        }
    }

    async fn seal_for_validation(&self, name: &CandidateName, room: &Room) -> Result<Answer, RunError> {
        if room.sealing.get() >= SEALING || !self.may_grow(self.state().sealed_for_validation) {
            return Ok(Err(ErrorCode::QueueFull.into()));
        }
        if self.directory.check_room().is_err() {
            return Ok(Err(ErrorCode::NoSpace.into()));
        }
        room.sealing.set(room.sealing.get() + 1);
        let sealed = self.seal_checked(name).await;
        room.sealing.set(room.sealing.get() - 1);
        Ok(match sealed? {
            Ok(candidate) => {
                room.sealed.borrow_mut().insert(candidate);
                Ok(Done::Sealed { candidate })
            }
            Err(refusal) => Err(refusal),
        })
    }

    /// A run keeps everything that it seals and journals, so that there is an end to how fast that may grow.
    fn may_grow(&self, so_far: u64) -> bool {
        let budget = Duration::from_millis(self.manifest.budget.explore_ms);
        let seconds = budget.saturating_sub(self.research_left()).as_secs();
        so_far < SEALS.0.saturating_add(seconds.saturating_mul(SEALS.1))
    }

    /// Seals a candidate and asks the gates, except for what is hidden: that would be an oracle.
    async fn seal_checked(&self, name: &CandidateName) -> Result<Result<Digest, Refusal>, RunError> {
        let base = self.candidates();
        let found = self.seal_tree(base, name.as_str().to_owned(), SealedFor::Validation).await?;
        let sealed = match found {
            Found::Sealed(sealed) => sealed,
            Found::Refused(refusal, _) => return Ok(Err(refusal)),
        };
        let candidate = sealed.digest();
        let refusals = match self.task.lifecycle {
            Lifecycle::Replay => self.artifact_refusals(sealed.into()).await?,
            Lifecycle::Direct => {
                let changes = between(&self.frozen, &sealed);
                self.refusals(changes, Some(sealed), false).await?
            }
        };
        Ok(match refusals.first() {
            Some(first) => Err(gate_refusal(first)),
            None => Ok(candidate),
        })
    }

    async fn queue(
        &self,
        candidate: Digest,
        items: Option<&Subset>,
        room: &Room,
    ) -> Result<Answer, RunError> {
        if !room.sealed.borrow().contains(&candidate) {
            return Ok(Err(ErrorCode::InvalidParams.into()));
        }
        let items: Option<Vec<String>> =
            items.map(|subset| subset.items().iter().map(|item| item.as_str().to_owned()).collect());
        if self.manifest.task.proxy_metric(items.as_deref()).is_none() {
            return Ok(Err(ErrorCode::InvalidParams.into()));
        }
        let Some(_standing) = room.stillness.stop().await else {
            return Ok(Err(ErrorCode::Internal.into()));
        };
        // It has taken a moment.
        if !self.in_research() {
            return Ok(Err(ErrorCode::AlreadyEnded.into()));
        }
        let ahead = u32::try_from(self.state().open_tickets().count()).unwrap_or(u32::MAX);
        if ahead >= OPEN_TICKETS || !self.may_grow(self.state().tickets.len() as u64) {
            return Ok(Err(ErrorCode::QueueFull.into()));
        }
        let number = self.state().next_ticket();
        self.append(Event::ValidationRequested { ticket: number, candidate, items })?;
        room.queue.notify_waiters();
        Ok(Ok(Done::Queued(Queued { ticket: ticket(number), candidate, ahead })))
    }

    fn cancel(&self, asked: Ticket, room: &Room) -> Result<Answer, RunError> {
        let number = u64::from(asked.0);
        let fate = self.state().tickets.get(&number).map(|record| record.fate.clone());
        match fate {
            None => Ok(Err(ErrorCode::UnknownTicket.into())),
            Some(Fate::Open) if !self.is_running(number) => {
                self.append(Event::ValidationCancelled { ticket: number })?;
                room.stillness.look();
                room.queue.notify_waiters();
                Ok(Ok(Done::Cancelled))
            }
            Some(_) => Ok(Err(ErrorCode::NotQueued.into())),
        }
    }

    fn outcome(&self, asked: Ticket, from: u32) -> Result<Answer, RunError> {
        let number = u64::from(asked.0);
        let Some(record) = self.state().tickets.get(&number).cloned() else {
            return Ok(Err(ErrorCode::UnknownTicket.into()));
        };
        let mut outcome = Outcome {
            ticket: asked,
            candidate: record.candidate,
            subset: record.items.is_some(),
            state: self.ticket_state(number, &record),
            failure: None,
            feedback: None,
        };
        match &record.fate {
            Fate::Failed(cause) => outcome.failure = Some(failure(cause)),
            Fate::Graded { phase, score, counts } => {
                let path = self.directory.phase(*phase, names::VALIDATE).join("verdict.json");
                let verdict = Verdict::parse(&read_file(&path)?)
                    .map_err(|error| RunError::Manifest { path: path.clone(), why: error.to_string() })?;
                let items = items(&verdict);
                let (items, next) = page(&items, from);
                let value = score.map(crate::score::Score::value).unwrap_or_default();
                let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
                outcome.feedback = Some(Feedback {
                    score: Finite::try_from(value).unwrap_or_default(),
                    counts: Counts {
                        planned: number(counts.planned),
                        graded: number(counts.graded()),
                        errored: number(counts.errored()),
                    },
                    items,
                    next,
                    trajectories: self.has_feedback(asked).then(|| asked.to_string().parse().ok()).flatten(),
                });
            }
            Fate::Open | Fate::Cancelled => {}
        }
        Ok(Ok(Done::Outcome(outcome)))
    }

    fn has_feedback(&self, ticket: Ticket) -> bool {
        self.directory.join("feedback").join(ticket.to_string()).is_dir()
    }
}

/// A verdict's items as research sees them.
fn items(verdict: &Verdict) -> Vec<Item> {
    let attempt = |attempt: &crate::score::Attempt| messages::Attempt {
        status: attempt.status,
        score: Finite::try_from(attempt.score.to_f64()).unwrap_or_default(),
        wall_ms: attempt.wall_ms,
    };
    let item = |result: &crate::score::ItemResult| {
        Some(Item { item: result.id.parse().ok()?, attempts: result.attempts.iter().map(attempt).collect() })
    };
    verdict.items.iter().filter_map(item).collect()
}

/// The kind of a failure, from the words that [`super::validation`] journals.
fn failure(cause: &str) -> Failure {
    match cause {
        super::validation::TIMEOUT => Failure::Timeout,
        super::validation::NO_VERDICT => Failure::NoVerdict,
        _ => Failure::Infra,
    }
}

fn ticket(number: u64) -> Ticket {
    Ticket(u32::try_from(number).unwrap_or(u32::MAX))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
