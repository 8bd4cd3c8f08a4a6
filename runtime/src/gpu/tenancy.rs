//! A tenancy: the GPUs of one phase, from the choice to the look at what was left on them.

use std::io;
use std::path::{Path, PathBuf};

use super::discover::{DiscoverError, Discovery, Watch, discover};
use super::facts::{Inventory, Selection};
use super::grant::Grant;
use super::lease::{Lease, LeaseError, Leases, Mode, claims};
use super::report::GpuReport;
use super::reset::{Reset, ResetError};
use super::select::{Held, SelectError, Wish, select};
use super::wire::Limits;

/// Why there are no GPUs for a phase.
#[derive(Debug, thiserror::Error)]
pub enum TenancyError {
    /// They cannot be found.
    #[error(transparent)]
    Discover(#[from] DiscoverError),
    /// They cannot be had.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// They cannot be held.
    #[error("gpu: {0}")]
    Lease(#[from] LeaseError),
    /// They could not be reset afterwards.
    #[error("gpu: gpu.reset: {0}")]
    Reset(#[from] ResetError),
    /// The monitor cannot be given what it needs.
    #[error("gpu: duplicating a descriptor: {0}")]
    Grant(io::Error),
}

/// GPUs that nobody else gets, under observation. Dropped, they stay held until the monitor and init of their sandbox are
/// gone too; [`Tenancy::end`] and [`Tenancy::give_back`] are for when they are.
#[derive(Debug)]
pub struct Tenancy {
    selection: Selection,
    shared: bool,
    limited: bool,
    lease: Lease,
    watch: Watch,
    /// What resets the GPUs in the end.
    reset: Option<Reset>,
    /// Held until the end report is written; see [`Discovery`].
    found: Discovery,
}

/// Where leases are kept, in a directory for runtime state such as `/run/airlock`.
pub fn lease_directory(state: &Path) -> PathBuf {
    state.join("gpus")
}

impl Tenancy {
    /// Chooses GPUs, takes them, and looks at them again: what was idle before may not be now. `owner` is who an error
    /// names to others.
    pub fn begin(wish: &Wish, leases: &Leases, owner: &str) -> Result<Tenancy, TenancyError> {
        let found = discover()?;
        let mode = if wish.shared { Mode::Shared } else { Mode::Exclusive };
        let (chosen, lease) =
            take(&found.inventory, wish, |selection| leases.take(&claims(selection, mode), owner))?;
        let uuids: Vec<&str> = chosen.gpus.iter().map(|chosen| chosen.uuid()).collect();
        let (watch, now) = Watch::begin(&uuids, &wish.limits)?;
        let now = Inventory { driver: Some(chosen.driver.clone()), gpus: now, ..Inventory::default() };
        let devices = uuids.into_iter().map(str::to_owned).collect();
        let same = Wish { devices, shared: wish.shared, ..Wish::default() };
        let selection = select(&now, &same, &Held::new())?;
        let reset = wish.reset.then(|| Reset::of(&selection, &found.inventory, leases)).transpose()?;
        let limited = wish.limits != Limits::default();
        Ok(Tenancy { selection, shared: wish.shared, limited, lease, watch, reset, found })
    }

    /// What the sandbox gets.
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// What the monitor of the sandbox gets.
    pub fn grant(&self) -> Result<Grant, TenancyError> {
        let alarm = self.limited.then(|| self.watch.alarm()).transpose().map_err(TenancyError::Grant)?;
        let leases = self.lease.share().map_err(TenancyError::Grant)?;
        Ok(Grant { selection: self.selection.clone(), leases, alarm })
    }

    /// Lets go of it without giving it back: a fork of this process has it too, and goes on.
    pub fn leave_to_fork(self) {
        self.watch.leave_to_fork();
    }

    /// Gives the GPUs back: there was no sandbox on them.
    pub fn give_back(self) {
        self.lease.give_back();
    }

    /// Looks at what was left, when every process of the sandbox is gone, resets the GPUs if that was asked for, and
    /// gives them back.
    pub fn end(self) -> GpuReport {
        let Tenancy { selection, shared, limited, lease, watch, reset, found: _found } = self;
        let seen = watch.end();
        let mut report = GpuReport::new(&selection, shared, &seen);
        report.unwatched = limited && seen.failure.is_some();
        if let Some(reset) = reset {
            let done = reset.perform(&lease);
            report.reset = Some(done.is_ok());
            report.left.extend(done.err().map(|error| format!("not reset: {error}")));
        }
        if let Err(error) = lease.verify() {
            report.left.push(error.to_string());
        }
        lease.give_back();
        report
    }
}

/// Selects until all of a selection can be held: what somebody else holds is not selected again.
fn take<T>(
    inventory: &Inventory,
    wish: &Wish,
    lease: impl Fn(&Selection) -> Result<T, LeaseError>,
) -> Result<(Selection, T), TenancyError> {
    let mut held = Held::new();
    loop {
        let selection = select(inventory, wish, &held)?;
        match lease(&selection) {
            Ok(lease) => return Ok((selection, lease)),
            // A device that is selected though it is known to be held is a GPU of which a slice is held.
            Err(LeaseError::Held { device, holder }) if !held.contains_key(&device) => {
                held.insert(device, holder);
            }
            Err(error) => return Err(error.into()),
        }
    }
}
