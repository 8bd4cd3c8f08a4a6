//! GPUs, on a stand-in for NVIDIA's driver.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

mod list;
