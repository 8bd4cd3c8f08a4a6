//! `airlock gpu`.

use std::process::ExitCode;

use airlock_runtime::Spec;
use airlock_runtime::gpu::lease::Leases;
use airlock_runtime::gpu::{
    DRIVER_REMEDY, Held, Inventory, Selection, Table, Tenancy, Wish, check_reset, discover, held,
    lease_directory, select,
};
use airlock_runtime::state::{Sandboxes, StateError};
use anyhow::Result;
use serde::Serialize;

use crate::args::{FormatArgs, GpuArgs, GpuCommand};
use crate::output;

pub(crate) fn gpu(args: GpuArgs) -> Result<ExitCode> {
    match args.command {
        GpuCommand::List(format) => list(format),
        GpuCommand::Cdi { kind } => super::gpu_cdi::cdi(&kind),
    }
}

/// The GPUs that a spec asks for.
pub(crate) fn tenancy(spec: &Spec, owner: &str) -> Result<Option<Tenancy>> {
    let Some(wish) = Wish::of(spec) else { return Ok(None) };
    let leases = Leases::open(&lease_directory(Sandboxes::open()?.root()))?;
    Ok(Some(Tenancy::begin(&wish, &leases, owner)?))
}

/// The GPUs that a spec would get now; nobody's leases are looked at.
pub(crate) fn selection(spec: &Spec) -> Result<Option<Selection>> {
    let Some(wish) = Wish::of(spec) else { return Ok(None) };
    let selection = select(&discover()?.inventory, &wish, &Held::new())?;
    if wish.reset {
        check_reset(&selection)?;
    }
    Ok(Some(selection))
}

/// What `gpu list` says in JSON.
#[derive(Serialize)]
struct Listed<'a> {
    #[serde(flatten)]
    inventory: &'a Inventory,
    /// Who holds what, by UUID; `None`: nobody can tell.
    held: Option<&'a Held>,
}

fn holders() -> Result<Held> {
    match Sandboxes::open() {
        Ok(sandboxes) => Ok(held(&lease_directory(sandboxes.root()))?),
        // Who has no place for leases holds none.
        Err(StateError::NoRuntimeDir) => Ok(Held::new()),
        Err(error) => Err(error.into()),
    }
}

/// A host without GPUs is an answer, not a failure.
fn list(args: FormatArgs) -> Result<ExitCode> {
    let found = discover()?;
    let held = holders().map_err(|error| output::error(&error.context("who holds GPUs is not known"))).ok();
    if args.json {
        output::json(&Listed { inventory: &found.inventory, held: held.as_ref() })?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(remark) = &found.remark {
        output::print(&format!("no NVIDIA driver: {}\n{DRIVER_REMEDY}\n", output::escape(remark)))?;
    }
    output::print(&output::escape(&Table(&found.inventory, held.as_ref()).to_string()))?;
    Ok(ExitCode::SUCCESS)
}
