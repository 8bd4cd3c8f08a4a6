//! `airlock task run` and `airlock task resume`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use airlock_grader::journal::{Decision, Event, Outcome, Record};
use airlock_grader::receipt::SecretKey;
use airlock_grader::run::{CreateOptions, Ending, MAKING, Means, Programs, RunError, Supervisor};
use airlock_policy::{BestEffort, Overrides};
use airlock_runtime::launcher::Launcher;
use anyhow::{Context, Result, bail};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use super::progress::Progress;
use crate::output;
use crate::task_args::{ResumeArgs, RunTaskArgs, SupervisorArgs};

/// The run is over without a score.
const NO_SCORE: u8 = 1;
/// The run waits for an operator.
const INTERRUPTED: u8 = 3;

pub(crate) fn run(args: RunTaskArgs) -> Result<ExitCode> {
    let best_effort = args.best_effort.iter().map(|word| clause(word)).collect::<Result<_>>()?;
    let explore = args.explore.as_deref().map(time).transpose()?;
    let named = args.run.is_some();
    let path = match args.run {
        Some(path) => path,
        None => default_run(&args.task)?,
    };
    let options = CreateOptions {
        task: args.task,
        agent: args.agent,
        agent_files: args.agent_files,
        assets: args.assets.into_iter().collect(),
        explore,
        best_effort,
    };
    can_be_limited(&options, &args.supervisor)?;
    lead(&args.supervisor, &path, |means| {
        Supervisor::create(&path, options, means).map_err(|error| match &error {
            RunError::Directory(at) if !named && at.step == MAKING && at.path == path => {
                anyhow::Error::new(error).context("no run can be made here; name its directory with --run")
            }
            _ => error.into(),
        })
    })
}

/// Tells before a run is made that this host cannot limit its sandboxes.
fn can_be_limited(options: &CreateOptions, supervisor: &SupervisorArgs) -> Result<()> {
    let best_effort = options.best_effort.iter().map(|clause| clause.word().to_owned()).collect();
    let overrides = Overrides { best_effort, ..Overrides::default() };
    let spec = crate::commands::spec("grader", overrides, vec!["/grader".into()])?;
    let parent = supervisor.cgroup_parent.as_deref().map(crate::commands::cgroup_parent).transpose()?;
    let planned = crate::commands::plan::shown(&spec, parent);
    planned.map(drop).context(
        "the sandboxes of a run cannot be set up here; where limits are what is missing, \
        `--best-effort limits` lets them be lowered, and the receipt says so",
    )
}

pub(crate) fn resume(args: ResumeArgs) -> Result<ExitCode> {
    let decision = match (args.again, args.close) {
        (true, _) => Some(Decision::Again),
        (_, true) => Some(Decision::Close),
        _ => None,
    };
    lead(&args.supervisor, &args.run, |means| Ok(Supervisor::resume(&args.run, decision, means)?))
}

/// Makes a supervisor and lets it lead its run.
fn lead(
    args: &SupervisorArgs,
    path: &Path,
    make: impl FnOnce(Means) -> Result<Supervisor>,
) -> Result<ExitCode> {
    let programs = programs()?;
    // Before the key is read, the journal opened and the first thread started.
    let launcher = Launcher::start()?;
    let key = key(args.key.as_deref(), path)?;
    let json = args.format.json;
    let progress = Rc::new(Progress::new(json));
    let shown = Rc::clone(&progress);
    let means = Means {
        launcher,
        programs,
        key,
        cgroup_parent: args.cgroup_parent.clone(),
        validations_at_once: args.validations_at_once.into(),
        watcher: Box::new(move |record| {
            shown.event(record);
            shown.clear();
            tell(record, json);
        }),
    };
    let supervisor = Rc::new(make(means)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let ending = local.block_on(&runtime, async {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        tokio::select! {
            ending = supervisor.drive() => Ok(ending?),
            never = progress.go_on() => never,
            _ = interrupt.recv() => bail!("interrupted; `airlock task resume {}` goes on", path.display()),
            _ = terminate.recv() => bail!("terminated; `airlock task resume {}` goes on", path.display()),
        }
    });
    progress.clear();
    // Nobody waits for what is still being copied.
    runtime.shutdown_background();
    finish(&supervisor, &ending?, json)
}

fn finish(supervisor: &Supervisor, ending: &Ending, json: bool) -> Result<ExitCode> {
    #[derive(Serialize)]
    #[serde(rename_all = "snake_case")]
    enum Ended<'a> {
        Closed { outcome: Outcome, run: &'a Path, receipt: PathBuf, report: PathBuf },
        Interrupted { cause: &'a str, run: &'a Path },
    }

    let run = supervisor.directory().path();
    let (ended, status, words) = match ending {
        Ending::Closed(outcome) => {
            let (receipt, report) = (run.join("receipt.json"), run.join("report.html"));
            let weaker = supervisor.weaker()?;
            let mut words: String = weaker.iter().map(|words| format!("note     {words}\n")).collect();
            let _ = writeln!(words, "receipt  {}\nreport   {}", receipt.display(), report.display());
            let status = if *outcome == Outcome::Scored { 0 } else { NO_SCORE };
            (Ended::Closed { outcome: *outcome, run, receipt, report }, status, words)
        }
        Ending::Interrupted(cause) => {
            let words = format!(
                "interrupted: {cause}\n`airlock task resume {run} --again` does it once more, `--close` ends the run\n",
                run = run.display()
            );
            (Ended::Interrupted { cause, run }, INTERRUPTED, words)
        }
    };
    if json {
        output::print(&format!("{}\n", serde_json::to_string(&ended)?))?;
    } else {
        output::print(&output::escape(&words))?;
    }
    Ok(ExitCode::from(status))
}

/// One line for each event: in words, or as the journal has it.
fn tell(record: &Record, json: bool) {
    let line = if json { serde_json::to_string(record).unwrap_or_default() } else { words(&record.event) };
    if !line.is_empty() {
        // Whoever does not listen any more does not stop a run.
        let _ = output::print(&format!("{}\n", output::escape(&line)));
    }
}

/// An event in words; empty if it tells people nothing.
pub(super) fn words(event: &Event) -> String {
    match event {
        Event::RunCreated { run_id, .. } => format!("run {run_id}"),
        Event::PhaseStarted { phase, name, .. } => format!("  phase {phase} {name} starts"),
        Event::PhaseEnded { phase, reason, exit_code, .. } => {
            let code = exit_code.map(|code| format!(" with status {code}")).unwrap_or_default();
            let reason = serde_json::to_value(reason).unwrap_or_default();
            format!("  phase {phase} has ended: {}{code}", reason.as_str().unwrap_or_default())
        }
        Event::ValidationRequested { ticket, candidate, .. } => {
            format!("  validation v-{ticket} of {candidate}")
        }
        Event::ValidationResult { ticket, score, counts, .. } => {
            let score = score.map_or_else(|| "void".to_owned(), |score| score.to_string());
            format!("  validation v-{ticket}: {score} ({} of {} graded)", counts.graded(), counts.planned)
        }
        Event::ValidationFailed { ticket, cause, .. } => format!("  validation v-{ticket} failed: {cause}"),
        Event::ValidationCancelled { ticket } => format!("  validation v-{ticket} cancelled"),
        Event::Chosen { name } => format!("  research has chosen {name:?}"),
        Event::ChoiceRefused { cause } => format!("  the choice is refused: {cause}"),
        Event::Submitted { candidate } => format!("  submitted {candidate}"),
        Event::NoCandidate { reason } => format!("  no candidate: {reason:?}"),
        Event::DeadlineCapture { .. } => "  research has ended without a choice".to_owned(),
        Event::GateResult { gate, passed, .. } => {
            format!("  gate {gate}: {}", if *passed { "passed" } else { "refused" })
        }
        Event::CheckpointValidated { name, progress, valid, .. } => {
            format!("  checkpoint {name:?} ({progress}): {}", if *valid { "valid" } else { "not valid" })
        }
        Event::CheckpointsSelected { checkpoints } => {
            format!("  {} checkpoints are scored", checkpoints.len())
        }
        Event::FinalClaimed { candidate, .. } => format!("  final scoring of {candidate}"),
        Event::Verdict { score, counts, .. } => {
            let score = score.map_or_else(|| "void".to_owned(), |score| score.to_string());
            format!("  verdict: {score} ({} of {} graded)", counts.graded(), counts.planned)
        }
        Event::Scored { score, sigma, .. } => {
            let score = score.map_or_else(|| "none".to_owned(), |score| score.to_string());
            let sigma = sigma.map(|sigma| format!(", sigma {sigma}")).unwrap_or_default();
            format!("score {score}{sigma}")
        }
        Event::Interrupted { cause } => format!("  interrupted: {cause}"),
        Event::Resumed {} => "  resumed".to_owned(),
        Event::Decided { decision: Decision::Again } => "  an operator lets it be done again".to_owned(),
        Event::Decided { decision: Decision::Close } => "  an operator closes the run".to_owned(),
        Event::Recovered { dropped_bytes } => format!("  {dropped_bytes} bytes of a torn line were dropped"),
        Event::Closed { outcome } => {
            let outcome = serde_json::to_value(outcome).unwrap_or_default();
            format!("closed: {}", outcome.as_str().unwrap_or_default())
        }
        Event::CandidateSealed { .. } => String::new(),
    }
}

/// Airlock's other programs, which lie beside this one.
pub(crate) fn programs() -> Result<Programs> {
    let own = std::env::current_exe().context("finding the airlock program itself")?;
    let beside = |name: &str| {
        let path = own.with_file_name(name);
        if path.is_file() {
            return Ok(path);
        }
        bail!(
            "{} is missing; `cargo build --release` makes it, and it must lie beside airlock",
            path.display()
        )
    };
    Ok(Programs { harness: beside("airlock-harness")?, grader: beside("airlock-grader")? })
}

/// The signing key; made where there is none.
fn key(path: Option<&Path>, run: &Path) -> Result<SecretKey> {
    let run = Some(run).filter(|run| run.exists());
    let path = match path {
        Some(path) => path.to_owned(),
        None => super::usual_key()?,
    };
    let public = path.with_extension("pub");
    let made = !path.exists();
    let key = if made {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
        }
        SecretKey::generate(&path)?
    } else {
        SecretKey::load(&path, run)?
    };
    // Also when whoever made the key was killed before.
    if !public.exists() {
        std::fs::write(&public, key.public().to_pem())
            .with_context(|| format!("writing {}", public.display()))?;
    }
    if made {
        output::print(&output::escape(&format!(
            "new signing key {}, public half {}\n",
            path.display(),
            public.display()
        )))?;
    }
    Ok(key)
}

fn default_run(task: &Path) -> Result<PathBuf> {
    let task = std::fs::canonicalize(task).with_context(|| format!("task {}", task.display()))?;
    let name = task.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(PathBuf::from(format!("{name}-{}", time.as_millis())))
}

fn clause(word: &str) -> Result<BestEffort> {
    [BestEffort::Limits, BestEffort::Devices]
        .into_iter()
        .find(|clause| clause.word() == word)
        .with_context(|| format!("--best-effort {word}: not a clause; limits or devices"))
}

fn time(text: &str) -> Result<Duration> {
    let time: airlock_policy::Duration =
        text.parse().map_err(|_| anyhow::anyhow!("--explore {text}: no time; write 90s, 30m or 4h"))?;
    Ok(Duration::from_millis(time.0))
}
