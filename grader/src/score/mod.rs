//! From the attempts at a task's items to one number, and from that number to its place on the ladder.
//!
//! [`Metric::tally`] counts over what was *planned*: a missing, crashed or late attempt stays in the
//! denominator. [`best_valid`] picks among checkpoints. [`Ladder::sigma`] places a score between an
//! uninformed model (0), the task's baseline (0.1) and the best that can be reached (1).
//!
//! Counts and decimals are exact up to the one division that the ladder needs.

mod best;
mod decimal;
mod item;
mod ladder;
mod metric;
mod sigma;
mod total;

pub use best::{Checkpoint, best_valid};
pub use decimal::{Decimal, DecimalError};
pub use item::{Attempt, ItemResult, Status};
pub use ladder::{Below, Ladder, LadderError, Phi, Uninformative};
pub use metric::{Aggregate, Counts, Direction, FailedItem, Metric, MetricError, Tally, TallyError};
pub use sigma::{Sigma, SigmaError};
pub use total::{Score, UnequalDenominators};
