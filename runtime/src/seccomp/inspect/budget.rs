//! How much work an inspection may take. It is counted and not timed, so that it ends alike on every machine.

use thiserror::Error;

/// Steps of one inspection that are enough for any filter met so far, and are done in seconds: instructions executed or
/// followed, and conditions compared.
pub const STEPS: u64 = 100_000_000;

/// Steps that something kept in memory costs, so that memory is bounded too.
pub(super) const KEPT: usize = 32;

/// The share of one call.
#[derive(Debug)]
pub(super) struct Budget {
    left: u64,
    short: bool,
    /// All steps, of which this is a share.
    of: u64,
}

/// The steps did not suffice for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not decided within {steps} steps")]
pub struct Exhausted {
    /// How many there were for all calls together.
    pub steps: u64,
}

impl Budget {
    pub(super) fn take(&mut self, steps: usize) -> Result<(), Exhausted> {
        match u64::try_from(steps).ok().and_then(|steps| self.left.checked_sub(steps)) {
            Some(left) => self.left = left,
            None => self.short = true,
        }
        if self.short { Err(Exhausted { steps: self.of }) } else { Ok(()) }
    }
}

/// Works on each item within `steps` in all.
///
/// Half of them are divided evenly at first. What is left is divided among the items whose share did not suffice, which
/// are worked on anew: one that takes more than there is keeps no other from its result.
///
/// # Errors
/// The first failure of `work`, which ends it.
pub(super) fn share<T, R, E>(
    items: &[T],
    steps: u64,
    mut work: impl FnMut(&T, &mut Budget) -> Result<R, E>,
) -> Result<Vec<R>, E> {
    let mut left = steps;
    let mut attempt = |item: &T, share: u64, left: &mut u64| -> Result<(R, bool), E> {
        let mut budget = Budget { left: share, short: false, of: steps };
        let result = work(item, &mut budget)?;
        *left -= share - budget.left;
        Ok((result, budget.short))
    };
    let part = |steps: u64, among: usize| u64::try_from(among).map_or(0, |among| steps / among.max(1));
    let each = part(steps / 2, items.len());
    let first = items.iter().map(|item| attempt(item, each, &mut left)).collect::<Result<Vec<_>, E>>()?;
    let mut again = first.iter().filter(|(_, short)| *short).count();
    let mut results = Vec::with_capacity(items.len());
    for (item, (result, short)) in items.iter().zip(first) {
        if !short {
            results.push(result);
            continue;
        }
        let share = part(left, again);
        results.push(attempt(item, share, &mut left)?.0);
        again -= 1;
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// What each item cost, if its share sufficed.
    fn shared(costs: &[usize], steps: u64) -> Vec<Option<usize>> {
        let work = |cost: &usize, budget: &mut Budget| {
            Ok::<_, Infallible>((0..*cost).try_for_each(|_| budget.take(1)).ok().map(|()| *cost))
        };
        let Ok(results) = share(costs, steps, work);
        results
    }

    #[test]
    fn what_some_leave_is_there_for_the_others() {
        assert_eq!(shared(&[1, 60, 1, 1], 100), [Some(1), Some(60), Some(1), Some(1)]);
        assert_eq!(shared(&[1_000, 5, 40, 5], 120), [None, Some(5), Some(40), Some(5)]);
        assert_eq!(shared(&[1, 0], 0), [None, Some(0)]);
        assert_eq!(shared(&[], 10), []);
    }

    #[test]
    fn the_whole_is_never_exceeded() {
        let mut used = 0;
        let work = |_: &(), budget: &mut Budget| {
            while budget.take(3).is_ok() {
                used += 3;
            }
            Ok::<_, Infallible>(())
        };
        let Ok(_) = share(&[(); 17], 1000, work);
        assert!((900..=1000).contains(&used), "{used}");
    }

    #[test]
    fn a_failure_ends_it() {
        let mut tried = 0;
        let failed = share(&[1, 2, 3], 100, |item, _| {
            tried += 1;
            if *item == 2 { Err("two") } else { Ok(()) }
        });
        assert_eq!((failed, tried), (Err("two"), 2));
    }
}
