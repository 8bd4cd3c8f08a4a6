//! The proof: the program is executed, and each answer is the table's.

use std::collections::BTreeSet;

use thiserror::Error;

use super::super::interpret::{self, Fault, SeccompData};
use super::super::program::Program;
use super::super::table::{Architecture, X32_BIT};
use super::super::verdict::Verdict;
use super::FilterTable;
use super::corners::{EDGES, corners};

/// Numbers that are tried, well beyond any table's.
const LAST: u32 = 600;
/// `AUDIT_ARCH_I386`: what int 0x80 uses on a 64-bit kernel.
const I386: u32 = 0x4000_0003;
/// More combinations of arguments than this are tried by pairs of arguments.
const MOST: usize = 100_000;
/// Cases of a proof, each counted with the length of the program: more are not executed. The built-in profiles take less
/// than a tenth of it.
const MOST_WORK: usize = 1 << 30;

/// What was executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// Calls, of any architecture.
    pub numbers: u64,
    /// Executions of the program, each with its arguments.
    pub cases: u64,
    /// Calls with too many combinations to try them all; of them, every pair of arguments was tried in full.
    pub by_pairs: u64,
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
    /// Nothing is known of it.
    #[error("it is not proven: from call {number} on there are more cases than are tried")]
    TooMany {
        /// Number of the call.
        number: u32,
    },
}

impl FilterTable {
    /// Executes `program` for the numbers 0 to 600 of this architecture, their x32 forms and i386, with the corner
    /// values of each argument that the program looks at, and compares each answer with the table's.
    pub fn prove(&self, program: &Program) -> Result<Proof, Disproof> {
        prove(program, self.arch, |data| self.verdict(data))
    }
}

/// Compares each answer of `program` with what `table` says of the same call.
pub(super) fn prove(
    program: &Program,
    native: Architecture,
    mut table: impl FnMut(&SeccompData) -> Verdict,
) -> Result<Proof, Disproof> {
    let native = native.audit();
    let edges = [X32_BIT - 1, X32_BIT, u32::MAX - 1, u32::MAX];
    let numbers = (0..=LAST).map(|number| (native, number));
    let x32 = (0..=LAST).map(|number| (native, number | X32_BIT));
    let i386 = (0..=LAST).map(|number| (I386, number));
    let all = numbers.chain(x32).chain(i386).chain(edges.map(|number| (native, number)));
    let mut proof = Proof::default();
    for (arch, number) in all {
        call(program, &mut table, arch, number, &mut proof)?;
    }
    Ok(proof)
}

fn call(
    program: &Program,
    table: &mut impl FnMut(&SeccompData) -> Verdict,
    arch: u32,
    number: u32,
    proof: &mut Proof,
) -> Result<(), Disproof> {
    proof.numbers += 1;
    let corners = corners(program, arch, number).ok_or(Disproof::TooMany { number })?;
    let looked_at: Vec<usize> = (0..6).filter(|arg| !corners[*arg].is_empty()).collect();
    let combinations = looked_at.iter().map(|arg| corners[*arg].len()).fold(1, usize::saturating_mul);
    let pairs = || {
        looked_at
            .iter()
            .enumerate()
            .flat_map(|(at, first)| looked_at[at + 1..].iter().map(|second| (*first, *second)))
    };
    let cases = if combinations <= MOST {
        combinations
    } else {
        pairs().map(|(first, second)| corners[first].len() * corners[second].len() * EDGES.len()).sum()
    };
    let so_far = usize::try_from(proof.cases).unwrap_or(usize::MAX);
    if so_far.saturating_add(cases).saturating_mul(program.instructions.len()) > MOST_WORK {
        return Err(Disproof::TooMany { number });
    }
    let mut check = |args: [u64; 6]| {
        let data = SeccompData { number, arch, instruction_pointer: 0, args };
        let (table, answer) = (table(&data), interpret::run(program, &data)?);
        proof.cases += 1;
        if table == answer { Ok(()) } else { Err(Disproof::Answer { data, table, program: answer }) }
    };
    // What no instruction looks at must not matter.
    EDGES.iter().try_for_each(|edge| check([*edge; 6]))?;
    if combinations <= MOST {
        return product(&looked_at, &corners, [0; 6], &mut check);
    }
    for (first, second) in pairs() {
        for rest in EDGES {
            product(&[first, second], &corners, [rest; 6], &mut check)?;
        }
    }
    proof.by_pairs += 1;
    Ok(())
}

/// Every combination of the values of these arguments.
fn product(
    args: &[usize],
    values: &[BTreeSet<u64>; 6],
    so_far: [u64; 6],
    check: &mut impl FnMut([u64; 6]) -> Result<(), Disproof>,
) -> Result<(), Disproof> {
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
