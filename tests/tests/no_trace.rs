//! Nothing is left after many runs, some of them killed at random moments.
//!
//! These tests count the whole machine's mounts and Airlock's state, so they run alone.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use airlock_tests::{Census, Site, within};
use nix::sys::signal::Signal;

const RUNS: usize = 200;
/// One run of so many is killed.
const KILLED: usize = 10;

/// Test runners that use one process for all tests of a file run these one after the other, too.
static ALONE: Mutex<()> = Mutex::new(());

/// A small generator, seeded, so that a failure can be repeated (Numerical Recipes' constants).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// What a census says of the world outside the site's own reports.
fn trace(site: &Site) -> Census {
    let mut census = Census::of(site);
    census.files = BTreeSet::<PathBuf>::new();
    census
}

#[test]
fn two_hundred_runs_leave_nothing() {
    let _alone = ALONE.lock();
    let site = Site::new();
    let policy = site.policy("");
    let run = || site.run().policy(&policy);
    let seed = std::env::var("AIRLOCK_TESTS_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("AIRLOCK_TESTS_SEED={seed}");
    let mut random = Random(seed);

    // Each writable mount has a process of its own for a moment, which carries the id map.
    let mounts = (0..20).map(|number| {
        let folder = site.folder(&format!("data-{number}"));
        format!("[[mount]]\nsource = {folder:?}\ntarget = \"/data/{number}\"\nmode = \"rw\"\n")
    });
    let many = site.policy(&mounts.collect::<String>());
    let typical = site.run().policy(&many).end(["true"]).succeeded().wall;
    site.airlock_with(["gc"]).succeeded();
    let before = trace(&site);
    for number in 1..=RUNS {
        if number % KILLED == 0 {
            let live = site.run().policy(&many).start(["sleep", "30"]);
            let moment = random.below(2 * u64::try_from(typical.as_micros()).unwrap() + 1);
            std::thread::sleep(Duration::from_micros(moment));
            live.signal(Signal::SIGKILL);
            live.end();
            let gone = within(Duration::from_secs(2), || site.processes().is_empty());
            assert!(gone, "run {number}, killed after {moment} µs: {:?}", site.processes());
        } else {
            run().end(["true"]).succeeded();
        }
    }
    // A state that was just made is left alone for a while, in case that it gets its name.
    within(Duration::from_secs(75), || {
        site.airlock_with(["gc"]).succeeded();
        trace(&site) == before
    });
    assert_eq!(trace(&site), before);
}

/// A failed launch cleans up as a finished one does, wherever it fails.
#[test]
fn failed_launches_leave_nothing() {
    let _alone = ALONE.lock();
    let site = Site::new();
    let policy = site.policy("");
    site.run().policy(&policy).end(["true"]).succeeded();
    site.airlock_with(["gc"]).succeeded();
    let before = trace(&site);
    assert_eq!(site.run().policy(&policy).end(["/no/such/program"]).code, 127);
    assert_eq!(site.run().policy(&policy).end(["/etc/passwd"]).code, 126);
    let bad = site.policy("[process]\ncwd = \"/no/such/place\"\n");
    assert_eq!(site.run().policy(bad).end(["true"]).code, 125);
    let bad = site.policy("[[mount]]\nsource = \"./missing\"\ntarget = \"/data\"\n");
    assert_eq!(site.run().policy(bad).end(["true"]).code, 125);
    within(Duration::from_secs(2), || trace(&site) == before);
    assert_eq!(trace(&site), before);
}
