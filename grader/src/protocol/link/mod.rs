//! The supervisor link: what the grader process asks of the supervisor, over a socket pair.
//!
//! The grader's side is a [`Link`], which is also a [`Backend`](super::server::Backend); the supervisor's are
//! [`Acts`]. One JSON object per line, strictly decoded and capped in both directions. A side that gets
//! anything else, or waits too long for the rest of a line, lets go of the link. Acts are numbered, and answers
//! come in any order: a tree is sealed while the time is asked for.

mod acts;
mod ask;
mod outbox;

pub use acts::{Acts, Ask};
pub use ask::Link;

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::codec::NotStrict;
use super::messages::{Outcome, Queued, RunFacts, Status, Subset};
use super::names::{CandidateName, Reason, Ticket};
use super::refusal::Refusal;
use super::wire::ReadError;
use super::{REPLY_CAP, REQUEST_CAP};
use crate::Digest;

/// Longest act in bytes: a request in other words.
const ACT_CAP: usize = REQUEST_CAP + 4096;

/// Longest answer in bytes.
const ANSWER_CAP: usize = REPLY_CAP;

/// Acts that are not answered yet, at most.
const UNANSWERED: usize = 64;

/// A privileged act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// Tell the run's facts: [`Done::Facts`].
    Facts,
    /// Tell time and open tickets: [`Done::Status`].
    Status,
    /// Copy a candidate into the store: [`Done::Sealed`].
    Seal {
        /// Where it lies.
        candidate: CandidateName,
    },
    /// Journal a validation and queue it: [`Done::Queued`].
    QueueValidation {
        /// The sealed candidate.
        candidate: Digest,
        /// Only these items.
        items: Option<Subset>,
    },
    /// Journal that a queued validation is dropped: [`Done::Cancelled`].
    CancelValidation {
        /// The validation.
        ticket: Ticket,
    },
    /// Tell the state of a validation and one page of its outcome: [`Done::Outcome`].
    Outcome {
        /// The validation.
        ticket: Ticket,
        /// Number of the page's first item.
        from: u32,
    },
    /// Journal the final choice: [`Done::Accepted`].
    Submit {
        /// Where it lies.
        candidate: CandidateName,
    },
    /// Journal that there is no candidate: [`Done::Accepted`].
    NoCandidate {
        /// Why.
        reason: Reason,
    },
}

/// An act that was performed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Done {
    /// The run's facts.
    Facts(RunFacts),
    /// Time and open tickets.
    Status(Status),
    /// A candidate is in the store.
    Sealed {
        /// Its digest.
        candidate: Digest,
    },
    /// A validation is queued.
    Queued(Queued),
    /// A validation is dropped.
    Cancelled,
    /// State and outcome of a validation.
    Outcome(Outcome),
    /// The run has its end in the journal.
    Accepted,
}

/// What the supervisor answers.
pub type Answer = Result<Done, Refusal>;

/// Bounds on how long the other side is waited for.
#[derive(Clone, Debug)]
pub struct LinkLimits {
    /// For an answer.
    pub act: Duration,
    /// For an answer to [`Act::Seal`].
    pub seal: Duration,
    /// From the first byte of a line to its newline.
    pub line: Duration,
    /// For a line to be taken.
    pub write: Duration,
}

impl Default for LinkLimits {
    fn default() -> LinkLimits {
        LinkLimits {
            act: Duration::from_secs(25),
            seal: Duration::from_secs(1770),
            line: Duration::from_secs(10),
            write: Duration::from_secs(10),
        }
    }
}

/// Why the link is of no use any more.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The socket failed, or the other side did not take or send a whole line in time.
    #[error("the supervisor link: {0}")]
    Io(#[from] io::Error),
    /// What came is no message.
    #[error("the supervisor link: {0}")]
    Malformed(#[from] NotStrict),
    /// A message that would be too long.
    #[error("the supervisor link: a message of {0} bytes")]
    TooLong(usize),
    /// The other side does not take messages any more.
    #[error("the supervisor link: broken")]
    Broken,
}

impl From<ReadError> for LinkError {
    fn from(error: ReadError) -> LinkError {
        match error {
            ReadError::Io(error) => LinkError::Io(error),
            ReadError::LineTimeout | ReadError::Idle => LinkError::Io(io::ErrorKind::TimedOut.into()),
            other => LinkError::Io(io::Error::other(other.to_string())),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ActMessage {
    id: u64,
    act: Act,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswerMessage {
    id: u64,
    answer: Answered,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answered {
    Done(Done),
    Refused(Refusal),
}
