//! A run's supervisor.

pub mod clock;
pub mod drain;
pub mod lease;
pub mod logs;
pub mod relay;
pub mod verdict;
