//! Launch: performs a plan and hands back a verified, waiting sandbox.
//!
//! The monitor performs the host side; the child side runs in the sandbox's init ([`child`]). Both
//! perform steps and decide nothing. Before the payload is released the monitor reads the kernel's view of the
//! sandbox back and compares it with the plan ([`crate::verify`]).

pub(crate) mod checks;
mod child;
mod error;
mod message;
mod prepared;
mod proc;

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Signal, WaitId, WaitIdOptions};

pub use self::error::LaunchError;
pub(crate) use self::message::{Channel, FromInit, Probe, ToInit};
pub(crate) use self::prepared::{Prepared, Stock};
use crate::cgroups::{Cgroup, CgroupPath};
use crate::gpu::{self, Grant};
use crate::host::{HostError, privileged};
use crate::ids::{HostIds, IdMapping, IdMaps, RangeLock, map_text};
use crate::mounts::{self, Mounts};
use crate::plan::{Action, Placement, Plan, Step, plan_with};
use crate::report::{Evidence, ReportRecord};
use crate::seccomp::Program;
use crate::spec::Spec;
use crate::state::{ProcessRecord, Sandboxes, State};
use crate::sys::{self, Cloned};
use crate::verify::Verification;

/// How long the kernel gets to take a killed sandbox away.
pub const END_TIMEOUT: Duration = Duration::from_secs(10);

/// How long init may take to build the sandbox, unless the options say otherwise.
const BUILD_TIMEOUT: Duration = Duration::from_secs(60);

/// What a launch takes besides the spec.
#[derive(Debug, Default)]
pub struct LaunchOptions {
    /// Name of the sandbox, from [`Sandboxes::new_id`]; absent: a new one.
    pub id: Option<String>,
    /// Control group to work below instead of the caller's own.
    pub cgroup_parent: Option<CgroupPath>,
    /// Descriptors that the payload gets, and under which numbers.
    pub pass: Vec<(OwnedFd, i32)>,
    /// Where an end report goes if the monitor cannot write it; kept in the state for `gc`.
    pub report: Option<ReportRecord>,
    /// How long init may take to build the sandbox; absent: 60 s.
    pub build_timeout: Option<Duration>,
    /// The GPUs that were chosen for the spec.
    pub gpu: Option<Grant>,
}

/// A sandbox that is built and verified, or runs.
#[derive(Debug)]
pub struct Sandbox {
    pub(crate) plan: Plan,
    pub(crate) evidence: Vec<Evidence>,
    pub(crate) channel: Channel,
    pub(crate) terminal: Option<OwnedFd>,
    pub(crate) parts: Parts,
}

/// What exists on the host while a sandbox does; taken away on drop.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) init: Option<Init>,
    pub(crate) cgroup: Option<Cgroup>,
    pub(crate) range: Option<RangeLock>,
    /// Holds on its GPUs.
    pub(crate) leases: Vec<OwnedFd>,
    /// Readable when it must be ended for its use of them.
    pub(crate) alarm: Option<OwnedFd>,
    pub(crate) state: Option<State>,
    /// The directory that keeps what is written, locked.
    pub(crate) kept: Option<File>,
}

/// The sandbox's first process.
#[derive(Debug)]
pub(crate) struct Init {
    pub(crate) pid: i32,
    pub(crate) pidfd: OwnedFd,
}

impl Sandbox {
    /// Builds and verifies a sandbox of `spec`. The payload does not run yet.
    ///
    /// # Errors
    /// See [`LaunchError`]; whatever was made is removed again.
    pub fn launch(spec: &Spec, options: LaunchOptions) -> Result<Sandbox, LaunchError> {
        Sandbox::launch_prepared(spec, options, Prepared::once()?)
    }

    /// [`Sandbox::launch`] with what was prepared for this spec.
    pub(crate) fn launch_prepared(
        spec: &Spec,
        options: LaunchOptions,
        prepared: Prepared,
    ) -> Result<Sandbox, LaunchError> {
        let terminal = spec.oci.process().as_ref().and_then(oci_spec::runtime::Process::terminal);
        checks::threads()?;
        checks::set_id()?;
        checks::stdio(terminal.unwrap_or(false))?;
        checks::pass(&options.pass)?;
        let sandboxes = Sandboxes::open()?;
        let id = options.id.map_or_else(Sandboxes::new_id, Ok)?;
        let mut parts = Parts::default();
        parts.state = Some(sandboxes.create(&id, spec, options.report.clone())?);
        let ids = parts.take_ids(spec, &sandboxes, &id)?;
        if options.gpu.is_some() {
            gpu::host::ensure_unified_memory().map_err(HostError::from)?;
        }
        let selection = options.gpu.map(|Grant { selection, leases, alarm }| {
            (parts.leases, parts.alarm) = (leases, alarm);
            selection
        });
        let facts = prepared.facts.settle(options.cgroup_parent.as_ref())?;
        let facts = facts.with_spec(spec, ids).with_gpu(spec, selection)?;
        checks::own_state(spec, &facts, sandboxes.root())?;
        parts.kept = checks::kept_directory(spec)?;
        let placement = Placement { id, cgroup_parent: options.cgroup_parent };
        let plan = plan_with(spec, &facts, &placement, prepared.filter.as_deref())?;
        let patience = options.build_timeout.unwrap_or(BUILD_TIMEOUT);
        build(plan, parts, options.pass, prepared.own_filter, patience)
    }

    /// Lets init execute the payload, and say so if `confirm`.
    pub(crate) fn release(&self, confirm: bool) -> Result<(), LaunchError> {
        self.channel.send(&ToInit::Release { confirm }, &[]).map_err(|source| {
            let error = LaunchError::Call { what: "releasing the payload", source };
            first_failure(&self.plan, &self.parts, &self.channel, error)
        })
    }

    /// Name of the sandbox.
    pub fn id(&self) -> &str {
        &self.plan.id
    }

    /// Process id of its init, as the host sees it.
    pub fn pid(&self) -> Option<i32> {
        self.parts.init.as_ref().map(|init| init.pid)
    }

    /// What was read back or proven, clause by clause.
    pub fn evidence(&self) -> &[Evidence] {
        &self.evidence
    }
}

fn build(
    plan: Plan,
    mut parts: Parts,
    pass: Vec<(OwnedFd, i32)>,
    own_filter: Program,
    patience: Duration,
) -> Result<Sandbox, LaunchError> {
    let (channel, other) =
        Channel::pair().map_err(|source| LaunchError::Call { what: "socketpair", source })?;
    let locks = parts.range.iter().map(|range| range.file().as_fd());
    let locks = locks.chain(parts.leases.iter().map(AsFd::as_fd)).map(|lock| lock.try_clone_to_owned());
    let locks = locks.collect::<io::Result<_>>().map_err(|source| LaunchError::Call {
        what: "sharing the locks of the id range and the GPUs",
        source,
    })?;
    let mut inherited = Some(child::Inherited { channel: other, pass, locks, own_filter });
    let mut mounts = Mounts::of_caller();
    // Modes are stated in full; init sets the payload's umask.
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    let built = host_side(&plan, &mut parts, &mut mounts, &channel, &mut inherited);
    rustix::process::umask(umask);
    built?;
    let pid = parts.init.as_ref().map_or(0, |init| init.pid);
    let verification = Verification::begin(pid, &plan, parts.cgroup.as_ref()).map_err(|source| {
        let error = LaunchError::Call { what: "opening init's directory in /proc", source };
        first_failure(&plan, &parts, &channel, error)
    })?;
    drop(mounts);
    let (probes, terminal) = child_side(&plan, pid, &channel, patience)?;
    let evidence = verification
        .finish(&plan, probes)
        .map_err(|differences| first_failure(&plan, &parts, &channel, LaunchError::Verify(differences)))?;
    Ok(Sandbox { plan, evidence, channel, terminal, parts })
}

fn host_side(
    plan: &Plan,
    parts: &mut Parts,
    mounts: &mut Mounts,
    channel: &Channel,
    inherited: &mut Option<child::Inherited>,
) -> Result<(), LaunchError> {
    for step in &plan.host {
        let result = perform(step, plan, parts, mounts, channel, inherited);
        result.map_err(|error| first_failure(plan, parts, channel, error))?;
    }
    Ok(())
}

/// If init failed or died before the monitor failed, that is the reason to tell. A live init is busy and says nothing.
fn first_failure(plan: &Plan, parts: &Parts, channel: &Channel, error: LaunchError) -> LaunchError {
    let init = parts.init.as_ref().map(|init| init.pid);
    match init.map(|pid| heard(plan, pid, channel, Duration::from_millis(50))) {
        Some(Err(told @ (LaunchError::ChildStep { .. } | LaunchError::InitLost { .. }))) => told,
        _ => error,
    }
}

/// Waits until init has done its steps; the payload's terminal comes before that.
fn child_side(
    plan: &Plan,
    pid: i32,
    channel: &Channel,
    patience: Duration,
) -> Result<(Vec<Probe>, Option<OwnedFd>), LaunchError> {
    let end = Instant::now() + patience;
    let mut terminal = None;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match heard(plan, pid, channel, left)? {
            (FromInit::Terminal, mut fds) => terminal = fds.pop(),
            (FromInit::Ready(probes), _) => return Ok((probes, terminal)),
            (other, _) => {
                let source = io::Error::other(format!("unexpected message {other:?}"));
                return Err(LaunchError::Call { what: WAITING, source });
            }
        }
    }
}

const WAITING: &str = "waiting for init";

/// The next that init says while it builds; that it failed, hangs or is gone is an error.
fn heard(
    plan: &Plan,
    pid: i32,
    channel: &Channel,
    patience: Duration,
) -> Result<(FromInit, Vec<OwnedFd>), LaunchError> {
    match channel.receive_within::<FromInit>(patience) {
        Ok(Some((FromInit::Failed(failure), _))) => Err(LaunchError::child(plan, failure)),
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err(LaunchError::init_lost(plan, pid)),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(LaunchError::init_hangs(plan, pid)),
        Err(source) => Err(LaunchError::Call { what: WAITING, source }),
    }
}

fn perform(
    step: &Step,
    plan: &Plan,
    parts: &mut Parts,
    mounts: &mut Mounts,
    channel: &Channel,
    inherited: &mut Option<child::Inherited>,
) -> Result<(), LaunchError> {
    let at = |source| LaunchError::host(step, source);
    let cgroup_at = |source| LaunchError::Cgroup { step: step.to_string(), source };
    match &step.action {
        Action::CreateCgroup { target } => {
            if let Some(state) = &mut parts.state {
                state.record_cgroup(target.record())?;
            }
            parts.cgroup = Some(Cgroup::begin(target).map_err(cgroup_at)?);
            Ok(())
        }
        Action::LimitCgroup { target, resources } => {
            let group =
                parts.cgroup.as_mut().ok_or_else(|| at(io::Error::other("there is no control group")))?;
            group.complete(target).map_err(cgroup_at)?;
            if let Some(state) = &mut parts.state {
                state.record_cgroup(group.record())?;
            }
            group.limit(resources).map_err(cgroup_at)
        }
        Action::FilterDevices { filter } => match &mut parts.cgroup {
            Some(group) => group.filter_devices(filter).map_err(cgroup_at),
            None => Err(at(io::Error::other("there is no control group"))),
        },
        Action::CloneInit { namespaces } => {
            let flags = namespaces.iter().fold(0, |flags, kind| flags | sys::clone_flag(kind.flag()));
            let directory =
                parts.cgroup.as_ref().map(Cgroup::clone_into).transpose().map_err(cgroup_at)?.flatten();
            match sys::clone3(flags, directory.as_ref().map(AsFd::as_fd)).map_err(at)? {
                Cloned::Child => match inherited.take() {
                    Some(inherited) => child::run(plan, inherited),
                    None => sys::exit_now(1),
                },
                Cloned::Parent { pid, pidfd } => {
                    // The child's end must be open in the child alone, or its death would go unseen.
                    drop(inherited.take());
                    parts.init = Some(Init { pid, pidfd });
                    if !parts.leases.is_empty() {
                        let init = ProcessRecord::of(pid).map_err(at)?;
                        gpu::add_sandbox(&parts.leases, init).map_err(at)?;
                    }
                    parts
                        .state
                        .as_mut()
                        .map_or(Ok(()), |state| state.record_pid(pid))
                        .map_err(LaunchError::State)
                }
            }
        }
        Action::WriteIdMaps { maps, deny_setgroups, helper } => {
            let pid = parts.init.as_ref().map_or(0, |init| init.pid);
            write_id_maps(pid, maps, *deny_setgroups, *helper).map_err(at)?;
            channel.send(&ToInit::Mapped, &[]).map_err(at)
        }
        Action::HandOver { mounts: handed } => {
            let tasks = parts.cgroup.as_ref().map(Cgroup::join_descriptors).transpose().map_err(cgroup_at)?;
            let tasks = tasks.unwrap_or_default();
            let fds: Vec<BorrowedFd<'_>> =
                handed.iter().map(|mount| mounts.get(*mount)).collect::<Result<_, _>>().map_err(at)?;
            let fds: Vec<BorrowedFd<'_>> = fds.into_iter().chain(tasks.iter().map(AsFd::as_fd)).collect();
            channel.send_descriptors(&fds, tasks.len()).map_err(at)
        }
        Action::NewProc { mount } => {
            let init = parts.init.as_ref().ok_or_else(|| at(io::Error::other("there is no init yet")))?;
            mounts.insert(*mount, proc::of_init(init).map_err(at)?);
            Ok(())
        }
        build => mounts::build(mounts, build).map_err(at),
    }
}

fn write_id_maps(pid: i32, maps: &IdMaps, deny_setgroups: bool, helper: bool) -> io::Result<()> {
    if deny_setgroups {
        // Before gid_map, or a payload could drop a group that denies it something (CVE-2014-8989).
        fs::write(format!("/proc/{pid}/setgroups"), "deny")?;
    }
    for (file, tool, lines) in [("uid_map", "newuidmap", &maps.uids), ("gid_map", "newgidmap", &maps.gids)] {
        if helper {
            map_by(tool, pid, lines)?;
        } else {
            fs::write(format!("/proc/{pid}/{file}"), map_text(lines))?;
        }
    }
    Ok(())
}

/// Has newuidmap(1) or newgidmap(1) write a map. `Command::output` would panic where a pipe cannot be read.
fn map_by(tool: &str, pid: i32, lines: &[IdMapping]) -> io::Result<()> {
    let numbers = lines.iter().flat_map(|line| [line.inside, line.outside, line.count]);
    let mut command = Command::new(tool);
    command.arg(pid.to_string()).args(numbers.map(|number| number.to_string()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut helper = command
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("{tool}: {error} (Debian package uidmap)")))?;
    let mut said = Vec::new();
    let read = helper.stderr.take().map_or(Ok(0), |mut stream| stream.read_to_end(&mut said));
    let status = helper.wait()?;
    read?;
    if status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{tool}: {}", String::from_utf8_lossy(&said).trim())))
}

impl Parts {
    fn take_ids(&mut self, spec: &Spec, sandboxes: &Sandboxes, id: &str) -> Result<HostIds, LaunchError> {
        let root = privileged()
            .map_err(|source| LaunchError::Call { what: "reading capabilities and id map", source })?;
        if root {
            let range = RangeLock::take(&sandboxes.id_pool(), id, |last| {
                sandboxes.sweep_by_id(last, Duration::from_millis(50))
            })?;
            let base = range.base;
            self.range = Some(range);
            return Ok(HostIds::Range { base });
        }
        Ok(HostIds::of_user(spec.airlock.ids)?)
    }

    /// Ends everything that lives in the sandbox and takes its parts away. The first error is returned, all
    /// is tried.
    pub(crate) fn take_away(&mut self) -> Result<(), LaunchError> {
        let mut result = Ok(());
        let mut note = |outcome: Result<(), LaunchError>| {
            if result.is_ok() {
                result = outcome;
            }
        };
        let mut emptied = true;
        if let Some(init) = self.init.take() {
            let ended = init.end();
            emptied = ended.is_ok();
            note(ended.map_err(|source| LaunchError::Call { what: "ending init", source }));
        }
        if let Some(group) = self.cgroup.take() {
            // After init's end the group is empty as a rule; killing costs only where it is not.
            let ended = group
                .remove(Duration::ZERO)
                .or_else(|_| group.kill(END_TIMEOUT).and_then(|()| group.remove(END_TIMEOUT)));
            emptied &= ended.is_ok();
            note(
                ended.map_err(|source| LaunchError::Cgroup {
                    step: "removing the control group".into(),
                    source,
                }),
            );
        }
        match self.range.take() {
            Some(range) if !emptied => range.abandon(),
            range => drop(range),
        }
        if let Some(state) = self.state.take()
            && emptied
        {
            note(state.remove().map_err(LaunchError::State));
        }
        result
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        if let Err(error) = self.take_away() {
            tracing::warn!("{error}; `airlock gc` removes what is left");
        }
    }
}

impl Init {
    /// Kills init, and with it its PID namespace.
    pub(crate) fn kill(&self) -> io::Result<()> {
        match rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Kills init and reaps it.
    pub(crate) fn end(&self) -> io::Result<()> {
        self.kill()?;
        let timeout = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
        let mut poll =
            [rustix::event::PollFd::from_borrowed_fd(self.pidfd.as_fd(), rustix::event::PollFlags::IN)];
        if rustix::io::retry_on_intr(|| rustix::event::poll(&mut poll, Some(&timeout)))? == 0 {
            return Err(io::Error::other(format!(
                "process {} does not end; it hangs in the kernel",
                self.pid
            )));
        }
        let init = || rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
        match rustix::io::retry_on_intr(init) {
            Ok(_) | Err(rustix::io::Errno::CHILD) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
