//! What a report shows.

use std::collections::BTreeMap;

use airlock_runtime::report::EndReport;

use crate::Digest;
use crate::journal::{Head, Record};
use crate::receipt::{Predicate, PublicKey};
use crate::run::Manifest;
use crate::score::{Decimal, ItemResult, Ladder};
use crate::task::{Lifecycle, NamedMetric};

/// A run, finished or not, as its directory holds it.
#[derive(Clone, Debug)]
pub struct ReportInput<'a> {
    /// The run's name.
    pub run_id: &'a str,
    /// The task.
    pub task: ReportTask<'a>,
    /// The whole journal. Outcome, validations, candidates and times are taken from it.
    pub records: &'a [Record],
    /// One for each verdict, in any order: of `score` phases for the items, of `validate` phases for where their
    /// trajectories are.
    pub graded: &'a [Graded],
    /// One for each report of a gate that refused something, in any order.
    pub gates: &'a [GateWords],
    /// One for each end report, in any order.
    pub phases: &'a [PhaseReport],
    /// The receipt, once there is one.
    pub receipt: Option<&'a ReceiptFacts>,
}

/// What is shown of a task, as `run.json` holds it.
#[derive(Clone, Copy, Debug)]
pub struct ReportTask<'a> {
    /// Its name.
    pub id: &'a str,
    /// One line for people.
    pub title: Option<&'a str>,
    /// How a candidate comes to its final score.
    pub lifecycle: Lifecycle,
    /// What the final score is, and the planned items.
    pub metric: &'a NamedMetric,
    /// What validations measure.
    pub proxy: Option<&'a NamedMetric>,
    /// From the final score to a number between 0 and 1.
    pub ladder: Option<&'a Ladder>,
    /// Wall-clock time of research in milliseconds, as it is applied.
    pub explore_ms: u64,
    /// Whether the tests run within the candidate's own environment.
    pub in_process: bool,
    /// Whether the run scores the unmodified initial system.
    pub baseline: bool,
    /// Every departure from the task as its author wrote it; empty for an official run.
    pub overrides: &'a [String],
}

/// What a verdict says, item by item.
#[derive(Clone, Debug)]
pub struct Graded {
    /// The phase that gave it.
    pub phase: u32,
    /// The items in any order; planned ones that are not among them are missing.
    pub items: Vec<ItemResult>,
    /// Numbers that the scorer reports and that do not count.
    pub auxiliary: BTreeMap<String, Decimal>,
    /// Where the trajectories are: a path in the run directory.
    pub trajectories: Option<String>,
}

/// What a gate refused, for people.
#[derive(Clone, Debug)]
pub struct GateWords {
    /// The report, by its digest.
    pub report: Digest,
    /// A line for each thing that it refused. Untrusted: paths are the candidate's own.
    pub words: Vec<String>,
}

/// How a phase's sandbox ended and what confined it.
#[derive(Clone, Debug)]
pub struct PhaseReport {
    /// The phase, as the journal counts them.
    pub phase: u32,
    /// What it is called in the task.
    pub name: String,
    /// Its end report.
    pub end: EndReport,
}

/// What is shown of a receipt.
#[derive(Clone, Debug)]
pub struct ReceiptFacts {
    /// The version of Airlock that ran the run.
    pub airlock: String,
    /// The name of the key that signed.
    pub key: Digest,
    /// Of the task's frozen parts.
    pub task: Digest,
    /// The journal's length and head.
    pub journal: Head,
    /// How many files it binds.
    pub subjects: u64,
    /// What was weaker than the policies ask for by default, and why.
    pub weaker: Vec<String>,
}

impl<'a> From<&'a Manifest> for ReportTask<'a> {
    fn from(manifest: &'a Manifest) -> ReportTask<'a> {
        let task = &manifest.task;
        ReportTask {
            id: &task.id,
            title: task.title.as_deref(),
            lifecycle: task.lifecycle,
            metric: &task.metric,
            proxy: task.proxy.as_ref(),
            ladder: task.ladder.as_ref(),
            explore_ms: manifest.budget.explore_ms,
            in_process: task.in_process,
            baseline: manifest.agent.is_none(),
            overrides: &manifest.overrides,
        }
    }
}

impl ReceiptFacts {
    /// Of what a receipt says about so many files, and the key that signs it.
    pub fn new(predicate: &Predicate, subjects: u64, key: &PublicKey) -> ReceiptFacts {
        ReceiptFacts {
            airlock: predicate.airlock.clone(),
            key: key.id(),
            task: predicate.task,
            journal: predicate.journal,
            subjects,
            weaker: predicate.weaker.clone(),
        }
    }
}
