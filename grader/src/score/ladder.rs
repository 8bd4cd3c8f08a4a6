//! The ladder: where a score stands between an uninformed model and the optimum.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Decimal, DecimalError, Score, Sigma};

/// What makes a score a quality, which grows with goodness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Phi {
    /// The score itself: accuracies, rewards.
    Identity,
    /// Its negative: losses.
    Negate,
    /// Minus its natural logarithm: perplexities.
    NegLog,
}

/// The rule below the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Below {
    /// 0.1·(φ(x) − φ⊥)/(φb − φ⊥).
    Linear,
    /// 0.1·x_b/x, where the uninformative point of a loss is infinite.
    Ratio,
}

/// What an uninformed model scores. Its text is `inf`, `-inf` or a decimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum Uninformative {
    /// A number.
    Finite(Decimal),
    /// No bound above.
    Infinity,
    /// No bound below.
    NegativeInfinity,
}

/// A task's ladder, free of contradictions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Fields", into = "Fields")]
#[schemars(with = "Fields")]
pub struct Ladder(Fields);

/// A ladder as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Fields {
    phi: Phi,
    uninformative: Uninformative,
    baseline: Decimal,
    optimum: Decimal,
    /// Left out, it is `ratio` where `uninformative` is infinite and `linear` elsewhere.
    below: Option<Below>,
}

/// Why a text is no ladder, a ladder contradicts itself, or a score has no place on it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LadderError {
    /// Not `key=value`.
    #[error("`{0}` is not of the form key=value")]
    NoPair(String),
    /// A key that ladders do not have.
    #[error("a ladder has no `{0}`; its keys are phi, uninformative, baseline, optimum, below")]
    UnknownKey(String),
    /// A key given twice.
    #[error("`{0}` is given twice")]
    TwiceTheSame(&'static str),
    /// A key left out.
    #[error("`{0}` is missing")]
    Missing(&'static str),
    /// A word that the key does not know.
    #[error("`{value}` is not a value of `{key}`; write {known}")]
    UnknownWord {
        /// The key.
        key: &'static str,
        /// What it was given.
        value: String,
        /// What it takes.
        known: &'static str,
    },
    /// Not a decimal.
    #[error("`{key}` is `{value}`, not a finite decimal: {source}")]
    NotDecimal {
        /// The key.
        key: &'static str,
        /// What it was given.
        value: String,
        /// Why it is none.
        source: DecimalError,
    },
    /// No logarithm.
    #[error("`{point}` is {value}, which has no logarithm (phi=neg-log)")]
    NoLogarithm {
        /// The point of the ladder, or `value`.
        point: &'static str,
        /// Zero or less.
        value: String,
    },
    /// An uninformed model would be better than any.
    #[error("an uninformative point of {0} is better than any score under this phi")]
    InfinitelyGood(Uninformative),
    /// Nothing lies linearly between a number and infinity.
    #[error("below=linear needs a finite uninformative point; with {0} write below=ratio")]
    InfiniteLinear(Uninformative),
    /// The ratio would not reach zero at a finite point.
    #[error("below=ratio is for an infinite uninformative point, not {0}")]
    FiniteRatio(Decimal),
    /// A ratio of scores that grow with quality is no such rule.
    #[error("below=ratio is for losses: phi is negate or neg-log, not identity")]
    RatioOfNoLoss,
    /// A ratio of numbers of different sign.
    #[error("below=ratio needs a baseline above 0, not {0}")]
    RatioOfNonPositive(Decimal),
    /// Not a ladder: the order of the points.
    #[error("the {better} ({better_value}) is not better than the {worse} ({worse_value}) under this phi")]
    Order {
        /// The point that must be better.
        better: &'static str,
        /// Its score.
        better_value: Decimal,
        /// The point that must be worse.
        worse: &'static str,
        /// Its score.
        worse_value: Decimal,
    },
    /// Double precision cannot hold the difference of two points.
    #[error("the {0} and the {1} are too far apart")]
    TooFar(&'static str, &'static str),
}

impl Ladder {
    /// A ladder over these points. `below` left out is `ratio` where `uninformative` is infinite, and
    /// `linear` elsewhere.
    pub fn new(
        phi: Phi,
        uninformative: Uninformative,
        baseline: Decimal,
        optimum: Decimal,
        below: Option<Below>,
    ) -> Result<Ladder, LadderError> {
        Fields { phi, uninformative, baseline, optimum, below }.try_into()
    }

    /// What an uninformed model scores: σ = 0.
    pub fn uninformative(&self) -> Uninformative {
        self.0.uninformative
    }

    /// What the unmodified initial system scores: σ = 0.1.
    pub fn baseline(&self) -> Decimal {
        self.0.baseline
    }

    /// The best that can be reached: σ = 1.
    pub fn optimum(&self) -> Decimal {
        self.0.optimum
    }

    /// The place of a score, or of no model.
    ///
    /// Doubles throughout; every operation but the logarithm is exactly what IEEE 754 says.
    pub fn sigma(&self, score: Option<Score>) -> Result<Sigma, LadderError> {
        let Some(score) = score else {
            return Ok(Sigma::ZERO);
        };
        let Fields { phi, uninformative, baseline, optimum, .. } = self.0;
        let x = score.value();
        if phi == Phi::NegLog && x <= 0.0 {
            return Err(LadderError::NoLogarithm { point: "value", value: score.to_string() });
        }
        let (quality, pivot) = (phi.quality(x), phi.quality(baseline.to_f64()));
        Ok(Sigma::clip(if quality > pivot {
            0.1 + 0.9 * ((quality - pivot) / (phi.quality(optimum.to_f64()) - pivot))
        } else if let Uninformative::Finite(point) = uninformative {
            let worst = phi.quality(point.to_f64());
            0.1 * ((quality - worst) / (pivot - worst))
        } else {
            0.1 * (baseline.to_f64() / x)
        }))
    }
}

impl Phi {
    fn quality(self, score: f64) -> f64 {
        match self {
            Phi::Identity => score,
            Phi::Negate => -score,
            Phi::NegLog => -score.ln(),
        }
    }
}

impl Fields {
    fn check_logarithms(&self) -> Result<(), LadderError> {
        let mut points = vec![("baseline", self.baseline), ("optimum", self.optimum)];
        if let Uninformative::Finite(point) = self.uninformative {
            points.push(("uninformative", point));
        }
        for (point, value) in points {
            if self.phi == Phi::NegLog && value <= Decimal::ZERO {
                return Err(LadderError::NoLogarithm { point, value: value.to_string() });
            }
        }
        Ok(())
    }

    fn check_below(&self) -> Result<(), LadderError> {
        let good = match self.phi {
            Phi::Identity => Uninformative::Infinity,
            Phi::Negate | Phi::NegLog => Uninformative::NegativeInfinity,
        };
        if self.uninformative == good {
            return Err(LadderError::InfinitelyGood(good));
        }
        match (self.uninformative, self.below) {
            (Uninformative::Finite(point), Some(Below::Ratio)) => Err(LadderError::FiniteRatio(point)),
            (Uninformative::Finite(_), _) => Ok(()),
            (infinite, Some(Below::Linear)) => Err(LadderError::InfiniteLinear(infinite)),
            _ if self.phi == Phi::Identity => Err(LadderError::RatioOfNoLoss),
            _ if self.baseline <= Decimal::ZERO => Err(LadderError::RatioOfNonPositive(self.baseline)),
            _ => Ok(()),
        }
    }

    fn check_order(&self) -> Result<(), LadderError> {
        let mut steps = vec![("optimum", self.optimum, "baseline", self.baseline)];
        if let Uninformative::Finite(point) = self.uninformative {
            steps.push(("baseline", self.baseline, "uninformative", point));
        }
        for (better, better_value, worse, worse_value) in steps {
            // In doubles, so that points which are one double are no two rungs.
            let rise = self.phi.quality(better_value.to_f64()) - self.phi.quality(worse_value.to_f64());
            if rise <= 0.0 {
                return Err(LadderError::Order { better, better_value, worse, worse_value });
            }
            if !rise.is_finite() {
                return Err(LadderError::TooFar(better, worse));
            }
        }
        Ok(())
    }
}

impl TryFrom<Fields> for Ladder {
    type Error = LadderError;

    fn try_from(fields: Fields) -> Result<Ladder, LadderError> {
        fields.check_logarithms()?;
        fields.check_below()?;
        fields.check_order()?;
        let below = match fields.uninformative {
            Uninformative::Finite(_) => Below::Linear,
            Uninformative::Infinity | Uninformative::NegativeInfinity => Below::Ratio,
        };
        Ok(Ladder(Fields { below: Some(below), ..fields }))
    }
}

impl From<Ladder> for Fields {
    fn from(ladder: Ladder) -> Fields {
        ladder.0
    }
}

/// `phi=identity|negate|neg-log,uninformative=X|inf|-inf,baseline=X,optimum=X[,below=linear|ratio]`, the keys
/// in any order.
impl FromStr for Ladder {
    type Err = LadderError;

    fn from_str(text: &str) -> Result<Ladder, LadderError> {
        const KEYS: [&str; 5] = ["phi", "uninformative", "baseline", "optimum", "below"];
        let mut values = [None; 5];
        for pair in text.split(',') {
            let (key, value) = pair.split_once('=').ok_or_else(|| LadderError::NoPair(pair.to_owned()))?;
            let at = KEYS
                .iter()
                .position(|known| *known == key)
                .ok_or_else(|| LadderError::UnknownKey(key.to_owned()))?;
            if values[at].replace(value).is_some() {
                return Err(LadderError::TwiceTheSame(KEYS[at]));
            }
        }
        let needed = |at: usize| values[at].ok_or(LadderError::Missing(KEYS[at]));
        let phi = match needed(0)? {
            "identity" => Phi::Identity,
            "negate" => Phi::Negate,
            "neg-log" => Phi::NegLog,
            other => return Err(unknown("phi", other, "identity, negate or neg-log")),
        };
        let below = match values[4] {
            None => None,
            Some("linear") => Some(Below::Linear),
            Some("ratio") => Some(Below::Ratio),
            Some(other) => return Err(unknown("below", other, "linear or ratio")),
        };
        let uninformative = Uninformative::read(needed(1)?)?;
        let decimal = |at| decimal(KEYS[at], needed(at)?);
        Ladder::new(phi, uninformative, decimal(2)?, decimal(3)?, below)
    }
}

fn unknown(key: &'static str, value: &str, known: &'static str) -> LadderError {
    LadderError::UnknownWord { key, value: value.to_owned(), known }
}

fn decimal(key: &'static str, value: &str) -> Result<Decimal, LadderError> {
    value.parse().map_err(|source| LadderError::NotDecimal { key, value: value.to_owned(), source })
}

impl Uninformative {
    fn read(text: &str) -> Result<Uninformative, LadderError> {
        match text {
            "inf" => Ok(Uninformative::Infinity),
            "-inf" => Ok(Uninformative::NegativeInfinity),
            number => decimal("uninformative", number).map(Uninformative::Finite),
        }
    }
}

impl fmt::Display for Uninformative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Uninformative::Finite(point) => point.fmt(f),
            Uninformative::Infinity => f.write_str("inf"),
            Uninformative::NegativeInfinity => f.write_str("-inf"),
        }
    }
}

impl TryFrom<String> for Uninformative {
    type Error = LadderError;

    fn try_from(text: String) -> Result<Uninformative, LadderError> {
        Uninformative::read(&text)
    }
}

impl From<Uninformative> for String {
    fn from(point: Uninformative) -> String {
        point.to_string()
    }
}

#[cfg(test)]
mod tests;
