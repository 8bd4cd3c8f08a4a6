//! Task directories: format, loader and checks.
//!
//! A task is laid out as Harbor lays one out: `task.toml`, `instruction.md`, `environment/` (the frozen source that
//! a candidate changes), `tests/` (the scorer) and `solution/`. What Airlock needs beyond Harbor's keys stands in the
//! `[airlock]` table of `task.toml`. A task without that table is one research phase, then a separate sandbox that
//! runs `tests/test.sh` and reads its reward file.
//!
//! [`Task::load`] finds every mistake at once and returns a task that is whole: each phase with its policy and its
//! mounts, the metric with its planned items, the gates with all their rules. Nothing of it is looked up again later.

mod assets;
mod candidates;
mod checkpoint;
mod draft;
mod error;
mod harbor;
mod load;
mod measure;
mod mounts;
mod phases;
mod plain;
mod resolved;
mod reward;
mod schema;
mod tree;

pub use checkpoint::{CheckpointName, CheckpointNameError};
pub use error::{Finding, TaskError};
pub use harbor::Unused;
pub use load::json_schema;
pub use resolved::{
    Asset, Budget, Checkpoints, Editable, Gates, MountSource, NamedMetric, Part, PartError, Phase,
    PhaseMount, Proxy, RunSource, Task,
};
pub use reward::{REWARD_ITEM, Reward, RewardError, read_reward};
pub use schema::{Handover, Lifecycle, PhaseName, Submission, Visibility};
