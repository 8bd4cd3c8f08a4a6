//! A program without its document made readable: every way that it can take for a call, and the answer at its end.

use std::fmt;

use super::super::SeccompError;
use super::super::interpret::SeccompData;
use super::super::program::{Program, op};
use super::super::table::Architecture;
use super::super::verdict::Verdict;
use super::Answer;
use super::corners::{Held, load};
use super::prove::{Disproof, Proof, prove};

/// More ways than this are not told.
const MOST: usize = 2000;
/// More work than this for one call is not done: each instruction on a way counts with the comparisons before it.
const MOST_WORK: usize = 1 << 20;

/// A program that cannot be told in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Opaque {
    /// Another architecture.
    #[error("filters of this architecture are not known")]
    Architecture,
    /// It decides by something else than masks and comparisons of the number, the architecture and the arguments.
    #[error("instruction {at} of the program decides by what cannot be told in words")]
    Instruction {
        /// Index of the instruction.
        at: usize,
    },
    /// It has too many ways, or too long ones.
    #[error("call {number} can take more ways through the program than are followed")]
    Ways {
        /// Number of the call.
        number: u32,
    },
    /// It leaves itself.
    #[error("the program has no end")]
    End,
}

/// A program read by following it. Nothing is known of the document that it came from.
#[derive(Clone, Debug)]
pub struct Decompiled {
    arch: Architecture,
    program: Program,
}

/// A way through the program.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Way {
    tests: Vec<HalfTest>,
    verdict: Verdict,
}

/// A comparison of half an argument under a mask, and how it came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HalfTest {
    arg: usize,
    high: bool,
    mask: u32,
    code: u16,
    value: u32,
    holds: bool,
}

impl Decompiled {
    /// Follows every way for every known call once.
    ///
    /// # Errors
    /// What cannot be told in words.
    pub fn of(program: &Program) -> Result<Self, Opaque> {
        let arch = Architecture::native().map_err(|_: SeccompError| Opaque::Architecture)?;
        let all = Decompiled { arch, program: program.clone() };
        arch.all().iter().try_for_each(|(_, number)| ways(program, arch.audit(), *number).map(drop))?;
        Ok(all)
    }

    /// Every known call with its number and answer, by number.
    pub fn calls(&self) -> impl Iterator<Item = (&'static str, u32, Answer)> {
        let mut calls: Vec<_> = self.arch.all().to_vec();
        calls.sort_by_key(|(_, number)| *number);
        calls
            .into_iter()
            .filter_map(|(name, number)| Some((name, number, self.answer(self.arch.audit(), number)?)))
    }

    /// The answer to a number of an architecture (`AUDIT_ARCH_*`), if it can be told.
    pub fn answer(&self, arch: u32, number: u32) -> Option<Answer> {
        Some(told(&ways(&self.program, arch, number).ok()?))
    }

    /// Executes the program for the numbers 0 to 600 of this architecture, their x32 forms and i386, with the corner
    /// values of each argument that it looks at, and compares each answer with the way that was told.
    ///
    /// # Errors
    /// A call that the program answers otherwise.
    pub fn prove(&self) -> Result<Proof, Disproof> {
        let mut last: Option<((u32, u32), Vec<Way>)> = None;
        prove(&self.program, self.arch, |data| {
            let call = (data.arch, data.number);
            let known = last.take().filter(|(of, _)| *of == call);
            let (_, ways) =
                last.insert(known.unwrap_or_else(|| {
                    (call, ways(&self.program, data.arch, data.number).unwrap_or_default())
                }));
            let way = ways.iter().find(|way| way.tests.iter().all(|test| test.passes(data)));
            // No way at all is an answer that no program gives.
            way.map_or(Verdict::Trace(u16::MAX), |way| way.verdict)
        })
    }
}

/// Every way that the program can take for this number, in the order of its branches.
fn ways(program: &Program, arch: u32, number: u32) -> Result<Vec<Way>, Opaque> {
    let mut ways = Vec::new();
    let mut open = vec![(0_usize, Held::Known(0), Vec::<HalfTest>::new())];
    let mut work = 0;
    while let Some((at, held, tests)) = open.pop() {
        work += 1 + tests.len();
        if work > MOST_WORK {
            return Err(Opaque::Ways { number });
        }
        let step = program.instructions.get(at).ok_or(Opaque::End)?;
        let to = |skip: usize| at.saturating_add(1).saturating_add(skip);
        match step.code {
            op::RETURN => {
                ways.push(Way { tests, verdict: Verdict::from_raw(step.k) });
                if ways.len() > MOST {
                    return Err(Opaque::Ways { number });
                }
            }
            op::JUMP => open.push((to(step.k as usize), held, tests)),
            op::LOAD => open.push((to(0), load(step.k, arch, number), tests)),
            op::AND => open.push((to(0), held.and(step.k), tests)),
            op::JEQ | op::JGT | op::JGE | op::JSET => {
                let (yes, no) = (to(step.jt.into()), to(step.jf.into()));
                match held {
                    Held::Known(value) if compare(step.code, value, step.k) => open.push((yes, held, tests)),
                    Held::Known(_) => open.push((no, held, tests)),
                    Held::Part { arg, high, mask } => {
                        let test = HalfTest { arg, high, mask, code: step.code, value: step.k, holds: true };
                        // The last one pushed is followed first.
                        for (target, holds) in [(no, false), (yes, true)] {
                            let test = HalfTest { holds, ..test };
                            if tests.iter().all(|known| !known.excludes(test)) {
                                let more = (!tests.contains(&test)).then_some(test);
                                open.push((target, held, tests.iter().copied().chain(more).collect()));
                            }
                        }
                    }
                    Held::Anything => return Err(Opaque::Instruction { at }),
                }
            }
            // It may be computed and never looked at.
            code if code & 0x07 != 0x05 && code & 0x07 != 0x06 => open.push((to(0), Held::Anything, tests)),
            _ => return Err(Opaque::Instruction { at }),
        }
    }
    Ok(ways)
}

fn compare(code: u16, value: u32, constant: u32) -> bool {
    match code {
        op::JEQ => value == constant,
        op::JGT => value > constant,
        op::JGE => value >= constant,
        _ => value & constant != 0,
    }
}

impl HalfTest {
    fn passes(self, data: &SeccompData) -> bool {
        let arg = data.args[self.arg];
        let half = if self.high { arg >> 32 } else { arg & 0xffff_ffff };
        let half = u32::try_from(half).unwrap_or_default();
        compare(self.code, half & self.mask, self.value) == self.holds
    }

    fn same_half(self, other: HalfTest) -> bool {
        (self.arg, self.high, self.mask) == (other.arg, other.high, other.mask)
    }

    fn is(self) -> bool {
        self.code == op::JEQ && self.holds
    }

    /// Both cannot be.
    fn excludes(self, other: HalfTest) -> bool {
        if !self.same_half(other) {
            return false;
        }
        let fixed = |one: HalfTest, other: HalfTest| {
            one.is() && compare(other.code, one.value, other.value) != other.holds
        };
        let opposite = (self.code, self.value) == (other.code, other.value) && self.holds != other.holds;
        opposite || fixed(self, other) || fixed(other, self)
    }
}

/// Ways as conditions: the answer that most of them end in is what holds otherwise.
fn told(ways: &[Way]) -> Answer {
    let count = |verdict: Verdict| ways.iter().filter(|way| way.verdict == verdict).count();
    // Of two that are as common, the refusal, so that what is told is what may be done.
    let rank = |verdict: &Verdict| (count(*verdict), !verdict.lets_through());
    let otherwise = ways.iter().map(|way| way.verdict).max_by_key(rank);
    let otherwise = otherwise.unwrap_or(Verdict::KillProcess);
    let others = ways.iter().filter(|way| way.verdict != otherwise);
    Answer { rules: others.map(|way| (words(&way.tests), way.verdict)).collect(), otherwise }
}

/// What must be so, without what follows from it.
fn words(tests: &[HalfTest]) -> String {
    let follows =
        |test: &HalfTest| !test.is() && tests.iter().any(|known| known.is() && known.same_half(*test));
    let mut left: Vec<HalfTest> = tests.iter().copied().filter(|test| !follows(test)).collect();
    let mut said = Vec::new();
    while let Some(test) = left.first().copied() {
        left.remove(0);
        // Both halves of one argument are a number of 64 bits.
        let other = left.iter().position(|other| {
            other.is()
                && test.is()
                && other.arg == test.arg
                && other.high != test.high
                && (other.mask, test.mask) == (u32::MAX, u32::MAX)
        });
        said.push(match other.map(|other| left.remove(other)) {
            Some(other) => {
                let (high, low) =
                    if test.high { (test.value, other.value) } else { (other.value, test.value) };
                format!("arg{} == {:#x}", test.arg, u64::from(high) << 32 | u64::from(low))
            }
            None => test.to_string(),
        });
    }
    said.join(" and ")
}

impl fmt::Display for HalfTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HalfTest { arg, high, mask, code, value, holds } = *self;
        let half = if high { "high" } else { "low" };
        let mask = if code == op::JSET { mask & value } else { mask };
        match mask {
            u32::MAX => write!(f, "arg{arg}.{half}")?,
            mask => write!(f, "arg{arg}.{half} & {mask:#x}")?,
        }
        let (sign, value) = match (code, holds) {
            (op::JEQ, true) => ("==", value),
            (op::JEQ, false) => ("!=", value),
            (op::JGT, true) => (">", value),
            (op::JGT, false) => ("<=", value),
            (op::JGE, true) => (">=", value),
            (op::JGE, false) => ("<", value),
            (_, true) => ("!=", 0),
            (_, false) => ("==", 0),
        };
        write!(f, " {sign} {value:#x}")
    }
}
