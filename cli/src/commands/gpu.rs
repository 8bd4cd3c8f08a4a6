//! `airlock gpu`.

use std::process::ExitCode;

use airlock_runtime::gpu::{Table, discover};
use anyhow::Result;

use crate::args::{FormatArgs, GpuArgs, GpuCommand};
use crate::output;

pub(crate) fn gpu(args: GpuArgs) -> Result<ExitCode> {
    match args.command {
        GpuCommand::List(format) => list(format),
        GpuCommand::Cdi { kind } => super::gpu_cdi::cdi(&kind),
    }
}

/// A host without GPUs is an answer, not a failure.
fn list(args: FormatArgs) -> Result<ExitCode> {
    let found = discover()?;
    if args.json {
        output::json(&found.inventory)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(remark) = &found.remark {
        output::print(&format!("no NVIDIA driver: {}\n", output::escape(remark)))?;
    }
    output::print(&output::escape(&Table(&found.inventory).to_string()))?;
    Ok(ExitCode::SUCCESS)
}
