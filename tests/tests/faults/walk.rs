//! The walk: every call of a launch that can fail does so once, each in a launch of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use airlock_runtime::seccomp::syscall_name;
use airlock_tests::{Ended, record_measure};

use crate::inject::Point;
use crate::stage::{RAN, Stage, Tried};
use crate::steps::Steps;

/// Init's name when all steps are done.
const INIT: &str = "airlock-init";

/// Which calls of each step fail: each kind once, or every one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    Kinds,
    All,
}

/// How a launch with a fault ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// Airlock refused, and the command did not run.
    Refused,
    /// It ended early after the command was executed, and the status says so.
    Ended,
    /// It makes no difference, or a warning says which.
    Tolerated,
}

/// What came of a walk, for each step or part of a launch.
#[derive(Debug, Default)]
pub(crate) struct Table(BTreeMap<(&'static str, String), BTreeMap<Outcome, usize>>);

impl Table {
    /// Tries all faults, and fails if any ends in a way that it should not.
    pub(crate) fn of(stage: &Stage, errno: i32, extent: Extent, whom: impl Fn(&Point) -> bool) -> Table {
        let steps = Steps::of(stage);
        let mut table = Table::default();
        let whole = stage.try_with(None);
        let mut wrong = Vec::new();
        for point in points(&whole, extent).into_iter().filter(|point| whom(point)) {
            let label = Label(&point);
            let tried = stage.try_with(Some((point.clone(), errno)));
            // Which of two processes is first can decide whether a call is made at all.
            if !tried.seen.failed {
                continue;
            }
            let outcome = outcome(&tried, &point, errno, &steps, &whole);
            match outcome.and_then(|outcome| clean(stage, &tried, &point).map(|()| outcome)) {
                Ok(outcome) => {
                    let place = steps.place(&point, &tried.ended.stderr);
                    *table.0.entry(place).or_default().entry(outcome).or_default() += 1;
                }
                Err(why) => wrong.push(format!("{label}: {why}: {}", tried.ended)),
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        table
    }

    /// Says what it holds, one line for each row.
    pub(crate) fn say(&self, leg: &str) {
        let mut total = BTreeMap::new();
        for ((side, step), outcomes) in &self.0 {
            record_measure(&format!("faults as {leg}: {side}: {step}: {}", words(outcomes)));
            outcomes.iter().for_each(|(outcome, count)| *total.entry(*outcome).or_default() += count);
        }
        record_measure(&format!("faults as {leg}: in all {}, nothing left", words(&total)));
    }

    /// The steps that a fault was refused at.
    pub(crate) fn refused(&self) -> BTreeSet<(&'static str, String)> {
        let refused = self.0.iter().filter(|(_, outcomes)| outcomes.contains_key(&Outcome::Refused));
        refused.map(|(place, _)| place.clone()).collect()
    }
}

fn words(outcomes: &BTreeMap<Outcome, usize>) -> String {
    let words = outcomes.iter().map(|(outcome, count)| format!("{count} {outcome:?}").to_lowercase());
    words.collect::<Vec<_>>().join(", ")
}

/// The calls that are to fail, from a launch in which none did.
fn points(whole: &Tried, extent: Extent) -> BTreeSet<Point> {
    assert_eq!((whole.ended.stdout.as_str(), whole.left.as_str()), (RAN, ""), "{}", whole.ended);
    let kinds = |point: &Point| match point.who.as_str() {
        // Every file is read to its end: half of the reads are no step.
        "monitor" => point.call != libc::SYS_read || point.nth.is_multiple_of(2),
        _ => point.nth == 0,
    };
    let own = whole.seen.points.iter().filter(|point| point.who != "echo");
    own.filter(|point| extent == Extent::All || kinds(point)).cloned().collect()
}

fn outcome(
    tried: &Tried,
    point: &Point,
    errno: i32,
    steps: &Steps,
    whole: &Tried,
) -> Result<Outcome, String> {
    let ended = &tried.ended;
    let ran = ended.stdout == RAN;
    let why = std::io::Error::from_raw_os_error(errno).to_string();
    match ended.code {
        0 if !ran => Err("the command did not run, and the status is 0".into()),
        0 if steps.named_by(&point.who).is_some() => Err("a step of the plan failed, and it ran".into()),
        0 if promises(ended) != promises(&whole.ended) => Err("less is enforced".into()),
        0 => Ok(Outcome::Tolerated),
        125 if !ran => named(ended, point, &why, steps).map(|()| Outcome::Refused),
        125 if ended.stderr.contains(&why) => Ok(Outcome::Ended),
        126 if point.call == libc::SYS_execve && point.who == INIT => Ok(Outcome::Refused),
        // Init could not go on, and its end is the sandbox's.
        137 if point.who == INIT && ended.report().reason() == "signalled" => Ok(Outcome::Ended),
        code => Err(format!("status {code}")),
    }
}

/// What the end report says was enforced, by clause, and what was lowered.
fn promises(ended: &Ended) -> (Vec<String>, String) {
    let report = ended.report();
    let mut clauses: Vec<String> = report.enforced().iter().map(|(clause, _)| (*clause).to_owned()).collect();
    clauses.sort();
    (clauses, report.lowered())
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
    point.who == "monitor" && (of_pool || REMOVALS.contains(&point.call))
}

/// The error names what failed and why.
fn named(ended: &Ended, point: &Point, why: &str, steps: &Steps) -> Result<(), String> {
    // Init that cannot speak; and Landlock's version, whose absence has reasons of its own.
    let otherwise = ["init ended before it had done this", "this kernel has 0", "incompatible access-rights"];
    if ![&otherwise[..], &[why]].concat().iter().any(|why| ended.stderr.contains(why)) {
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
struct Label<'a>(&'a Point);

impl fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Point { who, call, nth } = self.0;
        let name = u32::try_from(*call).ok().and_then(syscall_name).unwrap_or("a call");
        write!(f, "{name} number {nth} of {who}")
    }
}
