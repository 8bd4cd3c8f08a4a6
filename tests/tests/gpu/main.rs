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

mod list;
mod tenants;
