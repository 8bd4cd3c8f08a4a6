//! Making a run, and taking one up again.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use airlock_policy::BestEffort;
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::sync::watch;

use super::candidate::ignored;
use super::directory::{at, read_file, remove_directory, write_file};
use super::error::{RunError, call, tree};
use super::leftovers;
use super::manifest::{
    Agent, BudgetFacts, Digests, MANIFEST_VERSION, Manifest, RUN_JSON, Supplied, TaskFacts,
};
use super::parts::part_digest;
use super::phase::policy_digest;
use super::state::State;
use super::{Means, RunDirectory, Supervisor, agent_files, agent_program, gpus, stillness, unseen};
use crate::Digest;
use crate::journal::{Decision, Event, Genesis, Journal, Moment, Record, canonical};
use crate::seal::{Limits, Sealed, Store, seal_without};
use crate::task::{PhaseName, Task};

/// Airlock's other programs on the host.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `airlock-harness`, a static binary.
    pub harness: PathBuf,
    /// `airlock-grader`, a static binary.
    pub grader: PathBuf,
}

/// What a run is made of.
#[derive(Clone, Debug, Default)]
pub struct CreateOptions {
    /// The task directory.
    pub task: PathBuf,
    /// The agent's program and arguments; empty: a baseline, which scores the frozen source itself.
    pub agent: Vec<String>,
    /// The directory of the agent's own files, of which a copy is mounted read-only at `/opt/agent`.
    pub agent_files: Option<PathBuf>,
    /// Assets that the task leaves to the operator, by name.
    pub assets: BTreeMap<String, PathBuf>,
    /// Another budget of research than the task's; the run is then not official.
    pub explore: Option<Duration>,
    /// Clauses of every policy that may be lowered to what the host can do.
    pub best_effort: BTreeSet<BestEffort>,
}

/// The scripts beside the client, by name.
const SCRIPTS: [(&str, &str); 5] = [
    ("fast_eval.sh", include_str!("../../harness/fast_eval.sh")),
    ("no_candidate.sh", include_str!("../../harness/no_candidate.sh")),
    ("submit.sh", include_str!("../../harness/submit.sh")),
    ("timer.sh", include_str!("../../harness/timer.sh")),
    ("validate.sh", include_str!("../../harness/validate.sh")),
];

impl Supervisor {
    /// Makes a run in a directory that does not exist or is empty.
    ///
    /// # Errors
    /// Everything that is wrong with task and options, before anything is started.
    pub fn create(path: &Path, options: CreateOptions, means: Means) -> Result<Supervisor, RunError> {
        let dir = fs::canonicalize(&options.task).map_err(at("finding the task", &options.task))?;
        let mut task = Task::load(&dir)?;
        let supplied = supplied(&task, &options.assets)?;
        lower(&mut task, &options.best_effort);
        if !options.agent.is_empty() {
            stillness::check(&task, means.cgroup_parent.as_deref())?;
            agent_program::check(&task, &options.agent, options.agent_files.as_deref())?;
        }
        let gpus = gpus::check(&task, options.agent.is_empty())?;
        let directory = RunDirectory::create(path)?;
        let made = || -> Result<Supervisor, RunError> {
            unseen::check(&task, directory.path(), &supplied)?;
            directory.check_room()?;
            let harness = make_harness(&directory, &means.programs, &task)?;
            let store = Store::open(&directory.join("store")).map_err(tree("opening the store"))?;
            let environment = task.dir.join("environment");
            let source = File::open(&environment).map_err(at("opening", &environment))?;
            let frozen = seal_without(source.as_fd(), &ignored(&task)?, &store, &Limits::default());
            let frozen = frozen.map_err(tree("sealing environment/"))?;
            let agent = match &options.agent_files {
                _ if options.agent.is_empty() => None,
                Some(files) => {
                    let files = agent_files::take(files, &task, directory.path(), &supplied, &store)?;
                    Some(Agent { command: options.agent.clone(), files: Some(files) })
                }
                None => Some(Agent { command: options.agent.clone(), files: None }),
            };
            let manifest = Manifest {
                gpus: gpus.into_iter().collect(),
                ..manifest(&task, &options, agent, supplied, harness, frozen.digest(), &means)?
            };
            let (store, frozen) = (Arc::new(store), Arc::new(frozen));
            let bytes = manifest.to_bytes()?;
            write_file(&directory.join(RUN_JSON), &bytes)?;
            let journal = Journal::create(directory.path(), &manifest.genesis(&bytes))?;
            let (directory, state) = (directory.clone(), State::default());
            let supervisor = Supervisor::new(directory, manifest, task, store, frozen, journal, state, means);
            supervisor.begin(&bytes)?;
            Ok(supervisor)
        };
        made().inspect_err(|_| drop(remove_directory(directory.path())))
    }

    /// The first event.
    fn begin(&self, bytes: &[u8]) -> Result<(), RunError> {
        let Genesis { run_id, run } = self.manifest.genesis(bytes);
        self.append(Event::RunCreated { run_id, run })
    }

    /// Takes up a run whose supervisor died or was ended, with an operator's decision if it was interrupted.
    pub fn resume(path: &Path, decision: Option<Decision>, means: Means) -> Result<Supervisor, RunError> {
        let directory = RunDirectory::at(path)?;
        let (manifest, bytes) = read_manifest(&directory)?;
        if means.key.public().id() != manifest.key {
            return Err(RunError::Options(format!(
                "the run was made for the key {}, and this one is {}; name the right one with --key",
                manifest.key,
                means.key.public().id()
            )));
        }
        let opened = Journal::open(directory.path(), &manifest.genesis(&bytes))?;
        let state = State::of(&opened.records);
        let mut task = Task::load(&manifest.task.dir)?;
        lower(&mut task, &manifest.best_effort);
        // A run whose task is not what it was can still be closed.
        if state.closed.is_none() && decision != Some(Decision::Close) {
            same_task(&task, &manifest)?;
            same_program(&means.programs.grader, manifest.digests.grader)?;
            same_program(&directory.join("harness"), manifest.digests.harness)?;
            if manifest.agent.is_some() {
                stillness::check(&task, means.cgroup_parent.as_deref())?;
            }
            unseen::check(&task, directory.path(), &manifest.digests.supplied)?;
        }
        let store = Store::open(&directory.join("store")).map_err(tree("opening the store"))?;
        let frozen = store.get(manifest.digests.frozen).map_err(tree("looking for the frozen source"))?;
        let frozen =
            frozen.ok_or_else(|| RunError::Options("the store has lost the frozen source".into()))?;
        let (store, frozen) = (Arc::new(store), Arc::new(frozen));
        let supervisor =
            Supervisor::new(directory, manifest, task, store, frozen, opened.journal, state, means);
        if opened.records.is_empty() {
            supervisor.begin(&bytes)?;
        }
        supervisor.take_up(decision)?;
        Ok(supervisor)
    }

    #[allow(clippy::too_many_arguments, reason = "each is a field; there is no order among them to mistake")]
    fn new(
        directory: RunDirectory,
        manifest: Manifest,
        task: Task,
        store: Arc<Store>,
        frozen: Arc<Sealed>,
        journal: Journal,
        state: State,
        means: Means,
    ) -> Supervisor {
        let Means { launcher, programs, key, cgroup_parent, validations_at_once, watcher } = means;
        Supervisor {
            directory,
            manifest,
            task,
            store,
            frozen,
            launcher: Arc::new(launcher),
            research_over: watch::Sender::new(false),
            programs,
            key,
            cgroup_parent,
            validations_at_once,
            watcher,
            journal: RefCell::new(journal),
            state: RefCell::new(Rc::new(state)),
            running_tickets: RefCell::default(),
            logs: RefCell::default(),
            scratch: Cell::new(0),
        }
    }

    fn take_up(&self, decision: Option<Decision>) -> Result<(), RunError> {
        if self.state().closed.is_some() {
            return match decision {
                Some(_) => Err(RunError::Options("the run is closed; nothing is left to decide".into())),
                None => Ok(()),
            };
        }
        self.append(Event::Resumed {})?;
        leftovers::end(&self.unended())?;
        self.journal_lost()?;
        self.interrupt_if_cut_off()?;
        match decision {
            // Closing is an operator's right at any time.
            Some(decision) if decision == Decision::Close || self.state().interrupted.is_some() => {
                self.append(Event::Decided { decision })
            }
            Some(_) => {
                Err(RunError::Options("the run is not interrupted; resume it without a decision".into()))
            }
            None => Ok(()),
        }
    }
}

/// The manifest of a run, and its bytes.
pub(crate) fn read_manifest(directory: &RunDirectory) -> Result<(Manifest, Vec<u8>), RunError> {
    let path = directory.join(RUN_JSON);
    let bytes = read_file(&path)?;
    let manifest = Manifest::from_bytes(&bytes)
        .map_err(|fault| RunError::Manifest { path: path.clone(), why: fault.to_string() })?;
    Ok((manifest, bytes))
}

/// Checks that the task is still the one of the run.
fn same_task(task: &Task, manifest: &Manifest) -> Result<(), RunError> {
    let parts = task_parts(task)?;
    for (part, expected) in &manifest.digests.parts {
        match parts.get(part) {
            None => return Err(RunError::PartsChanged(format!("{part} is gone"))),
            Some(found) if found != expected => {
                let (part, expected, found) = (part.clone(), *expected, *found);
                return Err(RunError::PartChanged { part, expected, found });
            }
            Some(_) => {}
        }
    }
    match parts.keys().find(|part| !manifest.digests.parts.contains_key(*part)) {
        Some(new) => Err(RunError::PartsChanged(format!("{new} is new"))),
        None => Ok(()),
    }
}

/// Checks that a program of Airlock's is still the one of the run.
fn same_program(program: &Path, expected: Digest) -> Result<(), RunError> {
    let found = part_digest(program)?;
    if found == expected {
        return Ok(());
    }
    Err(RunError::ProgramChanged { program: program.to_owned(), expected, found })
}

fn task_parts(task: &Task) -> Result<BTreeMap<String, Digest>, RunError> {
    task.digests(part_digest).map_err(|error| match error {
        crate::task::PartError::Digest { source, .. } => source,
        changed => RunError::Options(changed.to_string()),
    })
}

/// Lets the clauses be lowered in every phase.
fn lower(task: &mut Task, best_effort: &BTreeSet<BestEffort>) {
    let checkpoints = task.checkpoints.iter_mut().filter_map(|checkpoints| checkpoints.validation.as_mut());
    for phase in task.phases.values_mut().chain(checkpoints) {
        phase.policy.best_effort.extend(best_effort);
    }
}

fn supplied(task: &Task, assets: &BTreeMap<String, PathBuf>) -> Result<BTreeMap<String, Supplied>, RunError> {
    if let Some(name) = task.supplied().find(|name| !assets.contains_key(*name)) {
        return Err(RunError::Options(format!(
            "the task leaves the asset `{name}` to the operator; name it with --asset {name}=PATH"
        )));
    }
    if let Some(name) = assets.keys().find(|name| !task.supplied().any(|known| known == name.as_str())) {
        return Err(RunError::Options(format!(
            "--asset {name}: the task supplies its own assets by that name, or none"
        )));
    }
    let supply = |(name, path): (&String, &PathBuf)| {
        let path = fs::canonicalize(path).map_err(at("finding", path))?;
        let digest = part_digest(&path)?;
        if let Some(expected) =
            task.assets.get(name).and_then(|asset| asset.digest).filter(|known| *known != digest)
        {
            return Err(RunError::PartChanged { part: format!("asset {name}"), expected, found: digest });
        }
        Ok((name.clone(), Supplied { path, digest }))
    };
    assets.iter().map(supply).collect()
}

/// Fills `RUN/harness` with the client and its scripts.
fn make_harness(directory: &RunDirectory, programs: &Programs, task: &Task) -> Result<Digest, RunError> {
    let place = directory.join("harness");
    let with_mode = |path: &Path, mode| {
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).map_err(at("setting the mode of", path))
    };
    let client = place.join("airlock-harness");
    fs::copy(&programs.harness, &client).map_err(at("copying", &programs.harness))?;
    with_mode(&client, 0o755)?;
    let mut scripts: Vec<(&str, String)> = SCRIPTS.map(|(name, text)| (name, text.to_owned())).to_vec();
    if let Some(proxy) = task.proxy.as_ref().filter(|proxy| !proxy.command.is_empty()) {
        let words: Vec<String> = proxy.command.iter().map(|word| quote(word)).collect();
        scripts.push(("proxy", format!("#!/bin/sh\nexec {} \"$@\"\n", words.join(" "))));
    }
    let instruction = task.dir.join("instruction.md");
    if instruction.exists() {
        let copy = place.join("instruction.md");
        fs::copy(&instruction, &copy).map_err(at("copying", &instruction))?;
        with_mode(&copy, 0o644)?;
    }
    for (name, text) in scripts {
        let path = place.join(name);
        fs::write(&path, text).map_err(at("writing", &path))?;
        with_mode(&path, 0o755)?;
    }
    with_mode(&place, 0o755)?;
    with_mode(&directory.join("feedback"), 0o755)?;
    part_digest(&place)
}

/// A word as sh(1) reads it.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn manifest(
    task: &Task,
    options: &CreateOptions,
    agent: Option<Agent>,
    supplied: BTreeMap<String, Supplied>,
    harness: Digest,
    frozen: Digest,
    means: &Means,
) -> Result<Manifest, RunError> {
    let explore_ms = match options.explore {
        Some(time) => u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        None => task.budget.explore.0,
    };
    let mut overrides = Vec::new();
    if explore_ms != task.budget.explore.0 {
        overrides.push(format!("research has {explore_ms} ms instead of {} ms", task.budget.explore.0));
    }
    for clause in &options.best_effort {
        overrides.push(format!("policies may lower `{}`", clause.word()));
    }
    let policies = task.phases.iter().map(|(name, phase)| Ok((*name, policy_digest(&phase.policy)?)));
    let now = Moment::now().map_err(call("reading the clock"))?;
    Ok(Manifest {
        version: MANIFEST_VERSION,
        run_id: run_id(&task.id)?,
        airlock: env!("CARGO_PKG_VERSION").to_owned(),
        created: (&now).into(),
        task: facts(task),
        digests: Digests {
            task: Digest::of(&canonical(task)?),
            parts: task_parts(task)?,
            supplied,
            frozen,
            harness,
            grader: part_digest(&means.programs.grader)?,
            policies: policies.collect::<Result<_, RunError>>()?,
        },
        agent,
        budget: BudgetFacts {
            explore_ms,
            replay_ms: task.budget.replay.map(|time| time.0),
            grace_ms: task.budget.grace.0,
            validation_counts: task.budget.validation_counts,
        },
        gpus: Vec::new(),
        best_effort: options.best_effort.clone(),
        overrides,
        key: means.key.public().id(),
    })
}

fn facts(task: &Task) -> TaskFacts {
    let score = task.phases.get(&PhaseName::Score);
    TaskFacts {
        id: task.id.clone(),
        title: task.title.clone(),
        dir: task.dir.clone(),
        lifecycle: task.lifecycle,
        submission: task.submission,
        metric: task.metric.clone(),
        proxy: task.proxy.as_ref().map(|proxy| proxy.metric.clone()),
        ladder: task.ladder.clone(),
        checkpoints: task.checkpoints.as_ref().map(|checkpoints| checkpoints.limit),
        in_process: score.is_some_and(crate::task::Phase::in_process),
    }
}

/// The task's name and 48 random bits.
fn run_id(task: &str) -> Result<String, RunError> {
    let mut random = [0; 6];
    getrandom(&mut random, GetRandomFlags::empty()).map_err(|error| call("naming the run")(error.into()))?;
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{task}-{digits}"))
}

/// Tells nobody.
pub fn no_watcher() -> Box<dyn Fn(&Record)> {
    Box::new(|_| {})
}
