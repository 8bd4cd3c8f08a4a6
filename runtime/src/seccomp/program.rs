//! A filter program: classic BPF over `struct seccomp_data`.

use std::fmt;

use super::verdict::Verdict;

/// One instruction, laid out as the kernel's `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// Operation.
    pub code: u16,
    /// Instructions to skip if a comparison holds.
    pub jt: u8,
    /// Instructions to skip if it does not.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

/// Operations that Airlock's filters use (`linux/bpf_common.h`).
pub(super) mod op {
    /// `A = data[k..k + 4]`
    pub(in super::super) const LOAD: u16 = 0x20;
    /// `A &= k`
    pub(in super::super) const AND: u16 = 0x54;
    /// Skip `k` instructions.
    pub(in super::super) const JUMP: u16 = 0x05;
    /// `A == k`
    pub(in super::super) const JEQ: u16 = 0x15;
    /// `A > k`
    pub(in super::super) const JGT: u16 = 0x25;
    /// `A >= k`
    pub(in super::super) const JGE: u16 = 0x35;
    /// `A & k != 0`
    pub(in super::super) const JSET: u16 = 0x45;
    /// Return `k`.
    pub(in super::super) const RETURN: u16 = 0x06;
}

/// Offsets into `struct seccomp_data` (`linux/seccomp.h`).
pub(super) mod offset {
    pub(in super::super) const NUMBER: u32 = 0;
    pub(in super::super) const ARCH: u32 = 4;
    pub(in super::super) const ARGS: u32 = 16;
    /// Size of the whole structure.
    pub(in super::super) const END: u32 = 64;
}

/// Longest program that the kernel takes (`BPF_MAXINSNS`).
pub const MAX_INSTRUCTIONS: usize = 4096;

/// A filter, ready to be installed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Program {
    /// The instructions, in order.
    pub instructions: Vec<Instruction>,
}

impl Program {
    /// `sha256:<hex>` of the instructions as they lie in memory on a little-endian machine.
    pub fn digest(&self) -> String {
        let mut bytes = Vec::with_capacity(self.instructions.len() * 8);
        for Instruction { code, jt, jf, k } in &self.instructions {
            bytes.extend_from_slice(&code.to_le_bytes());
            bytes.extend_from_slice(&[*jt, *jf]);
            bytes.extend_from_slice(&k.to_le_bytes());
        }
        crate::spec::digest(&bytes)
    }

    /// Some path of the filter answers with a listener's decision.
    pub fn notifies(&self) -> bool {
        self.instructions
            .iter()
            .any(|step| step.code == op::RETURN && Verdict::from_raw(step.k) == Verdict::Notify)
    }
}

/// One line per instruction, with absolute jump targets.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.instructions.iter().enumerate() {
            write!(f, "{at:4}: ")?;
            let Instruction { code, jt, jf, k } = *step;
            let (yes, no) = (at + 1 + usize::from(jt), at + 1 + usize::from(jf));
            match code {
                op::LOAD => match k {
                    offset::NUMBER => writeln!(f, "load number"),
                    offset::ARCH => writeln!(f, "load arch"),
                    offset::ARGS..offset::END => {
                        let (arg, part) = ((k - offset::ARGS) / 8, (k - offset::ARGS) % 8);
                        writeln!(f, "load arg{arg} {}", if part == 0 { "low" } else { "high" })
                    }
                    _ => writeln!(f, "load {k}"),
                },
                op::AND => writeln!(f, "and {k:#x}"),
                op::JUMP => writeln!(f, "go {}", u64::from(k) + at as u64 + 1),
                op::JEQ => writeln!(f, "if == {k:#x} go {yes} else {no}"),
                op::JGT => writeln!(f, "if > {k:#x} go {yes} else {no}"),
                op::JGE => writeln!(f, "if >= {k:#x} go {yes} else {no}"),
                op::JSET => writeln!(f, "if & {k:#x} go {yes} else {no}"),
                op::RETURN => writeln!(f, "{}", Verdict::from_raw(k)),
                _ => writeln!(f, "code {code:#06x} jt {jt} jf {jf} k {k:#x}"),
            }?;
        }
        Ok(())
    }
}
