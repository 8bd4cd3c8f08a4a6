//! Every step of a launch that can fail does so, and then nothing is left and the error says what it was.
//!
//! `AIRLOCK_TESTS_FAULTS=all` makes every single call fail, and not only each kind once in each step.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

mod inject;
mod lacks;
mod stage;
mod steps;
mod walk;

use airlock_tests::Site;
use inject::Point;
use stage::Stage;
use steps::Steps;
use walk::{Extent, Table};

/// A policy whose plan has nearly every kind of step.
fn wide(site: &Site) -> String {
    let folder = site.folder("data");
    format!(
        "[network]\nmode = \"loopback\"\n\n[[mount]]\nsource = {folder:?}\ntarget = \"/data\"\nmode = \"rw\"\n"
    )
}

/// An errno that no code expects, so that none takes it for something else.
const ERRNO: i32 = libc::EIO;

fn leg(stage: &Stage) -> &'static str {
    match (stage.site.caller().is_root(), stage.site.limits()) {
        (true, _) => "root",
        (false, true) => "a user with a delegated cgroup",
        (false, false) => "a user",
    }
}

fn walk(side: &str, whom: impl Fn(&Point) -> bool) {
    let stage = Stage::new(wide);
    let all = std::env::var_os("AIRLOCK_TESTS_FAULTS").is_some_and(|extent| extent == "all");
    let table = Table::of(&stage, ERRNO, if all { Extent::All } else { Extent::Kinds }, &whom);
    table.say(leg(&stage));
    let refused = table.refused();
    for place in Steps::of(&stage).all().filter(|(of, _)| *of == side) {
        assert!(refused.contains(&place), "no fault of {place:?} was refused: {refused:?}");
    }
}

#[test]
fn every_step_of_the_monitor_that_fails_is_named_and_leaves_nothing() {
    walk("host", |point| point.who == "monitor");
}

#[test]
fn every_step_of_init_that_fails_is_named_and_leaves_nothing() {
    walk("child", |point| point.who != "monitor");
}

/// What a writable root adds to the plan.
#[test]
fn every_step_of_an_overlay_that_fails_is_named_and_leaves_nothing() {
    let stage = Stage::new(|site| format!("[root]\nwritable = {:?}\n", site.folder("kept")));
    let steps = Steps::of(&stage);
    let place = ("child", "new-overlay".to_owned());
    let table = Table::of(&stage, ERRNO, Extent::All, |point| steps.place(point, "") == place);
    table.say(leg(&stage));
    assert_eq!(table.refused().into_iter().collect::<Vec<_>>(), [place]);
}
