//! What a scorer says about each item.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Decimal;

/// How an attempt at an item ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It was graded, and its score counts.
    Ok,
    /// It was graded, and it is wrong.
    Wrong,
    /// It did not end in time.
    Timeout,
    /// It crashed, or gave nothing that could be graded.
    ExecFailure,
    /// A gate refused it.
    GateFailed,
    /// The host failed it. Only the host says so, never a scorer.
    Infra,
}

/// One attempt at an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Attempt {
    /// How it ended.
    pub status: Status,
    /// What it scores; anything but zero only with [`Status::Ok`].
    pub score: Decimal,
    /// How long it took, in milliseconds.
    pub wall_ms: u64,
}

/// All attempts at one item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ItemResult {
    /// The item, by its planned name.
    pub id: String,
    /// In the order in which they were made; fewer than planned means that the rest are missing.
    pub attempts: Vec<Attempt>,
}
