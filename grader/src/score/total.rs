//! The exact score of a candidate.

use std::cmp::Ordering;
use std::fmt;
use std::num::NonZeroU64;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Decimal;

/// A sum of item scores over the planned number of them: 87 of 512, never 0.17.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Score {
    /// The sum; an integer where items are right or wrong.
    pub sum: Decimal,
    /// The planned denominator.
    pub n: NonZeroU64,
}

/// Two scores were not counted over the same plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a score over {left} items cannot be compared with one over {right}")]
pub struct UnequalDenominators {
    /// The denominator of one.
    pub left: NonZeroU64,
    /// The denominator of the other.
    pub right: NonZeroU64,
}

impl Score {
    /// The quotient, for the ladder and for people: the doubles nearest to `sum` and `n`, divided.
    #[allow(clippy::cast_precision_loss, reason = "exact up to 2^53 items")]
    pub fn value(self) -> f64 {
        self.sum.to_f64() / self.n.get() as f64
    }

    /// Which is greater.
    pub fn compare(self, other: Score) -> Result<Ordering, UnequalDenominators> {
        if self.n == other.n {
            Ok(self.sum.cmp(&other.sum))
        } else {
            Err(UnequalDenominators {
                left: self.n,
                right: other.n,
            })
        }
    }
}

/// A whole-set metric is its own single item.
impl From<Decimal> for Score {
    fn from(sum: Decimal) -> Score {
        Score {
            sum,
            n: NonZeroU64::MIN,
        }
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.n.get() {
            1 => self.sum.fmt(f),
            n => write!(f, "{}/{n}", self.sum),
        }
    }
}
