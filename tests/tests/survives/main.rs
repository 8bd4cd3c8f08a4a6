//! What a graded run survives: every one of its processes killed at every moment, a full disk, scorers, candidates and
//! agents that do not behave, and operators who change what lies under it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

mod agents;
mod disk;
mod operators;
mod processes;
mod scorers;
mod support;
mod walk;
