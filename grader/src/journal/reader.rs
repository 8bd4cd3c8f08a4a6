//! Reading a journal, strictly.

use std::cmp::Ordering;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};

use super::damage::{Damage, DamageKind};
use super::record::{Genesis, Head, MAX_LINE, Record};
use super::writer::{JOURNAL, JournalError};

/// What a journal holds.
#[derive(Debug)]
pub(super) struct Contents {
    pub(super) records: Vec<Record>,
    pub(super) head: Head,
    /// The beginning of a line that lies after the head, without a newline.
    pub(super) torn: Option<u64>,
}

/// Reads `RUN/journal.jsonl` whole and checks every byte of it, up to the head that a receipt names.
pub fn verify(run: &Path, genesis: &Genesis, head: Option<&Head>) -> Result<Vec<Record>, JournalError> {
    let (contents, path) = contents(run, genesis)?;
    end_at(contents, head, &path)
}

/// Reads `RUN/journal.jsonl` as far as it is written, while a supervisor may be writing: the records, and whether the
/// beginning of another line follows them.
pub fn peek(run: &Path, genesis: &Genesis) -> Result<(Vec<Record>, bool), JournalError> {
    let (contents, _) = contents(run, genesis)?;
    Ok((contents.records, contents.torn.is_some()))
}

fn contents(run: &Path, genesis: &Genesis) -> Result<(Contents, PathBuf), JournalError> {
    let path = run.join(JOURNAL);
    // A run that came from elsewhere may have anything at that name.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = open(&path, flags, Mode::empty()).map_err(|error| JournalError::Io {
        step: "open",
        path: path.clone(),
        source: error.into(),
    })?;
    Ok((read(BufReader::new(File::from(file)), genesis, &path)?, path))
}

/// The records of a journal that ends with a whole line, where it should.
fn end_at(contents: Contents, head: Option<&Head>, path: &Path) -> Result<Vec<Record>, JournalError> {
    let found = contents.head;
    let damage = |line, offset, kind| {
        Err(JournalError::Damaged { path: path.to_owned(), damage: Box::new(Damage { line, offset, kind }) })
    };
    if let Some(bytes) = contents.torn {
        return damage(found.lines + 1, found.bytes, DamageKind::Torn { bytes });
    }
    if let Some(expected) = head.copied().filter(|head| *head != found) {
        let (line, offset) = match found.lines.cmp(&expected.lines) {
            Ordering::Less => (found.lines + 1, found.bytes),
            Ordering::Equal => (found.lines, found.bytes.min(expected.bytes)),
            Ordering::Greater => (expected.lines + 1, expected.bytes),
        };
        return damage(line, offset, DamageKind::Head { expected, found });
    }
    Ok(contents.records)
}

/// Reads lines to the end.
pub(super) fn read(
    mut input: impl BufRead,
    genesis: &Genesis,
    path: &Path,
) -> Result<Contents, JournalError> {
    let head = genesis.head().map_err(JournalError::Canonical)?;
    let mut contents = Contents { records: Vec::new(), head, torn: None };
    let mut line = Vec::new();
    loop {
        line.clear();
        read_line(&mut input, &mut line).map_err(|source| JournalError::Io {
            step: "read",
            path: path.to_owned(),
            source,
        })?;
        if line.is_empty() {
            return Ok(contents);
        }
        let last = contents.records.last();
        match check(&line, &contents.head, last) {
            Ok(Some(record)) => {
                contents.records.push(record);
                contents.head = contents.head.after(&line);
            }
            Ok(None) => {
                contents.torn = Some(line.len() as u64);
                return Ok(contents);
            }
            Err((at, kind)) => {
                let damage =
                    Damage { line: contents.head.lines + 1, offset: contents.head.bytes + at as u64, kind };
                return Err(JournalError::Damaged { path: path.to_owned(), damage: damage.into() });
            }
        }
    }
}

/// One line with its newline, or what is left; never more than one byte above the longest.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<()> {
    input.take(MAX_LINE as u64 + 1).read_until(b'\n', line)?;
    Ok(())
}

/// The record that a line holds; none if the line is the beginning of one. On damage, where in the line.
fn check(line: &[u8], head: &Head, last: Option<&Record>) -> Result<Option<Record>, (usize, DamageKind)> {
    if line.len() > MAX_LINE {
        return Err((MAX_LINE, DamageKind::LongLine));
    }
    let (text, whole) = match line.strip_suffix(b"\n") {
        Some(text) => (text, true),
        None => (line, false),
    };
    let record: Record = match serde_json::from_slice(text) {
        Ok(record) => record,
        Err(error) if error.is_eof() && !whole => return Ok(None),
        Err(error) if error.is_eof() => {
            return Err((text.len(), DamageKind::NotARecord(error.to_string())));
        }
        // The line has no line end within, so the column counts its bytes.
        Err(error) => {
            return Err((error.column().saturating_sub(1), DamageKind::NotARecord(error.to_string())));
        }
    };
    // The same event in the line that would have been written here.
    let (before, expected) = (head.digest, head.lines);
    let fit = Record { seq: expected, prev: before, ..record.clone() };
    let fit = fit.line().map_err(|error| (0, DamageKind::NotARecord(error.to_string())))?;
    let common = fit.iter().zip(line).take_while(|(a, b)| a == b).count();
    if common < line.len() {
        let kind = if record.prev != before {
            DamageKind::Chain { before, named: record.prev }
        } else if record.seq != expected {
            DamageKind::Sequence { expected, found: record.seq }
        } else {
            DamageKind::NotCanonical
        };
        return Err((common, kind));
    }
    if last.is_some_and(|last| last.boot_id == record.boot_id && last.boot_ns > record.boot_ns) {
        // A quote within the id before it is escaped.
        let at = text.windows(10).position(|window| window == b"\"boot_ns\":").unwrap_or_default();
        return Err((at + 10, DamageKind::ClockBackwards));
    }
    Ok(whole.then_some(record))
}

#[cfg(test)]
mod tests;
