//! The monitor: releases a built sandbox, waits for it under the clock, and writes its end report.

use std::cell::OnceCell;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use crate::cgroups::{Cgroup, CgroupStats};
use crate::launch::{FromInit, LaunchError, LaunchOptions, Prepared, Sandbox};
use crate::launcher::{Asked, Line, Wish};
use crate::report::{EndReport, Io, REPORT_VERSION, Reason};
use crate::spec::Spec;
use crate::state::Sandboxes;
use crate::sys;
use crate::terminal::Relay;

/// Between the signal that asks a payload to end and the kill.
const GRACE: Duration = Duration::from_secs(2);
/// The same when the supervisor is gone: nothing of the sandbox may live two seconds later.
const GRACE_OF_ORPHANS: Duration = Duration::from_secs(1);
/// How long the processes of a sandbox may take to stand still; the clock of the sandbox runs.
const FREEZE: Duration = Duration::from_secs(2);
/// A sandbox that has run for this long without a word is likely to run for longer.
const SETTLING: Duration = Duration::from_millis(200);
/// How long a monitor waits for remains of others; the clock of its own sandbox runs.
const SWEEP: Duration = Duration::from_millis(50);
/// Signals that are passed on to the payload.
const FORWARDED: [Signal; 6] =
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];

/// When whoever asked for a sandbox is told of its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// When the payload is released; that it could not be executed is told at the end.
    Released,
    /// When the payload is executed.
    Executed,
}

/// How the payload ended, as far as init could say.
#[derive(Clone, Copy, Debug, Default)]
struct Ending {
    code: Option<i32>,
    signal: Option<i32>,
    timed_out: bool,
    orphaned: bool,
    alarmed: bool,
}

impl Ending {
    /// It was told to end, and its grace runs.
    fn has_begun(self) -> bool {
        self.timed_out || self.orphaned || self.alarmed
    }
}

/// Whether the processes of a sandbox stand still. Dropped, it lets them run.
struct Still<'a> {
    group: Option<&'a Cgroup>,
    frozen: bool,
}

impl Still<'_> {
    fn freeze(&mut self, asked: &Asked) {
        let group = self.group.ok_or_else(|| "it has no control group".to_owned());
        self.frozen = true;
        let frozen = group.and_then(|group| group.freeze(FREEZE).map_err(|error| error.to_string()));
        if frozen.is_err() {
            self.thaw();
        }
        asked.tell(frozen);
    }

    fn thaw(&mut self) {
        if std::mem::take(&mut self.frozen)
            && let Some(Err(error)) = self.group.map(Cgroup::thaw)
        {
            tracing::warn!("{error}");
        }
    }
}

impl Drop for Still<'_> {
    fn drop(&mut self) {
        self.thaw();
    }
}

/// What became of the two processes after [`detach`].
#[derive(Debug)]
pub enum Detached {
    /// In the calling process: the sandbox runs.
    Parent {
        /// Its name.
        id: String,
    },
    /// In the calling process: it could not be started.
    Failed {
        /// Why.
        message: String,
        /// The exit status that says so.
        status: u8,
    },
    /// In the monitor's process: the sandbox has ended. The process should write the report and exit.
    Monitor {
        /// How it ended.
        result: Box<Result<EndReport, LaunchError>>,
    },
}

/// What a detached monitor tells the process that started it.
#[derive(Serialize, Deserialize)]
enum Started {
    Runs { id: String },
    Failed { message: String, status: u8 },
}

/// Forks a monitor that runs a sandbox of `spec` in the background, in a session of its own, its standard
/// streams on /dev/null.
pub fn detach(spec: &Spec, options: LaunchOptions) -> Result<Detached, LaunchError> {
    let call = |what| move |source| LaunchError::Call { what, source };
    crate::launch::checks::threads()?;
    let (reader, writer) = io::pipe().map_err(call("pipe"))?;
    if sys::fork().map_err(call("fork"))?.is_some() {
        drop(writer);
        // End of file without a word: the monitor was killed.
        return Ok(match serde_json::from_reader(reader) {
            Ok(Started::Runs { id }) => Detached::Parent { id },
            Ok(Started::Failed { message, status }) => Detached::Failed { message, status },
            Err(error) => {
                Detached::Failed { message: format!("the monitor ended early: {error}"), status: 125 }
            }
        });
    }
    drop(reader);
    let mut writer = Some(writer);
    let mut tell = |started: &Started| {
        if let Some(writer) = writer.take() {
            // Nobody listens any more: the sandbox runs all the same.
            let _ = serde_json::to_writer(writer, started);
        }
    };
    let result = leave_terminal()
        .map_err(call("leaving the terminal"))
        .and_then(|()| Prepared::once())
        .and_then(|prepared| {
            // The caller does not see the end, so it is told of the start when the command is executed.
            watch_over(spec, options, prepared, None, Told::Executed, |sandbox| {
                tell(&Started::Runs { id: sandbox.id().into() })
            })
        });
    tell(&match &result {
        Err(error) => Started::Failed { message: error.to_string(), status: error.exit_status() },
        // Not heard by a caller that was told of the start.
        Ok(_) => {
            Started::Failed { message: "it was ended before its command was executed".into(), status: 125 }
        }
    });
    Ok(Detached::Monitor { result: Box::new(result) })
}

fn leave_terminal() -> io::Result<()> {
    rustix::process::setsid()?;
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(rustix::stdio::dup2_stderr(&null)?)
}

/// Builds a sandbox of `spec`, runs its payload to the end, and reports.
///
/// The calling process is the monitor: it must have one thread, and its signals TERM, INT, HUP, QUIT, USR1
/// and USR2 go to the payload from here on. They are still blocked when this returns: one that comes too late to be
/// forwarded must not end the monitor before its report is written.
pub fn run(spec: &Spec, options: LaunchOptions) -> Result<EndReport, LaunchError> {
    watch_over(spec, options, Prepared::once()?, None, Told::Released, |_| ())
}

/// [`run`] for a supervisor at the other end of `line`: it is told of the start, and its wishes are obeyed.
/// When it goes, the sandbox is ended.
pub(crate) fn run_on_line(
    spec: &Spec,
    options: LaunchOptions,
    prepared: Prepared,
    line: &Line,
) -> Result<EndReport, LaunchError> {
    let started = |sandbox: &Sandbox| line.tell_started(sandbox.id(), sandbox.pid());
    watch_over(spec, options, prepared, Some(line), Told::Released, started)
}

fn watch_over(
    spec: &Spec,
    options: LaunchOptions,
    prepared: Prepared,
    line: Option<&Line>,
    told: Told,
    started: impl FnOnce(&Sandbox),
) -> Result<EndReport, LaunchError> {
    // Blocked before anything is built: a signal during the build is forwarded when the payload runs.
    let mut signals: SigSet = FORWARDED.into_iter().collect();
    signals.add(Signal::SIGWINCH);
    let call = |what| move |errno: nix::Error| LaunchError::Call { what, source: errno.into() };
    signals.thread_block().map_err(call("blocking signals"))?;
    crate::signals::settle()
        .map_err(|source| LaunchError::Call { what: "setting what becomes of signals", source })?;
    let sandbox = Sandbox::launch_prepared(spec, options, prepared)?;
    let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .map_err(call("reading signals"))?;
    sandbox.wait(spec, &signals, line, told, started)
}

impl Sandbox {
    /// Releases the payload and waits for the end of the sandbox.
    fn wait(
        mut self,
        spec: &Spec,
        signals: &SignalFd,
        line: Option<&Line>,
        told: Told,
        started: impl FnOnce(&Sandbox),
    ) -> Result<EndReport, LaunchError> {
        let relay = self.terminal.take().map(Relay::start).transpose();
        let mut relay = relay.map_err(|source| LaunchError::Call { what: "setting the terminal", source })?;
        let mut tell = Some(started);
        let mut tell = |sandbox: &Sandbox| tell.take().map_or((), |started| started(sandbox));
        let started = Instant::now();
        self.release(told == Told::Executed)?;
        if told == Told::Released {
            tell(&self);
        }
        let spec_digest = OnceCell::new();
        let chores = || {
            spec_digest.get_or_init(|| chores(spec));
        };
        let ending = self.watch(started, signals, &mut relay, line, &mut tell, &chores)?;
        let wall = started.elapsed();
        if let Some(relay) = relay {
            relay.finish();
        }
        // Init is about to exit by itself; its counters are complete but for its own last moments.
        let stats = self.parts.cgroup.as_ref().map(|group| group.stats());
        let stats = stats.and_then(|stats| stats.inspect_err(|error| tracing::warn!("{error}")).ok());
        chores();
        let spec_digest = spec_digest.into_inner().unwrap_or_default();
        let left = self.parts.take_away().map_err(|error| error.to_string());
        Ok(self.report(spec, spec_digest, ending, wall, stats.unwrap_or_default(), left.err()))
    }

    fn watch(
        &self,
        started: Instant,
        signals: &SignalFd,
        relay: &mut Option<Relay>,
        mut line: Option<&Line>,
        executed: &mut dyn FnMut(&Sandbox),
        chores: &impl Fn(),
    ) -> Result<Ending, LaunchError> {
        let waiting = |source| LaunchError::Call { what: "waiting for the payload", source };
        let mut deadline = self.plan.wall_ms.map(|limit| started + Duration::from_millis(limit));
        let mut ending = Ending::default();
        let mut settled = false;
        let mut still = Still { group: self.parts.cgroup.as_ref(), frozen: false };
        loop {
            let init = self.parts.init.as_ref();
            let mut fds = vec![
                PollFd::from_borrowed_fd(self.channel.fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN),
            ];
            fds.extend(line.map(|line| PollFd::from_borrowed_fd(line.fd(), PollFlags::IN)));
            let alarm = self.parts.alarm.as_ref().filter(|_| !ending.alarmed);
            let alarm_at = fds.len();
            fds.extend(alarm.map(|alarm| PollFd::from_borrowed_fd(alarm.as_fd(), PollFlags::IN)));
            let ours = fds.len();
            fds.extend(relay.iter().flat_map(Relay::interests));
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let patience = relay.as_ref().and_then(Relay::patience);
            let timeout =
                left.into_iter().chain((!settled).then_some(SETTLING)).chain(patience).min().map(timespec);
            let count = rustix::io::retry_on_intr(|| poll(&mut fds, timeout.as_ref()));
            if count.map_err(|errno| waiting(errno.into()))? == 0 && !settled {
                settled = true;
                chores();
                sys::release_memory();
            }
            let ready: Vec<bool> = fds.iter().take(ours).map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            if let Some(relay) = relay {
                relay.turn();
            }
            if ready[1] {
                while let Ok(Some(info)) = signals.read_signal() {
                    let number = i32::try_from(info.ssi_signo).unwrap_or(0);
                    match (number, relay.as_ref()) {
                        (libc::SIGWINCH, Some(relay)) => relay.copy_size(),
                        (libc::SIGWINCH, None) => {}
                        _ => self.channel.send_signal(number),
                    }
                }
            }
            if ready.get(alarm_at) == Some(&true) {
                still.thaw();
                ending.alarmed = true;
                let latest = Instant::now() + GRACE;
                deadline = Some(deadline.map_or(latest, |deadline| deadline.min(latest)));
                self.channel.send_signal(libc::SIGTERM);
            }
            if let Some(open) = line.filter(|_| ready.get(2) == Some(&true)) {
                match open.wish() {
                    Wish::Signal(number) => self.channel.send_signal(number),
                    Wish::Kill => {
                        init.map_or(Ok(()), |init| init.kill()).map_err(waiting)?;
                        // Only cgroup v2 lets a fatal signal through to what is frozen.
                        still.thaw();
                    }
                    Wish::Freeze(asked) => still.freeze(&asked),
                    Wish::Thaw => still.thaw(),
                    Wish::End => {
                        still.thaw();
                        line = None;
                        ending.orphaned = true;
                        let latest = Instant::now() + GRACE_OF_ORPHANS;
                        deadline = Some(deadline.map_or(latest, |deadline| deadline.min(latest)));
                        self.channel.send_signal(libc::SIGTERM);
                    }
                }
            }
            if ready[0] {
                match self.channel.receive::<FromInit>().map_err(waiting)? {
                    Some((FromInit::Ended { code, signal }, _)) => {
                        return Ok(Ending { code, signal, ..ending });
                    }
                    Some((FromInit::ExecFailed { errno }, _)) => {
                        let command = self.plan.payload.args.first().cloned().unwrap_or_default();
                        return Err(LaunchError::Exec {
                            command,
                            source: io::Error::from_raw_os_error(errno),
                        });
                    }
                    Some((FromInit::StartFailed { step, errno }, _)) => {
                        return Err(LaunchError::Start { step, source: io::Error::from_raw_os_error(errno) });
                    }
                    Some((FromInit::Executed, _)) => executed(self),
                    Some(_) => {}
                    // Init was killed: by the kernel for want of memory, or by us.
                    None => {
                        return Ok(Ending { signal: Some(libc::SIGKILL), ..ending });
                    }
                }
            }
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                still.thaw();
                if ending.has_begun() {
                    let killed = init.map_or(Ok(()), |init| init.kill());
                    killed.map_err(waiting)?;
                    return Ok(Ending { signal: Some(libc::SIGKILL), ..ending });
                }
                ending.timed_out = true;
                deadline = Some(Instant::now() + GRACE);
                self.channel.send_signal(libc::SIGTERM);
            }
        }
    }

    fn report(
        self,
        spec: &Spec,
        spec_digest: String,
        ending: Ending,
        wall: Duration,
        stats: CgroupStats,
        left_behind: Option<String>,
    ) -> EndReport {
        let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN).ok();
        let usage_ms = |time: nix::sys::time::TimeVal| {
            u64::try_from(time.tv_sec()).unwrap_or(0) * 1000
                + u64::try_from(time.tv_usec()).unwrap_or(0) / 1000
        };
        let millis = |nanos: u64| nanos / 1_000_000;
        let failed = ending.code != Some(0);
        let reason = if ending.orphaned {
            Reason::SupervisorLost
        } else if ending.alarmed {
            Reason::GpuLimit
        } else if ending.timed_out {
            Reason::WallTimeout
        } else if failed && stats.oom_kills.is_some_and(|kills| kills > 0) {
            Reason::Oom
        } else if failed && stats.pids_max_events.is_some_and(|refused| refused > 0) {
            Reason::PidsLimitHit
        } else if ending.signal.is_some() {
            Reason::Signalled
        } else {
            Reason::Exited
        };
        let resident = usage.map(|usage| u64::try_from(usage.max_rss()).unwrap_or(0) * 1024);
        EndReport {
            version: REPORT_VERSION,
            id: self.plan.id.clone(),
            policy: spec.airlock.policy.clone(),
            policy_digest: spec.airlock.policy_digest.clone(),
            spec_digest,
            reason,
            exit_code: ending.code,
            signal: ending.signal,
            error: None,
            wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
            user_ms: stats.cpu_user_ns.map(millis).or(usage.map(|usage| usage_ms(usage.user_time()))),
            sys_ms: stats.cpu_system_ns.map(millis).or(usage.map(|usage| usage_ms(usage.system_time()))),
            memory_peak: stats.memory_peak.or(resident),
            io: stats.io_read_bytes.zip(stats.io_written_bytes).map(|(read, written)| Io { read, written }),
            pids_peak: stats.pids_peak,
            pids_refused: stats.pids_max_events,
            oom_kills: stats.oom_kills,
            refused_syscalls: None,
            enforced: self.evidence.clone(),
            lowered: self.plan.lowered.clone(),
            left_behind,
            // Whoever holds the leases adds it.
            gpus: None,
        }
    }
}

/// What neither the start nor the end of a payload should wait for, done while a long one runs or while init goes
/// away: removes what monitors that were killed have left, and makes the spec's digest.
fn chores(spec: &Spec) -> String {
    if let Err(error) = Sandboxes::open().and_then(|sandboxes| sandboxes.sweep(SWEEP)) {
        tracing::debug!("{error}");
    }
    spec.digest().unwrap_or_default()
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}
