//! `airlock doctor`.

use std::process::ExitCode;

use airlock_runtime::doctor::{Table, examine, research_enforceable};
use anyhow::Result;

use crate::args::FormatArgs;
use crate::output;

/// What the host lacks is an answer, not a failure of Airlock's own (125).
const LACKING: u8 = 1;

/// Status 0 if the `research` policy can be enforced whole by the present caller, else 1.
pub(crate) fn doctor(args: FormatArgs) -> Result<ExitCode> {
    let checks = examine();
    if args.json {
        output::json(&checks)?;
    } else {
        output::print(&Table(&checks).to_string())?;
    }
    Ok(if research_enforceable(&checks) { ExitCode::SUCCESS } else { ExitCode::from(LACKING) })
}
