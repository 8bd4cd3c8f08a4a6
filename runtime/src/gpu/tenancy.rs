//! A tenancy: the GPUs of one phase, from the choice to the look at what was left on them.

use std::path::{Path, PathBuf};

use super::discover::{DiscoverError, Discovery, Watch, discover};
use super::facts::{Inventory, Selection};
use super::lease::{Lease, LeaseError, Leases, Mode, claims};
use super::report::GpuReport;
use super::select::{Held, SelectError, Wish, select};

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
}

/// GPUs that nobody else gets, under observation.
#[derive(Debug)]
pub struct Tenancy {
    selection: Selection,
    shared: bool,
    lease: Lease,
    watch: Watch,
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
        let (watch, now) = Watch::begin(&uuids)?;
        let now = Inventory { driver: Some(chosen.driver.clone()), gpus: now, ..Inventory::default() };
        let devices = uuids.into_iter().map(str::to_owned).collect();
        let same = Wish { count: None, devices, shared: wish.shared };
        let selection = select(&now, &same, &Held::new())?;
        Ok(Tenancy { selection, shared: wish.shared, lease, watch, found })
    }

    /// What the sandbox gets.
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Lets go of it without giving it back: a fork of this process has it too, and goes on.
    pub fn leave_to_fork(self) {
        self.lease.leave_to_fork();
        self.watch.leave_to_fork();
    }

    /// Looks at what was left, when every process of the sandbox is gone, and gives the GPUs back.
    pub fn end(self) -> GpuReport {
        let Tenancy { selection, shared, lease, watch, found: _found } = self;
        let mut report = match watch.end() {
            Ok((after, usage)) => GpuReport::new(&selection, shared, &after, &usage),
            Err(error) => GpuReport::unknown(&selection, &error.to_string()),
        };
        if let Err(error) = lease.verify() {
            report.left.push(error.to_string());
        }
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
