//! GPUs, on a stand-in for NVIDIA's driver.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

/// The host of a scenario, or the end of the test in words.
macro_rules! host {
    ($scenario:expr) => {
        match airlock_tests::Gpus::new($scenario) {
            Ok(gpus) => gpus,
            Err(why) => airlock_tests::skip!("{why}"),
        }
    };
}

macro_rules! root {
    () => {
        match Site::root() {
            Some(site) => site,
            None => {
                airlock_tests::skip!("a user's /proc cannot be new where a stand-in covers a part of the old")
            }
        }
    };
}

mod leases;
mod limits;
mod list;
mod reset;
mod tenants;

use airlock_tests::{Ended, Gpus, Live, Run, Site};
use nix::sys::signal::Signal;
use serde_json::Value;

/// `airlock run` on this host with these GPUs. Where nothing of the driver is below `/proc`, as for a user, only what
/// comes before the launch can be tried.
pub(crate) fn run<'a>(site: &'a Site, gpus: &Gpus, wish: &str) -> Run<'a> {
    site.run().policy(site.policy("")).where_root_did(gpus.script()).flag("--gpus", wish)
}

/// One that holds its GPUs until it is told to end.
pub(crate) fn resting(site: &Site, gpus: &Gpus, wish: &str) -> Live {
    let mut live = run(site, gpus, wish).start(["/probe/probe", "rest", "60"]);
    live.printed("ready");
    live
}

pub(crate) fn end(live: Live) -> Ended {
    live.signal(Signal::SIGTERM);
    live.end()
}

pub(crate) fn uuid(index: u32) -> String {
    format!("GPU-{index:08x}-aaaa-bbbb-cccc-{index:012x}")
}

pub(crate) fn report(ended: &Ended) -> Value {
    ended.report().field("gpus").clone()
}
