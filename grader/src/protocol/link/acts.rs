//! The supervisor's side.

use std::os::unix::net;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::outbox::Outbox;
use super::{
    ACT_CAP, ANSWER_CAP, Act, ActMessage, Answer, AnswerMessage, Answered, LinkError, LinkLimits, UNANSWERED,
};
use crate::protocol::codec::from_line;
use crate::protocol::wire::{Reader, Wire};

/// The acts that the grader asks for, one after the other.
///
/// The grader is the one process that untrusted bytes reach. It gets answers and nothing else, and when it
/// says anything but acts, [`Acts::next`] is an error and it has to go.
pub struct Acts {
    reader: Reader,
    answers: Outbox,
    unanswered: Arc<Semaphore>,
    place: Option<OwnedSemaphorePermit>,
}

/// An act that waits for its answer. Dropped without one, it times out on the grader's side.
pub struct Ask {
    id: u64,
    act: Act,
    answers: Outbox,
    _place: Option<OwnedSemaphorePermit>,
}

impl Acts {
    /// The supervisor's end of the socket pair. Needs a tokio runtime with I/O and time.
    pub fn new(stream: net::UnixStream, limits: LinkLimits) -> Result<Acts, LinkError> {
        let wire = Arc::new(Wire::of_pair(stream)?);
        Ok(Acts {
            reader: Reader::new(Arc::clone(&wire), ACT_CAP, limits.line),
            answers: Outbox::start(wire, ANSWER_CAP, limits.write),
            unanswered: Arc::new(Semaphore::new(UNANSWERED)),
            place: None,
        })
    }

    /// The next act, or `None` when the grader has ended. Waits while too many are not answered.
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Result<Option<Ask>, LinkError> {
        if self.place.is_none() {
            self.place = Arc::clone(&self.unanswered).acquire_owned().await.ok();
        }
        let Some(line) = self.reader.line(None).await? else {
            return Ok(None);
        };
        let ActMessage { id, act } = from_line(&line)?;
        Ok(Some(Ask { id, act, answers: self.answers.clone(), _place: self.place.take() }))
    }
}

impl Ask {
    /// What is asked for.
    pub fn act(&self) -> &Act {
        &self.act
    }

    /// Answers it. The answer is on its way when this is done.
    pub async fn answer(self, answer: Answer) -> Result<(), LinkError> {
        let answer = answer.map_or_else(Answered::Refused, Answered::Done);
        self.answers.send(&AnswerMessage { id: self.id, answer }).await
    }
}
