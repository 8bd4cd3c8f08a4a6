//! `airlock task verify` and `airlock task status` on runs that the command made itself.
//!
//! Each test makes one run and spoils copies of it, one thing at a time. That a copy which nobody spoiled verifies is
//! part of every test.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

mod copies;
mod forged;
mod forger;
mod honest;
mod spoiled;
