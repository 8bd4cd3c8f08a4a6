//! `airlock audit --probe`, `--mutate`: what a sandbox really lets through.

mod peers;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use airlock_policy::Overrides;
use airlock_runtime::probe::{Matrix, Outcome, Probe, Proof, Runner, Verdict, judged, table as probes};
use anyhow::{Result, bail};
use serde::Serialize;

use crate::audit_live_args::ProbeArgs;
use crate::output;

/// One probe under a policy.
#[derive(Debug, Serialize)]
struct Row {
    id: &'static str,
    title: &'static str,
    /// Clauses that should stop it.
    clauses: Vec<&'static str>,
    expected: Verdict,
    observed: Verdict,
    outcome: Option<Outcome>,
    /// Why an outcome that is no word of permission counts as denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    also: Option<&'static str>,
    result: Judgement,
    /// As the caller, outside of any sandbox.
    outside: Option<Outcome>,
    /// Under another launcher.
    #[serde(skip_serializing_if = "Option::is_none")]
    under: Option<Outcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Judgement {
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
struct Report {
    policy: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    launcher: Option<String>,
    probes: Vec<Row>,
    unexpected: usize,
}

/// `airlock audit --probe POLICY`, alone or beside another launcher.
pub(super) fn probe(policy: &str, args: &ProbeArgs, json: bool) -> Result<ExitCode> {
    let spec = super::super::spec(policy, overrides(args), vec!["probe".into()])?;
    let runner = runner(args)?;
    let peer = peers::Peer::of(args)?;
    let setting = runner.setting(spec)?;
    let inside = runner.run(&setting)?;
    let outside = runner.outside()?;
    let under = peer.as_ref().map(|peer| peer.run(&runner)).transpose()?;
    let row = |probe: &'static Probe| {
        let (expected, observed) = (setting.expects(probe, runner.kit()), judged(probe, &inside));
        let result = match (expected, observed) {
            (expected, observed) if expected == observed => Judgement::Expected,
            (Verdict::Allowed, Verdict::Denied) if probe.host_may_refuse || probe.needs_root => {
                Judgement::HostRefuses
            }
            _ if [&inside, &outside]
                .iter()
                .all(|found| found.get(probe.id).is_some_and(|outcome| probe.is_missing(outcome))) =>
            {
                Judgement::Missing
            }
            _ => Judgement::Unexpected,
        };
        let counts = |outcome: &Outcome| {
            matches!(outcome, Outcome::Refused(_) | Outcome::Killed(_)) && observed == Verdict::Denied
        };
        let plain = Probe { also: None, ..*probe };
        let outcome = inside.get(probe.id).cloned();
        let special =
            outcome.as_ref().is_some_and(|outcome| counts(outcome) && plain.judge(outcome) != observed);
        Row {
            id: probe.id,
            title: probe.title,
            clauses: setting
                .stopped_by(probe, runner.kit())
                .into_iter()
                .map(|clause| clause.name())
                .collect(),
            expected,
            observed,
            outcome,
            also: probe.also.filter(|_| special).map(|also| also.why),
            result,
            outside: outside.get(probe.id).cloned(),
            under: under.as_ref().and_then(|under| under.get(probe.id).cloned()),
        }
    };
    let rows: Vec<Row> = probes().filter(|probe| setting.tries(probe)).map(row).collect();
    let unexpected = rows.iter().filter(|row| row.result == Judgement::Unexpected).count();
    let report = Report {
        policy: policy.to_owned(),
        launcher: peer.map(|peer| peer.name()),
        probes: rows,
        unexpected,
    };
    if json {
        output::json(&report)?;
    } else {
        output::print(&output::escape(&table::probes(&report)))?;
    }
    Ok(ExitCode::from(u8::from(unexpected > 0)))
}

/// `airlock audit --mutate POLICY`.
pub(super) fn mutate(policy: &str, args: &ProbeArgs, json: bool) -> Result<ExitCode> {
    let spec = super::super::spec(policy, overrides(args), vec!["probe".into()])?;
    let runner = runner(args)?;
    let setting = runner.setting(spec)?;
    let matrix = Matrix::of(&runner, &setting, |clause| tracing::info!("without {clause}"))?;
    if json {
        output::json(&matrix)?;
    } else {
        output::print(&output::escape(&table::matrix(&matrix)))?;
    }
    let failed = matrix.unproven().count() > 0 || !matrix.vacuous.is_empty();
    Ok(ExitCode::from(u8::from(failed)))
}

fn overrides(args: &ProbeArgs) -> Overrides {
    Overrides { best_effort: args.best_effort.clone(), ..Overrides::default() }
}

fn runner(args: &ProbeArgs) -> Result<Runner> {
    let own = std::env::current_exe()?;
    let program = own.with_file_name("airlock-probe");
    if !program.is_file() {
        bail!(
            "{} is missing; `cargo build --release` makes it, and it must lie beside airlock",
            program.display()
        );
    }
    Ok(Runner::new(&program, args.cgroup_parent.as_ref().map(PathBuf::from))?)
}

/// The probes that prove a clause, and how.
fn words(proof: &Proof) -> (&'static str, String) {
    let list = |probes: &[&str]| probes.join(" ");
    match proof {
        Proof::Removed(probes) => ("removed", list(probes)),
        Proof::Alone(probes) => ("alone", list(probes)),
        Proof::Fixed(probes) => ("fixed", list(probes)),
        Proof::Beyond => ("beyond", "its probes are for root, or about what this host does not have".into()),
        Proof::None => ("UNPROVEN", String::new()),
        Proof::Failed(error) => ("FAILED", error.clone()),
    }
}
