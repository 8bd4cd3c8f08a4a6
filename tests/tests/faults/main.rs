//! Every step of a launch that can fail does so, and then nothing is left and the error says what it was.
//!
//! | file | holds |
//! | --- | --- |
//! | `scenes.rs` | the launches, whose plans have every kind of step together |
//! | `inject.rs` | a call that fails or waits, from outside |
//! | `errnos.rs` | which errors each call gives |
//! | `walk.rs` | each call in turn, and what must come of it |
//! | `table.rs` | what came of it, by step |
//! | `kills.rs` | each process killed at each step |
//! | `lacks.rs`, `limits.rs` | no room on a disk, no memory, too few descriptors or processes |
//!
//! The table of steps and outcomes, as root and as an ordinary user:
//!
//! ```text
//! export AIRLOCK_TESTS_LOG=$PWD/faults.txt
//! cargo nextest run -p airlock-tests -E 'binary(faults)'
//! AIRLOCK_TESTS_AS=user cargo nextest run -p airlock-tests -E 'binary(faults)'
//! sort faults.txt
//! ```
//!
//! The kernel matrix has it for every kernel and caller (tests/matrix).
//!
//! `AIRLOCK_TESTS_FAULTS=all` makes every single call fail, with each of its errors, and takes long.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

mod errnos;
mod inject;
mod kills;
mod lacks;
mod limits;
mod scenes;
mod stage;
mod steps;
mod table;
mod walk;

use std::collections::BTreeSet;

use airlock_runtime::plan::Action;
use airlock_tests::skip;
use inject::{MONITOR, Point};
use scenes::{OTHERS, Scene, WIDE};
use stage::Stage;
use steps::Steps;
use walk::{Extent, walk, walk_through};

fn walk_wide(side: &str, part: &str, whom: impl Fn(&Point) -> bool) {
    let Some(stage) = Stage::of(&WIDE) else { return };
    let steps = Steps::of(&stage);
    let table = walk(&stage, &steps, Extent::asked_for(), whom);
    table.say(stage.leg(), part);
    let refused = table.refused();
    for place in steps.all().filter(|(of, _)| *of == side) {
        assert!(refused.contains(&place), "no fault of {place:?} was refused: {refused:?}");
    }
}

#[test]
fn every_step_of_the_monitor_that_fails_is_named_and_leaves_nothing() {
    walk_wide("host", "monitor", |point| point.who == MONITOR);
}

#[test]
fn every_step_of_init_that_fails_is_named_and_leaves_nothing() {
    walk_wide("child", "init", |point| point.who != MONITOR);
}

/// In a thread of its own, since a stage takes its thread's mounts.
fn on_stage(scene: &Scene, play: impl FnOnce(&Stage, &Steps) + Send) -> bool {
    let run = || match Stage::of(scene) {
        Some(stage) => {
            play(&stage, &Steps::of(&stage));
            true
        }
        None => false,
    };
    std::thread::scope(|scope| scope.spawn(run).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What other policies and hosts add to the plan.
#[test]
fn every_step_of_other_policies_and_hosts_that_fails_is_named_and_leaves_nothing() {
    for scene in &OTHERS {
        on_stage(scene, |stage, steps| {
            let table = walk_through(scene, stage, steps, Extent::asked_for());
            table.say(stage.leg(), scene.name);
            let refused = table.refused();
            for (side, action) in scene.steps {
                let place = (*side, (*action).to_owned());
                assert!(refused.contains(&place), "{}: {place:?}: {refused:?}", scene.name);
            }
        });
    }
}

/// A step that is new in the plan belongs to a scene, or is excused here by its name.
#[test]
fn every_kind_of_step_is_in_a_scene() {
    if !airlock_tests::is_root() {
        skip!("needs root: some steps are root's alone, others take a cgroup that root has delegated");
    }
    let mut kinds = BTreeSet::new();
    on_stage(&WIDE, |_, steps| kinds.extend(steps.all().map(|(_, action)| action)));
    for scene in &OTHERS {
        on_stage(scene, |_, steps| {
            let planned: BTreeSet<_> = steps.all().collect();
            for (side, action) in scene.steps {
                let place = (*side, (*action).to_owned());
                assert!(planned.contains(&place), "{}: {place:?} is not in its plan", scene.name);
                kinds.insert(place.1);
            }
        });
    }
    // What only root plans, where these tests are about a user.
    let excused: &[&str] =
        if airlock_tests::Caller::current().is_root() { &[] } else { &["become-root", "filter-devices"] };
    let missing: Vec<_> =
        Action::NAMES.iter().filter(|name| !kinds.contains(**name) && !excused.contains(name)).collect();
    assert!(missing.is_empty(), "no fault of these is tried: {missing:?}");
}
