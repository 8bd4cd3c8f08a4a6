//! An interpreter for filters: what would this program answer?
//!
//! It runs what the kernel accepts in a seccomp filter (`seccomp_check_filter` in `kernel/seccomp.c`),
//! including operations that Airlock's compiler never writes, and reports what the kernel would refuse.

use thiserror::Error;

use super::SeccompError;
use super::program::{Instruction, Program, offset};
use super::table::Architecture;
use super::verdict::Verdict;

/// The filter's input, `struct seccomp_data`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeccompData {
    /// Number of the call.
    pub number: u32,
    /// `AUDIT_ARCH_*` of the ABI used.
    pub arch: u32,
    /// Address of the call.
    pub instruction_pointer: u64,
    /// Arguments.
    pub args: [u64; 6],
}

impl SeccompData {
    /// A call through this machine's own ABI.
    pub fn native(number: u32, args: [u64; 6]) -> Result<Self, SeccompError> {
        Ok(Self { number, arch: Architecture::native()?.audit(), instruction_pointer: 0, args })
    }

    fn word(&self, at: u32) -> Option<u32> {
        let half = |value: u64, high: bool| ((if high { value >> 32 } else { value }) & 0xffff_ffff) as u32;
        if !at.is_multiple_of(4) {
            return None;
        }
        Some(match at {
            offset::NUMBER => self.number,
            offset::ARCH => self.arch,
            8 | 12 => half(self.instruction_pointer, at == 12),
            offset::ARGS..offset::END => {
                half(self.args[((at - offset::ARGS) / 8) as usize], !at.is_multiple_of(8))
            }
            _ => return None,
        })
    }
}

/// A program that the kernel would not have accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// An operation that filters may not use.
    #[error("instruction {at}: operation {code:#06x} is not allowed in a seccomp filter")]
    Operation {
        /// Index of the instruction.
        at: usize,
        /// Its code.
        code: u16,
    },
    /// A load outside `struct seccomp_data` or the 16 words of scratch memory, or a division by zero.
    #[error("instruction {at}: operand {k:#x} is out of range")]
    Operand {
        /// Index of the instruction.
        at: usize,
        /// Its operand.
        k: u32,
    },
    /// Execution leaves the program.
    #[error("instruction {at} is beyond the end of the program")]
    End {
        /// Index that does not exist.
        at: usize,
    },
}

/// What the program answers to this call.
pub fn run(program: &Program, data: &SeccompData) -> Result<Verdict, Fault> {
    counted(program, data).map(|(verdict, _)| verdict)
}

/// What the program answers to this call, and how many instructions it executes for that.
pub(super) fn counted(program: &Program, data: &SeccompData) -> Result<(Verdict, usize), Fault> {
    let mut machine = Machine::default();
    let mut at = 0;
    let mut executed = 0;
    loop {
        let step = *program.instructions.get(at).ok_or(Fault::End { at })?;
        executed += 1;
        match machine.step(at, step, data)? {
            Next::Skip(count) => at = at.saturating_add(1).saturating_add(count),
            Next::Return(raw) => return Ok((Verdict::from_raw(raw), executed)),
        }
    }
}

#[derive(Default)]
struct Machine {
    a: u32,
    x: u32,
    memory: [u32; 16],
}

enum Next {
    Skip(usize),
    Return(u32),
}

impl Machine {
    fn step(&mut self, at: usize, step: Instruction, data: &SeccompData) -> Result<Next, Fault> {
        let Instruction { code, jt, jf, k } = step;
        let operand = Fault::Operand { at, k };
        // Bit 3 of a computation or jump chooses X over k as its second operand.
        let source = if code & 0x08 == 0 { k } else { self.x };
        let jump = |yes| Next::Skip(usize::from(if yes { jt } else { jf }));
        let slot = usize::try_from(k).unwrap_or(usize::MAX);
        match code {
            0x20 => self.a = data.word(k).ok_or(operand)?,
            0x80 => self.a = offset::END,
            0x81 => self.x = offset::END,
            0x00 => self.a = k,
            0x01 => self.x = k,
            0x60 => self.a = *self.memory.get(slot).ok_or(operand)?,
            0x61 => self.x = *self.memory.get(slot).ok_or(operand)?,
            0x02 => *self.memory.get_mut(slot).ok_or(operand)? = self.a,
            0x03 => *self.memory.get_mut(slot).ok_or(operand)? = self.x,
            0x04 | 0x0c => self.a = self.a.wrapping_add(source),
            0x14 | 0x1c => self.a = self.a.wrapping_sub(source),
            0x24 | 0x2c => self.a = self.a.wrapping_mul(source),
            0x34 if k == 0 => return Err(operand),
            // The kernel returns 0, kill the thread, for a division by a register that holds zero.
            0x3c if source == 0 => return Ok(Next::Return(0)),
            0x34 | 0x3c => self.a /= source,
            0x44 | 0x4c => self.a |= source,
            0x54 | 0x5c => self.a &= source,
            0x64 if k >= 32 => return Err(operand),
            0x74 if k >= 32 => return Err(operand),
            0x64 | 0x6c => self.a = self.a.wrapping_shl(source),
            0x74 | 0x7c => self.a = self.a.wrapping_shr(source),
            0xa4 | 0xac => self.a ^= source,
            0x84 => self.a = self.a.wrapping_neg(),
            0x05 => return Ok(Next::Skip(slot)),
            0x15 | 0x1d => return Ok(jump(self.a == source)),
            0x25 | 0x2d => return Ok(jump(self.a > source)),
            0x35 | 0x3d => return Ok(jump(self.a >= source)),
            0x45 | 0x4d => return Ok(jump(self.a & source != 0)),
            0x06 => return Ok(Next::Return(k)),
            0x16 => return Ok(Next::Return(self.a)),
            0x07 => self.x = self.a,
            0x87 => self.a = self.x,
            _ => return Err(Fault::Operation { at, code }),
        }
        Ok(Next::Skip(0))
    }
}
