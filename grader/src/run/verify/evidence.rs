//! The documents behind an event: what the journal says of them is read again from their bytes.

use std::collections::BTreeSet;

use airlock_runtime::Spec;
use airlock_runtime::report::{EndReport, Reason};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::files::{Files, first_difference};
use super::{Checked, Mismatch, VerifyError};
use crate::Digest;
use crate::changeset::{Change, Changeset};
use crate::journal::{CandidateKind, Event, Record};
use crate::run::Manifest;
use crate::run::directory::phase_name;
use crate::run::finish::RECEIPT;
use crate::run::phase::spec_digest;
use crate::run::state::{State, names};
use crate::run::verdict::Verdict;
use crate::score::{Counts, Metric, Score, Tally};
use crate::task::Lifecycle;

/// What stands behind the events, and what was seen of it so far.
pub(super) struct Evidence<'a> {
    pub(super) files: &'a Files,
    pub(super) manifest: &'a Manifest,
    /// Candidates that were sealed.
    sealed: Vec<(Digest, CandidateKind)>,
    /// What the gate said of the checkpoint that is being looked at, and how its validation ended.
    checkpoint: Option<(Digest, bool)>,
    pub(super) checked: Checked,
}

/// A gate's report.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GateReport {
    gate: String,
    candidate: Digest,
    refusals: Vec<Value>,
    words: Vec<String>,
}

impl<'a> Evidence<'a> {
    pub(super) fn new(files: &'a Files, manifest: &'a Manifest) -> Evidence<'a> {
        Evidence { files, manifest, sealed: Vec::new(), checkpoint: None, checked: Checked::default() }
    }

    /// Checks the documents of an event that comes after these.
    pub(super) fn check(&mut self, record: &Record, before: &State) -> Result<(), VerifyError> {
        let line = record.seq + 1;
        let by = || format!("line {line} of the journal");
        let wrong = |why: &str| Err(VerifyError::Event { line, why: why.to_owned() });
        match &record.event {
            Event::PhaseStarted { phase, name, spec, .. } => self.spec(*phase, name, *spec, by),
            Event::PhaseEnded { phase, reason, exit_code, signal, report } => {
                let Some(started) = before.phase(*phase) else { return wrong("no such phase has started") };
                let host = matches!(reason, Reason::SetupFailed | Reason::SupervisorLost);
                if started.name == names::CHECKPOINT && !host {
                    let passed = *reason == Reason::Exited && *exit_code == Some(0);
                    self.checkpoint = self.checkpoint.map(|(digest, gate)| (digest, gate && passed));
                }
                let path = format!("{}/end.json", phase_name(*phase, &started.name));
                let end: EndReport = parse(&path, &self.files.read_as(&path, *report, by)?)?;
                // The supervisor ends research, and a scorer without its candidate, for reasons of its own.
                let own = host || *reason == Reason::WallTimeout;
                if (end.exit_code, end.signal) != (*exit_code, *signal) || (end.reason != *reason && !own) {
                    return wrong("the end report says that the phase ended in another way");
                }
                let mut had = end.gpus.iter().flat_map(|gpus| &gpus.devices);
                if let Some(device) = had.find(|device| !self.manifest.gpus.contains(&device.uuid)) {
                    return wrong(&format!(
                        "the phase had the GPU {}, which run.json does not name",
                        device.uuid
                    ));
                }
                Ok(())
            }
            Event::CandidateSealed { candidate, kind, files, bytes, .. } => {
                let found = match kind {
                    CandidateKind::Tree => {
                        let tree = self.files.tree(*candidate, by)?;
                        (tree.files().count() as u64, tree.bytes())
                    }
                    CandidateKind::Patch => self.changeset(*candidate, by)?,
                };
                if found != (*files, *bytes) {
                    return wrong(&format!("the candidate has {} files of {} bytes", found.0, found.1));
                }
                self.sealed.push((*candidate, *kind));
                Ok(())
            }
            Event::ValidationRequested { candidate, items, .. } => {
                if !self.sealed.contains(&(*candidate, CandidateKind::Tree)) {
                    return wrong("its candidate was not sealed before");
                }
                match self.manifest.task.proxy_metric(items.as_deref()) {
                    Some(_) => Ok(()),
                    None => wrong("it asks for items that are not planned"),
                }
            }
            Event::ValidationResult { ticket, phase, score, counts, verdict } => {
                let items = before.tickets.get(ticket).and_then(|ticket| ticket.items.clone());
                let Some(metric) = self.manifest.task.proxy_metric(items.as_deref()) else {
                    return wrong("there is no metric for it");
                };
                let ended = before.phase(*phase).and_then(|phase| phase.ended);
                if ended.is_none_or(|end| end.reason != Reason::Exited) {
                    return wrong("its scorer did not end by itself, so its verdict does not count");
                }
                self.checked.validations += 1;
                self.verdict(
                    line,
                    &verdict_path(*phase, names::VALIDATE),
                    *verdict,
                    &metric,
                    (*score, *counts),
                )?;
                Ok(())
            }
            Event::Verdict { phase, score, counts, verdict, .. } => {
                let path = verdict_path(*phase, names::SCORE);
                let metric = &self.manifest.task.metric.metric;
                self.checked.verdicts += 1;
                let found = self.verdict(line, &path, *verdict, metric, (*score, *counts))?;
                let end = before.phase(*phase).and_then(|phase| phase.ended);
                let ended_well = end.is_some_and(|end| {
                    end.reason == Reason::Exited
                        && (end.exit_code == Some(0) || self.manifest.task.in_process)
                });
                let fault = self.files.has(&path.replace("verdict.json", "fault.txt"));
                if (fault || !ended_well) && !found.items.is_empty() {
                    return wrong("its scorer failed, so its verdict does not count");
                }
                Ok(())
            }
            Event::Submitted { candidate } => {
                let kind = match self.manifest.task.lifecycle {
                    Lifecycle::Replay => CandidateKind::Patch,
                    Lifecycle::Direct => CandidateKind::Tree,
                };
                if self.sealed.contains(&(*candidate, kind)) {
                    Ok(())
                } else {
                    wrong("what is submitted was not sealed before")
                }
            }
            Event::DeadlineCapture { candidate: Some(candidate), .. } => {
                self.files.tree(*candidate, by).map(drop)
            }
            Event::GateResult { gate, candidate, passed, report } => {
                self.checkpoint = Some((*candidate, *passed)).filter(|_| gate == "checkpoint");
                self.gate(gate, *candidate, *passed, *report, by)
            }
            Event::CheckpointValidated { checkpoint, valid, .. } => {
                self.files.tree(*checkpoint, by)?;
                let seen = self.checkpoint.take().filter(|(digest, _)| digest == checkpoint);
                if *valid == seen.is_some_and(|(_, passed)| passed) {
                    return Ok(());
                }
                wrong("its gate and its validation say otherwise")
            }
            Event::FinalClaimed { candidate, .. } => self.files.tree(*candidate, by).map(drop),
            _ => Ok(()),
        }
    }

    /// Checks what belongs to no event of its own.
    pub(super) fn check_rest(&self) -> Result<(), VerifyError> {
        self.files.tree(self.manifest.digests.frozen, || "run.json".into())?;
        if let Some(files) = self.manifest.agent.as_ref().and_then(|agent| agent.files.as_ref()) {
            self.files.tree(files.digest, || "run.json".into())?;
        }
        for path in self.files.ending("/trajectories.txt") {
            let text = self.files.read(path, String::new)?;
            let text = String::from_utf8_lossy(&text);
            if text.starts_with("not kept: ") {
                continue;
            }
            let digest = text.strip_suffix('\n').and_then(|text| text.parse().ok());
            let Some(digest) = digest else {
                return Err(document(path, "it is neither a digest nor says why there is none"));
            };
            self.files.tree(digest, || path.to_owned())?;
        }
        Ok(())
    }

    fn spec(
        &self,
        phase: u32,
        name: &str,
        expected: Digest,
        by: impl Fn() -> String,
    ) -> Result<(), VerifyError> {
        let path = format!("{}/spec.json", phase_name(phase, name));
        let spec: Spec = parse(&path, &self.files.read(&path, &by)?)?;
        let found = spec_digest(&spec)?;
        if found != expected {
            return Err(VerifyError::Digest(Box::new(Mismatch {
                path,
                byte: None,
                by: by(),
                expected,
                found,
            })));
        }
        // One of a sandbox that was never built, or whose monitor was killed, knows of no spec.
        let path = format!("{}/end.json", phase_name(phase, name));
        let end: EndReport = parse(&path, &self.files.read(&path, by)?)?;
        if !end.spec_digest.is_empty() && end.spec_digest != expected.to_string() {
            return Err(document(&path, "it is the end report of another spec"));
        }
        Ok(())
    }

    /// Checks a changeset and the tree that it needs; how many changes, and how many bytes.
    fn changeset(&self, candidate: Digest, by: impl Fn() -> String) -> Result<(u64, u64), VerifyError> {
        let path = format!("changesets/{}.json", candidate.hex());
        let bytes = self.files.read_as(&path, candidate, by)?;
        let changes = Changeset::from_json(&bytes).map_err(|error| document(&path, &error.to_string()))?;
        if changes.frozen() != self.manifest.digests.frozen {
            return Err(document(&path, "it is of another frozen tree than the run's"));
        }
        let frozen = self.files.tree(changes.frozen(), || path.clone())?;
        let contents = self.files.tree(changes.contents(), || path.clone())?;
        let fits = |change: &Change| {
            let (before, after) =
                (frozen.get(change.path()).filter(|entry| entry.as_file().is_some()), change.after());
            let known = after.is_none() || contents.get(change.path()) == after.as_ref();
            known
                && match change {
                    Change::Added { .. } => before.is_none(),
                    Change::Changed { .. } => before.is_some() && before != after.as_ref(),
                    Change::Removed { .. } => before.is_some(),
                }
        };
        let changed: BTreeSet<_> = changes.files().iter().map(Change::path).collect();
        // Where a whole tree was compared, it holds what did not change as well.
        let same = |(path, file)| changed.contains(path) || frozen.file(path) == Some(file);
        if !changes.files().iter().all(fits) || !contents.files().all(same) {
            return Err(document(&path, "its changes are not the difference between its two trees"));
        }
        let sizes =
            changes.files().iter().filter_map(|change| change.after()?.as_file().map(|file| file.size));
        Ok((changes.files().len() as u64, sizes.sum()))
    }

    fn gate(
        &self,
        gate: &str,
        candidate: Digest,
        passed: bool,
        report: Digest,
        by: impl Fn() -> String,
    ) -> Result<(), VerifyError> {
        let path = format!("changesets/{}.{gate}.json", candidate.hex());
        let read: GateReport = parse(&path, &self.files.read_as(&path, report, by)?)?;
        let fits =
            read.gate == gate && read.candidate == candidate && read.words.len() == read.refusals.len();
        if fits && passed == read.refusals.is_empty() {
            return Ok(());
        }
        Err(document(&path, "it is the report of another gate, or says otherwise than the journal"))
    }

    /// Counts a verdict again.
    fn verdict(
        &self,
        line: u64,
        path: &str,
        digest: Digest,
        metric: &Metric,
        said: (Option<Score>, Counts),
    ) -> Result<Verdict, VerifyError> {
        let bytes = self.files.read_as(path, digest, || format!("line {line} of the journal"))?;
        let (verdict, Tally { score, counts }) =
            Verdict::decode(&bytes, metric).map_err(|error| document(path, &words(&error)))?;
        let written = verdict.to_json().map_err(crate::run::RunError::from)?;
        if let Some(byte) = first_difference(&written, &bytes) {
            let why = "not canonical JSON".to_owned();
            return Err(VerifyError::Document { path: path.to_owned(), byte: Some(byte), why });
        }
        if (score, counts) != said {
            let text = |value: (Option<Score>, Counts)| {
                let score = value.0.map_or_else(|| "no score".to_owned(), |score| score.to_string());
                format!("{score} ({} of {} graded)", value.1.graded(), value.1.planned)
            };
            let why = format!("it says {}, but {path} amounts to {}", text(said), text((score, counts)));
            return Err(VerifyError::Event { line, why });
        }
        Ok(verdict)
    }
}

/// Checks that what the receipt says is what the run's files say.
pub(super) fn same_predicate(
    said: &crate::receipt::Predicate,
    found: &crate::receipt::Predicate,
) -> Result<(), VerifyError> {
    let value =
        |predicate| serde_json::to_value(predicate).map_err(|error| document(RECEIPT, &error.to_string()));
    let differs = |(field, said, found)| VerifyError::Predicate { field, said, found };
    difference("", &value(said)?, &value(found)?).map_or(Ok(()), |difference| Err(differs(difference)))
}

/// The first place at which two documents differ, and what they have there.
fn difference(place: &str, one: &Value, other: &Value) -> Option<(String, String, String)> {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => one.keys().chain(other.keys()).find_map(|key| {
            let place = if place.is_empty() { key.clone() } else { format!("{place}.{key}") };
            let value = |fields: &Map<String, Value>| fields.get(key).cloned().unwrap_or_default();
            difference(&place, &value(one), &value(other))
        }),
        (Value::Array(one), Value::Array(other)) => (0..one.len().max(other.len())).find_map(|index| {
            let value = |items: &[Value]| items.get(index).cloned().unwrap_or_default();
            difference(&format!("{place}[{index}]"), &value(one), &value(other))
        }),
        _ => (one != other).then(|| (place.to_owned(), one.to_string(), other.to_string())),
    }
}

fn verdict_path(phase: u32, name: &str) -> String {
    format!("{}/verdict.json", phase_name(phase, name))
}

fn parse<T: for<'de> Deserialize<'de>>(path: &str, bytes: &[u8]) -> Result<T, VerifyError> {
    serde_json::from_slice(bytes).map_err(|error| document(path, &error.to_string()))
}

fn document(path: &str, why: &str) -> VerifyError {
    VerifyError::Document { path: path.to_owned(), byte: None, why: why.to_owned() }
}

/// An error with what caused it.
fn words(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_difference_is_named() {
        let one = json!({"a": 1, "b": [{"c": "x"}, {"c": "y"}]});
        assert_eq!(difference("", &one, &one), None);
        for (other, place, found) in [
            (json!({"a": 2, "b": []}), "a", "2"),
            (json!({"a": 1, "b": [{"c": "x"}, {"c": "z"}]}), "b[1].c", "\"z\""),
            (json!({"a": 1, "b": [{"c": "x"}]}), "b[1]", "null"),
            (json!({"a": 1, "b": [{"c": "x"}, {"c": "y"}, 3]}), "b[2]", "3"),
        ] {
            let (at, _, there) = difference("", &one, &other).unwrap();
            assert_eq!((at.as_str(), there.as_str()), (place, found));
        }
    }
}
