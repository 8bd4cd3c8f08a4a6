//! The proof: the program is executed, and each answer is the table's.

use std::collections::BTreeSet;

use thiserror::Error;

use super::super::interpret::{self, Fault, SeccompData};
use super::super::program::Program;
use super::super::table::{Architecture, X32_BIT};
use super::super::verdict::Verdict;
use super::FilterTable;
use super::budget::{Budget, Exhausted, share};
use super::corners::{EDGES, corners};

/// Numbers that are tried, well beyond any table's.
const LAST: u32 = 600;
/// `AUDIT_ARCH_I386`: what int 0x80 uses on a 64-bit kernel.
pub(super) const I386: u32 = 0x4000_0003;
/// More combinations of arguments than this are tried by pairs of arguments.
const MOST: usize = 100_000;

/// What was executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// Calls of any architecture that were tried as below.
    pub numbers: u64,
    /// Executions of the program for them, each with its arguments.
    pub cases: u64,
    /// Calls with too many combinations to try them all; of them, every pair of arguments was tried in full.
    pub by_pairs: u64,
    /// Calls for which the steps did not suffice, as architecture (`AUDIT_ARCH_*`) and number: of them, nothing is proven.
    pub undecided: Vec<(u32, u32)>,
    /// How many steps there were for all of them.
    pub steps: u64,
}

impl Proof {
    /// This call of the machine's own architecture was tried.
    pub fn covers(&self, number: u32) -> bool {
        let native = Architecture::native().map(Architecture::audit);
        native.is_ok_and(|native| !self.undecided.contains(&(native, number)))
    }
}

/// A call that the program answers otherwise than the table says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Disproof {
    /// Another answer.
    #[error(
        "call {} of architecture {:#x} with {:x?}: the table says `{table}`, the program answers `{program}`",
        .data.number, .data.arch, .data.args
    )]
    Answer {
        /// The call.
        data: SeccompData,
        /// The table's answer.
        table: Verdict,
        /// The program's answer.
        program: Verdict,
    },
    /// The kernel would refuse the program.
    #[error("the program is malformed")]
    Malformed(#[from] Fault),
}

/// What is said of one call.
pub(super) trait Said {
    fn verdict(&self, data: &SeccompData, budget: &mut Budget) -> Result<Verdict, Exhausted>;
}

impl Said for &FilterTable {
    fn verdict(&self, data: &SeccompData, budget: &mut Budget) -> Result<Verdict, Exhausted> {
        budget.take(1 + self.decision(data.number).rules.len())?;
        Ok(FilterTable::verdict(self, data))
    }
}

impl FilterTable {
    /// Executes `program` for the numbers 0 to 600 of this architecture, their x32 forms and i386, with the corner
    /// values of each argument that the program looks at, and compares each answer with the table's, within
    /// `steps` ([`STEPS`](super::STEPS)) in all.
    ///
    /// # Errors
    /// A call that the program answers otherwise.
    pub fn prove(&self, program: &Program, steps: u64) -> Result<Proof, Disproof> {
        prove(program, self.arch, steps, |_, _| Some(self))
    }
}

/// One call tried in full.
struct Tried {
    cases: u64,
    by_pairs: bool,
}

/// Why one call is not tried to the end.
enum Stop {
    Otherwise(Disproof),
    Undecided,
}

impl From<Exhausted> for Stop {
    fn from(_: Exhausted) -> Stop {
        Stop::Undecided
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Otherwise(fault.into())
    }
}

/// Compares each answer of `program` with what is said of the same call. Of which nothing is said, nothing is proven.
pub(super) fn prove<S: Said>(
    program: &Program,
    native: Architecture,
    steps: u64,
    mut say: impl FnMut((u32, u32), &mut Budget) -> Option<S>,
) -> Result<Proof, Disproof> {
    let native = native.audit();
    let edges = [X32_BIT - 1, X32_BIT, u32::MAX - 1, u32::MAX];
    let numbers = (0..=LAST).map(|number| (native, number));
    let x32 = (0..=LAST).map(|number| (native, number | X32_BIT));
    let i386 = (0..=LAST).map(|number| (I386, number));
    let calls: Vec<(u32, u32)> =
        numbers.chain(x32).chain(i386).chain(edges.map(|number| (native, number))).collect();
    let tried = share(&calls, steps, |at, budget| {
        let Some(said) = say(*at, budget) else { return Ok(None) };
        match call(program, &said, *at, budget) {
            Ok(tried) => Ok(Some(tried)),
            Err(Stop::Undecided) => Ok(None),
            Err(Stop::Otherwise(disproof)) => Err(disproof),
        }
    })?;
    let mut proof = Proof { steps, ..Proof::default() };
    for (at, tried) in calls.into_iter().zip(tried) {
        let Some(Tried { cases, by_pairs }) = tried else {
            proof.undecided.push(at);
            continue;
        };
        proof.numbers += 1;
        proof.cases += cases;
        proof.by_pairs += u64::from(by_pairs);
    }
    Ok(proof)
}

fn call(
    program: &Program,
    said: &impl Said,
    (arch, number): (u32, u32),
    budget: &mut Budget,
) -> Result<Tried, Stop> {
    let corners = corners(program, arch, number, budget)?;
    let mut cases = 0;
    let mut check = |args: [u64; 6]| {
        let data = SeccompData { number, arch, instruction_pointer: 0, args };
        let table = said.verdict(&data, budget)?;
        let (answer, executed) = interpret::counted(program, &data)?;
        budget.take(executed)?;
        cases += 1;
        if table == answer {
            Ok(())
        } else {
            Err(Stop::Otherwise(Disproof::Answer { data, table, program: answer }))
        }
    };
    // What no instruction looks at must not matter.
    EDGES.iter().try_for_each(|edge| check([*edge; 6]))?;
    let looked_at: Vec<usize> = (0..6).filter(|arg| !corners[*arg].is_empty()).collect();
    let combinations = looked_at.iter().map(|arg| corners[*arg].len()).fold(1, usize::saturating_mul);
    let by_pairs = looked_at.len() > 2 && combinations > MOST;
    if by_pairs {
        for (at, first) in looked_at.iter().enumerate() {
            for second in &looked_at[at + 1..] {
                for rest in EDGES {
                    product(&[*first, *second], &corners, [rest; 6], &mut check)?;
                }
            }
        }
    } else {
        product(&looked_at, &corners, [0; 6], &mut check)?;
    }
    Ok(Tried { cases, by_pairs })
}

/// Every combination of the values of these arguments.
fn product(
    args: &[usize],
    values: &[BTreeSet<u64>; 6],
    so_far: [u64; 6],
    check: &mut impl FnMut([u64; 6]) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let Some((first, rest)) = args.split_first() else {
        return check(so_far);
    };
    for value in &values[*first] {
        let mut next = so_far;
        next[*first] = *value;
        product(rest, values, next, check)?;
    }
    Ok(())
}
