//! `airlock demo`: a bundled miniature task, led from research to its receipt three times.

mod agents;
mod checked;
mod place;
mod show;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;

use airlock_grader::Digest;
use airlock_grader::journal::{Event, Outcome, Record};
use airlock_grader::run::{CreateOptions, Ending, Means, Programs, Supervisor, phase_name};
use airlock_grader::score::{Score, Sigma};
use airlock_policy::BestEffort;
use airlock_runtime::doctor::{self, Status};
use airlock_runtime::launcher::Launcher;
use airlock_runtime::state::Sandboxes;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{Signal, SignalKind, signal};

use self::agents::{Attempt, Role};
use self::checked::Checked;
use self::place::Place;
use self::show::Teller;
use super::task::programs;
use crate::args::DemoArgs;

/// Something did not go as it must.
const FAILED: u8 = 1;
/// What `doctor` calls the limits that the task asks for.
const LIMITS: [&str; 4] = ["cgroup-memory", "cgroup-pids", "cgroup-cpu", "swap"];

/// What a demo came to.
#[derive(Serialize)]
struct Demo {
    directory: PathBuf,
    public_key: PathBuf,
    /// Clauses that this host cannot enforce for this caller.
    lowered: Vec<&'static str>,
    runs: Vec<RunResult>,
    attempts: Vec<Attempt>,
    /// What the patch gate said of the cheating agent's submission.
    refusals: Vec<String>,
    /// What verification says of the runs.
    verified: Vec<Checked>,
    /// What it says of a copy in which one byte is another.
    tampered: Checked,
    seconds: f64,
    /// Everything went as it must.
    held: bool,
}

impl Demo {
    /// The last line for people.
    fn verdict(&self) -> String {
        if !self.held {
            return "demo: NOT everything went as it must; see above".into();
        }
        let (tried, seconds) = (self.attempts.len(), self.seconds);
        format!(
            "demo: the honest agent is scored, and {tried} of {tried} attempts to cheat failed ({seconds:.0} s)"
        )
    }
}

/// One run.
#[derive(Serialize)]
struct RunResult {
    role: Role,
    run: PathBuf,
    report: PathBuf,
    outcome: Outcome,
    score: Option<Score>,
    sigma: Option<Sigma>,
    seconds: f64,
    /// Where the agent's logs are.
    #[serde(skip)]
    research: Option<PathBuf>,
    /// What the agent submitted.
    #[serde(skip)]
    submitted: Option<Digest>,
}

pub(crate) fn demo(args: DemoArgs) -> Result<ExitCode> {
    let programs = programs()?;
    if !["/usr/bin/python3", "/usr/local/bin/python3"].iter().any(|path| PathBuf::from(path).exists()) {
        bail!("the bundled task is in Python, and there is no /usr/bin/python3; install python3");
    }
    // Where this caller has no place for the state of sandboxes, no run would come to anything.
    Sandboxes::open()?;
    let lowered = lowered();
    // Before there is a key, a journal or a thread.
    let launchers = [Launcher::start()?, Launcher::start()?, Launcher::start()?];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut ends = {
        let _inside = runtime.enter();
        Ends::new()?
    };
    let mut place = Place::make(args.run.as_deref())?;
    let teller = Rc::new(Teller::new(args.format.json));
    let played = {
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            tokio::select! {
                demo = play(&place, launchers, &programs, lowered, &teller) => demo,
                () = ends.any() => bail!("interrupted"),
            }
        })
    };
    // Nothing works in the directory any more when it is removed.
    drop(runtime);
    if args.keep || played.is_ok() {
        place.keep()?;
    }
    let demo = played?;
    if args.format.json {
        show::json(&demo)?;
    } else {
        teller.print(&show::ending(&demo));
    }
    Ok(ExitCode::from(if demo.held { 0 } else { FAILED }))
}

async fn play(
    place: &Place,
    launchers: [Launcher; 3],
    programs: &Programs,
    lowered: BTreeSet<BestEffort>,
    teller: &Rc<Teller>,
) -> Result<Demo> {
    let started = Instant::now();
    teller.print("A miniature task: mix eight weak models of handwritten digits into a better one.\n");
    if !lowered.is_empty() {
        teller.print(
            "This caller has no delegated cgroup, so memory, process and CPU limits are not\n\
             enforced. The receipts say so; `airlock doctor` says what to do about it.\n",
        );
    }
    let mut runs = Vec::new();
    for (role, launcher) in Role::ALL.into_iter().zip(launchers) {
        teller.title(role.title());
        runs.push(lead(place, role, launcher, programs, &lowered, teller).await?);
    }
    let [baseline, honest, cheat] = &runs[..] else { bail!("not all runs were led") };
    let attempts = match &cheat.research {
        Some(phase) => agents::attempts(phase)?,
        None => Vec::new(),
    };
    let refusals = refusals(cheat)?;
    teller.print(&show::refusals(&refusals));
    teller.print(&show::attempts(&attempts));
    teller.title("4  Anybody with the public key verifies the runs, offline");
    let key = place.key()?.public();
    let mut verified = Vec::new();
    for run in &runs {
        let checked = checked::checked(run.role.name(), &run.run, &key)?;
        teller.print(&show::checked(&checked));
        verified.push(checked);
    }
    let tampered = checked::tampered(&honest.run, place.path(), &key)?;
    teller.print(&show::checked(&tampered));
    let held = baseline.outcome == Outcome::Scored
        && honest.outcome == Outcome::Scored
        && honest.sigma > baseline.sigma
        && cheat.outcome == Outcome::GateFailed
        && !attempts.is_empty()
        && attempts.iter().all(|attempt| attempt.held)
        && verified.iter().all(|checked| checked.verified)
        && !tampered.verified;
    Ok(Demo {
        directory: place.path().to_owned(),
        public_key: place.public_key(),
        lowered: lowered.iter().map(|clause| clause.word()).collect(),
        attempts,
        refusals,
        verified,
        tampered,
        runs,
        seconds: started.elapsed().as_secs_f64(),
        held,
    })
}

/// Leads one run to its end.
async fn lead(
    place: &Place,
    role: Role,
    launcher: Launcher,
    programs: &Programs,
    lowered: &BTreeSet<BestEffort>,
    teller: &Rc<Teller>,
) -> Result<RunResult> {
    let started = Instant::now();
    let records = Rc::new(RefCell::new(Vec::new()));
    let (heard, told) = (Rc::clone(&records), Rc::clone(teller));
    let means = Means {
        launcher,
        programs: programs.clone(),
        key: place.key()?,
        cgroup_parent: None,
        validations_at_once: 1,
        watcher: Box::new(move |record: &Record| {
            told.event(record);
            heard.borrow_mut().push(record.event.clone());
        }),
    };
    let agent = role.command(place);
    let options = CreateOptions {
        task: place.task(),
        agent_files: (!agent.is_empty()).then(|| place.agents()),
        agent,
        best_effort: lowered.clone(),
        ..CreateOptions::default()
    };
    let run = place.path().join(role.name());
    let supervisor = Rc::new(Supervisor::create(&run, options, means)?);
    let outcome = match supervisor.drive().await? {
        Ending::Closed(outcome) => outcome,
        Ending::Interrupted(cause) => bail!("the run of the {} is interrupted: {cause}", role.name()),
    };
    let mut result = RunResult {
        role,
        report: run.join("report.html"),
        run,
        outcome,
        score: None,
        sigma: None,
        seconds: started.elapsed().as_secs_f64(),
        research: None,
        submitted: None,
    };
    for event in records.borrow().iter() {
        match event {
            Event::PhaseStarted { phase, name, .. } if name == "explore" => {
                result.research = Some(result.run.join(phase_name(*phase, name)));
            }
            Event::Submitted { candidate } => result.submitted = Some(*candidate),
            Event::Scored { score, sigma, .. } => (result.score, result.sigma) = (*score, *sigma),
            _ => {}
        }
    }
    if let (Role::Honest, true, Some(phase)) = (role, outcome != Outcome::Scored, &result.research) {
        bail!("the honest agent has no score; the last that it said: {}", agents::last_words(phase)?);
    }
    Ok(result)
}

/// What the patch gate said of a submission, from its report in the run.
fn refusals(run: &RunResult) -> Result<Vec<String>> {
    #[derive(Deserialize)]
    struct GateReport {
        words: Vec<String>,
    }

    let Some(submitted) = run.submitted else { return Ok(Vec::new()) };
    let path = run.run.join(format!("changesets/{}.submission.json", submitted.hex()));
    let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    let report: GateReport =
        serde_json::from_slice(&bytes).with_context(|| format!("reading {}", path.display()))?;
    Ok(report.words)
}

/// The limits, where this host cannot enforce those that the task asks for.
fn lowered() -> BTreeSet<BestEffort> {
    let checks = doctor::examine();
    let lacking = checks.iter().any(|check| LIMITS.contains(&check.id) && check.status == Status::Lacking);
    lacking.then_some(BestEffort::Limits).into_iter().collect()
}

/// The signals that end a demo.
struct Ends([Signal; 3]);

impl Ends {
    fn new() -> Result<Ends> {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [interrupt, terminate, hangup] = kinds.map(signal);
        Ok(Ends([interrupt?, terminate?, hangup?]))
    }

    async fn any(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}
