//! The compiler: an OCI document becomes a program.
//!
//! The program is a guard (architecture, x32), then a balanced search tree over the runs of numbers
//! that share a decision, then the argument checks. Its depth grows with the logarithm of the number
//! of runs, which keeps both the program and the kernel's time to load it small.

use oci_spec::runtime::LinuxSeccomp;

use super::SeccompError;
use super::assemble::{Assembler, Label};
use super::program::{MAX_INSTRUCTIONS, Program, offset, op};
use super::rules::{Condition, Decision, Decisions, Rule, Test, decide};
use super::table::Architecture;

/// Compiles an OCI document for this machine's architecture.
///
/// * The first conditional rule of a call that holds, in document order, decides; then its first
///   unconditional rule; then the default. So a narrow refusal can stand before a wide permission.
/// * Conditions of one rule are AND-ed, unless they name one argument twice: then each is a rule of its
///   own, as runc and crun do it because libseccomp takes each argument once per rule.
/// * Comparisons are unsigned and on all 64 bits.
/// * Numbers that the table does not know get ENOSYS if the default refuses, else the default.
/// * Names that the table does not know are skipped; [`unknown_names`] lists them.
/// * Only the native architecture is filtered: calls of any other one listed in `architectures` kill
///   the process, which is narrower than what the document asks for.
/// * Flags and the listener are [`install`](super::install())'s business.
pub fn compile(document: &LinuxSeccomp) -> Result<Program, SeccompError> {
    let arch = Architecture::native()?;
    let decisions = decide(arch, document)?;
    let mut writer = Writer::default();
    let tree = writer.tree(&runs(&decisions));
    writer.asm.guard(arch, decisions.unknown.otherwise, tree);
    let length = writer.asm.len();
    if length > MAX_INSTRUCTIONS {
        return Err(SeccompError::TooLong { length });
    }
    Ok(writer.asm.finish())
}

/// Names in the document that are no call of this architecture, in order and with repetitions.
pub fn unknown_names(document: &LinuxSeccomp) -> Vec<&str> {
    let names = document.syscalls().iter().flatten().flat_map(|entry| entry.names());
    names.map(String::as_str).filter(|name| super::syscall_number(name).is_none()).collect()
}

/// From `start` up to the next run, all numbers share a decision.
#[derive(Clone, Copy)]
struct Run<'a> {
    start: u32,
    decision: &'a Decision,
}

fn runs(decisions: &Decisions) -> Vec<Run<'_>> {
    let mut runs: Vec<Run<'_>> = Vec::new();
    for (start, decision) in (0..).zip(decisions.known.iter().chain([&decisions.unknown])) {
        if runs.last().is_none_or(|last| last.decision != decision) {
            runs.push(Run { start, decision });
        }
    }
    runs
}

#[derive(Default)]
struct Writer<'a> {
    asm: Assembler,
    /// Argument checks written so far.
    checks: Vec<(&'a Decision, Label)>,
}

impl<'a> Writer<'a> {
    fn tree(&mut self, runs: &[Run<'a>]) -> Label {
        match runs {
            [one] => self.decision(one.decision),
            // A single number between two runs of one decision needs one comparison.
            [left, one, right] if left.decision == right.decision && right.start - one.start == 1 => {
                let around = self.decision(left.decision);
                let one_is = self.decision(one.decision);
                self.asm.compare(op::JEQ, one.start, one_is, around)
            }
            _ => {
                let (left, right) = runs.split_at(runs.len() / 2);
                let start = right[0].start;
                let right = self.tree(right);
                let left = self.tree(left);
                self.asm.compare(op::JGE, start, right, left)
            }
        }
    }

    fn decision(&mut self, decision: &'a Decision) -> Label {
        if decision.rules.is_empty() {
            return self.asm.verdict(decision.otherwise);
        }
        if let Some((_, label)) = self.checks.iter().find(|(known, _)| *known == decision) {
            return *label;
        }
        let mut label = self.asm.verdict(decision.otherwise);
        for rule in decision.rules.iter().rev() {
            label = self.rule(rule, label);
        }
        self.checks.push((decision, label));
        label
    }

    fn rule(&mut self, rule: &Rule, no: Label) -> Label {
        let mut yes = self.asm.verdict(rule.verdict);
        for condition in rule.conditions.iter().rev() {
            yes = self.condition(*condition, yes, no);
        }
        yes
    }

    fn condition(&mut self, condition: Condition, yes: Label, no: Label) -> Label {
        let (yes, no) = if condition.negated { (no, yes) } else { (yes, no) };
        let low = offset::ARGS + 8 * condition.arg;
        match condition.test {
            Test::Masked { mask, value } => {
                let inner = self.masked(low, low_word(mask), low_word(value), yes, no);
                self.masked(low + 4, high_word(mask), high_word(value), inner, no)
            }
            Test::Above(value) => self.ordered(op::JGT, low, value, yes, no),
            Test::AtLeast(value) => self.ordered(op::JGE, low, value, yes, no),
        }
    }

    /// `word & mask == value` on one half of an argument.
    fn masked(&mut self, word: u32, mask: u32, value: u32, yes: Label, no: Label) -> Label {
        if mask == 0 || yes == no {
            return yes;
        }
        let check = if mask != u32::MAX && value == 0 {
            self.asm.compare(op::JSET, mask, no, yes)
        } else if mask != u32::MAX && value == mask && mask.is_power_of_two() {
            self.asm.compare(op::JSET, mask, yes, no)
        } else {
            let equal = self.asm.compare(op::JEQ, value, yes, no);
            if mask == u32::MAX { equal } else { self.asm.and(mask, equal) }
        };
        self.asm.load(word, check)
    }

    /// An ordering (`code` is JGT or JGE) on a whole argument: the high half decides unless it is equal.
    fn ordered(&mut self, code: u16, low: u32, value: u64, yes: Label, no: Label) -> Label {
        let inner = self.asm.compare(code, low_word(value), yes, no);
        let inner = self.asm.load(low, inner);
        let equal = self.asm.compare(op::JEQ, high_word(value), inner, no);
        let above = self.asm.compare(op::JGT, high_word(value), yes, equal);
        self.asm.load(low + 4, above)
    }
}

const fn low_word(value: u64) -> u32 {
    (value & 0xffff_ffff) as u32
}

const fn high_word(value: u64) -> u32 {
    (value >> 32) as u32
}
