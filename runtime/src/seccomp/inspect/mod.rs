//! A filter made readable: what it answers to every call, proven by executing it.
//!
//! The table is read from the document and the answers come from the program, so a mistake in either shows. A program
//! whose document nobody has, such as that of a running process, is read by following it ([`Decompiled`]).

mod budget;
mod corners;
mod decompile;
mod prove;
#[cfg(test)]
mod tests;

use std::fmt;

use oci_spec::runtime::LinuxSeccomp;

use super::SeccompError;
use super::interpret::SeccompData;
use super::rules::{Condition, Decision, Decisions, Rule, Test, decide};
use super::table::{Architecture, X32_BIT};
use super::verdict::Verdict;

pub use budget::{Exhausted, STEPS};
pub use decompile::{Decompiled, Opaque, Told};
pub use prove::{Disproof, Proof};

/// What a document says of every call of this machine's architecture.
#[derive(Debug)]
pub struct FilterTable {
    arch: Architecture,
    decisions: Decisions,
}

/// What it says of one call: the first condition that holds decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The conditions in order, in words, and what is answered where they hold.
    pub rules: Vec<(String, Verdict)>,
    /// The answer where none holds.
    pub otherwise: Verdict,
}

impl FilterTable {
    /// Reads a document.
    pub fn of(document: &LinuxSeccomp) -> Result<Self, SeccompError> {
        let arch = Architecture::native()?;
        Ok(Self { arch, decisions: decide(arch, document)? })
    }

    /// Every known call with its number and answer, by number.
    pub fn calls(&self) -> impl Iterator<Item = (&'static str, u32, Answer)> {
        (0..)
            .zip(&self.decisions.known)
            .filter_map(|(number, decision)| Some((self.arch.name(number)?, number, Answer::of(decision))))
    }

    /// The answer to numbers that the table of calls does not know.
    pub fn unknown(&self) -> Verdict {
        self.decisions.unknown.otherwise
    }

    /// What the table says of this call. Another architecture and the x32 numbers kill the process.
    pub fn verdict(&self, data: &SeccompData) -> Verdict {
        if data.arch != self.arch.audit() {
            return Verdict::KillProcess;
        }
        // A tracer's number for a call to be skipped; of neither ABI.
        if data.number == u32::MAX {
            return self.unknown();
        }
        if data.number >= X32_BIT {
            return Verdict::KillProcess;
        }
        self.decision(data.number).on(&data.args)
    }

    fn decision(&self, number: u32) -> &Decision {
        let known = usize::try_from(number).ok().and_then(|at| self.decisions.known.get(at));
        known.unwrap_or(&self.decisions.unknown)
    }
}

impl Decision {
    fn on(&self, args: &[u64; 6]) -> Verdict {
        let holds = |rule: &&Rule| rule.conditions.iter().all(|condition| condition.holds(args));
        self.rules.iter().find(holds).map_or(self.otherwise, |rule| rule.verdict)
    }
}

impl Condition {
    fn holds(&self, args: &[u64; 6]) -> bool {
        let given = args[self.arg as usize];
        let passed = match self.test {
            Test::Masked { mask, value } => given & mask == value,
            Test::Above(value) => given > value,
            Test::AtLeast(value) => given >= value,
        };
        passed != self.negated
    }
}

impl Answer {
    fn of(decision: &Decision) -> Self {
        let rule = |rule: &Rule| {
            let words: Vec<String> = rule.conditions.iter().map(ToString::to_string).collect();
            (words.join(" and "), rule.verdict)
        };
        Answer { rules: decision.rules.iter().map(rule).collect(), otherwise: decision.otherwise }
    }

    /// Some arguments let the call run.
    pub fn may_run(&self) -> bool {
        self.otherwise.lets_through() || self.rules.iter().any(|(_, verdict)| verdict.lets_through())
    }

    /// Any arguments let the call run.
    pub fn always_runs(&self) -> bool {
        self.otherwise.lets_through() && self.rules.iter().all(|(_, verdict)| verdict.lets_through())
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (condition, verdict) in &self.rules {
            write!(f, "{verdict} if {condition}; ")?;
        }
        if !self.rules.is_empty() {
            f.write_str("else ")?;
        }
        write!(f, "{}", self.otherwise)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arg = self.arg;
        let (operator, value) = match (self.test, self.negated) {
            (Test::Masked { mask, value }, negated) => {
                let operator = if negated { "!=" } else { "==" };
                return match mask {
                    u64::MAX => write!(f, "arg{arg} {operator} {value:#x}"),
                    mask => write!(f, "arg{arg} & {mask:#x} {operator} {value:#x}"),
                };
            }
            (Test::Above(value), false) => (">", value),
            (Test::Above(value), true) => ("<=", value),
            (Test::AtLeast(value), false) => (">=", value),
            (Test::AtLeast(value), true) => ("<", value),
        };
        write!(f, "arg{arg} {operator} {value:#x}")
    }
}
