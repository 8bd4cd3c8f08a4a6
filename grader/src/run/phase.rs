//! One phase: from the task's words to a sandbox that runs, and to its end in the journal.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use airlock_policy::{Duration, HostTree, Mount, MountMode, Policy, ResolveInput, resolve};
use airlock_runtime::Spec;
use airlock_runtime::gpu::Tenancy;
use airlock_runtime::launcher::{Freezing, LauncherError, Request, Running};
use airlock_runtime::report::{EndReport, Reason};
use rustix::fs::{Mode, OFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::directory::{at, make_directory, phase_name, read_file, write_file};
use super::error::{RunError, call};
use super::leftovers;
use super::logs::{LOG_CAP, LogPump};
use super::parts::HostSource;
use super::state::names;
use super::{Supervisor, blocking};
use crate::Digest;
use crate::journal::Event;
use crate::task::{MountSource, Phase, PhaseMount, RunSource};

/// How often the disk is looked at.
const DISK_PAUSE: std::time::Duration = std::time::Duration::from_millis(250);

/// What a phase is started with.
pub(crate) struct PhaseRequest<'a> {
    /// What it is called in the journal.
    pub(crate) name: &'static str,
    /// What the task says.
    pub(crate) phase: &'a Phase,
    /// Program and arguments.
    pub(crate) command: Vec<String>,
    /// Where the run's own mounts lie.
    pub(crate) sources: Sources,
    /// Airlock's own mounts.
    pub(crate) mounts: Vec<Mount>,
    /// Descriptors under numbers.
    pub(crate) pass: Vec<(OwnedFd, i32)>,
    /// When its time is over, where the supervisor ends it: `CLOCK_BOOTTIME` in nanoseconds.
    pub(crate) deadline_ns: Option<u64>,
    /// Wall-clock limit that the monitor keeps, or that it keeps none, instead of the policy's.
    pub(crate) wall: Option<Option<Duration>>,
}

/// Where the run's own mounts lie on the host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources(BTreeMap<RunSource, PathBuf>);

impl Sources {
    pub(crate) fn with(mut self, source: RunSource, path: impl Into<PathBuf>) -> Sources {
        self.0.insert(source, path.into());
        self
    }
}

/// A phase whose sandbox runs. Dropped, it ends the sandbox; its end is then missing in the journal.
pub(crate) struct RunningPhase {
    number: u32,
    name: &'static str,
    spec: Arc<Spec>,
    running: AsyncFd<Running>,
    /// It was killed because the disk was nearly full.
    full: Cell<bool>,
    /// Its GPUs. Dropped, they are the sandbox's until that is gone.
    tenancy: Option<Tenancy>,
}

/// A phase that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Why.
    pub(crate) reason: Reason,
    /// Exit code of its command.
    pub(crate) exit_code: Option<i32>,
    /// Wall-clock time from release to end.
    pub(crate) wall: std::time::Duration,
    /// What failed, where nothing ran.
    pub(crate) error: Option<String>,
    /// The sandbox was ready, and its command is missing or no program.
    pub(crate) no_program: bool,
}

/// A phase that was asked for.
pub(crate) enum Start {
    /// It runs.
    Running(Box<RunningPhase>),
    /// It could not be set up; its end is in the journal.
    Failed(Ended),
}

impl Supervisor {
    /// Starts a phase: its start is in the journal before anything runs.
    pub(crate) async fn start(&self, request: PhaseRequest<'_>) -> Result<Start, RunError> {
        let PhaseRequest { name, phase, command, sources, mounts, pass, deadline_ns, wall } = request;
        let mut policy = phase.policy.clone();
        if let Some(wall) = wall {
            policy.limits.wall = wall;
        }
        for mount in &phase.mounts {
            policy.mount.push(self.mount(mount, &sources, name)?);
        }
        policy.mount.extend(mounts);
        let named = |source| RunError::Policy { phase: name.to_owned(), source: Box::new(source) };
        let host = HostTree::read().with_sources(&policy);
        let input = ResolveInput { args: command, caller_env: BTreeMap::new(), host };
        let spec = Arc::new(resolve(&policy, &input).map_err(named)?);
        let number = self.state().next_phase();
        self.start_spec(number, name, spec, pass, deadline_ns).await
    }

    /// Starts a sandbox of this spec as a phase.
    pub(crate) async fn start_spec(
        &self,
        number: u32,
        name: &'static str,
        spec: Arc<Spec>,
        pass: Vec<(OwnedFd, i32)>,
        deadline_ns: Option<u64>,
    ) -> Result<Start, RunError> {
        self.directory.check_room()?;
        let dir = self.make_phase(number, name)?;
        let text = serde_json::to_vec(&*spec).map_err(|error| call("writing a spec")(error.into()))?;
        write_file(&dir.join("spec.json"), &text)?;
        let digest = spec_digest(&spec)?;
        let (stdout, out) = LogPump::start(&dir.join("stdout.log"), LOG_CAP)?;
        let (stderr, err) = LogPump::start(&dir.join("stderr.log"), LOG_CAP)?;
        self.logs.borrow_mut().insert(number, [out, err]);
        self.append(Event::PhaseStarted { phase: number, name: name.to_owned(), spec: digest, deadline_ns })?;
        let (tenancy, grant) = match self.tenancy(name, &spec).await? {
            Ok(tenancy) => tenancy.unzip(),
            Err(error) => {
                // A log ends when nobody can write to it any more.
                drop((stdout, stderr));
                let report = EndReport::setup_failed("", &spec, &error.to_string());
                self.finish_logs(number).await;
                return Ok(Start::Failed(self.end_phase(number, name, report, None)?));
            }
        };
        let request = Request {
            stdio: Some([null()?, stdout, stderr]),
            pass,
            cgroup_parent: self.cgroup_parent.clone(),
            report: Some(dir.join("end.json")),
            hold: Some(leftovers::hold(&dir)?),
            gpu: grant,
        };
        let (launcher, ordered) = (Arc::clone(&self.launcher), Arc::clone(&spec));
        let launched = blocking(move || launcher.launch(&ordered, request)).await?;
        match launched {
            Ok(running) => {
                // SAFETY: `Running` owns its descriptor, keeps it open and never puts another one in its place.
                let running = unsafe { AsyncFd::register_with_interest(running, Interest::READABLE) };
                let running = running.map_err(|error| call("watching a sandbox")(error.into()))?;
                let full = Cell::new(false);
                Ok(Start::Running(Box::new(RunningPhase { number, name, spec, running, full, tenancy })))
            }
            Err(LauncherError::Sandbox { message, status }) => {
                give_back(tenancy);
                let report = EndReport::setup_failed("", &spec, &message);
                self.finish_logs(number).await;
                let ended = self.end_phase(number, name, report, None)?;
                Ok(Start::Failed(Ended { no_program: matches!(status, 126 | 127), ..ended }))
            }
            // The monitor was killed; whether the payload had been released, nobody can say.
            Err(LauncherError::MonitorLost) => {
                let report = self.monitor_lost(number, name, "").await?;
                give_back(tenancy);
                Ok(Start::Failed(self.end_phase(number, name, report, None)?))
            }
            Err(error @ LauncherError::Ended) => {
                let report = EndReport::setup_failed("", &spec, &error.to_string());
                self.finish_logs(number).await;
                self.end_phase(number, name, report, None)?;
                Err(error.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for the end of a phase and journals it, for this reason where the supervisor has one of its own.
    pub(crate) async fn end(
        &self,
        phase: Box<RunningPhase>,
        reason: Option<Reason>,
    ) -> Result<Ended, RunError> {
        self.watch(&phase).await?;
        let RunningPhase { number, name, spec, running, full, tenancy } = *phase;
        let running = running.into_inner();
        let id = running.id().to_owned();
        let mut report = match running.wait() {
            Ok(report) => report,
            Err(LauncherError::Sandbox { message, .. }) => EndReport::setup_failed(&id, &spec, &message),
            Err(LauncherError::MonitorLost) => self.monitor_lost(number, name, &id).await?,
            Err(error) => return Err(error.into()),
        };
        self.finish_logs(number).await;
        if let Some(tenancy) = tenancy {
            report.add_gpus(blocking(move || tenancy.end()).await?);
        }
        if full.get() {
            report.reason = Reason::SupervisorLost;
            report.error =
                Some("the supervisor let go of it: the disk of the run directory was nearly full".into());
        }
        self.end_phase(number, name, report, reason)
    }

    /// Waits for the end of a phase, and kills it when the disk is nearly full: nothing else keeps a sandbox from
    /// filling the disk of its workspace.
    pub(crate) async fn watch(&self, phase: &RunningPhase) -> Result<(), RunError> {
        loop {
            tokio::select! {
                ended = phase.ended() => return ended,
                () = self.called_off(phase.name) => {
                    phase.kill()?;
                    return phase.ended().await;
                }
                () = tokio::time::sleep(DISK_PAUSE) => if self.directory.check_room().is_err() {
                    phase.full.set(true);
                    phase.kill()?;
                    return phase.ended().await;
                }
            }
        }
    }

    /// Done when what a phase works for is wanted no more: a validation, once research is over.
    async fn called_off(&self, name: &str) {
        match name {
            names::VALIDATE | names::CANDIDATE => {
                // The sender lives as long as the supervisor does.
                let _ = self.research_over.subscribe().wait_for(|over| *over).await;
            }
            _ => std::future::pending().await,
        }
    }

    /// Runs a phase from start to end.
    pub(crate) async fn run(&self, request: PhaseRequest<'_>) -> Result<Ended, RunError> {
        match self.start(request).await? {
            Start::Running(phase) => self.end(phase, None).await,
            Start::Failed(ended) => Ok(ended),
        }
    }

    /// Journals the end of a phase. Its end report is beside its spec.
    pub(crate) fn end_phase(
        &self,
        number: u32,
        name: &str,
        report: EndReport,
        reason: Option<Reason>,
    ) -> Result<Ended, RunError> {
        let path = self.directory.phase(number, name).join("end.json");
        let text =
            serde_json::to_vec(&report).map_err(|error| call("writing an end report")(error.into()))?;
        let digest = write_file(&path, &text)?;
        let (reason, exit_code, signal) = (reason.unwrap_or(report.reason), report.exit_code, report.signal);
        self.append(Event::PhaseEnded { phase: number, reason, exit_code, signal, report: digest })?;
        let wall = std::time::Duration::from_millis(report.wall_ms);
        Ok(Ended { reason, exit_code, wall, error: report.error, no_program: false })
    }

    /// Leaves it to an operator that a phase cannot be set up.
    pub(crate) fn give_up(&self, name: &str) -> Result<(), RunError> {
        let last =
            (0..).zip(&self.state().phases).filter(|(_, phase)| phase.name == name).last().map(|(n, _)| n);
        let report = last.and_then(|number: u32| end_report(self.directory.path(), number, name).ok());
        let why = report.and_then(|report| report.error).unwrap_or_default();
        let cause = format!("the sandbox of the phase `{name}` could not be set up: {why}");
        self.append(Event::Interrupted { cause })
    }

    /// The directory of a new phase.
    fn make_phase(&self, number: u32, name: &str) -> Result<PathBuf, RunError> {
        let dir = self.directory.phase(number, name);
        // A supervisor that died before it journaled the start has left it.
        if dir.exists() {
            super::directory::remove_directory(&dir)?;
        }
        make_directory(&dir, 0o700)?;
        Ok(dir)
    }

    /// A mount of the task, where what it names lies in this run.
    fn mount(&self, mount: &PhaseMount, sources: &Sources, phase: &str) -> Result<Mount, RunError> {
        let source =
            match (&mount.source, self.host_source(&mount.source)) {
                (_, Some(HostSource::Part(_, path) | HostSource::Supplied(_, path))) => path,
                (MountSource::Run(source), None) => sources.0.get(source).cloned().ok_or_else(|| {
                    RunError::Options(format!("the phase `{phase}` has no `{}`", mount.source))
                })?,
                (source, None) => return Err(RunError::PartsChanged(source.to_string())),
            };
        let PhaseMount { target, mode, exec, .. } = mount.clone();
        Ok(Mount { source, target, mode, exec, optional: false, socket: false })
    }
}

impl RunningPhase {
    /// Done when the sandbox has ended; nothing is taken, and it may be asked again.
    pub(crate) async fn ended(&self) -> Result<(), RunError> {
        let mut ready = self.running.readable().await.map_err(call("watching a sandbox"))?;
        ready.retain_ready();
        Ok(())
    }

    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Sends a signal to its command.
    pub(crate) fn signal(&self, number: i32) -> Result<(), RunError> {
        Ok(self.running.get_ref().signal(number)?)
    }

    /// Begins to freeze it.
    pub(crate) fn freeze(&self) -> Result<Freezing, RunError> {
        Ok(self.running.get_ref().freeze()?)
    }

    /// Lets it run on.
    pub(crate) fn thaw(&self) -> Result<(), RunError> {
        Ok(self.running.get_ref().thaw()?)
    }

    /// Kills everything in it.
    pub(crate) fn kill(&self) -> Result<(), RunError> {
        Ok(self.running.get_ref().kill()?)
    }
}

/// Gives GPUs back on which there was no sandbox, or is none any more.
fn give_back(tenancy: Option<Tenancy>) {
    if let Some(tenancy) = tenancy {
        tenancy.give_back();
    }
}

/// A read-only mount of Airlock's own.
pub(crate) fn read_only(source: &Path, target: &str, exec: bool) -> Mount {
    Mount {
        source: source.to_owned(),
        target: target.into(),
        mode: MountMode::Ro,
        exec,
        optional: false,
        socket: false,
    }
}

/// The digest of a spec.
pub(crate) fn spec_digest(spec: &Spec) -> Result<Digest, RunError> {
    let text = spec.digest().map_err(|error| call("writing a spec")(error.into()))?;
    text.parse().map_err(|error| call("reading the digest of a spec")(io::Error::other(error)))
}

/// The digest of a policy.
pub(crate) fn policy_digest(policy: &Policy) -> Result<Digest, RunError> {
    let named = |source| RunError::Policy { phase: policy.name.clone(), source: Box::new(source) };
    let text = policy.digest().map_err(named)?;
    text.parse().map_err(|error| call("reading the digest of a policy")(io::Error::other(error)))
}

/// The end report of a phase as it lies in the run directory.
pub(crate) fn end_report(run: &Path, number: u32, name: &str) -> Result<EndReport, RunError> {
    let path = run.join(phase_name(number, name)).join("end.json");
    let bytes = read_file(&path)?;
    serde_json::from_slice(&bytes).map_err(|error| at("reading", &path)(error.into()).into())
}

fn null() -> Result<OwnedFd, RunError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::open("/dev/null", flags, Mode::empty())
        .map_err(|error| call("opening /dev/null")(error.into()))
}
