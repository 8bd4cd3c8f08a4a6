//! Names of checkpoints.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// Stands for the progress in a pattern.
const CAPTURE: &str = "{progress}";

/// The pattern of a checkpoint's name, such as `step-{progress}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointName {
    before: String,
    after: String,
}

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointNameError {
    /// Nothing to tell early from late.
    #[error("`{CAPTURE}` does not stand in it")]
    NoProgress,
    /// Which of them?
    #[error("`{CAPTURE}` stands in it twice")]
    TwiceProgress,
    /// The name is that of a directory directly in the output.
    #[error("it has a `/`, a control character or a leading `.`")]
    NotAName,
    /// `10` of `a10` and `0` of `a10` would both be progress.
    #[error("a digit stands beside `{CAPTURE}`")]
    Digit,
}

impl CheckpointName {
    /// The progress that a directory's name tells; none if it is not a checkpoint's. The number is written in
    /// decimal digits, leading zeros allowed, and fits in 64 bits.
    pub fn progress(&self, name: &str) -> Option<u64> {
        let digits = name.strip_prefix(&self.before)?.strip_suffix(&self.after)?;
        // `parse` takes a leading `+` too.
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
    }
}

impl FromStr for CheckpointName {
    type Err = CheckpointNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (before, after) = text.split_once(CAPTURE).ok_or(CheckpointNameError::NoProgress)?;
        if after.contains(CAPTURE) {
            return Err(CheckpointNameError::TwiceProgress);
        }
        if text.contains(|c: char| c == '/' || c.is_control()) || text.starts_with('.') {
            return Err(CheckpointNameError::NotAName);
        }
        let digit = |c: char| c.is_ascii_digit();
        if before.ends_with(digit) || after.starts_with(digit) {
            return Err(CheckpointNameError::Digit);
        }
        Ok(CheckpointName { before: before.to_owned(), after: after.to_owned() })
    }
}

impl fmt::Display for CheckpointName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{CAPTURE}{}", self.before, self.after)
    }
}

impl Serialize for CheckpointName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_numeric_and_strict() {
        let name: CheckpointName = "step-{progress}.d".parse().unwrap();
        assert_eq!(name.progress("step-9.d"), Some(9));
        assert_eq!(name.progress("step-10.d"), Some(10));
        assert_eq!(name.progress("step-0010.d"), Some(10));
        for odd in [
            "step-.d",
            "step-+9.d",
            "step--9.d",
            "step-9",
            "step-9.d ",
            "step-1e3.d",
            "step-٣.d",
            "Step-9.d",
            "step-18446744073709551616.d",
            "step-9.d.d",
            "step-d",
            "",
        ] {
            assert_eq!(name.progress(odd), None, "{odd}");
        }
        assert_eq!("{progress}".parse::<CheckpointName>().unwrap().progress("7"), Some(7));
    }

    #[test]
    fn a_pattern_is_unambiguous() {
        let error = |text: &str| text.parse::<CheckpointName>().unwrap_err();
        assert_eq!(error("step"), CheckpointNameError::NoProgress);
        assert_eq!(error("{progress}-{progress}"), CheckpointNameError::TwiceProgress);
        assert_eq!(error("a/{progress}"), CheckpointNameError::NotAName);
        assert_eq!(error(".{progress}"), CheckpointNameError::NotAName);
        assert_eq!(error("v2{progress}"), CheckpointNameError::Digit);
        assert_eq!("v2-{progress}".parse::<CheckpointName>().unwrap().to_string(), "v2-{progress}");
    }
}
