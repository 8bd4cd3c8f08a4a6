//! JSON with one meaning only (RFC 8259 within the limits of I-JSON, RFC 7493).

use std::fmt;

use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use thiserror::Error;

/// Deepest nesting.
const DEEPEST: u8 = 16;

/// Integers up to here are exact in every reader (RFC 7493 §2.2).
const LARGEST: u64 = (1 << 53) - 1;

/// A document that is not strict JSON, or not of the expected type.
#[derive(Debug, Error)]
#[error("not the expected strict JSON: {0}")]
pub struct NotStrict(#[from] serde_json::Error);

impl NotStrict {
    pub(super) fn new(why: &str) -> NotStrict {
        NotStrict(serde_json::Error::custom(why))
    }
}

/// Parses one document.
///
/// Refused beside what is no JSON: duplicate names, integers beyond ±(2⁵³−1), numbers that are not finite,
/// `U+0000` in texts, nesting deeper than 16. Python's reader, by contrast, takes `NaN`, `1e999` and duplicate names.
pub fn parse(document: &[u8]) -> Result<Value, NotStrict> {
    let mut deserializer = serde_json::Deserializer::from_slice(document);
    let value = Strict { depth: 0 }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Parses a line that is one object into its type.
pub fn from_line<T: DeserializeOwned>(line: &[u8]) -> Result<T, NotStrict> {
    match parse(line)? {
        // An array would do for a struct of serde's.
        object @ Value::Object(_) => Ok(serde_json::from_value(object)?),
        _ => Err(NotStrict::new("not an object")),
    }
}

#[derive(Clone, Copy)]
struct Strict {
    depth: u8,
}

impl Strict {
    fn deeper<E: serde::de::Error>(self) -> Result<Strict, E> {
        if self.depth == DEEPEST {
            return Err(E::custom(format_args!("nested deeper than {DEEPEST}")));
        }
        Ok(Strict { depth: self.depth + 1 })
    }
}

fn check_text<E: serde::de::Error>(text: &str) -> Result<(), E> {
    if text.contains('\0') { Err(E::custom("U+0000 in a text")) } else { Ok(()) }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("strict JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        if value > LARGEST { Err(E::custom("number out of range")) } else { Ok(value.into()) }
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        if value.unsigned_abs() > LARGEST { Err(E::custom("number out of range")) } else { Ok(value.into()) }
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        if value.is_finite() { Ok(value.into()) } else { Err(E::custom("number out of range")) }
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
        check_text(text)?;
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let deeper = self.deeper()?;
        let mut values = Vec::new();
        while let Some(value) = sequence.next_element_seed(deeper)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let deeper = self.deeper()?;
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            check_text(&name)?;
            let value = members.next_value_seed(deeper)?;
            if object.insert(name, value).is_some() {
                return Err(A::Error::custom("duplicate name in an object"));
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_has_two_meanings_is_refused() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        parse(nested(16).as_bytes()).unwrap();
        for (document, why) in [
            (r#"{"a":1,"a":2}"#, "duplicate name"),
            (r#"{"a":1,"\u0061":1}"#, "duplicate name"),
            (r#"[{"a":{"b":1,"b":1}}]"#, "duplicate name"),
            (&nested(17), "nested deeper"),
            (&"[".repeat(60_000), "nested deeper"),
            ("9007199254740992", "out of range"),
            ("-9007199254740992", "out of range"),
            ("1e999", "out of range"),
            ("-1e999", "out of range"),
            ("NaN", "expected"),
            ("Infinity", "expected"),
            ("-Infinity", "invalid number"),
            ("01", "invalid number"),
            ("1.", "EOF"),
            (r#""\u0000""#, "U+0000"),
            (r#"{"\u0000":1}"#, "U+0000"),
            ("\"\0\"", "control character"),
            (r#""\ud800""#, "hex escape"),
            ("{} {}", "trailing"),
            ("\u{feff}{}", "expected value"),
            ("", "EOF"),
            ("{'a':1}", "key must be a string"),
            ("[1,]", "trailing comma"),
            ("/**/1", "expected value"),
        ] {
            let error = parse(document.as_bytes()).expect_err(document).to_string();
            assert!(error.contains(why), "{document:.60}: {error}");
        }
        assert!(parse(b"\"\xff\"").is_err());
        assert!(parse(b"\"\xc0\x80\"").is_err());
        assert_eq!(parse(b" [9007199254740991, -0.5] ").unwrap(), serde_json::json!([LARGEST, -0.5]));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn what_it_takes_any_reader_takes(text in r#"[\[\]{},:"a0-9.e\-\\u ]{0,40}"#) {
            if let Ok(value) = parse(text.as_bytes()) {
                prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
            }
        }
    }
}
