//! `airlock gpu`.

use std::process::ExitCode;

use airlock_runtime::Spec;
use airlock_runtime::gpu::lease::Leases;
use airlock_runtime::gpu::{Table, Tenancy, Wish, discover, lease_directory};
use airlock_runtime::state::Sandboxes;
use anyhow::Result;

use crate::args::{FormatArgs, GpuArgs, GpuCommand};
use crate::output;

pub(crate) fn gpu(args: GpuArgs) -> Result<ExitCode> {
    match args.command {
        GpuCommand::List(format) => list(format),
    }
}

/// The GPUs that a spec asks for.
pub(crate) fn tenancy(spec: &Spec, owner: &str) -> Result<Option<Tenancy>> {
    let Some(gpu) = &spec.airlock.gpu else { return Ok(None) };
    let leases = Leases::open(&lease_directory(Sandboxes::open()?.root()))?;
    Ok(Some(Tenancy::begin(&Wish::from(gpu), &leases, owner)?))
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
