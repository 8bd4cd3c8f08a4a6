//! What came of the probes under a policy, and under other launchers.

use std::collections::BTreeMap;

use airlock_policy::audit::{Audited, Exposure};
use airlock_runtime::probe::{Outcome, Probe, Runner, Setting, Verdict, judged, reach, table};
use serde::Serialize;

/// One probe under a policy.
#[derive(Debug, Serialize)]
pub(in super::super) struct Row {
    pub(in super::super) id: &'static str,
    pub(in super::super) title: &'static str,
    /// Clauses that should stop it.
    pub(in super::super) clauses: Vec<&'static str>,
    pub(in super::super) expected: Verdict,
    pub(in super::super) observed: Verdict,
    pub(in super::super) outcome: Option<Outcome>,
    /// Why an outcome that is no word of permission counts as denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in super::super) also: Option<&'static str>,
    pub(in super::super) result: Judgement,
    /// As the caller, outside of any sandbox.
    pub(in super::super) outside: Option<Outcome>,
    /// Under other launchers, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(in super::super) under: BTreeMap<String, Outcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(in super::super) enum Judgement {
    /// As the policy says.
    Expected,
    /// A setting of the host stops what the policy allows.
    HostRefuses,
    /// The host has nothing of the kind, inside and outside.
    Missing,
    /// Otherwise than the policy says.
    Unexpected,
}

#[derive(Debug, Serialize)]
pub(in super::super) struct Report {
    pub(in super::super) policy: String,
    /// From 0 to 100, by what the rules found in the policy and what the probes got through.
    pub(in super::super) exposure: u8,
    /// What is let through of what the caller can do outside, from 0 to 1.
    pub(in super::super) reach: f64,
    /// Other launchers, in the order of the command line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in super::super) launchers: Vec<String>,
    pub(in super::super) probes: Vec<Row>,
    pub(in super::super) unexpected: usize,
}

type Outcomes = BTreeMap<&'static str, Outcome>;

impl Report {
    pub(super) fn new(
        policy: &str,
        audited: &[Audited],
        runner: &Runner,
        setting: &Setting,
        [inside, outside]: [&Outcomes; 2],
        under: &[(String, Outcomes)],
    ) -> Report {
        let row = |probe: &'static Probe| {
            let (expected, observed) = (setting.expects(probe, runner.kit()), judged(probe, inside));
            let outcome = inside.get(probe.id).cloned();
            let clauses = setting.stopped_by(probe, runner.kit());
            let launched =
                under.iter().filter_map(|(name, found)| Some((name.clone(), found.get(probe.id)?.clone())));
            Row {
                id: probe.id,
                title: probe.title,
                clauses: clauses.into_iter().map(|clause| clause.name()).collect(),
                expected,
                observed,
                also: outcome.as_ref().and_then(|outcome| special(probe, outcome)),
                outcome,
                result: Judgement::of(probe, [expected, observed], [inside, outside]),
                outside: outside.get(probe.id).cloned(),
                under: launched.collect(),
            }
        };
        let probes: Vec<Row> = table().filter(|probe| setting.tries(probe)).map(row).collect();
        let reach = reach(inside, outside);
        let findings: Vec<_> = audited.iter().flat_map(|one| &one.findings).cloned().collect();
        Report {
            policy: policy.to_owned(),
            exposure: Exposure::of(&findings).and_reach(reach).figure(),
            reach,
            launchers: under.iter().map(|(name, _)| name.clone()).collect(),
            unexpected: probes.iter().filter(|row| row.result == Judgement::Unexpected).count(),
            probes,
        }
    }

    /// Probes of this verdict.
    pub(in super::super) fn count(&self, wanted: Verdict) -> usize {
        self.probes.iter().filter(|row| row.observed == wanted).count()
    }

    /// Under another launcher: denied, allowed, and allowed while the policy denies it.
    pub(in super::super) fn counts(&self, launcher: &str) -> [usize; 3] {
        let count = |wanted: fn(&Row, Verdict) -> bool| {
            let verdicts = self.probes.iter().filter_map(|row| Some((row, row.verdict(launcher)?)));
            verdicts.filter(|(row, verdict)| wanted(row, *verdict)).count()
        };
        [
            count(|_, verdict| verdict == Verdict::Denied),
            count(|_, verdict| verdict == Verdict::Allowed),
            count(|row, verdict| verdict == Verdict::Allowed && row.observed == Verdict::Denied),
        ]
    }
}

impl Row {
    /// What an outcome under another launcher means. Filters of other engines answer ENOSYS, as a kernel does that
    /// lacks the call; where this kernel has it, that is a denial too.
    pub(in super::super) fn verdict(&self, launcher: &str) -> Option<Verdict> {
        const UNKNOWN: Outcome = Outcome::Refused(libc::ENOSYS);
        let outcome = self.under.get(launcher)?;
        if *outcome == UNKNOWN && self.outside.as_ref().is_some_and(|outside| *outside != UNKNOWN) {
            return Some(Verdict::Denied);
        }
        table().find(|probe| probe.id == self.id).map(|probe| probe.judge(outcome))
    }
}

impl Judgement {
    fn of(probe: &Probe, [expected, observed]: [Verdict; 2], found: [&Outcomes; 2]) -> Judgement {
        let missing =
            |found: &&Outcomes| found.get(probe.id).is_some_and(|outcome| probe.is_missing(outcome));
        match (expected, observed) {
            (expected, observed) if expected == observed => Judgement::Expected,
            (Verdict::Allowed, Verdict::Denied) if probe.host_may_refuse || probe.needs_root => {
                Judgement::HostRefuses
            }
            _ if found.iter().all(missing) => Judgement::Missing,
            _ => Judgement::Unexpected,
        }
    }
}

/// Why an outcome counts as denied, if it is no word of permission.
fn special(probe: &Probe, outcome: &Outcome) -> Option<&'static str> {
    let plain = Probe { also: None, ..*probe };
    let denied = probe.judge(outcome) == Verdict::Denied && plain.judge(outcome) != Verdict::Denied;
    probe.also.filter(|_| denied).map(|also| also.why)
}
