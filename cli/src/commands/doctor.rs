//! `airlock doctor`.

use std::process::ExitCode;

use airlock_runtime::doctor::{Table, examine, research_enforceable};
use anyhow::Result;

use crate::args::FormatArgs;
use crate::output;

/// Status 0 only if the `research` policy can be enforced whole by the present caller.
pub(crate) fn doctor(args: FormatArgs) -> Result<ExitCode> {
    let checks = examine();
    if args.json {
        output::json(&checks)?;
    } else {
        output::print(&Table(&checks).to_string())?;
    }
    Ok(if research_enforceable(&checks) { ExitCode::SUCCESS } else { ExitCode::from(crate::OWN_FAILURE) })
}
