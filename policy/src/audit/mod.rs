//! The static audit: what a policy, an OCI bundle or a task lets the code inside reach.
//!
//! Everything here is a pure function of text that was read before. A policy is resolved as for a host that has
//! nothing but `/usr`, so that policies and bundles are both OCI documents and most rules are written once. A rule
//! answers with the member or clause that it found, and [`Subject`] knows where in which file that stands.

mod document;
mod exposure;
mod filter;
mod report;
mod rule;
mod rules;
mod sarif;
mod spans;
mod subject;
mod task;

pub use exposure::Exposure;
pub use report::{Audited, Kind, Report, SEVERITIES, Unread, markdown, schema};
pub use rule::{Area, Finding, Rule, Severity};
pub use sarif::sarif;
pub use subject::{AuditError, Subject};
pub use task::{PhaseFacts, PhaseSource, Role, TaskFacts, TaskMount};

use rule::{Check, Hits};

/// Every rule, by id.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    rules::AREAS.iter().copied().flatten()
}

impl Subject {
    /// What the rules find, the gravest first, then by place.
    pub fn findings(&self) -> Vec<Finding> {
        let checks = rules().filter_map(|rule| match rule.check {
            Check::Sandbox(check) => Some((rule, check)),
            Check::Task(_) => None,
        });
        sorted(checks.flat_map(|(rule, check)| {
            let mut hits = Hits::new(rule, self);
            check(self, &mut hits);
            hits.found
        }))
    }
}

impl TaskFacts {
    /// What the rules find in how the phases of a task fit together, the gravest first, then by place.
    pub fn findings(&self) -> Vec<Finding> {
        let checks = rules().filter_map(|rule| match rule.check {
            Check::Task(check) => Some((rule, check)),
            Check::Sandbox(_) => None,
        });
        sorted(checks.flat_map(|(rule, check)| {
            let mut hits = Hits::new(rule, self);
            check(self, &mut hits);
            hits.found
        }))
    }
}

fn sorted(found: impl Iterator<Item = Finding>) -> Vec<Finding> {
    let mut found: Vec<Finding> = found.collect();
    found.sort_by(|a, b| {
        let place = |finding: &Finding| (finding.file.clone(), finding.line, finding.column, finding.rule);
        b.severity.cmp(&a.severity).then_with(|| place(a).cmp(&place(b)))
    });
    found
}
