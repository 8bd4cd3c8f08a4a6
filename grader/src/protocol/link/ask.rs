//! The grader's side.

use std::collections::HashMap;
use std::os::unix::net;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::outbox::Outbox;
use super::{
    ACT_CAP, ANSWER_CAP, Act, ActMessage, Answer, AnswerMessage, Answered, Done, LinkError, LinkLimits,
};
use crate::protocol::codec::from_line;
use crate::protocol::messages::{
    Cancel, NoCandidate, Outcome, Queued, ResultOf, RunFacts, Status, Submit, Validate,
};
use crate::protocol::refusal::{ErrorCode, Refusal};
use crate::protocol::server::Backend;
use crate::protocol::wire::{Reader, Wire};

/// Asks the supervisor.
pub struct Link {
    acts: Outbox,
    limits: LinkLimits,
    waiting: Arc<Waiting>,
    broken: watch::Receiver<bool>,
    /// Reads the answers; ends with the link.
    _answers: JoinSet<()>,
}

/// Those who wait for an answer.
#[derive(Default)]
struct Waiting(Mutex<Asked>);

#[derive(Default)]
struct Asked {
    last: u64,
    answers: HashMap<u64, oneshot::Sender<Answer>>,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who waits, until the drop.
struct Place<'a> {
    waiting: &'a Waiting,
    id: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.waiting.lock().answers.remove(&self.id);
    }
}

impl Link {
    /// The grader's end of the socket pair. To be called within a tokio runtime with I/O and time.
    pub fn start(stream: net::UnixStream, limits: LinkLimits) -> Result<Link, LinkError> {
        let wire = Arc::new(Wire::of_pair(stream)?);
        let mut reader = Reader::new(Arc::clone(&wire), ANSWER_CAP, limits.line);
        let waiting = Arc::new(Waiting::default());
        let (broke, broken) = watch::channel(false);
        let mut answers = JoinSet::new();
        let asked = Arc::clone(&waiting);
        answers.spawn(async move {
            if let Err(error) = take_answers(&mut reader, &asked).await {
                tracing::error!(%error, "the supervisor is lost");
            }
            broke.send_replace(true);
            // Nobody waits in vain.
            asked.lock().answers.clear();
        });
        let acts = Outbox::start(wire, ACT_CAP, limits.write);
        Ok(Link { acts, limits, waiting, broken, _answers: answers })
    }

    /// Ends when the link does: without a supervisor there is nothing left to do.
    pub fn broken(&self) -> impl Future<Output = ()> + use<> {
        let mut broken = self.broken.clone();
        async move {
            let _ = broken.wait_for(|broken| *broken).await;
        }
    }

    /// Asks for an act and waits for its answer.
    pub async fn ask(&self, act: Act) -> Answer {
        let within = if matches!(act, Act::Seal { .. }) { self.limits.seal } else { self.limits.act };
        let asked = timeout(within, self.send_and_wait(act)).await;
        asked.unwrap_or_else(|_| Err(ErrorCode::Deadline.into()))
    }

    async fn send_and_wait(&self, act: Act) -> Answer {
        let lost = |error: LinkError| {
            tracing::error!(%error, "asking the supervisor");
            Refusal::from(ErrorCode::Internal)
        };
        let (answer, answered) = oneshot::channel();
        let id = {
            let mut asked = self.waiting.lock();
            asked.last += 1;
            let id = asked.last;
            asked.answers.insert(id, answer);
            id
        };
        let _place = Place { waiting: &self.waiting, id };
        if *self.broken.borrow() {
            return Err(ErrorCode::Internal.into());
        }
        self.acts.send(&ActMessage { id, act }).await.map_err(lost)?;
        answered.await.unwrap_or_else(|_| Err(ErrorCode::Internal.into()))
    }
}

async fn take_answers(reader: &mut Reader, waiting: &Waiting) -> Result<(), LinkError> {
    while let Some(line) = reader.line(None).await? {
        let AnswerMessage { id, answer } = from_line(&line)?;
        let waits = waiting.lock().answers.remove(&id);
        // Who asked may have gone.
        if let Some(waits) = waits {
            let _ = waits.send(match answer {
                Answered::Done(done) => Ok(done),
                Answered::Refused(refusal) => Err(refusal),
            });
        }
    }
    Ok(())
}

/// Another kind of answer than the act has: the supervisor's mistake.
fn mistaken<T>(other: &Done) -> Result<T, Refusal> {
    tracing::error!(?other, "the supervisor answered something else");
    Err(ErrorCode::Internal.into())
}

impl Backend for Link {
    async fn hello(&self) -> Result<RunFacts, Refusal> {
        match self.ask(Act::Facts).await? {
            Done::Facts(facts) => Ok(facts),
            other => mistaken(&other),
        }
    }

    async fn status(&self) -> Result<Status, Refusal> {
        match self.ask(Act::Status).await? {
            Done::Status(status) => Ok(status),
            other => mistaken(&other),
        }
    }

    async fn validate(&self, request: Validate) -> Result<Queued, Refusal> {
        let candidate = match self.ask(Act::Seal { candidate: request.candidate }).await? {
            Done::Sealed { candidate } => candidate,
            other => return mistaken(&other),
        };
        match self.ask(Act::QueueValidation { candidate, items: request.items }).await? {
            Done::Queued(queued) => Ok(queued),
            other => mistaken(&other),
        }
    }

    async fn result(&self, request: ResultOf) -> Result<Outcome, Refusal> {
        match self.ask(Act::Outcome { ticket: request.ticket, from: request.from }).await? {
            Done::Outcome(outcome) => Ok(outcome),
            other => mistaken(&other),
        }
    }

    async fn cancel(&self, request: Cancel) -> Result<(), Refusal> {
        match self.ask(Act::CancelValidation { ticket: request.ticket }).await? {
            Done::Cancelled => Ok(()),
            other => mistaken(&other),
        }
    }

    async fn submit(&self, request: Submit) -> Result<(), Refusal> {
        match self.ask(Act::Submit { candidate: request.candidate }).await? {
            Done::Accepted => Ok(()),
            other => mistaken(&other),
        }
    }

    async fn no_candidate(&self, request: NoCandidate) -> Result<(), Refusal> {
        match self.ask(Act::NoCandidate { reason: request.reason }).await? {
            Done::Accepted => Ok(()),
            other => mistaken(&other),
        }
    }
}
