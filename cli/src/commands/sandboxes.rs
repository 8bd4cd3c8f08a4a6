//! `airlock list`, `airlock kill`, `airlock gc`, and running in the background.

use std::process::ExitCode;

use airlock_runtime::cgroups::CgroupFacts;
use airlock_runtime::gpu::Tenancy;
use airlock_runtime::launch::{END_TIMEOUT, LaunchOptions};
use airlock_runtime::monitor::{self, Detached};
use airlock_runtime::report::ReportPlace;
use airlock_runtime::spec::Spec;
use airlock_runtime::state::{Ending, Sandboxes};
use anyhow::{Context, Result};

use crate::args::{FormatArgs, KillArgs};
use crate::output;

pub(crate) fn list(args: FormatArgs) -> Result<ExitCode> {
    let records = Sandboxes::open()?.list()?;
    if args.json {
        output::json(&records)?;
        return Ok(ExitCode::SUCCESS);
    }
    for record in records {
        let init = record.init.map_or_else(|| "-".into(), |init| init.pid.to_string());
        let command = output::escape_line(&record.command);
        let watched = if record.is_watched() { "" } else { "  (monitor gone: `airlock gc`)" };
        output::print(&format!(
            "{}  monitor {}  init {init}  {}  {command}{watched}\n",
            record.id, record.monitor.pid, record.policy
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn kill(args: KillArgs) -> Result<ExitCode> {
    let sandboxes = Sandboxes::open()?;
    let ending = if args.term { Ending::Ask } else { Ending::Kill };
    for id in args.ids {
        sandboxes.end(&id, ending).with_context(|| format!("sandbox {}", output::escape(&id)))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn gc(args: FormatArgs) -> Result<ExitCode> {
    let swept = Sandboxes::open()?.sweep(END_TIMEOUT)?;
    CgroupFacts::read()?.remove_leaves(None);
    if args.json {
        output::json(&swept)?;
    } else {
        for id in &swept.removed {
            output::print(&format!("removed {id}\n"))?;
        }
        for (id, why) in &swept.left {
            output::print(&format!("left {id}: {}\n", output::escape_line(why)))?;
        }
    }
    Ok(if swept.left.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(crate::OWN_FAILURE) })
}

/// Runs a sandbox in the background and prints its name once its command is executed.
pub(crate) fn detach(
    id: &str,
    spec: &Spec,
    options: LaunchOptions,
    place: Option<ReportPlace>,
    tenancy: Option<Tenancy>,
) -> Result<ExitCode> {
    match monitor::detach(spec, options)? {
        Detached::Parent { id } => {
            if let Some(tenancy) = tenancy {
                tenancy.leave_to_fork();
            }
            output::print(&format!("{id}\n"))?;
            Ok(ExitCode::SUCCESS)
        }
        Detached::Failed { message, status } => {
            output::error(&anyhow::anyhow!("{message}"));
            Ok(ExitCode::from(status))
        }
        Detached::Monitor { mut result } => {
            if let (Ok(end), Some(tenancy)) = (&mut *result, tenancy) {
                end.add_gpus(tenancy.end());
            }
            super::run::finish_detached(*result, id, spec, place.as_ref());
            Ok(ExitCode::SUCCESS)
        }
    }
}
