//! Argument values at which a program may change its answer, read from the program itself.

use std::collections::BTreeSet;

use super::super::program::{Program, offset, op};
use super::budget::{Budget, Exhausted, KEPT};

/// Values of each argument that are worth a try, by argument; an argument that no instruction on the way looks at
/// has none.
pub(super) type Corners = [BTreeSet<u64>; 6];

/// What the accumulator holds while a call's number and architecture are fixed and its arguments are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Held {
    Known(u32),
    /// Half of an argument under a mask.
    Part {
        arg: usize,
        high: bool,
        mask: u32,
    },
    Anything,
}

/// Constants that a half of an argument is compared with.
#[derive(Default)]
struct Halves {
    low: BTreeSet<u32>,
    high: BTreeSet<u32>,
}

/// Follows every way that the program can take for this number.
///
/// A comparison of what is known takes one branch, any other both. Each instruction is visited once for each thing
/// that the accumulator may hold; a chain of masks can make that as many as there are masks.
pub(super) fn corners(
    program: &Program,
    arch: u32,
    number: u32,
    budget: &mut Budget,
) -> Result<Corners, Exhausted> {
    let mut halves: [Halves; 6] = Default::default();
    let mut seen = BTreeSet::new();
    let mut open = vec![(0, Held::Known(0))];
    while let Some((at, held)) = open.pop() {
        budget.take(KEPT)?;
        let Some(step) = program.instructions.get(at).filter(|_| seen.insert((at, held))) else {
            continue;
        };
        let mut go = |skip: usize, held| open.push((at.saturating_add(1).saturating_add(skip), held));
        match step.code {
            op::RETURN => {}
            op::JUMP => go(step.k as usize, held),
            op::LOAD => go(0, load(step.k, arch, number)),
            op::AND => {
                note(&mut halves, held, step.k);
                go(0, held.and(step.k));
            }
            op::JEQ | op::JGT | op::JGE | op::JSET => {
                note(&mut halves, held, step.k);
                let holds = match held {
                    Held::Known(value) => Some(match step.code {
                        op::JEQ => value == step.k,
                        op::JGT => value > step.k,
                        op::JGE => value >= step.k,
                        _ => value & step.k != 0,
                    }),
                    Held::Part { .. } | Held::Anything => None,
                };
                if holds != Some(false) {
                    go(step.jt.into(), held);
                }
                if holds != Some(true) {
                    go(step.jf.into(), held);
                }
            }
            // Comparisons with the index register, and whatever else filters may do.
            code if code & 0x07 == 0x05 => {
                go(step.jt.into(), held);
                go(step.jf.into(), held);
            }
            _ => go(0, Held::Anything),
        }
    }
    let made = halves.iter().map(Halves::count).fold(0, usize::saturating_add);
    budget.take(made.saturating_mul(KEPT))?;
    Ok(halves.map(Halves::values))
}

impl Held {
    pub(super) fn and(self, constant: u32) -> Held {
        match self {
            Held::Known(value) => Held::Known(value & constant),
            Held::Part { arg, high, mask } => Held::Part { arg, high, mask: mask & constant },
            Held::Anything => Held::Anything,
        }
    }
}

pub(super) fn load(at: u32, arch: u32, number: u32) -> Held {
    match at {
        offset::NUMBER => Held::Known(number),
        offset::ARCH => Held::Known(arch),
        offset::ARGS..offset::END => {
            let arg = ((at - offset::ARGS) / 8) as usize;
            Held::Part { arg, high: !(at - offset::ARGS).is_multiple_of(8), mask: u32::MAX }
        }
        _ => Held::Anything,
    }
}

fn note(halves: &mut [Halves; 6], held: Held, constant: u32) {
    let Held::Part { arg, high, mask } = held else { return };
    let Some(halves) = halves.get_mut(arg) else { return };
    let set = if high { &mut halves.high } else { &mut halves.low };
    let lowest = constant & constant.wrapping_neg();
    let noise = constant | !mask;
    set.extend([constant, constant.wrapping_sub(1), constant.wrapping_add(1), !constant, lowest, noise]);
}

impl Halves {
    fn is_empty(&self) -> bool {
        self.low.is_empty() && self.high.is_empty()
    }

    /// [`Halves::values`] makes about as many.
    fn count(&self) -> usize {
        if self.is_empty() {
            return 0;
        }
        (self.low.len() + 2).saturating_mul(self.high.len() + 2)
    }

    fn values(self) -> BTreeSet<u64> {
        if self.is_empty() {
            return BTreeSet::new();
        }
        let mut values = BTreeSet::from(EDGES);
        let low = self.low.into_iter().chain([0, u32::MAX]);
        for low in low {
            for high in self.high.iter().copied().chain([0, 1]) {
                values.insert(u64::from(high) << 32 | u64::from(low));
            }
        }
        values
    }
}

/// Values that are worth a try whatever the program compares with: ends, and the sign bits of both widths.
pub(super) const EDGES: [u64; 9] =
    [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 32, i64::MAX as u64, 1 << 63, u64::MAX];
