//! Counting over what was planned.

use std::collections::{HashMap, HashSet};
use std::num::{NonZeroU32, NonZeroU64};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Attempt, Decimal, ItemResult, Score, Status};

/// Which scores are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Greater ones.
    Max,
    /// Smaller ones.
    Min,
}

/// How item scores become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Aggregate {
    /// One attempt each, averaged over the items.
    Mean,
    /// The fraction of items that at least one of the attempts solved, which is a score of 1.
    PassAtK,
    /// Averaged over all planned attempts at all items.
    AvgAtK,
}

/// What an attempt counts that is missing or did not end with [`Status::Ok`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailedItem {
    /// Zero, and nothing can score less: for metrics where zero is the worst.
    Zero,
    /// The whole evaluation is without a score, which is σ = 0: for losses, and wherever zero is not the worst.
    Void,
}

/// What is measured, and over what: fixed before the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Fields", into = "Fields")]
#[schemars(with = "Fields")]
pub struct Metric {
    fields: Fields,
    /// What the sum is divided by.
    denominator: NonZeroU64,
}

/// A metric as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Fields {
    direction: Direction,
    aggregate: Aggregate,
    /// Planned attempts at each item.
    k: NonZeroU32,
    failed_item: FailedItem,
    /// The planned items by name.
    items: Vec<String>,
}

/// Why a metric means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetricError {
    /// Nothing to divide by.
    #[error("no items are planned")]
    NoItems,
    /// An item would count twice.
    #[error("the item `{0}` is planned twice")]
    TwiceTheSame(String),
    /// Which attempt would count?
    #[error("`mean` is of one attempt at each item, not {0}; write `avg_at_k` or `pass_at_k`")]
    MeanOfSeveral(NonZeroU32),
    /// Solving is only ever good.
    #[error("`pass_at_k` counts solved items, so its direction is `max`")]
    PassIsMax,
    /// A failure would be the best score.
    #[error("under the direction `min` a failed item cannot count zero, the best score; write `void`")]
    ZeroIsBest,
}

/// Attempts by what became of them. Their sum is the planned number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Items × attempts.
    pub planned: u64,
    /// Graded, and their score counts.
    pub ok: u64,
    /// Graded as wrong.
    pub wrong: u64,
    /// Not ended in time.
    pub timeout: u64,
    /// Crashed, or gave nothing to grade.
    pub exec_failure: u64,
    /// Refused by a gate.
    pub gate_failed: u64,
    /// Failed by the host: in the denominator, and shown apart.
    pub infra: u64,
    /// Never reported.
    pub missing: u64,
}

/// A metric's value for one candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// None if a failed item makes the evaluation void.
    pub score: Option<Score>,
    /// What became of the planned attempts.
    pub counts: Counts,
}

/// Why item results are no answer to what was planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TallyError {
    /// Nobody planned it.
    #[error("the item `{0}` was not planned")]
    UnknownItem(String),
    /// Which of them would count?
    #[error("the item `{0}` has two results")]
    TwiceTheSame(String),
    /// More tries than were planned.
    #[error("the item `{id}` has {found} attempts of {planned} planned")]
    TooManyAttempts {
        /// The item.
        id: String,
        /// How many there are.
        found: usize,
        /// How many there may be.
        planned: NonZeroU32,
    },
    /// A failure earns nothing.
    #[error("attempt {attempt} at the item `{id}` did not end `ok` and scores {score}, not 0")]
    FailedWithScore {
        /// The item.
        id: String,
        /// Counted from one.
        attempt: usize,
        /// What it claims.
        score: Decimal,
    },
    /// Failing would have been better.
    #[error("attempt {attempt} at the item `{id}` scores {score}, less than the zero of a failed item")]
    Negative {
        /// The item.
        id: String,
        /// Counted from one.
        attempt: usize,
        /// What it scores.
        score: Decimal,
    },
    /// Neither solved nor not.
    #[error("attempt {attempt} at the item `{id}` scores {score}; `pass_at_k` takes 0 and 1")]
    HalfSolved {
        /// The item.
        id: String,
        /// Counted from one.
        attempt: usize,
        /// What it scores.
        score: Decimal,
    },
    /// The sizes of the scores differ by more digits than are kept.
    #[error("the scores up to the item `{0}` have no exact sum of 38 digits")]
    Inexact(String),
}

impl Metric {
    /// A metric over the named items with `k` attempts each.
    pub fn new(
        direction: Direction,
        aggregate: Aggregate,
        k: NonZeroU32,
        failed_item: FailedItem,
        items: Vec<String>,
    ) -> Result<Metric, MetricError> {
        Fields { direction, aggregate, k, failed_item, items }.try_into()
    }

    /// Which scores are better.
    pub fn direction(&self) -> Direction {
        self.fields.direction
    }

    /// The planned items by name.
    pub fn items(&self) -> &[String] {
        &self.fields.items
    }

    /// Planned attempts at each item.
    pub fn k(&self) -> NonZeroU32 {
        self.fields.k
    }

    /// The same over some of its items, in the order of the plan; none if one of them is not planned.
    pub fn only(&self, items: &[String]) -> Option<Metric> {
        let wanted: HashSet<&str> = items.iter().map(String::as_str).collect();
        let mut fields = self.fields.clone();
        fields.items.retain(|item| wanted.contains(item.as_str()));
        (fields.items.len() == wanted.len()).then(|| Metric::try_from(fields).ok()).flatten()
    }

    /// Counts the results, which may come in any order; items without one are missing.
    pub fn tally(&self, results: &[ItemResult]) -> Result<Tally, TallyError> {
        let planned: HashSet<&str> = self.fields.items.iter().map(String::as_str).collect();
        let mut found = HashMap::new();
        for result in results {
            if !planned.contains(result.id.as_str()) {
                return Err(TallyError::UnknownItem(result.id.clone()));
            }
            if found.insert(result.id.as_str(), result.attempts.as_slice()).is_some() {
                return Err(TallyError::TwiceTheSame(result.id.clone()));
            }
        }
        let mut counts = Counts { planned: self.planned(), ..Counts::default() };
        let mut sum = Decimal::ZERO;
        for id in &self.fields.items {
            let attempts = found.get(id.as_str()).copied().unwrap_or_default();
            self.check(id, attempts)?;
            for attempt in attempts {
                *counts.of(attempt.status) += 1;
            }
            sum = self
                .score(attempts)
                .and_then(|score| sum.checked_add(score))
                .ok_or_else(|| TallyError::Inexact(id.clone()))?;
        }
        counts.missing = counts.planned - counts.reported();
        let void = self.fields.failed_item == FailedItem::Void && counts.ok < counts.planned;
        let score = (!void).then_some(Score { sum, n: self.denominator });
        Ok(Tally { score, counts })
    }

    fn planned(&self) -> u64 {
        // Checked when the metric was made.
        self.fields.items.len() as u64 * u64::from(self.fields.k.get())
    }

    /// What an item adds to the sum.
    fn score(&self, attempts: &[Attempt]) -> Option<Decimal> {
        match self.fields.aggregate {
            Aggregate::Mean | Aggregate::AvgAtK => {
                attempts.iter().try_fold(Decimal::ZERO, |sum, attempt| sum.checked_add(attempt.score))
            }
            Aggregate::PassAtK => {
                let solved = attempts.iter().any(|attempt| attempt.score == Decimal::ONE);
                Some(if solved { Decimal::ONE } else { Decimal::ZERO })
            }
        }
    }

    fn check(&self, id: &str, attempts: &[Attempt]) -> Result<(), TallyError> {
        let planned = self.fields.k;
        let id = || id.to_owned();
        if attempts.len() as u64 > u64::from(planned.get()) {
            return Err(TallyError::TooManyAttempts { id: id(), found: attempts.len(), planned });
        }
        for (index, Attempt { status, score, .. }) in attempts.iter().enumerate() {
            let (attempt, score) = (index + 1, *score);
            if *status != Status::Ok && score != Decimal::ZERO {
                return Err(TallyError::FailedWithScore { id: id(), attempt, score });
            }
            if self.fields.failed_item == FailedItem::Zero && score.is_negative() {
                return Err(TallyError::Negative { id: id(), attempt, score });
            }
            let whole = score == Decimal::ZERO || score == Decimal::ONE;
            if self.fields.aggregate == Aggregate::PassAtK && !whole {
                return Err(TallyError::HalfSolved { id: id(), attempt, score });
            }
        }
        Ok(())
    }
}

impl TryFrom<Fields> for Metric {
    type Error = MetricError;

    fn try_from(fields: Fields) -> Result<Metric, MetricError> {
        let mut seen = HashSet::new();
        if let Some(twice) = fields.items.iter().find(|item| !seen.insert(item.as_str())) {
            return Err(MetricError::TwiceTheSame(twice.clone()));
        }
        if fields.aggregate == Aggregate::Mean && fields.k.get() != 1 {
            return Err(MetricError::MeanOfSeveral(fields.k));
        }
        if fields.aggregate == Aggregate::PassAtK && fields.direction == Direction::Min {
            return Err(MetricError::PassIsMax);
        }
        if fields.failed_item == FailedItem::Zero && fields.direction == Direction::Min {
            return Err(MetricError::ZeroIsBest);
        }
        let items = NonZeroU64::new(fields.items.len() as u64).ok_or(MetricError::NoItems)?;
        let denominator = match fields.aggregate {
            Aggregate::Mean | Aggregate::PassAtK => items,
            // Far below 2^64: each item has a name in memory.
            Aggregate::AvgAtK => items.saturating_mul(fields.k.into()),
        };
        Ok(Metric { fields, denominator })
    }
}

impl From<Metric> for Fields {
    fn from(metric: Metric) -> Fields {
        metric.fields
    }
}

impl Direction {
    /// Turns an order of scores into one of quality.
    pub fn quality(self, order: std::cmp::Ordering) -> std::cmp::Ordering {
        match self {
            Direction::Max => order,
            Direction::Min => order.reverse(),
        }
    }
}

impl Counts {
    /// Attempts that were graded.
    pub fn graded(&self) -> u64 {
        self.ok + self.wrong
    }

    /// Attempts that failed in any way or are missing.
    pub fn errored(&self) -> u64 {
        self.planned - self.graded()
    }

    fn reported(&self) -> u64 {
        self.graded() + self.timeout + self.exec_failure + self.gate_failed + self.infra
    }

    fn of(&mut self, status: Status) -> &mut u64 {
        match status {
            Status::Ok => &mut self.ok,
            Status::Wrong => &mut self.wrong,
            Status::Timeout => &mut self.timeout,
            Status::ExecFailure => &mut self.exec_failure,
            Status::GateFailed => &mut self.gate_failed,
            Status::Infra => &mut self.infra,
        }
    }
}

#[cfg(test)]
mod tests;
