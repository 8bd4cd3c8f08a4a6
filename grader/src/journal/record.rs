//! A line of the journal, and what a journal hangs on at both ends.

use serde::{Deserialize, Serialize};

use super::{CanonicalError, Event, Moment, canonical};
use crate::Digest;

/// Longest line, its newline included, in bytes.
pub(super) const MAX_LINE: usize = 256 << 10;

/// What the first line's `prev` binds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Genesis {
    /// The run's name.
    pub run_id: String,
    /// Of `run.json`.
    pub run: Digest,
}

/// Where a journal ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Its lines.
    pub lines: u64,
    /// Its length.
    pub bytes: u64,
    /// Of its last line with the newline; of the genesis if it has none.
    pub digest: Digest,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Counted from zero.
    pub seq: u64,
    /// Of the line before, with its newline; of the genesis in the first.
    pub prev: Digest,
    /// The boot during which it was written.
    pub boot_id: String,
    /// `CLOCK_BOOTTIME` when it was written, in nanoseconds; never less than in an earlier line of this boot.
    pub boot_ns: u64,
    /// Wall-clock time in milliseconds since 1970, for people.
    pub wall_ms: u64,
    /// What happened.
    pub event: Event,
}

impl Genesis {
    /// Of the canonical JSON `["airlock-journal-v1",RUN_ID,RUN_DIGEST]`.
    pub fn digest(&self) -> Result<Digest, CanonicalError> {
        Ok(Digest::of(&canonical(&("airlock-journal-v1", &self.run_id, self.run))?))
    }

    /// The head of a journal without lines.
    pub(super) fn head(&self) -> Result<Head, CanonicalError> {
        Ok(Head { lines: 0, bytes: 0, digest: self.digest()? })
    }
}

impl Head {
    /// The record of an event that follows.
    pub(super) fn next(&self, moment: Moment, event: Event) -> Record {
        let Moment { boot_id, boot_ns, wall_ms } = moment;
        Record { seq: self.lines, prev: self.digest, boot_id, boot_ns, wall_ms, event }
    }

    /// The head after a line.
    pub(super) fn after(&self, line: &[u8]) -> Head {
        Head { lines: self.lines + 1, bytes: self.bytes + line.len() as u64, digest: Digest::of(line) }
    }
}

impl Record {
    /// Its canonical JSON and a newline.
    pub fn line(&self) -> Result<Vec<u8>, CanonicalError> {
        let mut line = canonical(self)?;
        line.push(b'\n');
        Ok(line)
    }
}
