//! Harbor's reward files.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::score::{Decimal, DecimalError};

/// The one planned item of a task that is graded by a reward file.
pub const REWARD_ITEM: &str = "reward";

/// Longest reward file that is read, in bytes.
const LONGEST: usize = 64 << 10;

/// What reward files say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reward {
    /// The number that counts.
    pub reward: Decimal,
    /// The other keys of `reward.json`.
    pub auxiliary: BTreeMap<String, Decimal>,
}

/// Why reward files say nothing.
#[derive(Debug, thiserror::Error)]
pub enum RewardError {
    /// Neither file has a reward.
    #[error("neither reward.json nor reward.txt has a reward")]
    Missing,
    /// Longer than any number.
    #[error("{0} has more than {LONGEST} bytes")]
    TooLong(&'static str),
    /// Not an object whose values are numbers.
    #[error("reward.json is not an object of finite numbers: {0}")]
    Json(#[source] serde_json::Error),
    /// Not a number.
    #[error("reward.txt is not a finite number: {0}")]
    Text(#[source] DecimalError),
}

/// Reads `reward.json`, an object of numbers, and `reward.txt`, one number, where the tests left them. As for
/// Harbor, `reward.json` counts first, and `reward.txt` where that has no key `reward`. Numbers are read exactly;
/// a duplicate key, a number that is not finite, and anything but numbers are refused.
pub fn read_reward(json: Option<&[u8]>, text: Option<&[u8]>) -> Result<Reward, RewardError> {
    for (file, bytes) in [("reward.json", json), ("reward.txt", text)] {
        if bytes.is_some_and(|bytes| bytes.len() > LONGEST) {
            return Err(RewardError::TooLong(file));
        }
    }
    let Numbers(mut auxiliary) = match json {
        Some(bytes) => serde_json::from_slice(bytes).map_err(RewardError::Json)?,
        None => Numbers::default(),
    };
    let reward = match (auxiliary.remove(REWARD_ITEM), text) {
        (Some(reward), _) => reward,
        (None, Some(text)) => String::from_utf8_lossy(text).trim().parse().map_err(RewardError::Text)?,
        (None, None) => return Err(RewardError::Missing),
    };
    Ok(Reward { reward, auxiliary })
}

/// An object of finite decimals.
#[derive(Default)]
struct Numbers(BTreeMap<String, Decimal>);

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Numbers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of numbers")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Numbers, A::Error> {
                let mut numbers = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, &RawValue>()? {
                    let number = value.get().parse().map_err(A::Error::custom)?;
                    if numbers.insert(key, number).is_some() {
                        return Err(A::Error::custom("a key stands in it twice"));
                    }
                }
                Ok(Numbers(numbers))
            }
        }

        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reward(json: Option<&str>, text: Option<&str>) -> Result<Reward, RewardError> {
        read_reward(json.map(str::as_bytes), text.map(str::as_bytes))
    }

    fn decimal(text: &str) -> Decimal {
        text.parse().unwrap()
    }

    #[test]
    fn json_counts_first_and_text_where_json_has_no_reward() {
        assert_eq!(reward(Some(r#"{"reward": 0.5}"#), Some("1")).unwrap().reward, decimal("0.5"));
        let both = reward(Some(r#"{"tests": 3, "time": 0.1}"#), Some("1\n")).unwrap();
        assert_eq!(both.reward, Decimal::ONE);
        assert_eq!(both.auxiliary["time"], decimal("0.1"));
        assert_eq!(reward(None, Some(" 0.25 ")).unwrap().reward, decimal("0.25"));
        let exact = reward(Some(r#"{"reward": 0.1000000000000000000001}"#), None).unwrap();
        assert_eq!(exact.reward, decimal("0.1000000000000000000001"));
    }

    // Decoders of other graders took these (pygpubench's NaN, AgentBench issue 234, duplicate keys of Python's json).
    #[test]
    fn loose_rewards_are_refused() {
        for json in [
            r#"{"reward": NaN}"#,
            r#"{"reward": 1e999}"#,
            r#"{"reward": "1"}"#,
            r#"{"reward": true}"#,
            r#"{"reward": null}"#,
            r#"{"reward": [1]}"#,
            r#"{"reward": 0, "reward": 1}"#,
            r#"{"reward": 1} {"#,
            r#"[1]"#,
            "1",
            "",
        ] {
            assert!(matches!(reward(Some(json), Some("1")), Err(RewardError::Json(_))), "{json}");
        }
        for text in ["", "nan", "inf", "1 1", "0x1", "+1", "1,0", "passed"] {
            assert!(matches!(reward(None, Some(text)), Err(RewardError::Text(_))), "{text}");
        }
        assert!(matches!(reward(None, None), Err(RewardError::Missing)));
        assert!(matches!(reward(Some("{}"), None), Err(RewardError::Missing)));
        let long = "1".repeat(LONGEST + 1);
        assert!(matches!(reward(None, Some(&long)), Err(RewardError::TooLong("reward.txt"))));
    }
}
