//! The closed list of what a caller can be told when a request is refused.
//!
//! Every text is fixed here. Nothing that a scorer, an exception or a file of the host says has a way into it.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::names::{NameError, check_printable};

macro_rules! error_codes {
    ($($(#[$doc:meta])+ $name:ident = $number:literal, $text:literal;)+) => {
        /// Why a request was refused. JSON-RPC 2.0 §5.1 defines the numbers below -32100.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(try_from = "i32", into = "i32")]
        pub enum ErrorCode {
            $($(#[$doc])+ $name,)+
        }

        impl ErrorCode {
            /// All of them.
            pub const ALL: &[ErrorCode] = &[$(ErrorCode::$name,)+];

            /// The number in `error.code`.
            pub fn number(self) -> i32 {
                match self {
                    $(ErrorCode::$name => $number,)+
                }
            }

            /// The text in `error.message`.
            pub fn text(self) -> &'static str {
                match self {
                    $(ErrorCode::$name => $text,)+
                }
            }
        }
    };
}

error_codes! {
    /// Not a JSON document as RFC 8259 and RFC 7493 (I-JSON) have it.
    Parse = -32700, "the line is not one strict JSON document";
    /// JSON, but no request: a batch, a notification, an unknown member, a wrong id.
    InvalidRequest = -32600, "the document is not a JSON-RPC 2.0 request with an id";
    /// No such method.
    UnknownMethod = -32601, "there is no such method";
    /// Parameters missing, unknown, of a wrong type or out of range.
    InvalidParams = -32602, "the parameters are not those of the method";
    /// A failure of the grader. What happened is for the operator alone.
    Internal = -32603, "the grader could not do this";
    /// A line longer than the cap. The connection is closed.
    TooLong = -32000, "the line is longer than 65536 bytes";
    /// No connection is left. The connection is closed.
    Busy = -32001, "too many connections";
    /// A line that was begun and not ended in time. The connection is closed.
    LineTimeout = -32002, "the line was not completed in time";
    /// The call took longer than allowed. Whether it was done is in `status`.
    Deadline = -32003, "the call did not end in time; ask for the status";
    /// The method is not for this phase.
    WrongPhase = -32010, "not in this phase";
    /// No such ticket in this run.
    UnknownTicket = -32011, "there is no such ticket";
    /// The candidate cannot be sealed, or a gate refuses it; `error.data` may say why.
    CandidateRefused = -32012, "the candidate is refused";
    /// Too many validations are open.
    QueueFull = -32013, "too many open validations";
    /// The final choice was made before.
    AlreadyEnded = -32014, "the run has its final choice";
    /// The validation has started or ended.
    NotQueued = -32015, "the validation is not in the queue";
    /// The host has no room for the candidate.
    NoSpace = -32016, "there is no room for the candidate";
    /// The budget is used up.
    BudgetEnded = -32017, "the budget is used up";
}

impl From<ErrorCode> for i32 {
    fn from(code: ErrorCode) -> i32 {
        code.number()
    }
}

impl TryFrom<i32> for ErrorCode {
    type Error = String;

    fn try_from(number: i32) -> Result<ErrorCode, String> {
        let code = ErrorCode::ALL.iter().find(|code| code.number() == number);
        code.copied().ok_or_else(|| format!("{number} is no error code"))
    }
}

/// A refused request: its code and, for [`ErrorCode::CandidateRefused`] only, what is wrong with the candidate.
#[derive(Clone, Debug, Error, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[error("{} ({}){}", .code.text(), .code.number(), .fault.as_ref().map(|fault| format!(": {fault}")).unwrap_or_default())]
pub struct Refusal {
    /// The reason.
    pub code: ErrorCode,
    /// What is wrong with the candidate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
}

impl From<ErrorCode> for Refusal {
    fn from(code: ErrorCode) -> Refusal {
        Refusal { code, fault: None }
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Refusal {
        Refusal { code: ErrorCode::CandidateRefused, fault: Some(fault) }
    }
}

/// What is wrong with a candidate, as `error.data`.
///
/// It speaks of the candidate's own bytes alone. A check that compares them with hidden rows reports no fault,
/// as it would be an oracle for these rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The kind of fault.
    pub fault: FaultKind,
    /// Where, relative to the candidate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<ShownPath>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.fault)?;
        match &self.path {
            Some(path) => write!(f, " at {}", path.as_str()),
            None => Ok(()),
        }
    }
}

/// Kinds of faults of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// It does not exist.
    #[error("nothing there")]
    Missing,
    /// A directory was expected.
    #[error("no directory")]
    NotDirectory,
    /// A symbolic link.
    #[error("symbolic link")]
    Link,
    /// A file with a second name.
    #[error("file with a second name")]
    HardLink,
    /// A FIFO, socket or device.
    #[error("FIFO, socket or device")]
    SpecialFile,
    /// A mount point.
    #[error("mount point")]
    Mount,
    /// It changed while it was read.
    #[error("changed while it was read")]
    Changed,
    /// More bytes than allowed.
    #[error("too many bytes")]
    TooLarge,
    /// It cannot be read in the time that there is.
    #[error("more than can be read in the time that there is")]
    TooSlow,
    /// More entries than allowed.
    #[error("too many entries")]
    TooMany,
    /// Deeper than allowed.
    #[error("nested too deep")]
    TooDeep,
    /// A name that is not allowed.
    #[error("name that is not allowed")]
    Name,
    /// Its mode does not let it be read.
    #[error("mode that does not let it be read")]
    Unreadable,
    /// A path outside the editable components.
    #[error("path that is not editable")]
    NotEditable,
    /// Content that a gate refuses.
    #[error("content that is not allowed")]
    Content,
}

/// A path for people: escaped, of at most [`ShownPath::LONGEST`] bytes, and never opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ShownPath(String);

impl ShownPath {
    /// Longest in bytes.
    pub const LONGEST: usize = 512;

    /// Escapes what is not printable and cuts what is too long.
    pub fn new(path: &[u8]) -> ShownPath {
        let mut shown = String::new();
        for chunk in path.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '\\' => shown.push_str("\\\\"),
                    printable if check_printable(printable) => shown.push(printable),
                    other => shown.extend(other.escape_default()),
                }
            }
            shown.extend(chunk.invalid().iter().flat_map(|byte| byte.escape_ascii()).map(char::from));
            if shown.len() > ShownPath::LONGEST {
                shown.truncate(shown.floor_char_boundary(ShownPath::LONGEST));
                break;
            }
        }
        ShownPath(shown)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<ShownPath> for String {
    fn from(path: ShownPath) -> String {
        path.0
    }
}

impl TryFrom<String> for ShownPath {
    type Error = NameError;

    fn try_from(text: String) -> Result<ShownPath, NameError> {
        match text {
            long if long.len() > ShownPath::LONGEST => Err(NameError::Length(ShownPath::LONGEST)),
            text if !text.chars().all(check_printable) => Err(NameError::Character),
            text => Ok(ShownPath(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_and_lead_back() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::try_from(code.number()), Ok(*code));
        }
        assert!(ErrorCode::try_from(0).is_err());
    }

    #[test]
    fn the_documented_table_is_this_list() {
        let documented: Vec<String> = include_str!("../../PROTOCOL.md")
            .lines()
            .filter(|line| line.starts_with("| -32"))
            .map(|line| line.split('|').take(3).collect::<Vec<_>>().join("|").trim().to_owned())
            .collect();
        let here: Vec<String> =
            ErrorCode::ALL.iter().map(|code| format!("| {} | {}", code.number(), code.text())).collect();
        assert_eq!(documented, here);
    }

    // Terminal escapes in sample content reached the operator's terminal: Inspect 0.3.260's changelog.
    #[test]
    fn a_shown_path_has_no_control_characters_and_an_end() {
        let shown = ShownPath::new(b"a\x1b[2J\n\xff\\\xe2\x80\xae");
        assert_eq!(shown.as_str(), "a\\u{1b}[2J\\n\\xff\\\\\\u{202e}");
        let long = ShownPath::new("\u{7}".repeat(10_000).as_bytes());
        assert!(long.as_str().len() <= ShownPath::LONGEST);
        assert_eq!(ShownPath::try_from(String::from(long.clone())), Ok(long));
        assert_eq!(ShownPath::try_from("a\u{1b}".to_owned()), Err(NameError::Character));
    }
}
