//! From a directory to a task.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use airlock_policy::Duration;
use airlock_policy::embed::{At, Fault, Quantity, Source, duration, parse, read_file};

use super::draft::Draft;
use super::error::{Finding, TaskError};
use super::harbor::{Resources, TaskFile, seconds, unused};
use super::mounts::Context;
use super::resolved::{Asset, Budget, Checkpoints, NamedMetric, Phase, Proxy, Task};
use super::reward::REWARD_ITEM;
use super::schema::{
    AirlockTable, BudgetTable, CheckpointsTable, Lifecycle, MetricTable, PhaseName, PhaseTable, Submission,
};

/// Where workspaces are mounted.
const WORKSPACE: &str = "/workspace";
/// From the request to end to the end by force.
pub(super) const GRACE: Duration = Duration(10_000);

impl Task {
    /// Loads the task in a directory.
    ///
    /// # Errors
    /// Every mistake in `task.toml` and in the tree, unless the text is not TOML of the right shape: then the first.
    pub fn load(dir: &Path) -> Result<Task, TaskError> {
        let path = dir.join("task.toml");
        let text = read_file(&path).map_err(|source| TaskError::Read { path: path.clone(), source })?;
        let source = Source::new(&path.display().to_string(), &text);
        let file: TaskFile = parse(&source).map_err(|wrong| TaskError::Invalid(vec![wrong.into()]))?;
        let mut draft = Draft { dir, source: &source, findings: Vec::new() };
        let files = draft.layout(file.airlock.is_some());
        let task = draft.task(file, &files);
        let mut findings = draft.findings;
        match task {
            Some(task) if findings.is_empty() => Ok(Task { unused: unused(&source, &text), ..task }),
            _ => {
                findings.sort_by_key(order);
                Err(TaskError::Invalid(findings))
            }
        }
    }
}

/// The JSON Schema (draft 2020-12) of a `task.toml`. Keys outside of `[airlock]` are Harbor's, and open.
pub fn json_schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(TaskFile);
    schema.insert("title".into(), "Airlock task".into());
    schema.to_value()
}

/// By file and place, what is wrong with the tree last.
fn order(finding: &Finding) -> (bool, String, usize, usize) {
    match finding {
        Finding::Text(diagnostic) => {
            let place = &diagnostic.place;
            (false, place.file.clone(), place.line, place.column)
        }
        Finding::Tree { path, .. } => (true, path.display().to_string(), 0, 0),
    }
}

impl Draft<'_> {
    fn task(&mut self, file: TaskFile, files: &[PathBuf]) -> Option<Task> {
        if let Some(steps) = &file.steps {
            let fault = Fault::new("tasks of several steps cannot be run");
            self.at(steps, fault.help("make a task of each step"));
        }
        let resources = Resources::read(&file.environment, |span, fault| self.fault(span, fault));
        match file.airlock {
            Some(table) => self.airlock(table, &resources, files),
            None => {
                let mut time = |stated: &Option<At<f64>>| {
                    let stated = stated.as_ref()?;
                    self.ok(stated, seconds(**stated))
                };
                let (agent, tests) = (time(&file.agent.timeout_sec), time(&file.verifier.timeout_sec));
                self.plain(agent, tests, &resources)
            }
        }
    }

    fn airlock(&mut self, table: At<AirlockTable>, resources: &Resources, files: &[PathBuf]) -> Option<Task> {
        let span = table.span();
        let table = table.into_inner();
        if *table.version != 1 {
            let fault = Fault::new(format!("version {} of the task format is unknown", *table.version));
            self.at(&table.version, fault.help("this Airlock reads `version = 1`"));
        }
        let (lifecycle, submission) = (*table.lifecycle, *table.submission);
        if lifecycle == Lifecycle::Replay && submission == Submission::Tree {
            let fault = Fault::new(
                "lifecycle `replay` runs a patch from scratch; a tree would bring its results along",
            );
            self.at(&table.submission, fault.help("submission = \"patch\""));
        }
        let id = match &table.id {
            Some(id) => self.name(id),
            None => Some(directory_name(self.dir)),
        };
        let editable = self.editable(&table.editable, files);
        let budget = self.budget(&table.budget, lifecycle);
        let assets = self.assets(table.asset);
        let has_tests = self.dir.join("tests").is_dir();
        let context = Context { lifecycle, assets: &assets, workspace: WORKSPACE, has_tests };
        let validate = |phase: &&At<PhaseTable>| *phase.name == PhaseName::Validate;
        let validates = table.phase.iter().find(validate).map(|phase| phase.name.span());
        let phases = self.phases(span.clone(), table.phase, budget.as_ref(), resources, &context);
        let checkpoints =
            self.kept(span, table.checkpoints.as_ref(), lifecycle, phases.get(&PhaseName::Score), &assets);
        let proxy = match table.proxy.as_ref() {
            Some(proxy) => self.proxy(proxy, validates.is_some()).map(Some),
            None => Some(None),
        };
        if let (Some(span), None) = (validates, &table.proxy) {
            let fault = Fault::new("the phase `validate` measures the proxy, and there is none");
            self.fault(span, fault.help("add [airlock.proxy]"));
        }
        let metric = self.metric(&table.metric);
        if let Some(command) = &table.metric.command {
            let fault =
                Fault::new("`command` belongs to [airlock.proxy]: the agent never measures the metric");
            self.at(command, fault.help("the phase `score` names the scorer"));
        }
        self.reward_items(phases.get(&PhaseName::Score), metric.as_ref(), &table.metric);
        if let (Some(stated), Some(Some(proxy))) = (&table.proxy, &proxy) {
            self.reward_items(phases.get(&PhaseName::Validate), Some(&proxy.metric), stated);
        }
        let ladder = match &table.ladder {
            Some(ladder) => self.ladder(ladder, &table.metric.direction).map(Some),
            None => Some(None),
        };
        let gates = self.gates(table.gates, editable.as_ref(), submission, &assets);
        let references = self.references(&table.references, table.ladder.as_deref());
        Some(Task {
            dir: self.dir.to_owned(),
            id: id?,
            title: table.title,
            lifecycle,
            submission,
            editable: editable?,
            budget: budget?,
            storage: resources.storage,
            phases,
            assets,
            checkpoints: checkpoints?,
            proxy: proxy?,
            metric: metric?,
            ladder: ladder?,
            gates,
            references,
            unused: Vec::new(),
        })
    }

    fn budget(&mut self, table: &BudgetTable, lifecycle: Lifecycle) -> Option<Budget> {
        let mut time = |stated: &At<Quantity>| self.ok(stated, duration(stated));
        let explore = time(&table.explore);
        let replay = table.replay.as_ref().map(&mut time);
        let grace = table.grace.as_ref().map_or(Some(GRACE), time);
        match (&table.replay, lifecycle) {
            (None, Lifecycle::Replay) => {
                let fault = Fault::new("the replay has no time");
                self.at(&table.explore, fault.help("say `replay = \"12h\"` beside it"));
                return None;
            }
            (Some(replay), Lifecycle::Direct) => {
                self.at(replay, Fault::new("`replay` belongs to lifecycle `replay`"));
                return None;
            }
            _ => {}
        }
        let replay = match replay {
            Some(time) => Some(time?),
            None => None,
        };
        let validation_counts = table.validation_counts.unwrap_or(true);
        Some(Budget { explore: explore?, replay, grace: grace?, validation_counts })
    }

    /// What a lifecycle keeps of a replay.
    fn kept(
        &mut self,
        span: Range<usize>,
        table: Option<&At<CheckpointsTable>>,
        lifecycle: Lifecycle,
        score: Option<&Phase>,
        assets: &BTreeMap<String, Asset>,
    ) -> Option<Option<Checkpoints>> {
        match (table, lifecycle) {
            (Some(table), Lifecycle::Replay) => self.checkpoints(table, score, assets).map(Some),
            (None, Lifecycle::Direct) => Some(None),
            (Some(table), Lifecycle::Direct) => {
                let fault = Fault::new("[airlock.checkpoints] belongs to lifecycle `replay`");
                self.at(table, fault.help("lifecycle `direct` scores the one selected candidate"));
                None
            }
            (None, Lifecycle::Replay) => {
                let fault = Fault::new("lifecycle `replay` needs [airlock.checkpoints]");
                self.fault(span, fault.help("name = \"step-{progress}\""));
                None
            }
        }
    }

    /// A reward file has one number, so one item is planned.
    fn reward_items(&mut self, phase: Option<&Phase>, metric: Option<&NamedMetric>, table: &MetricTable) {
        let (Some(phase), Some(metric)) = (phase, metric) else { return };
        if phase.in_process() && metric.metric.items() != [REWARD_ITEM] {
            let fault = Fault::new("a reward file holds one number");
            self.at(&table.items, fault.help(format!("items = [\"{REWARD_ITEM}\"]")));
        }
    }

    fn proxy(&mut self, table: &At<MetricTable>, validates: bool) -> Option<Proxy> {
        let metric = self.metric(table);
        if table.command.is_none() && !validates {
            let fault = Fault::new("nobody can measure the proxy");
            self.at(
                table,
                fault.help("give it a `command` for fast_eval.sh, or the task a phase `validate`"),
            );
        }
        let command = match &table.command {
            Some(command) => self.command(command)?,
            None => Vec::new(),
        };
        Some(Proxy { metric: metric?, command })
    }
}

pub(super) fn directory_name(dir: &Path) -> String {
    let real = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    real.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
