//! The page about a run, from what lies in its directory.

use serde::Deserialize;

use super::directory::{at, read_file};
use super::error::RunError;
use super::phase::end_report;
use super::state::names;
use super::verdict::Verdict;
use super::{Manifest, RunDirectory};
use crate::Digest;
use crate::journal::{Event, Record};
use crate::report::{GateWords, Graded, PhaseReport, ReceiptFacts, ReportInput, ReportTask, render};

/// The page's name in the run directory.
pub(crate) const REPORT: &str = "report.html";

/// The page about a run, finished or not.
pub(crate) fn page(
    directory: &RunDirectory,
    manifest: &Manifest,
    records: &[Record],
    receipt: Option<&ReceiptFacts>,
) -> Result<String, RunError> {
    let mut phases = Vec::new();
    let mut graded = Vec::new();
    let mut gates = Vec::new();
    for record in records {
        match &record.event {
            Event::PhaseStarted { phase, name, .. } => {
                let has_ended = directory.phase(*phase, name).join("end.json").exists();
                if has_ended {
                    let end = end_report(directory.path(), *phase, name)?;
                    phases.push(PhaseReport { phase: *phase, name: name.clone(), end });
                }
            }
            Event::ValidationResult { phase, .. } => {
                graded.push(verdict(directory, *phase, names::VALIDATE)?)
            }
            Event::GateResult { gate, candidate, passed: false, report } => {
                gates.push(GateWords { report: *report, words: words(directory, gate, *candidate)? });
            }
            Event::Verdict { phase, .. } => graded.push(verdict(directory, *phase, names::SCORE)?),
            _ => {}
        }
    }
    Ok(render(&ReportInput {
        run_id: &manifest.run_id,
        task: ReportTask::from(manifest),
        records,
        graded: &graded,
        gates: &gates,
        phases: &phases,
        receipt,
    }))
}

/// What a gate refused, as it was written down.
fn words(directory: &RunDirectory, gate: &str, candidate: Digest) -> Result<Vec<String>, RunError> {
    #[derive(Deserialize)]
    struct GateReport {
        words: Vec<String>,
    }

    let path = directory.join(format!("changesets/{}.{gate}.json", candidate.hex()));
    let report: GateReport =
        serde_json::from_slice(&read_file(&path)?).map_err(|error| at("reading", &path)(error.into()))?;
    Ok(report.words)
}

/// What a phase's scorer said, as it was written down.
fn verdict(directory: &RunDirectory, phase: u32, name: &str) -> Result<Graded, RunError> {
    let place = directory.phase(phase, name);
    let path = place.join("verdict.json");
    let verdict = Verdict::parse(&read_file(&path)?)
        .map_err(|error| RunError::Verdict { path, source: Box::new(error) })?;
    // It names the sealed tree, or says why there is none.
    let note = place.join("trajectories.txt");
    let note = if note.exists() { read_file(&note)? } else { Vec::new() };
    let kept: Option<Digest> = String::from_utf8_lossy(&note).trim().parse().ok();
    let trajectories = kept.map(|digest| format!("store/{}/tree", digest.hex()));
    Ok(Graded { phase, items: verdict.items, auxiliary: verdict.auxiliary, trajectories })
}
