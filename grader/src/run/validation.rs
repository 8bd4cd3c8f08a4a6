//! The queue of validations, and what they return.

use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use airlock_runtime::report::Reason;

use super::directory::{at, fresh_directory, write_file};
use super::error::{RunError, tree};
use super::research::Room;
use super::scoring::Scoring;
use super::state::{TRIES, names};
use super::{Supervisor, blocking};
use crate::Digest;
use crate::journal::Event;
use crate::protocol::names::Ticket;
use crate::seal::{Limits, SealError, seal};
use crate::task::PhaseName;

/// The scorer did not end in time.
pub(crate) const TIMEOUT: &str = "the scorer did not end in time";
/// The scorer gave no verdict that counts.
pub(crate) const NO_VERDICT: &str = "the scorer gave no verdict that counts";
/// The host could not set the scorer up, or lost it.
const INFRA: &str = "the scorer could not be run";

/// Most that is kept of what one scorer wants kept, in bytes.
const LARGEST_TRAJECTORIES: u64 = 4 << 30;

impl Supervisor {
    /// Validates what is queued, one after the other, for as long as it is let.
    pub(crate) async fn validate_all(self: Rc<Self>, room: Rc<Room>) -> Result<(), RunError> {
        let mut over = self.research_over.subscribe();
        while !*over.borrow() {
            let changed = room.queue.notified();
            match self.next_validation() {
                Some(number) => {
                    self.running_tickets.borrow_mut().insert(number);
                    let validated = self.validate(number).await;
                    self.running_tickets.borrow_mut().remove(&number);
                    validated?;
                    room.stillness.look();
                }
                None => tokio::select! {
                    () = changed => {}
                    _ = over.changed() => {}
                },
            }
        }
        Ok(())
    }

    fn next_validation(&self) -> Option<u64> {
        let running = self.running_tickets.borrow();
        self.state().open_tickets().map(|(number, _)| number).find(|number| !running.contains(number))
    }

    /// Whether a validation is at work.
    pub(crate) fn is_running(&self, ticket: u64) -> bool {
        self.running_tickets.borrow().contains(&ticket)
    }

    async fn validate(&self, number: u64) -> Result<(), RunError> {
        let record = self.state().tickets.get(&number).cloned();
        let phase = self.task.phases.get(&PhaseName::Validate).cloned();
        let metric = self.manifest.task.proxy_metric(None);
        let (Some(record), Some(phase), Some(metric)) = (record, phase, metric) else { return Ok(()) };
        let sealed = Arc::new(self.scored_tree(record.candidate).await?);
        for _ in 0..TRIES {
            let items = record.items.as_deref();
            let graded = self.grade(names::VALIDATE, &phase, &sealed, &metric, items).await?;
            if *self.research_over.borrow() {
                // It was called off; `close_validations` says so.
                return Ok(());
            }
            if let Ok(scoring) = graded {
                return self.settle(number, scoring).await;
            }
        }
        self.append(Event::ValidationFailed { ticket: number, phase: None, cause: INFRA.into() })
    }

    async fn settle(&self, number: u64, scoring: Scoring) -> Result<(), RunError> {
        let Scoring { phase, ended, verdict, tally, fault, trajectories } = scoring;
        if fault.is_some() {
            let cause = if ended.reason == Reason::WallTimeout { TIMEOUT } else { NO_VERDICT };
            let (phase, cause) = (Some(phase), cause.to_owned());
            return self.append(Event::ValidationFailed { ticket: number, phase, cause });
        }
        if let Some(digest) = trajectories {
            self.publish(number, digest).await?;
        }
        let (score, counts) = (tally.score, tally.counts);
        self.append(Event::ValidationResult { ticket: number, phase, score, counts, verdict })
    }

    /// Shows what a scorer wanted kept to research.
    async fn publish(&self, number: u64, trajectories: Digest) -> Result<(), RunError> {
        let ticket = Ticket(u32::try_from(number).unwrap_or(u32::MAX)).to_string();
        let sealed = Arc::new(self.scored_tree(trajectories).await?);
        let new = self.directory.join("work").join(&ticket);
        fresh_directory(&new, 0o755)?;
        super::research::copy_tree(&sealed, new.clone()).await?;
        let place = self.directory.join("feedback").join(&ticket);
        super::directory::remove_directory(&place)?;
        fs::rename(&new, &place).map_err(at("naming", &place))?;
        Ok(())
    }

    /// Seals what a scorer wants kept; none if that is nothing, or nothing that can be kept.
    pub(crate) async fn keep_trajectories(
        &self,
        from: PathBuf,
        phase: PathBuf,
    ) -> Result<Option<Digest>, RunError> {
        let mut entries = fs::read_dir(&from).map_err(at("reading", &from))?;
        if entries.next().is_none() {
            return Ok(None);
        }
        let store = Arc::clone(&self.store);
        let limits = Limits { logical_bytes: LARGEST_TRAJECTORIES, ..Limits::default() };
        let sealed = blocking(move || {
            let directory = fs::File::open(&from).map_err(|error| {
                let errno = rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO);
                SealError::at("opening", &crate::seal::TreePath::ROOT)(errno)
            })?;
            seal(directory.as_fd(), &store, &limits)
        })
        .await?;
        let note = phase.join("trajectories.txt");
        match sealed {
            Ok(sealed) => {
                let digest = sealed.digest();
                write_file(&note, format!("{digest}\n").as_bytes())?;
                Ok(Some(digest))
            }
            Err(error) if super::candidate::refusal(&error).is_some() || error.is_full() => {
                write_file(&note, format!("not kept: {error}\n").as_bytes())?;
                Ok(None)
            }
            Err(error) => Err(tree("keeping trajectories")(error)),
        }
    }

    /// Settles what is still open when research is over.
    pub(crate) fn close_validations(&self) -> Result<(), RunError> {
        let open: Vec<u64> = self.state().open_tickets().map(|(number, _)| number).collect();
        open.into_iter().try_for_each(|ticket| {
            let cause = "research was over first".to_owned();
            self.append(Event::ValidationFailed { ticket, phase: None, cause })
        })
    }
}
