//! A program without its document made readable: every way that it can take for a call, and the answer at its end.

use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::fmt;

use super::super::SeccompError;
use super::super::interpret::SeccompData;
use super::super::program::{Program, op};
use super::super::table::{Architecture, X32_BIT};
use super::super::verdict::Verdict;
use super::Answer;
use super::budget::{Budget, Exhausted, KEPT, share};
use super::corners::{Held, load};
use super::prove::{Disproof, I386, Proof, Said, prove};

/// More ways than this are not told.
const MOST: usize = 2000;

/// A number that no table has.
const UNKNOWN: u32 = 0x3fff;

/// Why a call's answer cannot be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Opaque {
    /// The program decides by something else than masks and comparisons of the number, the architecture and the
    /// arguments.
    #[error("cannot be told: instruction {at} decides by something else than masks and comparisons")]
    Instruction {
        /// Index of the instruction.
        at: usize,
    },
    /// There are too many ways.
    #[error("cannot be told: more than {MOST} ways lead through the program")]
    Ways,
    /// The steps did not suffice.
    #[error(transparent)]
    Steps(#[from] Exhausted),
    /// The program leaves itself.
    #[error("cannot be told: the program has no end")]
    End,
}

/// A call's answer, if it can be told.
pub type Told = Result<Answer, Opaque>;

/// A program read by following it. Nothing is known of the document that it came from.
#[derive(Clone, Debug)]
pub struct Decompiled {
    /// Every known call with its number and answer, by number.
    pub calls: Vec<(&'static str, u32, Told)>,
    /// The answer to a number that no table has.
    pub unknown: Told,
    /// The answer to the first call of x32, which stands for all of them.
    pub x32: Told,
    /// The answer to the first call of i386, which stands for all of them.
    pub i386: Told,
    arch: Architecture,
    program: Program,
    steps: u64,
}

/// A way through the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Way {
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
    /// Follows every way for every known call within `steps` ([`STEPS`](super::STEPS)) in all.
    ///
    /// # Errors
    /// There is no table for this machine.
    pub fn of(program: &Program, steps: u64) -> Result<Self, SeccompError> {
        let arch = Architecture::native()?;
        let mut known: Vec<_> = arch.all().to_vec();
        known.sort_by_key(|(_, number)| *number);
        let others = [(arch.audit(), UNKNOWN), (arch.audit(), X32_BIT), (I386, 1)];
        let numbers: Vec<_> = known.iter().map(|(_, number)| (arch.audit(), *number)).chain(others).collect();
        let Ok(mut told) = share(&numbers, steps, |call, budget| {
            Ok::<_, Infallible>(ways(program, *call, budget).map(|ways| told(&ways)))
        });
        let mut last = || told.pop().unwrap_or(Err(Opaque::End));
        let (i386, x32, unknown) = (last(), last(), last());
        let calls = known.into_iter().zip(told).map(|((name, number), told)| (name, number, told)).collect();
        Ok(Decompiled { calls, unknown, x32, i386, arch, program: program.clone(), steps })
    }

    /// Executes the program for the numbers 0 to 600 of this architecture, their x32 forms and i386, with the corner
    /// values of each argument that it looks at, and compares each answer with the way that was told. It takes as many
    /// steps as telling did at most.
    ///
    /// # Errors
    /// A call that the program answers otherwise.
    pub fn prove(&self) -> Result<Proof, Disproof> {
        prove(&self.program, self.arch, self.steps, |call, budget| ways(&self.program, call, budget).ok())
    }
}

/// Every way that the program can take for this call, in the order of its branches.
pub(super) fn ways(
    program: &Program,
    (arch, number): (u32, u32),
    budget: &mut Budget,
) -> Result<Vec<Way>, Opaque> {
    let mut ways = Vec::new();
    let mut open = vec![(0_usize, Held::Known(0), Vec::<HalfTest>::new())];
    while let Some((at, held, tests)) = open.pop() {
        budget.take(1)?;
        let step = program.instructions.get(at).ok_or(Opaque::End)?;
        let to = |skip: usize| at.saturating_add(1).saturating_add(skip);
        match step.code {
            op::RETURN => {
                budget.take(KEPT * (1 + tests.len()))?;
                ways.push(Way { tests, verdict: Verdict::from_raw(step.k) });
                if ways.len() > MOST {
                    return Err(Opaque::Ways);
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
                        budget.take(KEPT * (1 + tests.len()))?;
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

impl Said for Vec<Way> {
    fn verdict(&self, data: &SeccompData, budget: &mut Budget) -> Result<Verdict, Exhausted> {
        for way in self {
            let passed = way.tests.iter().take_while(|test| test.passes(data)).count();
            budget.take(1 + passed)?;
            if passed == way.tests.len() {
                return Ok(way.verdict);
            }
        }
        // No way at all is an answer that no program gives.
        Ok(Verdict::Trace(u16::MAX))
    }
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

    /// What is compared: the argument, its half, the mask.
    fn part(self) -> (usize, bool, u32) {
        (self.arg, self.high, self.mask)
    }

    fn is(self) -> bool {
        self.code == op::JEQ && self.holds
    }

    /// It says all of its half.
    fn is_whole(self) -> bool {
        self.is() && self.mask == u32::MAX
    }

    /// Together they say all of an argument.
    fn completes(self, other: HalfTest) -> bool {
        self.is_whole() && other.is_whole() && self.arg == other.arg && self.high != other.high
    }

    /// Both cannot be.
    fn excludes(self, other: HalfTest) -> bool {
        if self.part() != other.part() {
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
    let mut counts: HashMap<Verdict, usize> = HashMap::new();
    for way in ways {
        *counts.entry(way.verdict).or_default() += 1;
    }
    // Of two that are as common, the refusal, so that what is told is what may be done.
    let rank = |verdict: &Verdict| (counts.get(verdict).copied(), !verdict.lets_through());
    let otherwise = ways.iter().map(|way| way.verdict).max_by_key(rank);
    let otherwise = otherwise.unwrap_or(Verdict::KillProcess);
    let others = ways.iter().filter(|way| way.verdict != otherwise);
    Answer { rules: others.map(|way| (words(&way.tests), way.verdict)).collect(), otherwise }
}

/// What must be so, without what follows from it.
fn words(tests: &[HalfTest]) -> String {
    let fixed: BTreeSet<_> = tests.iter().filter(|test| test.is()).map(|test| test.part()).collect();
    let says = |test: &HalfTest| test.is() || !fixed.contains(&test.part());
    let left: Vec<HalfTest> = tests.iter().copied().filter(says).collect();
    let mut said = Vec::new();
    for (at, test) in left.iter().enumerate() {
        // Both halves of one argument are a number of 64 bits.
        let other = test.is_whole().then(|| left.iter().position(|other| test.completes(*other))).flatten();
        match other {
            Some(before) if before < at => {}
            Some(after) => {
                let (low, high) = if test.high { (left[after], *test) } else { (*test, left[after]) };
                let value = u64::from(high.value) << 32 | u64::from(low.value);
                said.push(format!("arg{} == {value:#x}", test.arg));
            }
            None => said.push(test.to_string()),
        }
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
