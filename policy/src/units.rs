//! Quantities with explicit units.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::diagnostic::{Fault, did_you_mean};

/// A number of bytes, written with its unit: `64GiB`, `512MiB`, `0B`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A span of time in milliseconds, written with its unit: `4h`, `90s`, `250ms`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(pub u64);

/// An energy in joules, written with its unit: `50MJ`, `2kWh`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Energy(pub u64);

/// A share in whole percent, written with its sign: `80%`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percent(pub u8);

const SIZE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

const DURATION_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

const ENERGY_UNITS: [(&str, u64); 5] =
    [("kWh", 3_600_000), ("Wh", 3_600), ("MJ", 1_000_000), ("kJ", 1_000), ("J", 1)];

impl Size {
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        quantity(text, "a size", &SIZE_UNITS, "64GiB").map(Size)
    }
}

impl Duration {
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        quantity(text, "a duration", &DURATION_UNITS, "4h").map(Duration)
    }
}

impl Energy {
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        quantity(text, "an energy", &ENERGY_UNITS, "50MJ").map(Energy)
    }
}

impl Percent {
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        let number = text.trim().strip_suffix('%').map(str::trim_end);
        let digits = number.filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
        let number = digits.and_then(|digits| digits.parse().ok());
        number.filter(|number| *number <= 100).map(Percent).ok_or_else(|| {
            Fault::new(format!("`{text}` is not a share in whole percent")).help("such as \"80%\"")
        })
    }
}

impl std::str::FromStr for Duration {
    type Err = Fault;

    /// `90s`, `30m` or `4h`; the unit must be there.
    fn from_str(text: &str) -> Result<Self, Fault> {
        Duration::parse(text)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_largest(f, self.0, &SIZE_UNITS[..4], "B")
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_largest(f, self.0, &DURATION_UNITS[..4], "ms")
    }
}

impl fmt::Display for Energy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_largest(f, self.0, &ENERGY_UNITS[2..4], "J")
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

macro_rules! serialized_as_written {
    ($($quantity:ident)*) => {$(
        impl Serialize for $quantity {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}

serialized_as_written! { Size Duration Energy Percent }

/// A decimal number, a fraction allowed, followed by one of `units`.
fn quantity(text: &str, what: &str, units: &[(&str, u64)], example: &str) -> Result<u64, Fault> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..split], text[split..].trim_start());
    let noun = what.trim_start_matches(|c| c != ' ').trim_start();
    let known = || units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    if number.is_empty() {
        return Err(Fault::new(format!("`{text}` is not {what}"))
            .help(format!("write a number and a unit, such as \"{example}\"; the units are {}", known())));
    }
    if unit.is_empty() {
        return Err(Fault::new(format!("the {noun} `{text}` has no unit"))
            .help(format!("write a number and a unit, such as \"{example}\"; the units are {}", known())));
    }
    let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
        let near = did_you_mean(unit, units.iter().map(|(name, _)| *name));
        return Err(Fault::new(format!("`{unit}` is not a unit of {what}"))
            .help(near.unwrap_or_else(|| format!("the units are {}", known()))));
    };
    exact(number, *factor).ok_or_else(|| {
        Fault::new(format!(
            "`{text}` is not a whole number of {} that fits in 63 bits",
            units[units.len() - 1].0
        ))
    })
}

/// `number × factor`, if that is a whole number of at most 63 bits (what the kernel's files take).
fn exact(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let scale = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let digits = whole.parse::<u128>().ok()?.checked_mul(scale)?.checked_add(fraction.parse().ok()?)?;
    let product = digits.checked_mul(u128::from(factor))?;
    if product % scale != 0 {
        return None;
    }
    i64::try_from(product / scale).ok()?.try_into().ok()
}

fn write_largest(
    f: &mut fmt::Formatter<'_>,
    value: u64,
    units: &[(&str, u64)],
    smallest: &str,
) -> fmt::Result {
    match units.iter().find(|(_, factor)| value != 0 && value.is_multiple_of(*factor)) {
        Some((unit, factor)) => write!(f, "{}{unit}", value / factor),
        None => write!(f, "{value}{smallest}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_has_a_unit_is_exact() {
        assert_eq!(Size::parse("64GiB").unwrap(), Size(64 << 30));
        assert_eq!(Size::parse("1.5 KiB").unwrap(), Size(1536));
        assert_eq!(Size::parse("2GB").unwrap(), Size(2_000_000_000));
        assert_eq!(Size::parse("0B").unwrap(), Size(0));
        assert_eq!(Duration::parse("250ms").unwrap(), Duration(250));
        assert_eq!(Duration::parse("1.5h").unwrap(), Duration(5_400_000));
        assert_eq!(Energy::parse("1.5kWh").unwrap(), Energy(5_400_000));
        assert_eq!(Percent::parse("80 %").unwrap(), Percent(80));
    }

    #[test]
    fn what_is_no_quantity_is_refused_with_the_remedy() {
        for (text, message) in [
            ("64", "has no unit"),
            ("", "is not a size"),
            ("-1GiB", "is not a size"),
            ("64Gib", "not a unit"),
            ("0.5B", "whole number"),
            ("9000000TiB", "63 bits"),
            ("1.2.3GiB", "whole number"),
            ("1.GiB", "whole number"),
        ] {
            let fault = Size::parse(text).unwrap_err();
            assert!(fault.message.contains(message), "{text}: {}", fault.message);
        }
        assert_eq!(Size::parse("64Gib").unwrap_err().help.unwrap(), "did you mean `GiB`?");
        assert!(Duration::parse("4 hours").is_err());
    }

    proptest! {
        #[test]
        fn what_is_displayed_parses_to_the_same(value in 0..=u64::try_from(i64::MAX).unwrap()) {
            prop_assert_eq!(Size::parse(&Size(value).to_string()).unwrap(), Size(value));
            prop_assert_eq!(Duration::parse(&Duration(value).to_string()).unwrap(), Duration(value));
            prop_assert_eq!(Energy::parse(&Energy(value).to_string()).unwrap(), Energy(value));
            let share = Percent((value % 101) as u8);
            prop_assert_eq!(Percent::parse(&share.to_string()).unwrap(), share);
        }
    }
}
