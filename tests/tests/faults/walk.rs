//! The walk: every call of a launch that can fail does so, each in a launch of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use airlock_runtime::seccomp::syscall_name;
use airlock_tests::Ended;

use crate::errnos::errnos;
use crate::inject::{Fault, MONITOR, Point};
use crate::scenes::Scene;
use crate::stage::{PAYLOAD, Stage, Tried};
use crate::steps::Steps;
use crate::table::{Outcome, Table};

/// Init's name when all steps are done.
const INIT: &str = "airlock-init";

/// How much of a launch fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Of init each kind of call once in each step, of the monitor each call; each errno of a kind of call once in each
    /// kind of step.
    Kinds,
    /// Every call, with every errno.
    All,
}

impl Extent {
    /// What the caller of the tests asks for.
    pub(crate) fn asked_for() -> Extent {
        match std::env::var("AIRLOCK_TESTS_FAULTS") {
            Ok(extent) if extent == "all" => Extent::All,
            _ => Extent::Kinds,
        }
    }
}

/// Tries the faults at `whom` in a scene, and fails if any ends in a way that it should not.
pub(crate) fn walk(stage: &Stage, steps: &Steps, extent: Extent, whom: impl Fn(&Point) -> bool) -> Table {
    let whole = stage.try_with(None);
    let points: Vec<Point> = points(stage, &whole, extent).into_iter().filter(whom).collect();
    walk_over(stage, steps, &whole, &faults(&points, steps, extent))
}

/// The same at the steps that a scene is there for.
pub(crate) fn walk_through(scene: &Scene, stage: &Stage, steps: &Steps, extent: Extent) -> Table {
    let whole = stage.try_with(None);
    let window = window(&whole.seen.points, scene.window);
    let wanted = |point: &Point| {
        let action = steps.action_of(&point.who);
        action.is_some_and(|action| scene.steps.contains(&("child", action))) || window.contains(point)
    };
    let points: Vec<Point> = points(stage, &whole, extent).into_iter().filter(wanted).collect();
    walk_over(stage, steps, &whole, &faults(&points, steps, extent))
}

/// What the monitor calls from its first call of this number until it has sent so many messages.
fn window(points: &[Point], bounds: Option<(i64, usize)>) -> BTreeSet<Point> {
    let Some((first, messages)) = bounds else { return BTreeSet::new() };
    let mut sent = 0;
    let own = points.iter().filter(|point| point.who == MONITOR).skip_while(|point| point.call != first);
    let inside = own.take_while(|point| {
        let before = sent;
        sent += usize::from(point.call == libc::SYS_sendmsg);
        before < messages
    });
    inside.cloned().collect()
}

fn walk_over(stage: &Stage, steps: &Steps, whole: &Tried, faults: &[(Point, i32)]) -> Table {
    let mut table = Table::default();
    let mut wrong = Vec::new();
    for (point, errno) in faults {
        let tried = stage.try_with(Some((point.clone(), Fault::Fails(*errno))));
        // Which of two processes is first can decide whether a call is made at all.
        if !tried.seen.reached {
            continue;
        }
        let outcome = outcome(stage, &tried, point, *errno, steps, whole);
        match outcome.and_then(|outcome| clean(stage, &tried, point).map(|()| outcome)) {
            Ok(outcome) => table.add(steps.place(point, &tried.ended.stderr), outcome, *errno),
            Err(why) => {
                let name = std::io::Error::from_raw_os_error(*errno);
                wrong.push(format!("{}, {name}: {why}: {}", Label(point), tried.ended));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    table
}

/// The calls that are to fail, from a launch in which none did.
fn points(stage: &Stage, whole: &Tried, extent: Extent) -> BTreeSet<Point> {
    assert!(stage.ran(&whole.ended) && whole.left.is_empty(), "{} {}", whole.ended, whole.left);
    let kinds = |point: &Point| match point.who.as_str() {
        // Every file is read to its end: half of the reads are no step.
        MONITOR => point.call != libc::SYS_read || point.nth.is_multiple_of(2),
        _ => point.nth == 0,
    };
    let own = whole.seen.points.iter().filter(|point| point.who != PAYLOAD);
    own.filter(|point| extent == Extent::All || kinds(point)).cloned().collect()
}

/// Each point with one errno or more, so that each kind of call has had all of its own in each kind of step.
fn faults(points: &[Point], steps: &Steps, extent: Extent) -> Vec<(Point, i32)> {
    if extent == Extent::All {
        let all = |point: &Point| errnos(point.call).iter().map(|errno| (point.clone(), *errno)).collect();
        return points.iter().flat_map(all as fn(&Point) -> Vec<_>).collect();
    }
    let mut kinds: BTreeMap<(&str, i64), Vec<&Point>> = BTreeMap::new();
    for point in points {
        let step = steps.action_of(&point.who).unwrap_or(&point.who);
        kinds.entry((step, point.call)).or_default().push(point);
    }
    let of_kind = |((_, call), points): ((&str, i64), Vec<&Point>)| {
        let errnos = errnos(call);
        let count = points.len().max(errnos.len());
        let turn = |turn: usize| (points[turn % points.len()], errnos[turn % errnos.len()]);
        let faults = (0..count).map(turn).flat_map(|(point, errno)| {
            // What is interrupted is done again, so the call has not failed by that.
            let other = (errno == libc::EINTR && errnos[0] != errno).then_some(errnos[0]);
            [Some(errno), other].into_iter().flatten().map(|errno| (point.clone(), errno))
        });
        faults.collect::<Vec<_>>()
    };
    kinds.into_iter().flat_map(of_kind).collect()
}

fn outcome(
    stage: &Stage,
    tried: &Tried,
    point: &Point,
    errno: i32,
    steps: &Steps,
    whole: &Tried,
) -> Result<Outcome, String> {
    let ended = &tried.ended;
    let ran = stage.ran(ended);
    let why = std::io::Error::from_raw_os_error(errno).to_string();
    match ended.code {
        0 if !ran => Err("the command did not run, and the status is 0".into()),
        0 if is_left_out(point, errno, steps) => Ok(Outcome::Tolerated),
        0 if let Some(less) = less(ended, &whole.ended, point, errno) => Err(less),
        // What is interrupted is done again.
        0 if errno != libc::EINTR && steps.named_by(&point.who).is_some() => {
            Err("a step of the plan failed, and it ran".into())
        }
        0 => Ok(Outcome::Tolerated),
        125 if !ran => named(ended, point, errno, &why, steps).map(|()| Outcome::Refused),
        125 if ended.stderr.contains(&why) => Ok(Outcome::Ended),
        126 if point.call == libc::SYS_execve && point.who == INIT => Ok(Outcome::Refused),
        // Init could not go on, and its end is the sandbox's.
        137 if point.who == INIT && ended.report().reason() == "signalled" => Ok(Outcome::Ended),
        code => Err(format!("status {code}")),
    }
}

/// Of what init may not look at, a small file is left out; and a path that it cannot come to, and so nobody inside, needs
/// no cover and gets no right.
fn is_left_out(point: &Point, errno: i32, steps: &Steps) -> bool {
    const LEFT_OUT: [&str; 4] = ["make", "mask", "read-only", "landlock"];
    let looks = matches!(point.call, libc::SYS_open | libc::SYS_openat | libc::SYS_statx);
    let left_out = steps.action_of(&point.who).is_some_and(|action| LEFT_OUT.contains(&action));
    looks && left_out && errno == libc::EACCES
}

/// What the end report says was lowered, or was enforced without the fault and is not with it.
fn less(ended: &Ended, whole: &Ended, point: &Point, errno: i32) -> Option<String> {
    if ended.report().lowered() != whole.report().lowered() {
        return Some(format!("lowered: {}", ended.report().lowered()));
    }
    let clauses = |ended: &Ended| {
        let clauses = ended.report().enforced().into_iter().map(|(clause, _)| clause.to_owned());
        clauses.collect::<Vec<String>>()
    };
    let mut missing = clauses(whole);
    for clause in clauses(ended) {
        if let Some(place) = missing.iter().position(|other| *other == clause) {
            missing.swap_remove(place);
        }
    }
    // What of the host's programs and settings the caller may not see is not mounted.
    let unseen = point.who == MONITOR && errno == libc::EACCES;
    missing.retain(|clause| !(unseen && clause.starts_with("root")));
    (!missing.is_empty()).then(|| format!("not enforced: {}", missing.join(", ")))
}

/// The fault keeps Airlock from removing something, or from knowing whether it may: an id range's file that cannot be
/// looked at may be another's.
fn is_removal(point: &Point, error: &str) -> bool {
    const REMOVALS: [i64; 5] = [
        libc::SYS_pidfd_send_signal,
        libc::SYS_ppoll,
        libc::SYS_unlink,
        libc::SYS_unlinkat,
        libc::SYS_waitid,
    ];
    let of_pool = error.starts_with("airlock: id pool: ");
    point.who == MONITOR && (of_pool || REMOVALS.contains(&point.call))
}

/// The error names what failed and why.
fn named(ended: &Ended, point: &Point, errno: i32, why: &str, steps: &Steps) -> Result<(), String> {
    // Init that cannot speak; and Landlock's version, whose absence has reasons of its own.
    let mut reasons =
        vec![why, "init ended before it had done this", "this kernel has 0", "incompatible access-rights"];
    if matches!(errno, libc::EACCES | libc::EPERM | libc::EROFS) {
        // What is not permitted is told by its remedy.
        reasons.extend([
            "is not writable",
            "partly covered",
            "that you may see",
            "the probe fails even without Landlock",
        ]);
    }
    if !reasons.iter().any(|why| ended.stderr.contains(why)) {
        return Err(format!("the error does not say `{why}`"));
    }
    match steps.named_by(&point.who) {
        Some(step) if !ended.stderr.contains(step) => Err(format!("the error does not name `{step}`")),
        // `airlock: WHAT: WHY`, and in WHAT a path, a clause or a call.
        _ if !ended.stderr.trim_end().contains(": ") => Err("the error names no step".into()),
        _ => Ok(()),
    }
}

/// Nothing is left, or `airlock gc` removes what a failed removal has left.
fn clean(stage: &Stage, tried: &Tried, point: &Point) -> Result<(), String> {
    if tried.left.is_empty() {
        return Ok(());
    }
    if !is_removal(point, &tried.ended.stderr) {
        return Err(format!("left: {}", tried.left));
    }
    stage.site.airlock_with(["gc"]);
    match stage.left() {
        left if left.is_empty() => Ok(()),
        left => Err(format!("left even by `airlock gc`: {left}")),
    }
}

/// A point in words.
pub(crate) struct Label<'a>(pub(crate) &'a Point);

impl fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Point { who, call, nth } = self.0;
        let name = u32::try_from(*call).ok().and_then(syscall_name).unwrap_or("a call");
        write!(f, "{name} number {nth} of {who}")
    }
}
