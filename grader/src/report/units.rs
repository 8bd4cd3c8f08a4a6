//! Numbers as people read them.

use std::fmt;

use crate::Digest;
use crate::score::{Direction, Score};

/// A share of a width, in millionths.
#[derive(Clone, Copy)]
pub(super) struct Percent(pub(super) u32);

impl Percent {
    pub(super) const WHOLE: u32 = 1_000_000;

    /// `part` of `whole`, at most all of it; all of nothing.
    pub(super) fn of(part: u64, whole: u64) -> Percent {
        let share = u128::from(part) * u128::from(Percent::WHOLE) / u128::from(whole.max(1));
        Percent(u32::try_from(share).unwrap_or(u32::MAX).min(Percent::WHOLE))
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}%", self.0 / 10_000, self.0 % 10_000 / 100)
    }
}

/// Two units at most: `812 ms`, `12.3 s`, `4 min 12 s`, `2 h 5 min`.
pub(super) fn duration(ms: u64) -> String {
    let (seconds, minutes) = (ms / 1000, ms / 60_000);
    let two = |great: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{great} {unit}"),
        _ => format!("{great} {unit} {small} {small_unit}"),
    };
    match seconds {
        0 => format!("{ms} ms"),
        1..60 if ms % 1000 < 100 => format!("{seconds} s"),
        1..60 => format!("{seconds}.{} s", ms % 1000 / 100),
        60..3600 => two(minutes, "min", seconds % 60, "s"),
        3600..86_400 => two(minutes / 60, "h", minutes % 60, "min"),
        _ => two(minutes / 1440, "d", minutes / 60 % 24, "h"),
    }
}

/// `812 B`, `1.4 MiB`.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let step = (bytes.ilog2() / 10) as usize;
    let tenths = (u128::from(bytes) * 10) >> (10 * step);
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[step - 1])
}

/// Milliseconds since 1970 as `2026-01-31 12:30:05 UTC`.
pub(super) fn utc(ms: u64) -> String {
    let (days, second) = (ms / 86_400_000, ms / 1000 % 86_400);
    // Years that begin in March, so that the leap day comes last; eras of 400 of them.
    let since = days + 719_468;
    let (era, day) = (since / 146_097, since % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (year, month) = (year + era * 400 + u64::from(month >= 10), (month + 2) % 12 + 1);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{date:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// The number and the word, with an s unless it is one.
pub(super) fn count(number: u64, word: &str) -> String {
    format!("{number} {word}{}", if number == 1 { "" } else { "s" })
}

/// As much of a digest as tells it from others.
pub(super) fn short(digest: &Digest) -> String {
    digest.hex().chars().take(12).collect()
}

/// A score, or that there is none.
pub(super) fn score(score: Option<Score>) -> String {
    score.map_or_else(|| "void".to_owned(), |score| score.to_string())
}

/// A score's value in at most ten characters.
pub(super) fn value(score: Score) -> String {
    let value = score.value();
    match value.abs() {
        size if size != 0.0 && !(1e-3..1e6).contains(&size) => format!("{value:.2e}"),
        size if size >= 100.0 => format!("{value:.1}"),
        _ => format!("{value:.4}"),
    }
}

/// Which scores are better, in words.
pub(super) fn better(direction: Direction) -> &'static str {
    match direction {
        Direction::Max => "higher is better",
        Direction::Min => "lower is better",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::score::Decimal;

    #[test]
    fn durations_have_two_units_at_most() {
        for (ms, text) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1000, "1 s"),
            (12_345, "12.3 s"),
            (60_000, "1 min"),
            (252_999, "4 min 12 s"),
            (7_500_000, "2 h 5 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(duration(ms), text);
        }
    }

    #[test]
    fn sizes_are_binary() {
        for (bytes, text) in
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1_500_000, "1.4 MiB"), (u64::MAX, "15.9 EiB")]
        {
            assert_eq!(size(bytes), text);
        }
    }

    /// What `date -u -d @N` says.
    #[test]
    fn moments_are_in_the_gregorian_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_772_323_200, "2026-03-01 00:00:00 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
            (1_798_761_599, "2026-12-31 23:59:59 UTC"),
        ] {
            assert_eq!(utc(seconds * 1000), text);
        }
    }

    #[test]
    fn values_are_short() {
        for (text, short) in [
            ("0", "0.0000"),
            ("-0.00000001", "-1.00e-8"),
            ("0.8383333333333", "0.8383"),
            ("-999999.99", "-1000000.0"),
            ("53.4", "53.4000"),
            ("-1.7976931348623157e308", "-1.80e308"),
        ] {
            assert_eq!(value(text.parse::<Decimal>().unwrap().into()), short);
        }
    }

    #[test]
    fn shares_are_never_more_than_the_whole() {
        assert_eq!(Percent::of(1, 3).to_string(), "33.33%");
        assert_eq!(Percent::of(7, 3).to_string(), "100.00%");
        assert_eq!(Percent::of(0, 0).to_string(), "0.00%");
        assert_eq!(Percent::of(u64::MAX, 1).to_string(), "100.00%");
    }
}
