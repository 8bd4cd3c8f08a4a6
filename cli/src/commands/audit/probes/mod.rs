//! `airlock audit --probe`, `--mutate`: what a sandbox really lets through.

mod peers;
mod report;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use airlock_policy::Overrides;
use airlock_runtime::Spec;
use airlock_runtime::gpu::Tenancy;
use airlock_runtime::probe::{Matrix, Proof, Runner};
use anyhow::{Result, bail};

pub(super) use self::report::{Judgement, Report, Row};
pub(super) use self::table::brief;
use super::output::Output;
use super::page;
use crate::audit_live_args::ProbeArgs;

/// `airlock audit --probe POLICY`, alone or beside other launchers.
pub(super) fn probe(policy: &str, args: &ProbeArgs, output: &mut Output) -> Result<ExitCode> {
    let spec = super::super::spec(policy, overrides(args), vec!["probe".into()])?;
    let audited = super::one(policy)?;
    let peers = peers::Peer::all(args)?;
    let runner = runner(args)?;
    let tenancy = tenancy(&spec)?;
    let setting = runner.setting(spec, tenancy.as_ref().map(|tenancy| tenancy.selection().clone()))?;
    let inside = runner.run(&setting)?;
    let outside = runner.outside()?;
    let under = peers.iter().map(|peer| Ok((peer.name(), peer.run(&runner)?)));
    let under = under.collect::<Result<Vec<_>>>()?;
    let report = Report::new(policy, &audited, &runner, &setting, [&inside, &outside], &under);
    output.say(&report, || table::probes(&report))?;
    output.page(|| page::probes(&audited, &report))?;
    Ok(ExitCode::from(u8::from(report.unexpected > 0)))
}

/// `airlock audit --mutate POLICY`.
pub(super) fn mutate(policy: &str, args: &ProbeArgs, output: &mut Output) -> Result<ExitCode> {
    let spec = super::super::spec(policy, overrides(args), vec!["probe".into()])?;
    let audited = super::one(policy)?;
    let runner = runner(args)?;
    let tenancy = tenancy(&spec)?;
    let setting = runner.setting(spec, tenancy.as_ref().map(|tenancy| tenancy.selection().clone()))?;
    let matrix = Matrix::of(&runner, &setting, |clause| tracing::info!("without {clause}"))?;
    output.say(&matrix, || table::matrix(&matrix))?;
    output.page(|| page::matrix(&audited, &matrix))?;
    let failed = matrix.unproven().count() > 0 || !matrix.vacuous.is_empty();
    Ok(ExitCode::from(u8::from(failed)))
}

/// The GPUs of every sandbox of an audit. They are held until the last of them has ended.
fn tenancy(spec: &Spec) -> Result<Option<Tenancy>> {
    super::super::gpu::tenancy(spec, &format!("audit, process {}", std::process::id()))
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
pub(super) fn words(proof: &Proof) -> (&'static str, String) {
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
