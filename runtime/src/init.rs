//! The sandbox's PID 1: starts the payload, reaps what is orphaned, forwards signals, reports the end.
//!
//! It is not dumpable and holds no secrets. When it ends, the kernel kills everything in its PID
//! namespace; it ends when the payload does, or when the monitor's end of the channel closes.

use std::ffi::{CString, c_char};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{DumpableBehavior, Pid, WaitOptions, WaitStatus, set_dumpable_behavior, wait};

use crate::launch::{Channel, FromInit, ToInit};
use crate::plan::Payload;
use crate::seccomp::{self, Program};
use crate::sys;

/// Added to the payload's OOM score, so that the kernel picks it before init (benchexec#1098).
const OOM_SCORE_OF_PAYLOAD: &str = "500";

/// Runs the payload and waits. Never returns.
pub(crate) fn run(
    payload: &Payload,
    channel: Channel,
    pass: Vec<(OwnedFd, i32)>,
    terminal: Option<OwnedFd>,
    locks: Vec<OwnedFd>,
    own_filter: &Program,
    confirm: bool,
) -> ! {
    let (pid, children) = match start(payload, pass, terminal) {
        Ok(started) => started,
        Err(unstarted) => {
            // The monitor reads this or is gone.
            let _ = channel.send(&unstarted.told(), &[]);
            sys::exit_now(1);
        }
    };
    if confirm {
        // A monitor that is gone is seen by the next turn.
        let _ = channel.send(&FromInit::Executed, &[]);
    }
    // From here on the payload runs, and may be what makes a call of init's fail: a failure ends the sandbox, and
    // says nothing that could be taken for a failed start.
    let ended = settle(own_filter).and_then(|()| wait_for(pid, &channel, &children)).and_then(|status| {
        let ended = FromInit::Ended { code: status.exit_status(), signal: status.terminating_signal() };
        channel.send(&ended, &[])
    });
    drop(locks);
    sys::exit_now(i32::from(ended.is_err()))
}

/// Why the payload does not run.
#[derive(Debug)]
enum Unstarted {
    /// execve(2) refused.
    Exec(io::Error),
    /// Init did not get that far.
    Step(&'static str, io::Error),
}

impl Unstarted {
    fn at(step: &'static str) -> impl Fn(io::Error) -> Unstarted {
        move |source| Unstarted::Step(step, source)
    }

    fn told(&self) -> FromInit {
        let errno = |error: &io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        match self {
            Unstarted::Exec(error) => FromInit::ExecFailed { errno: errno(error) },
            Unstarted::Step(step, error) => {
                FromInit::StartFailed { step: (*step).into(), errno: errno(error) }
            }
        }
    }
}

/// Executes the payload in a process of its own; returns when that has succeeded.
fn start(
    payload: &Payload,
    pass: Vec<(OwnedFd, i32)>,
    terminal: Option<OwnedFd>,
) -> Result<(i32, SignalFd), Unstarted> {
    // Opened while still dumpable: the file belongs to root as soon as init is not (proc(5)).
    let mut oom_score = File::options().read(true).write(true).open("/proc/self/oom_score_adj");
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|errno| Unstarted::Step("making init not dumpable", errno.into()))?;
    let mut signals = SigSet::all();
    signals.remove(Signal::SIGSYS);
    let block = |errno: nix::Error| Unstarted::Step("waiting for children", errno.into());
    signals.thread_block().map_err(block)?;
    let children = SignalFd::with_flags(
        &[Signal::SIGCHLD].into_iter().collect(),
        SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK,
    )
    .map_err(block)?;

    let own_score = raise_oom_score(oom_score.as_mut().ok());
    let mut failure = None;
    let pid = sys::vfork(|| {
        failure = Some(become_payload(payload, &pass, terminal.as_ref()));
        1
    })
    .map_err(Unstarted::at("making its process"))?;
    if let Some(unstarted) = failure {
        return Err(unstarted);
    }
    if let (Ok(file), Some(score)) = (&mut oom_score, own_score) {
        // Back to where it was; lower than at the start would need CAP_SYS_RESOURCE.
        let _ = file.write_all(score.as_bytes());
    }
    Ok((pid, children))
}

/// Gives up what only the payload needs, and the calls that init makes no more.
fn settle(own_filter: &Program) -> io::Result<()> {
    // The payload's streams are the payload's: a reader waits for their end, not for init's.
    release_streams()?;
    seccomp::install(own_filter, seccomp::Flags::default()).map_err(io::Error::other)
}

/// Reaps until the payload ends. The monitor's end closing ends init at once.
fn wait_for(payload: i32, channel: &Channel, children: &SignalFd) -> io::Result<WaitStatus> {
    // False while there may be children that no signal will tell of again.
    let mut reaped = true;
    loop {
        let mut ready = [
            PollFd::from_borrowed_fd(channel.fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(children.as_fd(), PollFlags::IN),
        ];
        let now = Timespec::default();
        rustix::io::retry_on_intr(|| poll(&mut ready, (!reaped).then_some(&now)))?;
        let [from_monitor, from_children] = ready.map(|fd| !fd.revents().is_empty());
        if from_children || !reaped {
            // One read is enough: children are asked for until there is none.
            let _ = children.read_signal();
            reaped = false;
            // A flood of orphans must not keep init from its channel.
            for _ in 0..64 {
                match wait(WaitOptions::NOHANG) {
                    Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == payload => return Ok(status),
                    Ok(Some(_)) => {}
                    Ok(None) => {
                        reaped = true;
                        break;
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    // The payload is a child until it is reaped here.
                    Err(error) => return Err(error.into()),
                }
            }
        }
        if from_monitor {
            match channel.receive::<ToInit>() {
                Ok(Some((ToInit::Signal(signal), _))) => forward(payload, signal),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => sys::exit_now(1),
            }
        }
    }
}

fn forward(payload: i32, signal: i32) {
    if let (Some(pid), Ok(signal)) = (Pid::from_raw(payload), Signal::try_from(signal)) {
        // A payload that ended meanwhile is reaped by the next turn.
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.as_raw_nonzero().get()), signal);
    }
}

/// Becomes the payload; returns only on failure.
fn become_payload(payload: &Payload, pass: &[(OwnedFd, i32)], terminal: Option<&OwnedFd>) -> Unstarted {
    match prepare(pass, terminal) {
        Ok(()) => Unstarted::Exec(exec(payload)),
        Err(error) => Unstarted::Step("preparing its session, streams and signals", error),
    }
}

fn prepare(pass: &[(OwnedFd, i32)], terminal: Option<&OwnedFd>) -> io::Result<()> {
    rustix::process::setsid()?;
    if let Some(terminal) = terminal {
        rustix::process::ioctl_tiocsctty(terminal)?;
        for stream in 0..3 {
            // SAFETY: the standard streams are open, and borrowed only for the question.
            let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(stream) };
            if rustix::termios::isatty(fd) {
                duplicate(terminal, stream)?;
            }
        }
    }
    // First out of the way of the wanted numbers, then onto them.
    let lowest = pass.iter().map(|(_, number)| number + 1).max().unwrap_or(3);
    let moved: Vec<(OwnedFd, i32)> = pass
        .iter()
        .map(|(fd, number)| Ok((rustix::io::fcntl_dupfd_cloexec(fd, lowest)?, *number)))
        .collect::<io::Result<_>>()?;
    moved.iter().try_for_each(|(fd, number)| duplicate(fd, *number))?;

    // execve resets what is caught; what is ignored would be passed on.
    sys::reset_signals()?;
    Ok(SigSet::empty().thread_set_mask()?)
}

/// dup2 without close-on-exec, onto a number that belongs to nobody in this process.
fn duplicate(fd: &OwnedFd, number: i32) -> io::Result<()> {
    // SAFETY: dup2 touches no memory; `number` is a standard stream or above every descriptor in use.
    if unsafe { libc::dup2(fd.as_raw_fd(), number) } == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// execve with the search of execvp(3) in the payload's own PATH.
fn exec(payload: &Payload) -> io::Error {
    let strings = |texts: &[String]| {
        texts.iter().map(|text| CString::new(text.as_bytes())).collect::<Result<Vec<_>, _>>()
    };
    let (Ok(args), Ok(env)) = (strings(&payload.args), strings(&payload.env)) else {
        return io::Error::from_raw_os_error(libc::EINVAL);
    };
    let pointers = |strings: &[CString]| -> Vec<*const c_char> {
        strings.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (argv, envp) = (pointers(&args), pointers(&env));
    let Some(program) = payload.args.first() else {
        return io::Error::from_raw_os_error(libc::EINVAL);
    };
    if program.contains('/') {
        return sys::execve(&args[0], &argv, &envp);
    }
    let path = payload.env.iter().find_map(|pair| pair.strip_prefix("PATH="));
    let mut found = io::Error::from_raw_os_error(libc::ENOENT);
    for directory in path.unwrap_or("/usr/bin:/bin").split(':') {
        let Ok(file) =
            CString::new(format!("{}/{program}", if directory.is_empty() { "." } else { directory }))
        else {
            continue;
        };
        let error = sys::execve(&file, &argv, &envp);
        // As execvp(3): go on where the file is not there, remember that one could not be executed.
        match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => {}
            Some(libc::EACCES) => found = error,
            _ => return error,
        }
    }
    found
}

fn raise_oom_score(file: Option<&mut File>) -> Option<String> {
    let file = file?;
    let mut own = String::new();
    file.read_to_string(&mut own).ok()?;
    let raised = own.trim().parse::<i32>().ok()?.max(OOM_SCORE_OF_PAYLOAD.parse().ok()?);
    file.write_all(raised.to_string().as_bytes()).ok()?;
    Some(own.trim().to_string())
}

/// Points the standard streams at /dev/null, or closes them where there is none.
fn release_streams() -> io::Result<()> {
    match File::options().read(true).write(true).open("/dev/null") {
        Ok(null) => {
            let null = OwnedFd::from(null);
            (0..3).try_for_each(|stream| duplicate(&null, stream))
        }
        Err(_) => {
            for stream in 0..3 {
                // SAFETY: nothing of init owns the standard streams; closing a closed one does no harm.
                unsafe { libc::close(stream) };
            }
            Ok(())
        }
    }
}
