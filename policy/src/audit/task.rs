//! What the rules need to know of a task: its phases, and what each mounts.

use std::path::PathBuf;

use super::rule::{Locate, Spot};
use super::spans::Spans;
use crate::diagnostic::{Place, Source};
use crate::merged::Policy;

/// A task, as far as its phases can reach each other's files.
#[derive(Clone, Debug)]
pub struct TaskFacts {
    source: Source,
    spans: Spans,
    /// The phases.
    pub phases: Vec<PhaseFacts>,
    /// What only the scorer may see, as absolute paths of the host: hidden assets, tests, the solution.
    pub answers: Vec<(String, PathBuf)>,
    /// Assets that only scorers may mount: hidden ones and those of validation.
    pub closed: Vec<String>,
    /// Assets whose rows must not occur in what a candidate changes.
    pub gated: Vec<String>,
}

/// One phase.
#[derive(Clone, Debug)]
pub struct PhaseFacts {
    /// As the task names it.
    pub name: String,
    /// Whose code runs in it.
    pub role: Role,
    /// Its policy, with what the task changes of it.
    pub policy: Policy,
    /// What the task mounts in it.
    pub mounts: Vec<TaskMount>,
    /// The tests run inside the candidate's process.
    pub in_process: bool,
}

/// Whose code runs in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The agent's or the candidate's.
    Untrusted,
    /// The task author's.
    Scorer,
}

/// A mount whose host path only a run knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskMount {
    /// What.
    pub source: PhaseSource,
    /// Path inside.
    pub target: PathBuf,
    /// It may be written.
    pub writable: bool,
    /// Programs may be run from it.
    pub exec: bool,
}

/// What a phase mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PhaseSource {
    /// What a candidate left: the sealed candidate or a copy of it.
    Candidate,
    /// An asset, by name.
    Asset(String),
    /// Anything else of the task or the run.
    Other,
}

impl TaskFacts {
    /// The text of a `task.toml`, what to call it, and its phases.
    pub fn new(name: &str, text: &str, phases: Vec<PhaseFacts>) -> Self {
        TaskFacts {
            source: Source::new(name, text),
            spans: Spans::toml(text),
            phases,
            answers: Vec::new(),
            closed: Vec::new(),
            gated: Vec::new(),
        }
    }

    /// Where the task states this phase.
    pub(super) fn phase(&self, phase: &PhaseFacts) -> String {
        let named = |index: &usize| {
            let span = self.spans.nearest(&format!("/airlock/phase/{index}/name"));
            let line = self.source.place(span).text;
            line.contains(&format!("\"{}\"", phase.name)) || line.contains(&format!("'{}'", phase.name))
        };
        let index = (0..self.phases.len()).find(named);
        index.map_or_else(|| "/airlock".into(), |index| format!("/airlock/phase/{index}/name"))
    }
}

impl Locate for TaskFacts {
    fn locate(&self, spot: &Spot) -> (String, Place) {
        let (Spot::Member(pointer) | Spot::Clause(pointer)) = spot;
        let clause = pointer.trim_start_matches('/').trim_end_matches("/name").replace('/', ".");
        (clause, self.source.place(self.spans.nearest(pointer)))
    }
}
