//! The journal: what happened in a run, in order, and nothing else.
//!
//! `RUN/journal.jsonl` holds one [`Record`] per line. Each names the digest of the line before, so that a line
//! cannot be changed, dropped or moved without the next one showing it; the receipt binds the last. An
//! event is acknowledged when [`Journal::append`] returns: its line is on the disk then. FORMATS.md has the
//! format to the byte.

mod canonical;
mod clock;
mod damage;
mod event;
mod reader;
mod record;
mod reserve;
mod writer;

pub use canonical::{CanonicalError, canonical};
pub use clock::Moment;
pub use damage::{Damage, DamageKind};
pub use event::{CandidateKind, Decision, Event, Outcome, SealedFor};
pub use reader::{peek, verify};
pub use record::{Genesis, Head, Record};
pub use writer::{Journal, JournalError, Opened};
