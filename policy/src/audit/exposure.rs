//! One figure for all that was found. `AUDIT.md` has the formula.

use std::collections::BTreeMap;

use super::rule::{Area, Finding, Severity};

/// How much is exposed.
///
/// Each mechanism counts as its gravest finding, because what a rule stops looking for where a worse one speaks (the
/// holes of a filter that is not there) must not lessen it. Mechanisms are layers, so their shares of what is left
/// are multiplied.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Exposure {
    /// From 0 to 1.
    share: f64,
}

impl Exposure {
    /// By what the rules found.
    pub fn of(findings: &[Finding]) -> Self {
        let mut gravest: BTreeMap<Area, Severity> = BTreeMap::new();
        for finding in findings {
            let severity = gravest.entry(finding.area).or_insert(finding.severity);
            *severity = finding.severity.max(*severity);
        }
        let closed: f64 = gravest.into_values().map(|severity| 1.0 - weight(severity)).product();
        Exposure { share: 1.0 - closed }
    }

    /// With the share of what was tried from inside that was let through, from 0 to 1.
    #[must_use]
    pub fn and_reach(self, reach: f64) -> Self {
        Exposure { share: 1.0 - (1.0 - self.share) * (1.0 - reach.clamp(0.0, 1.0)) }
    }

    /// From 0 to 100, rounded.
    pub fn figure(self) -> u8 {
        let rounded = (self.share * 100.0).round();
        (0..=100).rev().find(|figure| f64::from(*figure) <= rounded).unwrap_or(0)
    }
}

/// The share of the host that one finding of a mechanism is taken to expose.
fn weight(severity: Severity) -> f64 {
    match severity {
        Severity::High => 0.5,
        Severity::Medium => 0.2,
        Severity::Low => 0.05,
        Severity::Info => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_let_through_adds_to_what_was_found() {
        let none = Exposure::of(&[]);
        assert_eq!(none.figure(), 0);
        assert_eq!(none.and_reach(0.08).figure(), 8);
        let half = Exposure { share: 0.5 };
        assert_eq!(
            (half.figure(), half.and_reach(0.5).figure(), half.and_reach(7.0).figure()),
            (50, 75, 100)
        );
        assert_eq!(half.and_reach(0.0), half);
    }
}
