//! The matrix of clauses and probes: each clause taken out alone, or left alone, and what that changes.

use std::collections::BTreeMap;

use serde::Serialize;

use super::clause::Clause;
use super::expect::Setting;
use super::reach::reach;
use super::run::{ProbeError, Runner, judged, waits};
use super::{Outcome, Probe, Verdict, table};
use crate::host::is_root;

/// What proves a clause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "proof", content = "probes")]
pub enum Proof {
    /// Without it, these probes are let through.
    Removed(Vec<&'static str>),
    /// Other layers stop the same. With it alone, these probes are stopped that nothing else stops.
    Alone(Vec<&'static str>),
    /// No spec lacks it. It alone stops these probes in a sandbox without all other clauses, and nothing stops them
    /// outside.
    Fixed(Vec<&'static str>),
    /// Its probes are for root, or about what this host does not have, so that this caller cannot prove it.
    Beyond,
    /// Neither way changes a probe.
    None,
    /// The sandbox without it, or with it alone, could not be built.
    Failed(String),
}

/// A clause of the policy and its proof.
#[derive(Clone, Debug, Serialize)]
pub struct ClauseResult {
    /// The clause.
    pub clause: Clause,
    /// As the policy calls it.
    pub name: &'static str,
    /// What proves it.
    #[serde(flatten)]
    pub proof: Proof,
    /// What is let through without it, as [`reach`] counts; absent where it cannot be taken out.
    pub reach: Option<f64>,
}

/// One probe in the sandbox as the policy has it.
#[derive(Clone, Debug, Serialize)]
pub struct Tried {
    /// [`Probe::id`].
    pub id: &'static str,
    /// [`Probe::title`].
    pub title: &'static str,
    /// What came of it.
    pub outcome: Option<Outcome>,
    /// What that means.
    pub observed: Verdict,
    /// Clauses in force that should stop it.
    pub clauses: Vec<Clause>,
}

/// The whole matrix.
#[derive(Debug, Serialize)]
pub struct Matrix {
    /// Every probe, with all clauses in force.
    pub probes: Vec<Tried>,
    /// What is let through with all clauses in force, as [`reach`] counts.
    pub reach: f64,
    /// Clause by clause, those of the policy.
    pub clauses: Vec<ClauseResult>,
    /// Clauses that the policy does not have.
    pub absent: Vec<&'static str>,
    /// Probes that several clauses stop, so that none of them could be taken out alone with an effect.
    pub overlaps: BTreeMap<&'static str, Vec<&'static str>>,
    /// Probes that fail although no clause is left, inside and outside.
    pub vacuous: Vec<&'static str>,
    /// Probes that the caller's own lack of rights stops, whatever the clauses, or a setting of the host.
    pub beyond_caller: Vec<&'static str>,
}

type Outcomes = BTreeMap<&'static str, Outcome>;

impl Matrix {
    /// Takes each clause of a setting out.
    ///
    /// # Errors
    /// The setting itself cannot be run. A mutation that cannot is told in its place.
    pub fn of(runner: &Runner, setting: &Setting, told: impl Fn(&'static str)) -> Result<Matrix, ProbeError> {
        let kit = runner.kit();
        let (outside, inside) = (runner.outside()?, runner.run(setting)?);
        let (present, absent): (Vec<Clause>, Vec<Clause>) =
            Clause::ALL.iter().copied().partition(|clause| setting.has(*clause, kit));
        let removable: Vec<Clause> = present.iter().copied().filter(|clause| !clause.is_fixed()).collect();
        told("all clauses");
        let stripped = runner.without(setting, removable.iter().copied())?;
        let bare = runner.run(&stripped)?;
        let mut clauses = Vec::new();
        for clause in &present {
            told(clause.name());
            let (proof, without) = if clause.is_fixed() {
                (Proof::fixed(*clause, &stripped, runner, &bare, &outside), None)
            } else {
                match Proof::find(*clause, &removable, setting, runner, [&inside, &bare]) {
                    Ok((proof, without)) => (proof, Some(without)),
                    Err(error) => (Proof::Failed(error.to_string()), None),
                }
            };
            let out_of_reach = |probe: &&Probe| {
                let missing = outside.get(probe.id).is_some_and(|outcome| probe.is_missing(outcome));
                missing || (probe.needs_root && !is_root())
            };
            let mut probes = table().filter(|probe| probe.clauses.contains(clause));
            let proof = match proof {
                Proof::None if *clause != Clause::Seccomp && probes.all(|probe| out_of_reach(&probe)) => {
                    Proof::Beyond
                }
                proof => proof,
            };
            let reach = without.map(|without| reach(&without, &outside));
            clauses.push(ClauseResult { clause: *clause, name: clause.name(), proof, reach });
        }
        let removed: Vec<&str> = clauses
            .iter()
            .filter_map(|result| match &result.proof {
                Proof::Removed(probes) => Some(probes.iter().copied()),
                _ => None,
            })
            .flatten()
            .collect();
        let overlaps = table()
            .filter(|probe| judged(probe, &inside) == Verdict::Denied && !removed.contains(&probe.id))
            .map(|probe| (probe.id, setting.stopped_by(probe, kit)))
            .filter(|(_, clauses)| clauses.len() > 1)
            .map(|(id, clauses)| (id, clauses.into_iter().map(Clause::name).collect()))
            .collect();
        let stuck = |probe: &&'static Probe| {
            let denied = |outcomes: &Outcomes| judged(probe, outcomes) != Verdict::Allowed;
            let missing = outside.get(probe.id).is_some_and(|outcome| probe.is_missing(outcome));
            denied(&inside) && denied(&bare) && denied(&outside) && !missing
        };
        let (beyond, vacuous): (Vec<&Probe>, Vec<&Probe>) = table()
            .filter(|probe| setting.tries(probe))
            .filter(stuck)
            .partition(|probe| (probe.needs_root && !is_root()) || probe.host_may_refuse);
        let ids = |probes: Vec<&'static Probe>| probes.iter().map(|probe| probe.id).collect();
        let tried = |probe: &'static Probe| Tried {
            id: probe.id,
            title: probe.title,
            outcome: inside.get(probe.id).cloned(),
            observed: judged(probe, &inside),
            clauses: setting.stopped_by(probe, kit),
        };
        Ok(Matrix {
            probes: table().filter(|probe| setting.tries(probe)).map(tried).collect(),
            reach: reach(&inside, &outside),
            clauses,
            absent: absent.into_iter().map(Clause::name).collect(),
            overlaps,
            vacuous: ids(vacuous),
            beyond_caller: ids(beyond),
        })
    }

    /// Clauses that nothing proves.
    pub fn unproven(&self) -> impl Iterator<Item = &ClauseResult> {
        self.clauses.iter().filter(|result| matches!(result.proof, Proof::None | Proof::Failed(_)))
    }
}

impl Proof {
    /// The proof, and what becomes of the probes without the clause.
    fn find(
        clause: Clause,
        removable: &[Clause],
        setting: &Setting,
        runner: &Runner,
        [inside, bare]: [&Outcomes; 2],
    ) -> Result<(Proof, Outcomes), ProbeError> {
        let without = runner.run(&runner.without(setting, [clause])?)?;
        let opened = changed(clause, inside, &without);
        if !opened.is_empty() {
            return Ok((Proof::Removed(opened), without));
        }
        let others = removable.iter().copied().filter(|other| *other != clause);
        let alone = runner.run(&runner.without(setting, others)?)?;
        let closed = changed(clause, &alone, bare);
        Ok((if closed.is_empty() { Proof::None } else { Proof::Alone(closed) }, without))
    }

    fn fixed(
        clause: Clause,
        stripped: &Setting,
        runner: &Runner,
        bare: &Outcomes,
        outside: &Outcomes,
    ) -> Proof {
        let probes: Vec<&str> = table()
            .filter(|probe| stripped.stopped_by(probe, runner.kit()) == [clause])
            .filter(|probe| {
                judged(probe, bare) == Verdict::Denied && judged(probe, outside) == Verdict::Allowed
            })
            .map(|probe| probe.id)
            .collect();
        if probes.is_empty() { Proof::None } else { Proof::Fixed(probes) }
    }
}

/// Probes that are denied in the one and allowed in the other. Those of time tell of their own clause alone: on a busy
/// machine they change by themselves.
fn changed(clause: Clause, closed: &Outcomes, open: &Outcomes) -> Vec<&'static str> {
    table()
        .filter(|probe| !waits(probe) || probe.clauses.contains(&clause))
        .filter(|probe| judged(probe, closed) == Verdict::Denied && judged(probe, open) == Verdict::Allowed)
        .map(|probe| probe.id)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_has_changed_if_it_was_denied_and_is_allowed() {
        let done = || Outcome::Done(String::new());
        let refused = || Outcome::Refused(libc::EPERM);
        let closed =
            Outcomes::from([("device.zero", refused()), ("device.null", done()), ("network.tcp", refused())]);
        let open =
            Outcomes::from([("device.zero", done()), ("device.null", refused()), ("network.tcp", refused())]);
        assert_eq!(changed(Clause::DeviceNodes, &closed, &open), ["device.zero"]);
        // One that was not tried proves nothing.
        assert_eq!(changed(Clause::DeviceNodes, &closed, &Outcomes::new()), [""; 0]);
        assert_eq!(changed(Clause::DeviceNodes, &Outcomes::new(), &open), [""; 0]);
        let (busy, idle) =
            (Outcomes::from([("limit.cpus", refused())]), Outcomes::from([("limit.cpus", done())]));
        assert_eq!(changed(Clause::Nesting, &busy, &idle), [""; 0]);
        assert_eq!(changed(Clause::Cpus, &busy, &idle), ["limit.cpus"]);
    }
}
