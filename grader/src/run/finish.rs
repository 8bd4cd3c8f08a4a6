//! The result of a run, its receipt and its page.

use std::fs;
use std::path::Path;

use super::directory::{at, read_file, remove_directory, write_file};
use super::error::RunError;
use super::page::{REPORT, page};
use super::parts::part_digest;
use super::phase::end_report;
use super::state::names;
use super::{RunDirectory, Supervisor};
use crate::Digest;
use crate::journal::{Decision, Event, Outcome, Record, canonical};
use crate::receipt::{PhaseEvidence, PhaseGpus, Predicate, Statement, Subject, Summary, sign};
use crate::report::ReceiptFacts;
use crate::score::best_valid;
use crate::task::Lifecycle;

/// The receipt.
pub(crate) const RECEIPT: &str = "receipt.json";
/// What a closed run has no use for.
const TEMPORARY: [&str; 3] = ["work", "harness", "feedback"];

impl Supervisor {
    /// Writes down the result.
    pub(crate) fn conclude(&self) -> Result<(), RunError> {
        self.append(result(&self.state(), self.task.lifecycle, &self.manifest)?)
    }

    /// What the receipt calls weaker, in words.
    pub fn weaker(&self) -> Result<Vec<String>, RunError> {
        let receipt = read_file(&self.directory.join(RECEIPT))?;
        Ok(crate::receipt::verify(&receipt, &self.key.public())?.predicate.weaker)
    }

    /// Writes the page and the receipt of a closed run, and removes what nobody needs any more. A run that has its
    /// receipt is left as it is.
    pub(crate) async fn finish(&self) -> Result<(), RunError> {
        if self.directory.join(RECEIPT).exists() {
            return Ok(());
        }
        for name in TEMPORARY {
            remove_directory(&self.directory.join(name))?;
        }
        let reserve = self.directory.join("journal.reserve");
        match fs::remove_file(&reserve) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            removed => removed.map_err(at("removing", &reserve))?,
        }
        let head = self.journal.borrow().head();
        let genesis = self.manifest.genesis(&read_file(&self.directory.join("run.json"))?);
        let records = crate::journal::verify(self.directory.path(), &genesis, Some(&head))?;
        let predicate = predicate(&self.directory, &self.manifest, &records, head)?;
        // The page is a subject too.
        let bound = subjects(&self.directory)?.len() as u64 + 1;
        let facts = ReceiptFacts::new(&predicate, bound, &self.key.public());
        let page = page(&self.directory, &self.manifest, &records, Some(&facts))?;
        write_file(&self.directory.join(REPORT), page.as_bytes())?;
        let subjects = subjects(&self.directory)?;
        let receipt = sign(&Statement::new(subjects, predicate), &self.key)?;
        write_file(&self.directory.join(RECEIPT), &receipt)?;
        Ok(())
    }
}

/// The event that states the result of a run whose candidates all have a verdict.
pub(crate) fn result(
    state: &super::state::State,
    lifecycle: Lifecycle,
    manifest: &super::Manifest,
) -> Result<Event, RunError> {
    let refused = state.refused.is_some() || state.gates.iter().any(|(_, passed)| !passed);
    let (candidate, score) = match lifecycle {
        _ if refused => (None, None),
        Lifecycle::Direct => {
            let score =
                state.submitted.and_then(|candidate| state.verdict(candidate)).and_then(|(score, _)| score);
            (state.submitted.filter(|_| score.is_some()), score)
        }
        Lifecycle::Replay => {
            let scored = state.scored_checkpoints();
            let checkpoints: Vec<_> = scored.iter().map(|(_, checkpoint)| *checkpoint).collect();
            let best = best_valid(manifest.task.metric.metric.direction(), &checkpoints);
            let best = best.map_err(|error| RunError::Options(error.to_string()))?;
            best.map_or((None, None), |index| (Some(scored[index].0), checkpoints[index].score))
        }
    };
    let sigma = manifest.task.sigma(score)?;
    Ok(Event::Scored { candidate, score, sigma })
}

/// What the receipt says of a closed run.
pub(crate) fn predicate(
    directory: &RunDirectory,
    manifest: &super::Manifest,
    records: &[Record],
    journal: crate::journal::Head,
) -> Result<Predicate, RunError> {
    let state = super::state::State::of(records);
    let mut phases = Vec::new();
    let mut weaker: Vec<String> = manifest.overrides.clone();
    let mut lowerings: Vec<(String, Vec<String>)> = Vec::new();
    for record in records {
        let Event::PhaseStarted { phase, name, spec, .. } = &record.event else { continue };
        let report = end_report(directory.path(), *phase, name)?;
        for lowered in &report.lowered {
            let words = format!("{}: {}", lowered.clause, lowered.what);
            match lowerings.iter_mut().find(|(known, _)| *known == words) {
                Some((_, names)) if !names.contains(name) => names.push(name.clone()),
                Some(_) => {}
                None => lowerings.push((words, vec![name.clone()])),
            }
        }
        if report.gpus.as_ref().is_some_and(|gpus| gpus.reset == Some(false)) {
            weaker.push(format!("{name}: gpu.reset: the GPUs were not reset"));
        }
        phases.push(PhaseEvidence {
            phase: *phase,
            name: name.clone(),
            policy: report.policy_digest.parse().unwrap_or(Digest::of(b"")),
            spec: *spec,
            evidence: Digest::of(&canonical(&report.enforced)?),
            gpus: report.gpus.map(PhaseGpus::from),
        });
    }
    weaker.extend(lowerings.into_iter().map(|(words, names)| format!("{}: {words}", names.join(", "))));
    for claim in &state.claims {
        let fault = directory.phase(claim.phase, names::SCORE).join("fault.txt");
        if claim.verdict.is_some() && fault.exists() {
            let why = String::from_utf8_lossy(&read_file(&fault)?).into_owned();
            weaker.push(format!("phase {} gave no verdict that counts: {why}", claim.phase));
        }
    }
    if state.decisions.contains(&Decision::Again) {
        weaker.push("an operator let what was interrupted be done again".into());
    }
    Ok(Predicate {
        airlock: manifest.airlock.clone(),
        run_id: manifest.run_id.clone(),
        task: manifest.digests.task,
        result: summary(&state, manifest)?,
        journal,
        phases,
        weaker,
    })
}

fn summary(state: &super::state::State, manifest: &super::Manifest) -> Result<Summary, RunError> {
    let (candidate, score) = state.result.unwrap_or_default();
    let scored = candidate.or(state.submitted);
    let counts = scored.and_then(|candidate| state.verdict(candidate)).map(|(_, counts)| counts);
    Ok(Summary {
        outcome: state.closed.unwrap_or(Outcome::Interrupted),
        candidate,
        score,
        sigma: manifest.task.sigma(score)?,
        counts,
        in_process: manifest.task.in_process,
    })
}

/// Every file of the run directory but the receipt, and of the store the manifests, which bind the rest of it.
pub(crate) fn subjects(directory: &RunDirectory) -> Result<Vec<Subject>, RunError> {
    let mut subjects = Vec::new();
    for name in files(directory)? {
        if name != RECEIPT {
            subjects.push(Subject::new(name.clone(), part_digest(&directory.join(&name))?));
        }
    }
    Ok(subjects)
}

/// The files of a run directory by their relative paths, sorted. The trees of the store are left out.
pub(crate) fn files(directory: &RunDirectory) -> Result<Vec<String>, RunError> {
    let mut found = Vec::new();
    list(directory.path(), directory.path(), &mut found)?;
    found.sort_unstable();
    Ok(found)
}

fn list(root: &Path, directory: &Path, found: &mut Vec<String>) -> Result<(), RunError> {
    for entry in fs::read_dir(directory).map_err(at("reading", directory))? {
        let entry = entry.map_err(at("reading", directory))?;
        let path = entry.path();
        let kind = entry.file_type().map_err(at("looking at", &path))?;
        let relative = path.strip_prefix(root).unwrap_or(&path);
        let in_store = relative.starts_with("store") && relative.components().count() == 3;
        if kind.is_dir() && in_store {
            continue;
        }
        if kind.is_dir() {
            list(root, &path, found)?;
        } else {
            found.push(relative.to_string_lossy().into_owned());
        }
    }
    Ok(())
}
