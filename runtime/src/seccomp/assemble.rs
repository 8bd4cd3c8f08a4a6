//! A small assembler that writes programs from their end.
//!
//! Classic BPF jumps only forward, so a target written before its jump has a known place, and a jump
//! that turns out too long for the eight bits of a comparison is bridged on the spot.

use super::program::{Instruction, Program, offset, op};
use super::table::{Architecture, X32_BIT};
use super::verdict::Verdict;

/// The place of an instruction, counted from the program's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// A program under construction, last instruction first.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    reversed: Vec<Instruction>,
    /// The most recent place of each return.
    returns: Vec<(u32, Label)>,
}

/// A comparison reaches 255 instructions; two bridges may come between it and its target.
const REACH: usize = 253;

impl Assembler {
    fn push(&mut self, code: u16, jt: u8, jf: u8, k: u32) -> Label {
        self.reversed.push(Instruction { code, jt, jf, k });
        Label(self.reversed.len() - 1)
    }

    /// Instructions that would lie between the next one pushed and `target`.
    fn distance(&self, target: Label) -> usize {
        self.reversed.len() - target.0 - 1
    }

    /// A return of `verdict` near enough for the next instruction to jump to.
    pub(super) fn verdict(&mut self, verdict: Verdict) -> Label {
        let raw = verdict.raw();
        let known = self.returns.iter().position(|(known, _)| *known == raw);
        if let Some(at) = known {
            let label = self.returns[at].1;
            if self.distance(label) <= REACH {
                return label;
            }
        }
        let label = self.push(op::RETURN, 0, 0, raw);
        match known {
            Some(at) => self.returns[at].1 = label,
            None => self.returns.push((raw, label)),
        }
        label
    }

    /// `target` itself, or a bridge to it near enough for the next instruction to jump to.
    fn near(&mut self, target: Label) -> Label {
        let distance = self.distance(target);
        if distance <= REACH {
            return target;
        }
        let place = self.reversed[target.0];
        if place.code == op::RETURN {
            self.verdict(Verdict::from_raw(place.k))
        } else {
            // A program of 2^32 instructions is far beyond what the caller accepts.
            self.push(op::JUMP, 0, 0, u32::try_from(distance).unwrap_or(u32::MAX))
        }
    }

    /// A comparison of the accumulator with `k`.
    pub(super) fn compare(&mut self, code: u16, k: u32, yes: Label, no: Label) -> Label {
        if yes == no {
            return yes;
        }
        let yes = self.near(yes);
        let no = self.near(no);
        let skip = |label| u8::try_from(self.distance(label)).unwrap_or(u8::MAX);
        let (jt, jf) = (skip(yes), skip(no));
        self.push(code, jt, jf, k)
    }

    /// A load that falls through to `next`.
    pub(super) fn load(&mut self, offset: u32, next: Label) -> Label {
        self.fall_through(next);
        self.push(op::LOAD, 0, 0, offset)
    }

    /// A mask of the accumulator that falls through to `next`.
    pub(super) fn and(&mut self, mask: u32, next: Label) -> Label {
        self.fall_through(next);
        self.push(op::AND, 0, 0, mask)
    }

    fn fall_through(&mut self, next: Label) {
        let distance = self.distance(next);
        if distance > 0 {
            self.push(op::JUMP, 0, 0, u32::try_from(distance).unwrap_or(u32::MAX));
        }
    }

    /// The head guard, then `body` with the call's number in the accumulator.
    ///
    /// A foreign architecture and the x32 numbers kill the process. Number -1 is no call of either ABI
    /// but what a tracer writes to skip one, so it gets `unknown`, as libseccomp does it.
    pub(super) fn guard(&mut self, arch: Architecture, unknown: Verdict, body: Label) -> Label {
        let kill = self.verdict(Verdict::KillProcess);
        let unknown = self.verdict(unknown);
        let high = self.compare(op::JEQ, u32::MAX, unknown, kill);
        let number = self.compare(op::JGE, X32_BIT, high, body);
        let number = self.load(offset::NUMBER, number);
        let arch_is = self.compare(op::JEQ, arch.audit(), number, kill);
        self.load(offset::ARCH, arch_is)
    }

    /// Length so far.
    pub(super) fn len(&self) -> usize {
        self.reversed.len()
    }

    /// The program, which starts at the instruction pushed last.
    pub(super) fn finish(mut self) -> Program {
        self.reversed.reverse();
        Program { instructions: self.reversed }
    }
}
