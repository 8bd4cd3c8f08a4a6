//! A run's supervisor.

pub mod clock;
pub mod drain;
pub mod lease;
pub mod logs;
