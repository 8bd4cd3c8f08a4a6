//! Airlock's sandbox runtime.
//!
//! The data flow is `Spec` → plan → `Plan` → launch → `EndReport`.
//! Everything up to the plan is pure; only `launch` and the mechanism modules touch the kernel.

pub mod cgroups;
pub mod doctor;
pub mod seccomp;
pub mod spec;

pub use spec::Spec;
