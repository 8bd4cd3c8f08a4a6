//! The scorer's verdict: one JSON document on its descriptor 3.
//!
//! ```json
//! {"items": [{"id": "row-0", "attempts": [{"status": "ok", "score": "1", "wall_ms": 12}]}],
//!  "auxiliary": {"perplexity": "12.76"}}
//! ```
//!
//! `auxiliary` may be left out. A score is a decimal as a string or as a number, and read exactly.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::drain::ReadError;
use crate::journal::{CanonicalError, canonical};
use crate::score::{Attempt, Decimal, ItemResult, Metric, Status, Tally, TallyError};
use crate::task::{REWARD_ITEM, Reward};

/// Longest verdict in bytes.
pub const VERDICT_CAP: usize = 64 << 20;

/// Longest name of an item in bytes; errors quote it.
const LONGEST_NAME: usize = 1024;

/// What an error tells of the fault in a document, in characters.
const LONGEST_REASON: usize = 200;

/// What a scorer found out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The items in the scorer's order; those it left out are missing.
    pub items: Vec<ItemResult>,
    /// Other numbers by name; they do not count.
    pub auxiliary: BTreeMap<String, Decimal>,
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum VerdictError {
    /// The scorer ended without one.
    #[error("the scorer wrote no verdict; write one JSON document to descriptor 3 before it ends")]
    Missing,
    /// Longer than any sensible one.
    #[error("the verdict has more than {VERDICT_CAP} bytes; write the items' results and nothing else")]
    TooLong,
    /// The descriptor could not be read.
    #[error("the verdict cannot be read from the scorer's descriptor 3")]
    Read(#[source] ReadError),
    /// Not text.
    #[error("the verdict is not UTF-8 from byte {offset} on; write JSON in UTF-8")]
    NotUtf8 {
        /// Counted from zero.
        offset: usize,
    },
    /// The scorer was ended while it wrote, or closed the descriptor.
    #[error("the verdict ends within its document; write all of it before the scorer ends")]
    Unfinished,
    /// Not of this shape, or with a second meaning.
    #[error(
        "the verdict is no JSON document of a verdict's shape at line {line} column {column}: {reason}; \
         correct what the scorer writes to descriptor 3"
    )]
    NotJson {
        /// Counted from one.
        line: usize,
        /// Counted from one, in bytes.
        column: usize,
        /// What is wrong there: untrusted text, escaped and cut short.
        reason: String,
    },
    /// Which of them would count?
    #[error("another document follows the verdict at line {line} column {column}; write the verdict once")]
    Second {
        /// Counted from one.
        line: usize,
        /// Counted from one, in bytes.
        column: usize,
    },
    /// A scorer cannot put it down to the host.
    #[error(
        "attempt {attempt} at the item `{item}` has the status `infra`, which only the host gives; \
         write `exec_failure` or `timeout`"
    )]
    Infra {
        /// The item.
        item: String,
        /// Counted from one.
        attempt: usize,
    },
    /// Not an answer to what was planned.
    #[error("the verdict does not fit the task's metric; write results for its planned items and attempts")]
    Tally(#[source] TallyError),
}

impl From<ReadError> for VerdictError {
    fn from(error: ReadError) -> VerdictError {
        match error {
            ReadError::TooLong { .. } => VerdictError::TooLong,
            ReadError::Io(_) => VerdictError::Read(error),
        }
    }
}

impl Verdict {
    /// Decodes the one document and counts it by the metric.
    pub fn decode(bytes: &[u8], metric: &Metric) -> Result<(Verdict, Tally), VerdictError> {
        let verdict = Verdict::parse(bytes)?;
        let tally = verdict.tally(metric)?;
        Ok((verdict, tally))
    }

    /// Decodes the one document.
    ///
    /// Refused: duplicate, unknown and missing fields, numbers that are not finite, anything after the document but
    /// white space, an array where an object is meant. So nothing is nested deeper than a verdict is.
    pub fn parse(bytes: &[u8]) -> Result<Verdict, VerdictError> {
        if bytes.len() > VERDICT_CAP {
            return Err(VerdictError::TooLong);
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|error| VerdictError::NotUtf8 { offset: error.valid_up_to() })?;
        if text.trim_ascii().is_empty() {
            return Err(VerdictError::Missing);
        }
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let document = <Object<Document>>::deserialize(&mut deserializer).map_err(not_json)?.0;
        deserializer
            .end()
            .map_err(|error| VerdictError::Second { line: error.line(), column: error.column() })?;
        document.verdict()
    }

    /// A Harbor task's verdict: the one item [`REWARD_ITEM`], whose attempt took this long.
    pub fn of_reward(reward: Reward, wall: Duration) -> Verdict {
        let Reward { reward: score, auxiliary } = reward;
        let wall_ms = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
        let attempts = vec![Attempt { status: Status::Ok, score, wall_ms }];
        Verdict { items: vec![ItemResult { id: REWARD_ITEM.into(), attempts }], auxiliary }
    }

    /// Counts it by the metric. For one planned item with one attempt, the score is that item's, as
    /// [`Score::from`](crate::score::Score) makes it.
    pub fn tally(&self, metric: &Metric) -> Result<Tally, VerdictError> {
        metric.tally(&self.items).map_err(VerdictError::Tally)
    }

    /// The canonical JSON, which [`Verdict::decode`] reads as the same verdict.
    pub fn to_json(&self) -> Result<Vec<u8>, CanonicalError> {
        canonical(self)
    }
}

fn not_json(error: serde_json::Error) -> VerdictError {
    if error.is_eof() {
        return VerdictError::Unfinished;
    }
    let text = error.to_string();
    // The place is told apart.
    let reason = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason);
    let reason = reason.escape_debug().take(LONGEST_REASON).collect();
    VerdictError::NotJson { line: error.line(), column: error.column(), reason }
}

/// A verdict as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    items: Vec<Object<Item>>,
    #[serde(default)]
    auxiliary: Numbers,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    #[serde(deserialize_with = "name")]
    id: String,
    attempts: Vec<Object<Written>>,
}

/// An attempt.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(deserialize_with = "status")]
    status: Status,
    #[serde(deserialize_with = "exact")]
    score: Decimal,
    wall_ms: u64,
}

impl Document {
    fn verdict(self) -> Result<Verdict, VerdictError> {
        let items = self.items.into_iter().map(|Object(item)| item.result());
        Ok(Verdict { items: items.collect::<Result<_, _>>()?, auxiliary: self.auxiliary.0 })
    }
}

impl Item {
    fn result(self) -> Result<ItemResult, VerdictError> {
        if let Some(index) = self.attempts.iter().position(|Object(attempt)| attempt.status == Status::Infra)
        {
            return Err(VerdictError::Infra { item: self.id, attempt: index + 1 });
        }
        let attempts = self.attempts.into_iter().map(|Object(Written { status, score, wall_ms })| Attempt {
            status,
            score,
            wall_ms,
        });
        Ok(ItemResult { attempts: attempts.collect(), id: self.id })
    }
}

/// A struct that is written as an object: serde takes an array of its fields as well.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_map(Members(PhantomData))
    }
}

/// An object of decimals.
#[derive(Default)]
struct Numbers(BTreeMap<String, Decimal>);

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Numbers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of decimals")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Numbers, A::Error> {
                let mut numbers = BTreeMap::new();
                while let Some((key, value)) = map.next_entry::<String, &RawValue>()? {
                    if numbers.insert(key, decimal(value)?).is_some() {
                        return Err(A::Error::custom("a key stands in `auxiliary` twice"));
                    }
                }
                Ok(Numbers(numbers))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    if name.len() > LONGEST_NAME {
        return Err(D::Error::custom(format_args!("a name has more than {LONGEST_NAME} bytes")));
    }
    Ok(name)
}

/// A status is a string: serde takes an object of one field as well.
fn status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Status, D::Error> {
    let text = <Cow<'de, str>>::deserialize(deserializer)?;
    Status::deserialize(text.as_ref().into_deserializer())
}

fn exact<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Decimal, D::Error> {
    decimal(<&RawValue>::deserialize(deserializer)?)
}

/// A decimal from the text of a JSON number or string, never by way of a binary fraction.
fn decimal<E: Error>(value: &RawValue) -> Result<Decimal, E> {
    let text = match value.get() {
        quoted if quoted.starts_with('"') => {
            Cow::Owned(serde_json::from_str::<String>(quoted).map_err(E::custom)?)
        }
        number => Cow::Borrowed(number),
    };
    text.parse().map_err(|error| E::custom(format_args!("not a finite decimal: {error}")))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;

    use super::*;
    use crate::score::{Aggregate, Direction, FailedItem, Score};

    fn metric(items: &[&str]) -> Metric {
        let items = items.iter().map(ToString::to_string).collect();
        let two = NonZeroU32::new(2).unwrap();
        Metric::new(Direction::Max, Aggregate::AvgAtK, two, FailedItem::Zero, items).unwrap()
    }

    fn decode(text: &str) -> Result<(Verdict, Tally), VerdictError> {
        Verdict::decode(text.as_bytes(), &metric(&["a", "b"]))
    }

    fn attempt(status: &str, score: &str) -> String {
        format!(
            r#"{{"items":[{{"id":"a","attempts":[{{"status":"{status}","score":{score},"wall_ms":5}}]}}]}}"#
        )
    }

    #[test]
    fn a_verdict_is_read_exactly_and_counted() {
        let text = r#" {"items": [
            {"id": "b", "attempts": [{"status": "ok", "score": "0.1", "wall_ms": 12},
                                     {"wall_ms": 0, "score": 0.2, "status": "ok"}]},
            {"id": "\u0061", "attempts": [{"status": "timeout", "score": 0, "wall_ms": 9}]}],
            "auxiliary": {"exact": 0.1000000000000000000001, "n": "7", "é": -1e-3}}
        "#;
        let (verdict, tally) = decode(text).unwrap();
        assert_eq!(tally.score.unwrap().to_string(), "0.3/4");
        assert_eq!((tally.counts.ok, tally.counts.timeout, tally.counts.missing), (2, 1, 1));
        assert_eq!(verdict.items[1].id, "a");
        assert_eq!(verdict.auxiliary["exact"].to_string(), "0.1000000000000000000001");
        let stored = verdict.to_json().unwrap();
        assert!(stored.starts_with(br#"{"auxiliary":{"exact":"0.1000000000000000000001","n":"7""#));
        assert_eq!(Verdict::decode(&stored, &metric(&["a", "b"])).unwrap(), (verdict, tally));
        // Nothing graded is an answer too: everything is missing.
        assert_eq!(decode(r#"{"items":[]}"#).unwrap().1.counts.missing, 4);
    }

    #[test]
    fn none_one_half_or_two_are_told_apart() {
        for text in ["", " \n"] {
            assert!(matches!(decode(text), Err(VerdictError::Missing)), "{text:?}");
        }
        let whole = attempt("ok", "1");
        decode(&format!("{whole}\n \t\r\n")).unwrap();
        for end in 1..whole.len() {
            assert!(matches!(decode(&whole[..end]), Err(VerdictError::Unfinished)), "{}", &whole[..end]);
        }
        for second in [whole.as_str(), "{}", "x", "\0", "]"] {
            let error = decode(&format!("{whole}\n{second}")).unwrap_err();
            assert!(matches!(error, VerdictError::Second { line: 2, column: 1 }), "{second}: {error}");
        }
        let long = format!("{whole}{}", " ".repeat(VERDICT_CAP));
        assert!(matches!(decode(&long), Err(VerdictError::TooLong)));
        let error = Verdict::decode(b"{\"items\xff\":[]}", &metric(&["a"])).unwrap_err();
        assert!(matches!(error, VerdictError::NotUtf8 { offset: 7 }), "{error}");
    }

    /// Python's json reads NaN, 1e999 and duplicate names; graders took these (pygpubench's NaN, jacobian issue 831).
    #[test]
    fn what_has_two_meanings_is_refused() {
        let deep = "[".repeat(200_000);
        let name = format!(r#"{{"items":[{{"id":"{}","attempts":[]}}]}}"#, "x".repeat(1025));
        for (text, why) in [
            (attempt("ok", "NaN"), "expected value"),
            (attempt("ok", "Infinity"), "expected value"),
            (attempt("ok", "-Infinity"), "invalid number"),
            (attempt("ok", "1e999"), "not a finite decimal"),
            (attempt("ok", r#""NaN""#), "not a finite decimal"),
            (attempt("ok", r#"" 1""#), "not a finite decimal"),
            (attempt("ok", r#""""#), "not a finite decimal"),
            (attempt("ok", "null"), "not a finite decimal"),
            (attempt("ok", "true"), "not a finite decimal"),
            (attempt("ok", "[1]"), "not a finite decimal"),
            (attempt("ok", "1").replace('5', "5.0"), "floating point"),
            (attempt("ok", "1").replace('5', "-5"), "invalid value"),
            (attempt("ok", "1").replace('5', "\"5\""), "invalid type"),
            (attempt("ok", r#"1,"score":1"#), "duplicate field `score`"),
            (attempt("ok", r#"1,"scor\u0065":1"#), "duplicate field `score`"),
            (attempt("ok", r#"1,"note":1"#), "unknown field `note`"),
            (attempt("OK", "1"), "unknown variant"),
            (attempt("ok", "1").replace(r#""ok""#, r#"{"ok":null}"#), "expected a string"),
            (attempt("ok", "1").replace(r#""id":"a","#, ""), "missing field `id`"),
            (r#"{"items":[],"items":[]}"#.into(), "duplicate field `items`"),
            (r#"{"items":[["a",[]]]}"#.into(), "expected an object"),
            (r#"{"items":[{"id":"a","attempts":[["ok",1,5]]}]}"#.into(), "expected an object"),
            (r#"[[]]"#.into(), "expected an object"),
            ("{}".into(), "missing field `items`"),
            (r#"{"items":null}"#.into(), "invalid type"),
            (r#"{"items":[],"auxiliary":null}"#.into(), "expected an object of decimals"),
            (r#"{"items":[],"auxiliary":{"a":1,"a":1}}"#.into(), "twice"),
            (r#"{"items":[],"auxiliary":{"a":{"b":1}}}"#.into(), "not a finite decimal"),
            (r#"{"items":[],}"#.into(), "trailing comma"),
            ("\u{feff}{}".into(), "expected value"),
            ("{'items':[]}".into(), "key must be a string"),
            (name, "more than 1024 bytes"),
            (format!(r#"{{"items":{deep}"#), "invalid type"),
            (format!(r#"{{"x":{deep}"#), "unknown field"),
        ] {
            let error = decode(&text).unwrap_err();
            let shown = text.get(..100).unwrap_or(&text);
            let VerdictError::NotJson { reason, .. } = &error else { panic!("{shown}: {error:?}") };
            assert!(reason.contains(why), "{shown}: {reason}");
        }
        // Lengths that no field has are passed over without recursion.
        assert!(decode(&attempt("ok", &format!("{deep}{}", deep.replace('[', "]")))).is_err());
    }

    #[test]
    fn an_error_shows_untrusted_text_escaped_and_short() {
        let error = decode(&format!("{{\n\"\\u001b[31m{}\":1}}", "x".repeat(10_000))).unwrap_err();
        let VerdictError::NotJson { line: 2, reason, .. } = error else { panic!("{error:?}") };
        assert!(reason.starts_with(r"unknown field `\u{1b}[31mx") && reason.len() <= 200, "{reason}");
    }

    #[test]
    fn only_the_host_calls_a_failure_its_own() {
        let error = decode(&attempt("infra", "0")).unwrap_err();
        assert!(matches!(&error, VerdictError::Infra { item, attempt: 1 } if item == "a"), "{error}");
        decode(&attempt("exec_failure", "0")).unwrap();
    }

    #[test]
    fn what_was_not_planned_is_refused() {
        let item = |id: &str, attempts: usize| {
            let attempt = r#"{"status":"wrong","score":0,"wall_ms":1}"#;
            format!(r#"{{"id":"{id}","attempts":[{}]}}"#, vec![attempt; attempts].join(","))
        };
        let refused = |items: &[String]| match decode(&format!(r#"{{"items":[{}]}}"#, items.join(","))) {
            Err(VerdictError::Tally(error)) => error,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(&[item("c", 1)]), TallyError::UnknownItem("c".into()));
        assert_eq!(refused(&[item("a", 1), item("a", 1)]), TallyError::TwiceTheSame("a".into()));
        assert!(matches!(refused(&[item("a", 3)]), TallyError::TooManyAttempts { found: 3, .. }));
    }

    #[test]
    fn a_reward_is_the_one_item() {
        let reward: Decimal = "0.25".parse().unwrap();
        let auxiliary = BTreeMap::from([("tests".to_owned(), Decimal::ONE)]);
        let verdict = Verdict::of_reward(Reward { reward, auxiliary }, Duration::from_millis(1500));
        let items = vec![REWARD_ITEM.to_owned()];
        let one = NonZeroU32::MIN;
        let metric = Metric::new(Direction::Max, Aggregate::Mean, one, FailedItem::Zero, items).unwrap();
        assert_eq!(verdict.items[0].attempts[0].wall_ms, 1500);
        assert_eq!(verdict.tally(&metric).unwrap().score, Some(Score::from(reward)));
        let stored = verdict.to_json().unwrap();
        assert_eq!(Verdict::decode(&stored, &metric).unwrap().0, verdict);
    }

    prop_compose! {
        fn any_attempt()(status in 0..5usize, score in any::<i64>(), wall_ms in any::<u64>()) -> Attempt {
            let statuses =
                [Status::Ok, Status::Wrong, Status::Timeout, Status::ExecFailure, Status::GateFailed];
            let score = if status == 0 { score.unsigned_abs().into() } else { Decimal::ZERO };
            Attempt { status: statuses[status], score, wall_ms }
        }
    }

    proptest! {
        #[test]
        fn what_is_stored_is_read_back(
            first in prop::collection::vec(any_attempt(), 0..3),
            second in prop::collection::vec(any_attempt(), 0..3),
            auxiliary in prop::collection::btree_map(".{0,8}", any::<u64>().prop_map(Decimal::from), 0..4),
        ) {
            let items = vec![
                ItemResult { id: "b".into(), attempts: first },
                ItemResult { id: "a".into(), attempts: second },
            ];
            let verdict = Verdict { items, auxiliary };
            let (read, tally) = Verdict::decode(&verdict.to_json().unwrap(), &metric(&["a", "b"])).unwrap();
            prop_assert_eq!(tally, verdict.tally(&metric(&["a", "b"])).unwrap());
            prop_assert_eq!(read, verdict);
        }

        #[test]
        fn no_text_makes_it_panic(text in r#"(\{"items":)?[\[\]{},:"a-e0-9.\-\\u ]{0,60}"#) {
            let _ = decode(&text);
        }
    }
}
