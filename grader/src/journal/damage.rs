//! Where a journal stops being one.

use std::fmt;

use super::Head;
use crate::Digest;

/// The first place at which a journal does not fit what stands before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Damage {
    /// Counted from one.
    pub line: u64,
    /// Offset in the file of the first byte that does not fit, counted from zero.
    pub offset: u64,
    /// What is wrong there.
    pub kind: DamageKind,
}

/// What is wrong with a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DamageKind {
    /// Not a record: bad JSON, an unknown, missing or repeated field, an unknown event.
    NotARecord(String),
    /// A record, but not written in canonical JSON.
    NotCanonical,
    /// The line before is not the one that this line was written after.
    Chain {
        /// The digest of the line before.
        before: Digest,
        /// The digest that this line names.
        named: Digest,
    },
    /// Lines are missing or moved.
    Sequence {
        /// The number that should come.
        expected: u64,
        /// The number that came.
        found: u64,
    },
    /// The boot-time clock runs backwards.
    ClockBackwards,
    /// A line is longer than lines may be.
    LongLine,
    /// The last line has no newline: a write that was cut short. Opening the run to resume it removes that.
    Torn {
        /// How much of it is there, in bytes.
        bytes: u64,
    },
    /// The journal does not end where it is said to end.
    Head {
        /// Where it should end.
        expected: Head,
        /// Where it ends.
        found: Head,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, byte {}: ", self.line, self.offset)?;
        match &self.kind {
            DamageKind::NotARecord(error) => write!(f, "not a record: {error}"),
            DamageKind::NotCanonical => f.write_str("not canonical JSON"),
            DamageKind::Chain { before, named } if self.line == 1 => {
                write!(f, "the first line follows {named}, but this run begins with {before}")
            }
            DamageKind::Chain { before, named } => {
                write!(f, "it follows {named}, but line {} is {before}", self.line - 1)
            }
            DamageKind::Sequence { expected, found } => {
                write!(f, "it is number {found}, but number {expected} comes here")
            }
            DamageKind::ClockBackwards => f.write_str("it was written before the line before it"),
            DamageKind::LongLine => write!(f, "the line is longer than {} bytes", super::record::MAX_LINE),
            DamageKind::Torn { bytes } => {
                write!(f, "{bytes} bytes of a line that was not written to its end")
            }
            DamageKind::Head { expected, found } => write!(
                f,
                "{} lines of {} bytes end with {}, but {} lines of {} bytes that end with {} are named",
                found.lines, found.bytes, found.digest, expected.lines, expected.bytes, expected.digest
            ),
        }
    }
}
