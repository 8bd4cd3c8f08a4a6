//! A place on the ladder.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A place on a task's ladder, from 0 to 1 in millionths. Its text has six decimals: `0.100000`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sigma(u32);

/// A text is not `0.` or `1.` and six digits, or is above one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a number from 0.000000 to 1.000000 with six decimals")]
pub struct SigmaError;

impl Sigma {
    /// Where no model is.
    pub const ZERO: Sigma = Sigma(0);
    /// Where the optimum is.
    pub const ONE: Sigma = Sigma(1_000_000);

    /// Clipped to [0, 1], then rounded as C's `%.6f` does: the double's exact value, ties to even.
    pub(super) fn clip(value: f64) -> Sigma {
        let text = format!("{:.6}", value.clamp(0.0, 1.0));
        Sigma(
            text.bytes()
                .filter(u8::is_ascii_digit)
                .fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0')),
        )
    }

    /// In millionths.
    pub fn millionths(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Sigma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / Sigma::ONE.0, self.0 % Sigma::ONE.0)
    }
}

impl FromStr for Sigma {
    type Err = SigmaError;

    fn from_str(text: &str) -> Result<Sigma, SigmaError> {
        let millionths = text
            .split_once('.')
            .filter(|(whole, fraction)| whole.len() == 1 && fraction.len() == 6)
            .and_then(|(whole, fraction)| format!("{whole}{fraction}").parse().ok())
            .map(Sigma);
        // A sign is no digit, though `parse` takes one.
        millionths
            .filter(|sigma| *sigma <= Sigma::ONE && sigma.to_string() == text)
            .ok_or(SigmaError)
    }
}

impl Serialize for Sigma {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sigma {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Sigma, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_clipped_and_rounded_once() {
        for (value, text) in [
            (0.1, "0.100000"),
            (-0.0, "0.000000"),
            (-3.0, "0.000000"),
            (f64::NEG_INFINITY, "0.000000"),
            (f64::INFINITY, "1.000000"),
            (1.0 - 1e-9, "1.000000"),
            (0.123_456_499_999, "0.123456"),
            // The nearest double lies below this tie, and above the next.
            (0.000_000_5, "0.000000"),
            (0.000_001_5, "0.000002"),
        ] {
            assert_eq!(Sigma::clip(value).to_string(), text, "{value}");
            assert_eq!(text.parse::<Sigma>().unwrap(), Sigma::clip(value));
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "0.1",
            "1",
            "0.1234567",
            "1.000001",
            "2.000000",
            "+.000000",
            "0.+00001",
            "-0.000000",
            "0.1e0000",
        ] {
            assert_eq!(text.parse::<Sigma>(), Err(SigmaError), "{text}");
        }
    }
}
