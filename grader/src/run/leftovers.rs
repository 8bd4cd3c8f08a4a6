//! Ending sandboxes that nobody waits for any more: those of a dead supervisor, and of work that was dropped.
//!
//! The directory of each phase is locked (flock(2)) from before its sandbox is ordered until its monitor is gone. As
//! long as somebody holds the lock, a sandbox may still begin, or its end report still be written over.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use airlock_runtime::report::{EndReport, Reason};
use airlock_runtime::state::{Ending, Sandboxes, StateError};
use rustix::fs::{FlockOperation, flock};

use super::directory::at;
use super::error::RunError;
use super::phase::end_report;
use super::{Supervisor, blocking};

/// How long a monitor may take to see that it was let go of, and to end its sandbox.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often it is looked at.
const PAUSE: Duration = Duration::from_millis(5);
/// How long a log may take to be written after its sandbox has ended.
const LOG_PATIENCE: Duration = Duration::from_secs(10);

/// The locked directory of a phase that is to start.
pub(crate) fn hold(phase: &Path) -> Result<OwnedFd, RunError> {
    let directory = File::open(phase).map_err(at("opening", phase))?;
    flock(&directory, FlockOperation::NonBlockingLockExclusive)
        .map_err(|error| at("locking", phase)(error.into()))?;
    Ok(directory.into())
}

/// Ends the sandboxes of these phases, given by their directories, and waits until nothing of them is left.
pub(crate) fn end(phases: &[PathBuf]) -> Result<(), RunError> {
    if phases.is_empty() {
        return Ok(());
    }
    let latest = Instant::now() + PATIENCE;
    loop {
        kill(phases)?;
        match phases.iter().find(|phase| hold(phase).is_err()) {
            None => break,
            Some(phase) if Instant::now() > latest => return Err(RunError::StillThere(phase.clone())),
            Some(_) => thread::sleep(PAUSE),
        }
    }
    // A monitor that was killed lets go before its sandbox is gone.
    Ok(kill(phases)?)
}

/// Kills those that are known, and waits until they are gone.
fn kill(phases: &[PathBuf]) -> Result<(), StateError> {
    let sandboxes = Sandboxes::open()?;
    for record in sandboxes.list()? {
        let place = record.report.as_ref().and_then(|report| report.path.parent());
        if place.is_some_and(|place| phases.iter().any(|phase| phase == place)) {
            match sandboxes.end(&record.id, Ending::Kill) {
                // It has ended by itself meanwhile.
                Err(StateError::Unknown) => {}
                ended => ended?,
            }
        }
    }
    Ok(())
}

impl Supervisor {
    /// Ends the sandboxes of phases that have no end, and journals what became of them.
    pub(crate) async fn end_leftovers(&self) -> Result<(), RunError> {
        let left = self.unended();
        blocking(move || end(&left)).await??;
        let numbers: Vec<u32> = self.state().unended().map(|(number, _)| number).collect();
        for number in numbers {
            self.finish_logs(number).await;
        }
        self.journal_lost()
    }

    /// Ends what is left of a sandbox whose monitor was killed.
    pub(crate) async fn monitor_lost(
        &self,
        number: u32,
        name: &str,
        id: &str,
    ) -> Result<EndReport, RunError> {
        let phase = self.directory.phase(number, name);
        blocking(move || end(&[phase])).await??;
        self.finish_logs(number).await;
        Ok(EndReport::without_run(id, Reason::SupervisorLost, "the monitor of the sandbox was killed"))
    }

    /// The directories of phases that have no end.
    pub(crate) fn unended(&self) -> Vec<PathBuf> {
        self.state().unended().map(|(number, name)| self.directory.phase(number, name)).collect()
    }

    /// Journals the ends of phases whose sandboxes are gone.
    pub(crate) fn journal_lost(&self) -> Result<(), RunError> {
        let lost: Vec<(u32, String)> =
            self.state().unended().map(|(number, name)| (number, name.to_owned())).collect();
        for (number, name) in lost {
            let report = end_report(self.directory.path(), number, &name).unwrap_or_else(|_| {
                EndReport::without_run("", Reason::SupervisorLost, "the supervisor let go of the sandbox")
            });
            self.end_phase(number, &name, report, None)?;
        }
        Ok(())
    }

    /// Waits until the logs of a phase are written. One that is not whole is no reason to fail a run: its file says so.
    pub(crate) async fn finish_logs(&self, phase: u32) {
        let logs = self.logs.borrow_mut().remove(&phase);
        for log in logs.into_iter().flatten() {
            if let Some(error) = log.finish(LOG_PATIENCE).await.error {
                tracing::warn!(%error, "a log is not whole");
            }
        }
    }
}
