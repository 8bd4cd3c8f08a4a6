//! Exact finite decimals.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Most significant digits of a decimal; that many always fit in an `i128`.
const DIGITS: usize = 38;

/// Longest text that is read as a decimal, in bytes.
const TEXT: usize = 512;

/// An exact finite decimal whose nearest double is finite, and zero only for zero.
///
/// The text is a JSON number (RFC 8259 section 6): `-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?`, with at
/// most 38 significant digits. So there is no NaN, infinity, hexadecimal, leading `+` or zero, bare point,
/// blank, or separator of thousands. It is serialized as a string in the form that `Display` writes, and
/// deserialized from a string or an integer, never from a binary fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decimal {
    /// No multiple of ten, below 10^38; zero has the exponent zero.
    coefficient: i128,
    exponent: i32,
}

/// Why a text is not a [`Decimal`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecimalError {
    /// The grammar allows something else there.
    #[error("unexpected `{found}` at character {position}")]
    Unexpected {
        /// What is there.
        found: char,
        /// Counted from one.
        position: usize,
    },
    /// The text ends where a digit must follow.
    #[error("a digit is missing at the end")]
    Unfinished,
    /// More digits than are kept exactly.
    #[error("more than {DIGITS} significant digits")]
    TooManyDigits,
    /// Longer than any sensible number.
    #[error("longer than {TEXT} characters")]
    TooLong,
    /// The nearest double is infinite, or zero although the number is not.
    #[error("outside of the range of double precision")]
    OutOfRange,
}

impl Decimal {
    /// Zero.
    pub const ZERO: Decimal = Decimal {
        coefficient: 0,
        exponent: 0,
    };
    /// One.
    pub const ONE: Decimal = Decimal {
        coefficient: 1,
        exponent: 0,
    };

    /// `coefficient × 10^exponent`, unless it has too many digits or is out of range.
    fn new(mut coefficient: i128, mut exponent: i32) -> Option<Decimal> {
        if coefficient == 0 {
            return Some(Decimal::ZERO);
        }
        while coefficient % 10 == 0 {
            coefficient /= 10;
            exponent = exponent.checked_add(1)?;
        }
        let number = Decimal {
            coefficient,
            exponent,
        };
        let double = number.to_f64();
        (number.digits() <= DIGITS && double.is_finite() && double != 0.0).then_some(number)
    }

    /// The nearest double.
    pub fn to_f64(self) -> f64 {
        // What Display writes is a number in Rust's grammar too.
        self.to_string().parse().unwrap_or(f64::NAN)
    }

    /// Whether it is below zero.
    pub fn is_negative(self) -> bool {
        self.coefficient < 0
    }

    /// Whether it has no fraction.
    pub fn is_integer(self) -> bool {
        self.exponent >= 0
    }

    /// The exact sum, unless it needs more digits than are kept or is out of range.
    pub fn checked_add(self, other: Decimal) -> Option<Decimal> {
        if self.coefficient == 0 || other.coefficient == 0 {
            return Some(if self.coefficient == 0 { other } else { self });
        }
        let exponent = self.exponent.min(other.exponent);
        Decimal::new(self.at(exponent)?.checked_add(other.at(exponent)?)?, exponent)
    }

    /// The coefficient that goes with a smaller exponent.
    fn at(self, exponent: i32) -> Option<i128> {
        let shift = u32::try_from(self.exponent.checked_sub(exponent)?).ok()?;
        10i128.checked_pow(shift)?.checked_mul(self.coefficient)
    }

    fn digits(self) -> usize {
        self.coefficient
            .unsigned_abs()
            .checked_ilog10()
            .map_or(1, |log| log as usize + 1)
    }

    /// How many digits stand before the point, negative if zeros follow it.
    fn magnitude(self) -> i64 {
        // At most 39 digits.
        self.digits() as i64 + i64::from(self.exponent)
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Decimal) -> Ordering {
        let sign = self.coefficient.signum();
        if sign != other.coefficient.signum() || sign == 0 {
            return sign.cmp(&other.coefficient.signum());
        }
        let sizes = self.magnitude().cmp(&other.magnitude()).then_with(|| {
            // Of the same magnitude, so the shorter one gets no more digits than the longer one has.
            let exponent = self.exponent.min(other.exponent);
            self.at(exponent)
                .map(i128::unsigned_abs)
                .cmp(&other.at(exponent).map(i128::unsigned_abs))
        });
        if sign < 0 { sizes.reverse() } else { sizes }
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Decimal) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl From<u64> for Decimal {
    fn from(number: u64) -> Decimal {
        // 20 digits.
        Decimal::new(number.into(), 0).unwrap_or(Decimal::ZERO)
    }
}

/// The canonical text: no exponent where at most 38 places before or after the point do, else
/// `<digits>e<exponent>` with the shortest digits.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.coefficient.unsigned_abs().to_string();
        let sign = if self.coefficient < 0 { "-" } else { "" };
        let places = self.exponent.unsigned_abs() as usize;
        let text = if self.exponent >= 0 && digits.len() + places <= DIGITS {
            format!("{sign}{digits}{}", "0".repeat(places))
        } else if self.exponent < 0 && places <= DIGITS {
            let padded = format!("{digits:0>width$}", width = places + 1);
            let (whole, fraction) = padded.split_at(padded.len() - places);
            format!("{sign}{whole}.{fraction}")
        } else {
            format!("{sign}{digits}e{}", self.exponent)
        };
        f.pad(&text)
    }
}

impl FromStr for Decimal {
    type Err = DecimalError;

    fn from_str(text: &str) -> Result<Decimal, DecimalError> {
        if text.len() > TEXT {
            return Err(DecimalError::TooLong);
        }
        let parts = Parts::split(text)?;
        let digits = format!("{}{}", parts.whole, parts.fraction);
        let significant = digits.trim_start_matches('0').trim_end_matches('0');
        if significant.is_empty() {
            return Ok(Decimal::ZERO);
        }
        if significant.len() > DIGITS {
            return Err(DecimalError::TooManyDigits);
        }
        let zeros = digits.len() - digits.trim_end_matches('0').len();
        let exponent = (|| {
            // A text has at most 512 digits, and an exponent that does not fit is out of any range.
            let shift = i32::try_from(zeros).ok()? - i32::try_from(parts.fraction.len()).ok()?;
            let exponent = if parts.exponent.is_empty() {
                0
            } else {
                parts.exponent.parse::<i32>().ok()?
            };
            exponent.checked_add(shift)
        })();
        let magnitude: i128 = significant.parse().map_err(|_| DecimalError::TooManyDigits)?;
        let coefficient = if parts.negative { -magnitude } else { magnitude };
        exponent
            .and_then(|exponent| Decimal::new(coefficient, exponent))
            .ok_or(DecimalError::OutOfRange)
    }
}

/// A text taken apart by the grammar.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    /// With its sign.
    exponent: &'a str,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Parts<'a>, DecimalError> {
        let byte = |at: usize| text.as_bytes().get(at).copied();
        let unexpected = |at: usize| match text.get(at..).and_then(|rest| rest.chars().next()) {
            // All before it is ASCII.
            Some(found) => DecimalError::Unexpected {
                found,
                position: at + 1,
            },
            None => DecimalError::Unfinished,
        };
        // One digit or more from there on; where they end.
        let run = |from: usize| {
            let length = text.as_bytes()[from..]
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count();
            if length == 0 {
                Err(unexpected(from))
            } else {
                Ok(from + length)
            }
        };
        let start = usize::from(byte(0) == Some(b'-'));
        let mut end = run(start)?;
        if byte(start) == Some(b'0') && end > start + 1 {
            return Err(unexpected(start + 1));
        }
        let mut parts = Parts {
            negative: start == 1,
            whole: &text[start..end],
            fraction: "",
            exponent: "",
        };
        if byte(end) == Some(b'.') {
            let from = end + 1;
            end = run(from)?;
            parts.fraction = &text[from..end];
        }
        if matches!(byte(end), Some(b'e' | b'E')) {
            let from = end + 1;
            end = run(from + usize::from(matches!(byte(from), Some(b'+' | b'-'))))?;
            parts.exponent = &text[from..end];
        }
        if end == text.len() {
            Ok(parts)
        } else {
            Err(unexpected(end))
        }
    }
}

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Decimal, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Decimal;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a decimal as a string, such as \"0.127\", or an integer")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Decimal, E> {
                text.parse()
                    .map_err(|error| E::custom(format_args!("`{text}` is not a finite decimal: {error}")))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Decimal, E> {
                Ok(number.into())
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Decimal, E> {
                Decimal::new(number.into(), 0).ok_or_else(|| E::custom(DecimalError::OutOfRange))
            }
        }
        deserializer.deserialize_any(Text)
    }
}

impl JsonSchema for Decimal {
    fn schema_name() -> Cow<'static, str> {
        "Decimal".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "integer"],
            "pattern": r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$",
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decimal(text: &str) -> Decimal {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn numbers_have_one_canonical_text() {
        for (text, canonical) in [
            ("0", "0"),
            ("-0", "0"),
            ("-0.000e7", "0"),
            ("0e9999999999", "0"),
            ("0.127", "0.127"),
            ("-12.760", "-12.76"),
            ("65.8", "65.8"),
            ("1e-05", "0.00001"),
            ("1.25E+2", "125"),
            ("1500", "1500"),
            ("1e37", "10000000000000000000000000000000000000"),
            ("1e38", "1e38"),
            ("1.7976931348623157e308", "17976931348623157e292"),
            ("5e-324", "5e-324"),
            (
                "0.99999999999999999999999999999999999999",
                "0.99999999999999999999999999999999999999",
            ),
        ] {
            assert_eq!(decimal(text).to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn what_is_no_finite_decimal_is_refused() {
        use DecimalError::{OutOfRange, TooLong, TooManyDigits, Unexpected, Unfinished};
        let at = |found, position| Unexpected { found, position };
        for (text, error) in [
            ("", Unfinished),
            ("-", Unfinished),
            ("1.", Unfinished),
            ("1e", Unfinished),
            ("1e-", Unfinished),
            ("NaN", at('N', 1)),
            ("-nan", at('n', 2)),
            ("inf", at('i', 1)),
            ("-inf", at('i', 2)),
            ("Infinity", at('I', 1)),
            ("+1", at('+', 1)),
            ("--1", at('-', 2)),
            ("0x1F", at('x', 2)),
            ("0x1p-3", at('x', 2)),
            ("1_000", at('_', 2)),
            ("1,000", at(',', 2)),
            ("0,5", at(',', 2)),
            ("1.2.3", at('.', 4)),
            (".5", at('.', 1)),
            ("007", at('0', 2)),
            ("-01", at('1', 3)),
            (" 1", at(' ', 1)),
            ("1 ", at(' ', 2)),
            ("1\r", at('\r', 2)),
            ("0.5%", at('%', 4)),
            ("1e1.5", at('.', 4)),
            ("1d5", at('d', 2)),
            ("½", at('½', 1)),
            ("1٢", at('٢', 2)),
            ("1e999", OutOfRange),
            ("-1e309", OutOfRange),
            ("1e-400", OutOfRange),
            ("1e99999999999999999999", OutOfRange),
            ("1e-2147483648", OutOfRange),
        ] {
            assert_eq!(text.parse::<Decimal>(), Err(error), "{text}");
        }
        assert_eq!("1".repeat(39).parse::<Decimal>(), Err(TooManyDigits));
        assert_eq!("0".repeat(513).parse::<Decimal>(), Err(TooLong));
    }

    #[test]
    fn json_gives_strings_and_integers_only() {
        let read = |text: &str| serde_json::from_str::<Decimal>(text);
        assert_eq!(read("\"0.5\"").unwrap(), decimal("0.5"));
        assert_eq!(read("-3").unwrap(), decimal("-3"));
        assert_eq!(
            read(&u64::MAX.to_string()).unwrap(),
            decimal("18446744073709551615")
        );
        for text in ["0.5", "1e2", "null", "true", "\"NaN\"", "[1]"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sums_are_exact_or_refused() {
        let sum = |a, b| decimal(a).checked_add(decimal(b)).map(|sum| sum.to_string());
        assert_eq!(sum("0.1", "0.2").as_deref(), Some("0.3"));
        assert_eq!(sum("1e300", "0").as_deref(), Some("1e300"));
        assert_eq!(
            sum("1e20", "-1e-17").as_deref(),
            Some("99999999999999999999.99999999999999999")
        );
        assert_eq!(sum("1e30", "1e-30"), None);
        assert_eq!(sum("1.7e308", "1.7e308"), None);
        assert_eq!(sum("0.5", "-0.50").as_deref(), Some("0"));
    }

    prop_compose! {
        fn any_decimal()(coefficient in any::<i64>(), exponent in -40..40i32) -> Decimal {
            Decimal::new(coefficient.into(), exponent).unwrap()
        }
    }

    proptest! {
        #[test]
        fn the_canonical_text_is_read_back(number in any_decimal()) {
            prop_assert_eq!(decimal(&number.to_string()), number);
            prop_assert_eq!(number.to_string().parse::<f64>().unwrap(), number.to_f64());
        }

        #[test]
        fn order_is_that_of_the_numbers(a in any_decimal(), b in any_decimal()) {
            if a.to_f64() < b.to_f64() {
                prop_assert!(a < b);
            }
            prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
            prop_assert_eq!(a == b, a.cmp(&b) == Ordering::Equal);
        }

        #[test]
        fn close_numbers_are_told_apart(coefficient in 1..i64::MAX, exponent in -30..30i32) {
            let a = Decimal::new(i128::from(coefficient) * 10, exponent).unwrap();
            let b = Decimal::new(i128::from(coefficient) * 10 + 1, exponent).unwrap();
            prop_assert!(a < b);
            prop_assert!(Decimal::new(-i128::from(coefficient) * 10, exponent).unwrap() > Decimal::new(-i128::from(coefficient) * 10 - 1, exponent).unwrap());
        }

        #[test]
        fn no_text_is_read_that_json_would_not_read(text in "[-+]?[0-9]{0,3}[.,]?[0-9]{0,3}([eE][-+]?[0-9]{0,2})?") {
            let json = serde_json::from_str::<serde_json::Number>(&text).is_ok();
            prop_assert_eq!(text.parse::<Decimal>().is_ok(), json, "{}", text);
        }
    }
}
