//! How much of what the caller can do by himself is let through, as one number.

use std::collections::BTreeMap;

use super::run::{judged, unlimited};
use super::{Outcome, Verdict};

/// The share that `inside` lets through of what `outside`, tried by the caller without any sandbox, does: the mean
/// over the areas of probes, from 0 to 1.
///
/// A probe that says nothing inside counts as let through; one that is denied outside is not counted. So it only
/// grows when a denial goes.
pub fn reach(inside: &BTreeMap<&'static str, Outcome>, outside: &BTreeMap<&'static str, Outcome>) -> f64 {
    let mut areas: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for probe in unlimited().filter(|probe| judged(probe, outside) == Verdict::Allowed) {
        let (open, all) = areas.entry(probe.area()).or_default();
        *all += 1.0;
        if judged(probe, inside) != Verdict::Denied {
            *open += 1.0;
        }
    }
    let count = areas.len().max(1) as f64;
    areas.into_values().fold(0.0, |sum, (open, all)| sum + open / all) / count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_done_outside_counts() {
        let (done, refused) = (Outcome::Done(String::new()), Outcome::Refused(libc::EPERM));
        let of = |outcomes: &[(&'static str, &Outcome)]| -> BTreeMap<&'static str, Outcome> {
            outcomes.iter().map(|(id, outcome)| (*id, (*outcome).clone())).collect()
        };
        let outside = of(&[
            ("network.tcp", &done),
            ("network.connect", &done),
            ("ipc.segment", &done),
            ("kernel.bpf", &refused),
        ]);
        let inside = of(&[("network.tcp", &done), ("network.connect", &refused), ("ipc.segment", &refused)]);
        assert_eq!(reach(&inside, &outside).to_bits(), 0.25_f64.to_bits());
        assert_eq!(reach(&of(&[]), &outside).to_bits(), 1.0_f64.to_bits());
        assert_eq!(reach(&inside, &of(&[])).to_bits(), 0.0_f64.to_bits());
    }
}
