//! How a run stands, open or closed. Nothing is written, and no lock is taken.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::Serialize;

use super::directory::{at, read_file};
use super::error::{RunError, call};
use super::manifest::RUN_JSON;
use super::state::{Fate, Next, State};
use super::{Manifest, RunDirectory};
use crate::Digest;
use crate::journal::{self, Moment, Outcome, Record};
use crate::score::{Counts, Score, Sigma};
use crate::task::Lifecycle;

/// How a run stands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunStatus {
    /// The run's name.
    pub run_id: String,
    /// The task's name.
    pub task: String,
    /// One line for people.
    pub title: Option<String>,
    /// How a candidate comes to its final score.
    pub lifecycle: Lifecycle,
    /// How far the run has come.
    pub stage: Stage,
    /// Sandboxes that run, by phase.
    pub phases: Vec<RunningPhase>,
    /// The process that leads the run, where one is seen: its lock on the journal is in /proc/locks. One on another
    /// machine, or in a PID namespace that is not seen from here, is not.
    pub supervisor: Option<u32>,
    /// The clock of research.
    pub research: Clock,
    /// Validations, by ticket.
    pub validations: Vec<Validation>,
    /// What was submitted.
    pub submitted: Option<Digest>,
    /// What the gates said of it.
    pub gates: Vec<Gate>,
    /// Checkpoints of the replay, in the order in which they were looked at.
    pub checkpoints: Vec<Checkpoint>,
    /// The result.
    pub result: Option<RunResult>,
    /// Why the run waits for an operator.
    pub interrupted: Option<String>,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// Events so far.
    pub events: usize,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The agent works, or is about to.
    Research,
    /// What it left is being sealed and looked at by the gates.
    Sealing,
    /// The changed source runs from scratch.
    Replay,
    /// Its checkpoints are looked at.
    Checkpoints,
    /// The final scoring.
    Scoring,
    /// It waits for an operator.
    Interrupted,
    /// It is over.
    Closed,
}

/// A sandbox that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunningPhase {
    /// Its number.
    pub phase: u32,
    /// What it is called.
    pub name: String,
}

/// The clock of research, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Clock {
    /// The budget.
    pub budget_ms: u64,
    /// What is spent of it.
    pub elapsed_ms: u64,
    /// What is left.
    pub left_ms: u64,
}

/// A validation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Validation {
    /// Counted from one.
    pub ticket: u64,
    /// What is validated.
    pub candidate: Digest,
    /// How it stands.
    pub state: ValidationState,
    /// Its score; none if void.
    pub score: Option<Score>,
    /// What became of the planned attempts.
    pub counts: Option<Counts>,
    /// Why it failed.
    pub cause: Option<String>,
}

/// How a validation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ValidationState {
    /// Queued or running.
    Open,
    /// Graded.
    Done,
    /// Not graded.
    Failed,
    /// Dropped by research.
    Cancelled,
}

/// A gate that looked at the submission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gate {
    /// The gate.
    pub gate: String,
    /// Whether it let it pass.
    pub passed: bool,
}

/// A checkpoint of the replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checkpoint {
    /// Untrusted: its directory's name.
    pub name: String,
    /// The number in it.
    pub progress: u64,
    /// The sealed copy.
    pub digest: Digest,
    /// Whether it can be scored.
    pub valid: bool,
    /// Whether it is scored.
    pub selected: bool,
    /// Its final score, once it has one.
    pub score: Option<Score>,
}

/// A run's result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RunResult {
    /// What was best.
    pub candidate: Option<Digest>,
    /// Its score.
    pub score: Option<Score>,
    /// Its place on the ladder.
    pub sigma: Option<Sigma>,
}

/// How the run in this directory stands, and its events.
///
/// # Errors
/// What cannot be read, or a journal that is not whole. A line that is being written does not count yet.
pub fn read(run: &Path) -> Result<(RunStatus, Vec<Record>), RunError> {
    let directory = RunDirectory::at(run)?;
    let path = directory.join(RUN_JSON);
    let bytes = read_file(&path)?;
    let manifest = Manifest::from_bytes(&bytes)
        .map_err(|fault| RunError::Manifest { path: path.clone(), why: fault.to_string() })?;
    let (records, _) = journal::peek(directory.path(), &manifest.genesis(&bytes))?;
    let now = Moment::now().map_err(call("reading the clock"))?;
    let supervisor = supervisor(&directory)?;
    Ok((status(&manifest, &records, &now, supervisor)?, records))
}

fn status(
    manifest: &Manifest,
    records: &[Record],
    now: &Moment,
    supervisor: Option<u32>,
) -> Result<RunStatus, RunError> {
    let state = State::of(records);
    let stage = Stage::of(&state, manifest);
    let selected = state.selected.clone().unwrap_or_default();
    let checkpoints = state.checkpoints.iter().map(|checkpoint| Checkpoint {
        name: checkpoint.name.clone(),
        progress: checkpoint.progress,
        digest: checkpoint.digest,
        valid: checkpoint.valid,
        selected: checkpoint.valid && selected.contains(&checkpoint.digest),
        score: state.verdict(checkpoint.digest).and_then(|(score, _)| score),
    });
    let result = state.result.map(|(candidate, score)| {
        let sigma = manifest.task.sigma(score)?;
        Ok::<_, RunError>(RunResult { candidate, score, sigma })
    });
    Ok(RunStatus {
        run_id: manifest.run_id.clone(),
        task: manifest.task.id.clone(),
        title: manifest.task.title.clone(),
        lifecycle: manifest.task.lifecycle,
        stage,
        phases: state.unended().map(|(phase, name)| RunningPhase { phase, name: name.to_owned() }).collect(),
        supervisor,
        research: clock(manifest, records, now),
        validations: state.tickets.iter().map(|(ticket, record)| Validation::of(*ticket, record)).collect(),
        submitted: state.submitted,
        gates: state
            .gates
            .iter()
            .map(|(gate, passed)| Gate { gate: gate.clone(), passed: *passed })
            .collect(),
        checkpoints: checkpoints.collect(),
        result: result.transpose()?,
        interrupted: state.interrupted.clone(),
        outcome: state.closed,
        events: records.len(),
    })
}

impl Stage {
    fn of(state: &State, manifest: &Manifest) -> Stage {
        match state.next(manifest.task.lifecycle, manifest.agent.is_some()) {
            Next::Research => Stage::Research,
            Next::Capture | Next::Seal | Next::Gate => Stage::Sealing,
            Next::Replay => Stage::Replay,
            Next::Checkpoints => Stage::Checkpoints,
            Next::Score(_) | Next::Conclude | Next::Close(_) => Stage::Scoring,
            Next::Decide => Stage::Interrupted,
            Next::Nothing => Stage::Closed,
        }
    }
}

impl Validation {
    fn of(ticket: u64, record: &super::state::TicketRecord) -> Validation {
        let (state, score, counts, cause) = match &record.fate {
            Fate::Open => (ValidationState::Open, None, None, None),
            Fate::Graded { score, counts, .. } => (ValidationState::Done, *score, Some(*counts), None),
            Fate::Failed(cause) => (ValidationState::Failed, None, None, Some(cause.clone())),
            Fate::Cancelled => (ValidationState::Cancelled, None, None, None),
        };
        Validation { ticket, candidate: record.candidate, state, score, counts, cause }
    }
}

/// The clock of research: now, or where it stood when research ended or when its machine went down.
fn clock(manifest: &Manifest, records: &[Record], now: &Moment) -> Clock {
    let budget = manifest.budget;
    let mut state = State::default();
    let mut stopped = None;
    for record in records {
        state.apply(record);
        let running = Stage::of(&state, manifest) == Stage::Research;
        stopped = if running { None } else { stopped.or(Some((record.boot_ns, state.clone()))) };
    }
    let (at_ns, state) = match stopped {
        Some(stopped) => stopped,
        None => {
            let here = state.research.as_ref().is_none_or(|research| research.boot_id == now.boot_id);
            let last = state.research.as_ref().map_or(now.boot_ns, |research| research.last_ns);
            (if here { now.boot_ns } else { last }, state)
        }
    };
    let left_ms = state.research_left_ns(at_ns, budget.explore_ms, budget.validation_counts) / 1_000_000;
    Clock { budget_ms: budget.explore_ms, elapsed_ms: budget.explore_ms.saturating_sub(left_ms), left_ms }
}

/// Who holds the lock on the journal (proc_locks(5)). Trying to lock it could turn a supervisor away that is starting.
fn supervisor(directory: &RunDirectory) -> Result<Option<u32>, RunError> {
    let path = directory.join("journal.jsonl");
    let metadata = fs::symlink_metadata(&path).map_err(at("looking at", &path))?;
    let locks = fs::read_to_string("/proc/locks").map_err(call("reading /proc/locks"))?;
    let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    Ok(holder(&locks, &format!("{major:02x}:{minor:02x}:{}", metadata.ino())))
}

/// The pid in a line `1: FLOCK  ADVISORY  WRITE 708 00:13:16842 0 EOF`. Waiters have an arrow after the number.
fn holder(locks: &str, file: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (kind, access) = (words.next()?, words.nth(1)?);
        let (pid, inode) = (words.next()?, words.next()?);
        (kind == "FLOCK" && access == "WRITE" && inode == file).then(|| pid.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found_and_a_waiter_is_not() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 00:13:7 0 EOF\n2: FLOCK  ADVISORY  WRITE 12 00:13:7 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 13 00:13:8 0 EOF\n3: FLOCK  ADVISORY  READ 14 00:13:9 0 EOF\n";
        assert_eq!(holder(locks, "00:13:7"), Some(12));
        for other in ["00:13:8", "00:13:9", "00:14:7"] {
            assert_eq!(holder(locks, other), None, "{other}");
        }
    }

    #[test]
    fn the_own_lock_is_seen() {
        // On a file system of several devices, as btrfs, /proc/locks shows another one than stat(2).
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let directory = RunDirectory::at(place.path()).unwrap();
        let path = directory.join("journal.jsonl");
        let file = fs::File::create(&path).unwrap();
        assert_eq!(supervisor(&directory).unwrap(), None);
        file.lock().unwrap();
        assert_eq!(supervisor(&directory).unwrap(), Some(std::process::id()));
    }
}
