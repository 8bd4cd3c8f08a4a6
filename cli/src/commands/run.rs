//! `airlock run`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use airlock_runtime::gpu::Tenancy;
use airlock_runtime::launch::{LaunchError, LaunchOptions};
use airlock_runtime::report::{EndReport, Reason, ReportPlace};
use airlock_runtime::state::Sandboxes;
use airlock_runtime::{Spec, monitor, report};
use anyhow::{Context, Result};

use crate::args::RunArgs;
use crate::output;

pub(crate) fn run(args: RunArgs) -> Result<ExitCode> {
    // A report that cannot be written is better known before the work than after it.
    let open = |path: &PathBuf| {
        ReportPlace::open(path)
            .with_context(|| format!("--report {}", output::escape(&path.display().to_string())))
    };
    let place = args.report.as_ref().map(open).transpose()?;
    let id = Sandboxes::new_id()?;
    let mut spec = super::spec(&args.sandbox.policy, args.sandbox.overrides.into(), args.command)
        .inspect_err(|error| write_failure(place.as_ref(), &id, None, &format!("{error:#}")))?;
    if let Some(place) = &place {
        refuse_reachable(&spec, place)?;
    }
    let cgroup_parent =
        args.cgroup_parent.as_deref().map(super::cgroup_parent).transpose().inspect_err(|error| {
            write_failure(place.as_ref(), &id, Some(&spec), &format!("{error:#}"));
        })?;
    // A stream that is the caller's terminal is never handed over: its modes, and what is typed, are the caller's.
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let on_terminal = stdin.is_terminal() || stdout.is_terminal() || stderr.is_terminal();
    let terminal = !args.no_tty && !args.detach && on_terminal;
    if let Some(process) = spec.oci.process_mut() {
        process.set_terminal(Some(terminal));
    }
    let tenancy = super::gpu::tenancy(&spec, &format!("sandbox {id}"))
        .inspect_err(|error| write_failure(place.as_ref(), &id, Some(&spec), &format!("{error:#}")))?;
    let grant = tenancy.as_ref().map(Tenancy::grant).transpose()?;
    let options = LaunchOptions {
        id: Some(id.clone()),
        cgroup_parent,
        report: place.as_ref().map(|place| place.record().clone()),
        gpu: grant,
        ..LaunchOptions::default()
    };
    if args.detach {
        return super::sandboxes::detach(&id, &spec, options, place, tenancy);
    }
    match monitor::run(&spec, options) {
        Ok(mut end) => {
            if let Some(tenancy) = tenancy {
                end.add_gpus(tenancy.end());
            }
            if let Some(place) = place {
                place.write(&end).with_context(|| format!("writing {}", place.record().path.display()))?;
            }
            tell(&end);
            Ok(ExitCode::from(end.exit_status()))
        }
        Err(error) => {
            write_failure(place.as_ref(), &id, Some(&spec), &error.to_string());
            Ok(failed(&error))
        }
    }
}

/// A report that the payload can write to could be its own work.
fn refuse_reachable(spec: &Spec, place: &ReportPlace) -> Result<()> {
    let path = &place.record().path;
    for mount in spec.oci.mounts().iter().flatten() {
        let read_only = mount.options().iter().flatten().any(|option| option == "ro" || option == "rro");
        if let Some(source) = mount.source().as_ref().filter(|source| !read_only && path.starts_with(source))
        {
            anyhow::bail!(
                "--report {}: lies in {}, which the sandbox can write to; name a place outside of it",
                output::escape(&path.display().to_string()),
                output::escape(&source.display().to_string()),
            );
        }
    }
    Ok(())
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
        Reason::GpuLimit => "it used more of a GPU than it may",
        _ => "",
    };
    if !why.is_empty() {
        output::error(&anyhow::anyhow!("{why}"));
    }
    if let Some(exceeded) = end.gpus.as_ref().and_then(|gpus| gpus.exceeded.as_ref()) {
        output::error(&anyhow::anyhow!("gpu: {exceeded}"));
    }
    for left in end.gpus.iter().flat_map(|gpus| &gpus.left) {
        output::error(&anyhow::anyhow!("gpu: {left}"));
    }
    if let Some(left) = &end.left_behind {
        output::error(&anyhow::anyhow!("{left}; `airlock gc` removes what is left"));
    }
}

fn write_failure(place: Option<&ReportPlace>, id: &str, spec: Option<&Spec>, error: &str) {
    let Some(place) = place else { return };
    let report = match spec {
        Some(spec) => EndReport::setup_failed(id, spec, error),
        None => EndReport::without_run(id, Reason::SetupFailed, error),
    };
    warn(place, place.write(&report));
}

/// Writes the report of a sandbox in the background, if anybody named a place for it.
pub(crate) fn finish_detached(
    result: Result<EndReport, LaunchError>,
    id: &str,
    spec: &Spec,
    place: Option<&ReportPlace>,
) {
    match (result, place) {
        (Ok(end), Some(place)) => warn(place, place.write(&end)),
        (Err(error), place) => write_failure(place, id, Some(spec), &error.to_string()),
        (Ok(_), None) => {}
    }
}

fn warn(place: &ReportPlace, written: std::io::Result<()>) {
    if let Err(error) = written {
        tracing::warn!("report {}: {error}", place.record().path.display());
    }
}
