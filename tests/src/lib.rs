//! Helpers of the end-to-end tests, which run the `airlock` command on the real kernel.
//!
//! A [`Site`] is what one test works in: a directory, a caller (root or an ordinary user) and a cgroup
//! parent of its own. It starts commands with [`Run`], tries single actions inside and outside with the
//! [probe](Outcome), and fails the test if anything of it outlives it. Every site is independent of every
//! other, so all tests may run at the same time.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `AIRLOCK_BIN` | the command under test; default: the `airlock` of the build directory. `airlock-harness` and `airlock-grader` are taken from beside it, or else from the build directory |
//! | `AIRLOCK_TESTS_AS` | `user`: root's tests run each command as an ordinary user; `delegated`: as one in a cgroup of its own |
//! | `AIRLOCK_TESTS_LOG` | file that collects one line per skipped test and per measurement |
//! | `AIRLOCK_TESTS_PATIENCE` | how many times as long as usual a test waits for anything |
//! | `AIRLOCK_OWN_MACHINE` | tests may change settings of the whole machine |
//! | `AIRLOCK_PYTHON_SITE` | directory with numpy and scikit-learn for `/usr/bin/python3` |
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

pub mod browser;
mod caller;
mod census;
pub mod cgroup;
pub mod fuzz;
mod gpus;
mod graded;
mod probe;
pub mod reader;
mod report;
mod run;
mod say;
pub mod schema;
mod site;

pub use caller::Caller;
pub use census::{Census, all_below};
pub use gpus::Gpus;
pub use graded::{Graded, GradedRun, Lead, LiveRun, fraction};
pub use probe::Outcome;
pub use report::Report;
pub use run::{Ended, Live, Run};
pub use say::{is_root, record_measure, record_refusal, record_skip};
pub use site::Site;

use std::time::{Duration, Instant};

/// Asks every 5 ms until the answer is yes; false if it is still no after `limit`, which is longer on a machine that
/// is emulated.
pub fn within(limit: Duration, mut question: impl FnMut() -> bool) -> bool {
    let factor = std::env::var("AIRLOCK_TESTS_PATIENCE").ok().and_then(|factor| factor.parse().ok());
    let end = Instant::now() + limit * factor.unwrap_or(1);
    loop {
        if question() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
