//! Airlock's sandbox runtime.
//!
//! The data flow is `Spec` → plan → `Plan` → launch → `EndReport`.
//! Everything up to the plan is pure; only `launch` and the mechanism modules touch the kernel.

mod attempt;
mod capabilities;
pub mod cgroups;
pub mod doctor;
pub mod gpu;
pub mod host;
mod idmap;
pub mod ids;
mod init;
pub mod landlock;
pub mod launch;
pub mod launcher;
pub mod live;
pub mod monitor;
mod mounts;
mod network;
pub mod plan;
pub mod probe;
pub mod report;
pub mod seccomp;
pub mod signals;
pub mod spec;
pub mod state;
mod sys;
mod terminal;
mod verify;

pub use spec::Spec;
