//! `airlock run`.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use airlock_runtime::cgroups::CgroupPath;
use airlock_runtime::launch::{LaunchError, LaunchOptions};
use airlock_runtime::report::{EndReport, Reason};
use airlock_runtime::{Spec, monitor, report};
use anyhow::{Context, Result};

use crate::args::RunArgs;
use crate::output;

pub(crate) fn run(args: RunArgs) -> Result<ExitCode> {
    let report = args.report.map(|path| std::path::absolute(&path).context("finding the report's place")).transpose()?;
    if let Some(path) = &report {
        check_report_place(path)?;
    }
    let mut spec = super::spec(&args.sandbox.policy, args.sandbox.overrides.into(), args.command)
        .inspect_err(|error| write_failure(report.as_deref(), None, &format!("{error:#}")))?;
    let terminal = !args.no_tty && !args.detach && std::io::stdin().is_terminal();
    if let Some(process) = spec.oci.process_mut() {
        process.set_terminal(Some(terminal));
    }
    let options = LaunchOptions {
        cgroup_parent: args.cgroup_parent.map(CgroupPath::new).transpose()?,
        report: report.clone(),
        ..LaunchOptions::default()
    };
    if args.detach {
        return super::sandboxes::detach(&spec, options, report);
    }
    match monitor::run(&spec, options) {
        Ok(end) => {
            if let Some(path) = report {
                end.write(&path).with_context(|| format!("writing the report {}", path.display()))?;
            }
            tell(&end);
            Ok(ExitCode::from(end.exit_status()))
        }
        Err(error) => {
            write_failure(report.as_deref(), Some(&spec), &error.to_string());
            Ok(failed(&error))
        }
    }
}

pub(crate) fn report_schema() -> Result<ExitCode> {
    output::json(&report::schema())?;
    Ok(ExitCode::SUCCESS)
}

fn failed(error: &LaunchError) -> ExitCode {
    let status = error.exit_status();
    output::error(&anyhow::anyhow!("{error}"));
    ExitCode::from(status)
}

/// Says in words why a sandbox ended, where the exit status alone does not.
fn tell(end: &EndReport) {
    let why = match end.reason {
        Reason::WallTimeout => "the wall-clock limit was reached",
        Reason::Oom => "the memory limit was reached",
        Reason::PidsLimitHit => "the limit of processes was reached",
        _ => "",
    };
    if !why.is_empty() {
        output::error(&anyhow::anyhow!("{why}"));
    }
    if let Some(left) = &end.left_behind {
        output::error(&anyhow::anyhow!("{left}; `airlock gc` removes what is left"));
    }
}

/// A report that cannot be written is better known before the work than after it.
fn check_report_place(path: &Path) -> Result<()> {
    let option = || format!("--report {}", output::escape(&path.display().to_string()));
    let directory = path.parent().unwrap_or(Path::new("/"));
    let metadata = std::fs::metadata(directory).with_context(|| format!("{}: its directory", option()))?;
    anyhow::ensure!(metadata.is_dir(), "{}: its parent is not a directory", option());
    anyhow::ensure!(!path.is_dir(), "{}: is a directory; name a file", option());
    Ok(())
}

fn write_failure(path: Option<&Path>, spec: Option<&Spec>, error: &str) {
    let Some(path) = path else { return };
    let mut report = EndReport::without_run("", Reason::SetupFailed, error);
    if let Some(spec) = spec {
        report.policy.clone_from(&spec.airlock.policy);
        report.policy_digest.clone_from(&spec.airlock.policy_digest);
        report.spec_digest = spec.digest().unwrap_or_default();
    }
    if let Err(error) = report.write(path) {
        tracing::warn!("--report {}: {error}", path.display());
    }
}

/// Where a detached sandbox's report goes if nobody named a place: nowhere.
pub(crate) fn finish_detached(result: Result<EndReport, LaunchError>, spec: &Spec, report: Option<PathBuf>) {
    match (result, report) {
        (Ok(end), Some(path)) => {
            if let Err(error) = end.write(&path) {
                tracing::warn!("{}: {error}", path.display());
            }
        }
        (Err(error), path) => write_failure(path.as_deref(), Some(spec), &error.to_string()),
        (Ok(_), None) => {}
    }
}
