//! Each process of a launch is killed at each step: soon nothing of it lives, and `airlock gc` removes the rest.
//!
//! A call that is held stops the launch at a step; meanwhile the test kills the monitor, init or whoever started the
//! monitor.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use airlock_tests::{all_below, record_measure, within};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::inject::{Fault, Hold, MONITOR, Point, Supervisor};
use crate::scenes::WIDE;
use crate::stage::{PAYLOAD, Stage};
use crate::steps::Steps;
use crate::walk::{Extent, Label};

/// Nothing lives after so long.
const GONE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Monitor,
    Init,
    Parent,
}

fn walk(victim: Victim) {
    let Some(stage) = Stage::of(&WIDE) else { return };
    let steps = Steps::of(&stage);
    let whole = stage.try_with(None);
    let points = moments(&whole.seen.points, &steps, victim);
    let (mut killed, mut wrong) = (0, Vec::new());
    for point in points {
        match killed_at(&stage, &point, victim) {
            Ok(true) => killed += 1,
            Ok(false) => {}
            Err(why) => wrong.push(format!("{victim:?} killed at {}: {why}", Label(&point))),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(killed > 10, "{killed}");
    let who = format!("{victim:?}").to_lowercase();
    record_measure(&format!("kills as {}: {who} at {killed} moments: nothing left", stage.leg()));
}

/// One moment for each kind of step of init's, and for each kind of call of the monitor's; some more of the monitor's
/// calls, since it does not say at what step it is. A parent's death matters to none of them.
fn moments(points: &[Point], steps: &Steps, victim: Victim) -> Vec<Point> {
    let mut seen = BTreeSet::new();
    let mut new = |point: &&Point| match steps.action_of(&point.who) {
        Some(action) => seen.insert((action.to_owned(), 0)),
        None => seen.insert((point.who.clone(), point.call)) || point.nth % 16 == 8,
    };
    let own = points.iter().filter(|point| point.who != PAYLOAD && point.call != libc::SYS_exit_group);
    let own: Vec<Point> =
        own.filter(|point| Extent::asked_for() == Extent::All || new(point)).cloned().collect();
    let every = if victim == Victim::Parent { 4 } else { 1 };
    own.into_iter().step_by(every).collect()
}

/// False: this launch did not come to the point, or there was no victim yet.
fn killed_at(stage: &Stage, point: &Point, victim: Victim) -> Result<bool, String> {
    let (hold, grip) = Hold::new();
    let mut supervisor = None;
    let supervised = |command: &mut Command| {
        let fault = (point.clone(), Fault::Waits(hold));
        supervisor = Some(Supervisor::over(command, Some(fault)).unwrap());
        if victim == Victim::Parent {
            start_from_another(command);
        }
    };
    let live = stage.start(stage.run().with(supervised));
    let parent = live.pid().as_raw();
    let pid = grip.reached().and_then(|monitor| match victim {
        Victim::Monitor => Some(monitor),
        Victim::Init => init_of(monitor),
        Victim::Parent => Some(parent),
    });
    if let Some(pid) = pid {
        kill(Pid::from_raw(pid), Signal::SIGKILL).map_err(|errno| errno.to_string())?;
    }
    drop(grip);
    let gone = pid.is_none() || within(GONE, || stage.site.processes().is_empty());
    let processes = stage.site.processes();
    let ended = live.end();
    drop(supervisor.map(Supervisor::end));
    if !gone {
        return Err(format!("after {GONE:?} there are {processes:?}: {ended}"));
    }
    match (victim, pid, ended.code) {
        (_, None, 0) | (Victim::Monitor | Victim::Parent, Some(_), 137) => {}
        // Refused while it was built, ended by a signal later.
        (Victim::Init, Some(_), 125) if ended.stderr.contains("init ended") => {}
        (Victim::Init, Some(_), 137) if ended.report().reason() == "signalled" => {}
        // It had told of its end already.
        (Victim::Init, Some(_), 0) if point.who == MONITOR && stage.ran(&ended) => {}
        (_, _, code) => return Err(format!("status {code}: {ended}")),
    }
    age(&stage.state());
    let swept = stage.site.airlock_with(["gc"]);
    remove_parts(&stage.site.path(""));
    match stage.left() {
        left if left.is_empty() => Ok(pid.is_some()),
        left => Err(format!("left even by `airlock gc`: {left}: {swept}")),
    }
}

/// Init, if there is one.
fn init_of(monitor: i32) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{monitor}/task/{monitor}/children")).ok()?;
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).find(|pid: &i32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.starts_with("init step ") || name.starts_with("airlock-init")
    })
}

/// Lets a command be started by a process that does nothing but wait for it.
fn start_from_another(command: &mut Command) {
    let fork = || {
        // SAFETY: both processes go on with system calls alone.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => Ok(()),
            pid => {
                // Or whoever reads from the command's streams would wait for this process too.
                // SAFETY: nothing in this process uses a descriptor any more.
                unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) };
                let mut status = 0;
                // SAFETY: the call writes to `status`, which outlives it.
                unsafe { libc::waitpid(pid, &raw mut status, 0) };
                // SAFETY: no exit handler of the test's runs.
                unsafe { libc::_exit(libc::WEXITSTATUS(status)) }
            }
        }
    };
    // SAFETY: the closure makes system calls and allocates nothing.
    unsafe { command.pre_exec(fork) };
}

/// A state that was just made is left alone for a minute, in case that it gets its name.
fn age(state: &Path) {
    let unnamed = |path: &Path| path.extension().is_some_and(|extension| extension == "new");
    for path in all_below(state).iter().filter(|path| unnamed(path)) {
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(120)).unwrap();
    }
}

/// A report is written beside its place first. Of one that was killed meanwhile that part stays: its sandbox is gone, and
/// with it the record by which `airlock gc` would know of it.
fn remove_parts(folder: &Path) {
    for path in all_below(folder) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("report-") && name.ends_with(".tmp") {
            fs::remove_file(&path).unwrap();
        }
    }
}

#[test]
fn a_monitor_that_is_killed_at_any_step_takes_all_with_it() {
    walk(Victim::Monitor);
}

#[test]
fn an_init_that_is_killed_at_any_step_takes_all_with_it() {
    walk(Victim::Init);
}

/// The monitor ends its work.
#[test]
fn whoever_started_a_monitor_may_be_killed_at_any_step() {
    walk(Victim::Parent);
}
