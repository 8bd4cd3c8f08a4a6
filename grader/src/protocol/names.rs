//! The texts that messages carry. Each is checked where it enters, and has one form only.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a text is not what it stands for.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum NameError {
    /// Empty.
    #[error("is empty")]
    Empty,
    /// Longer than this many bytes.
    #[error("is longer than {0} bytes")]
    Length(usize),
    /// A character that is not printable.
    #[error("has a character that is not printable")]
    Character,
    /// A path that is not a plain one below the workspace.
    #[error("is not a path below the workspace without `.`, `..` and empty parts")]
    Path,
    /// More parts than this.
    #[error("has more than {0} parts")]
    Depth(usize),
    /// Not `v-` and a number.
    #[error("is not a ticket such as v-1")]
    Ticket,
}

/// Whether a character shows as one and changes no other: no control character, no line or paragraph
/// separator, none of the bidirectional controls of UAX #9.
pub(super) fn check_printable(character: char) -> bool {
    let bidirectional =
        matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !character.is_control() && !bidirectional && !matches!(character, '\u{2028}' | '\u{2029}')
}

fn check_text(text: &str, longest: usize, allowed: impl Fn(char) -> bool) -> Result<(), NameError> {
    match text {
        "" => Err(NameError::Empty),
        long if long.len() > longest => Err(NameError::Length(longest)),
        text if !text.chars().all(allowed) => Err(NameError::Character),
        _ => Ok(()),
    }
}

macro_rules! checked_text {
    ($($(#[$doc:meta])+ $name:ident, $check:expr;)+) => {$(
        $(#[$doc])+
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(text: String) -> Result<$name, NameError> {
                let check: fn(&str) -> Result<(), NameError> = $check;
                check(&text).map(|()| $name(text))
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<$name, NameError> {
                text.to_owned().try_into()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )+};
}

checked_text! {
    /// Where a candidate lies: a path relative to the workspace, or `.` for the workspace itself. At most 512
    /// bytes, 32 parts and 255 bytes a part.
    ///
    /// It says what the caller means. What is there is found by handles, beneath the workspace.
    CandidateName, check_candidate;
    /// The name of one item of an evaluation, at most 128 bytes.
    ItemName, |text| check_text(text, 128, check_printable);
    /// The name of a run or a task, at most 128 bytes.
    Label, |text| check_text(text, 128, check_printable);
    /// Why there is no candidate, at most 1000 bytes; it may have lines and tabs.
    Reason, |text| check_text(text, 1000, |c| check_printable(c) || matches!(c, '\n' | '\t'));
}

fn check_candidate(name: &str) -> Result<(), NameError> {
    const PARTS: usize = 32;
    check_text(name, 512, check_printable)?;
    if name == "." {
        return Ok(());
    }
    if name.split('/').any(|part| matches!(part, "" | "." | "..") || part.len() > 255) {
        return Err(NameError::Path);
    }
    if name.split('/').count() > PARTS {
        return Err(NameError::Depth(PARTS));
    }
    Ok(())
}

/// A validation that was asked for: `v-1` is the first of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ticket(pub u32);

impl FromStr for Ticket {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Ticket, NameError> {
        let number = text.strip_prefix("v-").and_then(|digits| digits.parse().ok());
        // One form only: neither `v-01` nor `v-+1`.
        number.map(Ticket).filter(|ticket| ticket.to_string() == text).ok_or(NameError::Ticket)
    }
}

impl TryFrom<String> for Ticket {
    type Error = NameError;

    fn try_from(text: String) -> Result<Ticket, NameError> {
        text.parse()
    }
}

impl From<Ticket> for String {
    fn from(ticket: Ticket) -> String {
        ticket.to_string()
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v-{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_candidate_is_named_below_the_workspace() {
        for good in [".", "model", "out/step 3", "a/.hidden", "..a/b..", "ü"] {
            assert_eq!(good.parse::<CandidateName>().map(String::from), Ok(good.to_owned()));
        }
        let deep = vec!["a"; 33].join("/");
        let part = "a".repeat(256);
        let long = vec!["a".repeat(100); 6].join("/");
        for (bad, error) in [
            ("", NameError::Empty),
            ("/etc", NameError::Path),
            ("a/../b", NameError::Path),
            ("..", NameError::Path),
            ("./a", NameError::Path),
            ("a//b", NameError::Path),
            ("a/", NameError::Path),
            (&part, NameError::Path),
            (&deep, NameError::Depth(32)),
            (&long, NameError::Length(512)),
            ("a\0", NameError::Character),
            ("a\nb", NameError::Character),
            ("\u{202e}a", NameError::Character),
        ] {
            assert_eq!(bad.parse::<CandidateName>(), Err(error), "{bad:?}");
        }
    }

    #[test]
    fn tickets_have_one_form() {
        assert_eq!("v-17".parse(), Ok(Ticket(17)));
        for bad in ["", "17", "v-", "v-01", "v-+1", "v--1", "V-1", "v-4294967296", "v-1 "] {
            assert_eq!(bad.parse::<Ticket>(), Err(NameError::Ticket), "{bad:?}");
        }
    }

    #[test]
    fn a_reason_has_lines_but_no_escapes() {
        assert!("no improvement\n\tover the baseline".parse::<Reason>().is_ok());
        assert_eq!("\u{1b}[2J".parse::<Reason>(), Err(NameError::Character));
        assert_eq!("x".repeat(1001).parse::<Reason>(), Err(NameError::Length(1000)));
    }
}
