//! Writing a journal: one writer, and nothing acknowledged that is not on the disk.

use std::fs::File;
use std::io::{self, BufReader, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fsync, openat};

use super::damage::{Damage, DamageKind};
use super::reader;
use super::record::MAX_LINE;
use super::reserve::Reserve;
use super::{CanonicalError, Event, Genesis, Head, Moment, Record};

/// The journal's name in the run directory.
pub(super) const JOURNAL: &str = "journal.jsonl";

/// A run's journal, open for writing. No other process can open it so until this one drops it or dies.
///
/// The lock belongs to the open file: a child that is forked without exec while the journal is open keeps it.
/// Such children, as the launcher, are started before.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    run: OwnedFd,
    file: File,
    head: Head,
    last: Option<Last>,
    reserve: Reserve,
    /// False once it is not known what of the file is on the disk.
    usable: bool,
}

/// What the next event must follow.
#[derive(Debug)]
struct Last {
    boot_id: String,
    boot_ns: u64,
    closed: bool,
}

/// A journal that was there, and what it holds.
#[derive(Debug)]
pub struct Opened {
    /// Ready for the next event.
    pub journal: Journal,
    /// All of it, [`Event::Recovered`] included if a torn line was removed just now.
    pub records: Vec<Record>,
}

/// Why a journal cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file system refused.
    #[error("journal {path}: cannot {step}")]
    Io {
        /// What was tried.
        step: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A supervisor has it open.
    #[error("journal {0}: another supervisor is at work on this run")]
    Busy(PathBuf),
    /// It is not what was written.
    #[error("journal {path}: {damage}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The first place that does not fit.
        damage: Box<Damage>,
    },
    /// An event or a genesis has no canonical JSON.
    #[error("journal: the event cannot be written")]
    Canonical(#[source] CanonicalError),
    /// An event is longer than a line may be.
    #[error("journal: an event of {0} bytes is longer than {MAX_LINE}")]
    LongEvent(usize),
    /// No space is left, or what is left is kept for the end. The journal is intact.
    #[error("journal {0}: the disk is full; the event was not written")]
    DiskFull(PathBuf),
    /// The clock of this boot is behind the last event, as in a time namespace of its own.
    #[error("journal {0}: the boot-time clock is behind the last event")]
    ClockBackwards(PathBuf),
    /// The run is over.
    #[error("journal {0}: the run is closed")]
    Closed(PathBuf),
    /// The disk failed an earlier write.
    #[error("journal {0}: an earlier write failed, and what is on the disk is unknown; resume the run")]
    Unusable(PathBuf),
}

impl Journal {
    /// Makes `RUN/journal.jsonl`, which must not exist, and its disk reserve.
    pub fn create(run: &Path, genesis: &Genesis) -> Result<Journal, JournalError> {
        let head = genesis.head().map_err(JournalError::Canonical)?;
        let (directory, path) = (open_directory(run)?, run.join(JOURNAL));
        let failed = |step| at(step, &path);
        let reserve = Reserve::make(&directory).map_err(failed("reserve space"))?;
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let file = openat(&directory, JOURNAL, flags | OFlags::CREATE | OFlags::EXCL, mode)
            .map_err(io::Error::from)
            .map_err(failed("create"))?;
        lock(&file, &path)?;
        fsync(&directory).map_err(io::Error::from).map_err(failed("sync the directory of"))?;
        Ok(Journal { path, run: directory, file: file.into(), head, last: None, reserve, usable: true })
    }

    /// Opens `RUN/journal.jsonl`, checks all of it, and removes the beginning of a line that a crash left at
    /// its end. Any other damage is an error, and the file stays as it is.
    pub fn open(run: &Path, genesis: &Genesis) -> Result<Opened, JournalError> {
        let (directory, path) = (open_directory(run)?, run.join(JOURNAL));
        let failed = |step| at(step, &path);
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&directory, JOURNAL, flags, Mode::empty())
            .map_err(io::Error::from)
            .map_err(failed("open"))?;
        lock(&file, &path)?;
        let file = File::from(file);
        let contents = reader::read(BufReader::new(&file), genesis, &path)?;
        let (mut records, head) = (contents.records, contents.head);
        let last = records.last().map(Last::of);
        let closed = last.as_ref().is_some_and(|last| last.closed);
        if let Some(bytes) = contents.torn {
            if closed {
                let damage =
                    Damage { line: head.lines + 1, offset: head.bytes, kind: DamageKind::Torn { bytes } };
                return Err(JournalError::Damaged { path, damage: damage.into() });
            }
            file.set_len(head.bytes).map_err(failed("remove a torn line of"))?;
        }
        let reserve = if closed { Ok(Reserve::none()) } else { Reserve::make(&directory) };
        let reserve = match reserve {
            Err(error) if full(&error) => Reserve::none(),
            reserve => reserve.map_err(failed("reserve space"))?,
        };
        let mut journal = Journal { path, run: directory, file, head, last, reserve, usable: true };
        if let Some(dropped_bytes) = contents.torn {
            records.push(journal.append(Event::Recovered { dropped_bytes })?);
        }
        Ok(Opened { journal, records })
    }

    /// Where it ends.
    pub fn head(&self) -> Head {
        self.head
    }

    /// Writes an event. When this returns it is on the disk; when it fails the journal is as it was, or says
    /// so of itself from then on ([`JournalError::Unusable`]).
    ///
    /// When the disk is full, events that end something get the reserve, and others fail.
    pub fn append(&mut self, event: Event) -> Result<Record, JournalError> {
        self.append_at(event, Moment::now().map_err(at("read the boot id for", &self.path))?)
    }

    fn append_at(&mut self, event: Event, moment: Moment) -> Result<Record, JournalError> {
        self.check(&moment)?;
        let record = self.head.next(moment, event);
        let line = record.line().map_err(JournalError::Canonical)?;
        if line.len() > MAX_LINE {
            return Err(JournalError::LongEvent(line.len()));
        }
        let mut result = self.put(&line);
        if result.as_ref().is_err_and(full) && self.usable && record.event.may_use_reserve() {
            let release = self.reserve.release(&self.run);
            if release.map_err(at("release the reserve of", &self.path))? {
                result = self.put(&line);
            }
        }
        result.map_err(|error| match error {
            error if full(&error) && self.usable => JournalError::DiskFull(self.path.clone()),
            error => at("append to", &self.path)(error),
        })?;
        self.head = self.head.after(&line);
        self.last = Some(Last::of(&record));
        Ok(record)
    }

    /// Whether an event of this moment may follow.
    fn check(&self, moment: &Moment) -> Result<(), JournalError> {
        let path = || self.path.clone();
        if !self.usable {
            return Err(JournalError::Unusable(path()));
        }
        match &self.last {
            Some(last) if last.closed => Err(JournalError::Closed(path())),
            Some(last) if last.boot_id == moment.boot_id && last.boot_ns > moment.boot_ns => {
                Err(JournalError::ClockBackwards(path()))
            }
            _ => Ok(()),
        }
    }

    /// Writes a line to the disk, or takes back what was written of it.
    fn put(&mut self, line: &[u8]) -> io::Result<()> {
        let error = match self.file.write_all(line) {
            Err(error) => error,
            Ok(()) => match self.file.sync_data() {
                Ok(()) => return Ok(()),
                Err(error) => {
                    // The kernel may now take pages for clean that it could not write (LWN 752063), so that
                    // a second try proves nothing. Lack of space is not such an error.
                    self.usable = full(&error);
                    error
                }
            },
        };
        if self.file.set_len(self.head.bytes).is_err() {
            self.usable = false;
        }
        Err(error)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // A child between fork and exec has the file open too. If this fails, its exec unlocks it.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

impl Last {
    fn of(record: &Record) -> Last {
        Last {
            boot_id: record.boot_id.clone(),
            boot_ns: record.boot_ns,
            closed: matches!(record.event, Event::Closed { .. }),
        }
    }
}

fn at(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError + use<> {
    let path = path.to_owned();
    move |source| JournalError::Io { step, path, source }
}

fn full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn open_directory(run: &Path) -> Result<OwnedFd, JournalError> {
    File::open(run).map(OwnedFd::from).map_err(at("open the directory", run))
}

fn lock(file: &OwnedFd, path: &Path) -> Result<(), JournalError> {
    flock(file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
        rustix::io::Errno::WOULDBLOCK => JournalError::Busy(path.to_owned()),
        error => at("lock", path)(error.into()),
    })
}

#[cfg(test)]
mod tests;
