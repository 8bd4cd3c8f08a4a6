//! Verifying a closed run: everything that its receipt and journal say is computed again from its files.
//!
//! Nothing but the run directory and the public key is needed, nothing is written, and no program of the task runs.
//! FORMATS.md says the steps, so that another implementation can do the same.
//!
//! | file | checks |
//! | --- | --- |
//! | `files` | that the directory holds the files of the receipt and the trees of the store, to the byte, and nothing else |
//! | `order` | that each event may come after those before it |
//! | `evidence` | that the documents of each event say what the event says |

mod error;
mod evidence;
mod files;
mod order;

use std::io::ErrorKind;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType};
use rustix::io::Errno;
use serde::Serialize;

pub use error::{Mismatch, VerifyError};
use evidence::{Evidence, same_predicate};
use files::Files;

use super::directory::at;
use super::finish::{RECEIPT, predicate};
use super::manifest::{ManifestFault, RUN_JSON};
use super::state::State;
use super::{Manifest, RunDirectory};
use crate::Digest;
use crate::journal::{self, Event, Genesis, Outcome, Record};
use crate::receipt::{self, PublicKey};
use crate::score::{Counts, Score, Sigma};

/// A run of which everything fits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verified {
    /// The run's name.
    pub run_id: String,
    /// The task's name.
    pub task: String,
    /// The digest of the task.
    pub task_digest: Digest,
    /// The key that signed the receipt.
    pub key: Digest,
    /// How the run ended.
    pub outcome: Outcome,
    /// What was scored.
    pub candidate: Option<Digest>,
    /// Its score.
    pub score: Option<Score>,
    /// Its place on the task's ladder.
    pub sigma: Option<Sigma>,
    /// What became of the planned attempts.
    pub counts: Option<Counts>,
    /// The tests ran within the candidate's own process.
    pub in_process: bool,
    /// The task was run as its author wrote it.
    pub official: bool,
    /// Departures from that, in words.
    pub overrides: Vec<String>,
    /// What was weaker than the policies ask for; the departures as well.
    pub weaker: Vec<String>,
    /// How much was looked at.
    pub checked: Checked,
}

/// How much of a run was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// Files, those in the store's trees included.
    pub files: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Trees in the store.
    pub trees: usize,
    /// Events of the journal.
    pub events: usize,
    /// Phases.
    pub phases: usize,
    /// Validations that were counted again.
    pub validations: usize,
    /// Final verdicts that were counted again.
    pub verdicts: usize,
}

/// Verifies a closed run with the key that its receipt must be signed with.
///
/// # Errors
/// The first thing that does not fit, or what could not be read ([`VerifyError::is_failure`]).
pub fn verify(run: &Path, key: &PublicKey) -> Result<Verified, VerifyError> {
    let directory = RunDirectory::at(run)?;
    if !has_receipt(&directory)? {
        return Err(unfinished(&directory)?);
    }
    let files = Files::list(directory.path())?;
    let statement = receipt::verify(&files.read(RECEIPT, String::new)?, key)?;
    let Some(run_json) = statement.subject.iter().find(|subject| subject.name == RUN_JSON) else {
        return Err(document(RECEIPT, "it does not name run.json"));
    };
    files.same(RUN_JSON, run_json.digest(), || "the receipt".into())?;
    let (manifest, genesis) = parse_manifest(&files.read(RUN_JSON, String::new)?)?;
    if manifest.key != key.id() {
        return Err(document(
            RUN_JSON,
            &format!("the run was made for the key {}, not {}", manifest.key, key.id()),
        ));
    }
    let head = statement.predicate.journal;
    let records = journal::verify(directory.path(), &genesis, Some(&head))?;
    files.check_subjects(&statement.subject)?;
    files.check_trees()?;

    let mut evidence = Evidence::new(&files, &manifest);
    let state = follow(&records, &genesis, &mut evidence)?;
    let Some(outcome) = state.closed else {
        return Err(VerifyError::Event { line: head.lines, why: "the run is not closed after it".into() });
    };
    evidence.check_rest()?;
    let found = predicate(&directory, &manifest, &records, head)?;
    same_predicate(&statement.predicate, &found)?;

    let checked = Checked {
        files: files.count(),
        bytes: files.bytes,
        trees: files.tree_count(),
        events: records.len(),
        phases: state.phases.len(),
        ..evidence.checked
    };
    Ok(Verified {
        run_id: manifest.run_id,
        task: manifest.task.id,
        task_digest: manifest.digests.task,
        key: key.id(),
        outcome,
        candidate: found.result.candidate,
        score: found.result.score,
        sigma: found.result.sigma,
        counts: found.result.counts,
        in_process: found.result.in_process,
        official: manifest.overrides.is_empty(),
        overrides: manifest.overrides,
        weaker: found.weaker,
        checked,
    })
}

/// Goes through the events from the first to the last.
fn follow(records: &[Record], genesis: &Genesis, evidence: &mut Evidence<'_>) -> Result<State, VerifyError> {
    let mut state = State::default();
    for record in records {
        let line = record.seq + 1;
        let wrong = |why: String| Err(VerifyError::Event { line, why });
        match &record.event {
            Event::RunCreated { run_id, run } if line == 1 => {
                if *run_id != genesis.run_id || *run != genesis.run {
                    return wrong("it begins another run than run.json says".into());
                }
            }
            event if line == 1 || matches!(event, Event::RunCreated { .. }) => {
                return wrong("`run_created` is the first event, once".into());
            }
            event => {
                if let Some(why) = order::out_of_order(&state, event, evidence.manifest) {
                    return wrong(why);
                }
            }
        }
        evidence.check(record, &state)?;
        state.apply(record);
    }
    Ok(state)
}

/// Whether there is anything of a receipt's name.
fn has_receipt(directory: &RunDirectory) -> Result<bool, VerifyError> {
    let path = directory.join(RECEIPT);
    match rustix::fs::statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => {
            Err(document(RECEIPT, "it is a directory"))
        }
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(at("looking at", &path)(error.into()).into()),
    }
}

/// What can be said of a run that has no receipt yet: whether its journal is whole.
fn unfinished(directory: &RunDirectory) -> Result<VerifyError, VerifyError> {
    let run_json = directory.join(RUN_JSON);
    let bytes = match super::directory::read_file(&run_json) {
        Err(error) if error.source.kind() == ErrorKind::NotFound => {
            return Ok(VerifyError::NoRun { path: directory.path().to_owned() });
        }
        read => read?,
    };
    let (_, genesis) = parse_manifest(&bytes)?;
    let (records, _) = journal::peek(directory.path(), &genesis)?;
    let closed = matches!(records.last().map(|record| &record.event), Some(Event::Closed { .. }));
    Ok(VerifyError::Unfinished { events: records.len(), closed })
}

fn parse_manifest(bytes: &[u8]) -> Result<(Manifest, Genesis), VerifyError> {
    let manifest = Manifest::from_bytes(bytes)
        .map_err(|ManifestFault { byte, why }| VerifyError::Document { path: RUN_JSON.into(), byte, why })?;
    let genesis = manifest.genesis(bytes);
    Ok((manifest, genesis))
}

fn document(path: &str, why: &str) -> VerifyError {
    VerifyError::Document { path: path.to_owned(), byte: None, why: why.to_owned() }
}
