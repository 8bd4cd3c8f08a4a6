//! The supervisor's hold on the GPUs of a phase.

use std::collections::BTreeSet;
use std::fmt;

use airlock_policy::Gpu;
use airlock_runtime::gpu::lease::{LeaseError, Leases};
use airlock_runtime::gpu::{
    Grant, Held, SelectError, Tenancy, TenancyError, Wish, candidates, check_named, check_reset, discover,
    lease_directory, select,
};
use airlock_runtime::state::{Sandboxes, StateError};
use airlock_runtime::{Spec, spec};

use super::error::RunError;
use super::{Supervisor, blocking};
use crate::task::{Phase, PhaseName, Task};

/// What a phase asks for, in words.
struct Asked<'a>(&'a Gpu);

impl fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.count {
            Some(1) => f.write_str("1 GPU"),
            Some(count) => write!(f, "{count} GPUs"),
            None => write!(f, "the GPUs {}", self.0.devices.join(", ")),
        }
    }
}

/// Checks that the host has what the phases ask for. Who uses it now is not looked at: a phase may begin hours later.
/// A baseline has no `explore`. Returns the ids of all that they may lease.
pub(super) fn check(task: &Task, baseline: bool) -> Result<BTreeSet<String>, RunError> {
    let checkpoints = task.checkpoints.iter().filter_map(|checkpoints| checkpoints.validation.as_ref());
    let phases = task.phases.values().filter(|phase| !baseline || phase.name != PhaseName::Explore);
    let all = phases.chain(checkpoints).filter_map(|phase| Some((phase, phase.policy.gpu.as_ref()?)));
    let all: Vec<(&Phase, &Gpu)> = all.collect();
    for (phase, gpu) in &all {
        check_named(&(*gpu).into()).map_err(|error| {
            RunError::Options(format!("the phase `{}` cannot have its GPUs: gpu: {error}", phase.name.word()))
        })?;
    }
    let asking: Vec<_> =
        all.into_iter().filter(|(_, gpu)| gpu.count.is_some() || !gpu.devices.is_empty()).collect();
    if asking.is_empty() {
        return Ok(BTreeSet::new());
    }
    let mut ids = BTreeSet::new();
    let found = discover().map_err(|error| RunError::Options(error.to_string()))?;
    for (phase, gpu) in asking {
        let wish = Wish { shared: true, ..Wish::from(&spec::Gpu::from(gpu)) };
        let selection = select(&found.inventory, &wish, &Held::new()).map_err(|error| {
            let remedy = match error {
                SelectError::NoDriver => "",
                _ => "; see `airlock gpu list`, and ask for what the host has",
            };
            let name = phase.name.word();
            RunError::Options(format!("the phase `{name}` asks for {}: {error}{remedy}", Asked(gpu)))
        })?;
        if gpu.reset {
            check_reset(&selection).map_err(|error| {
                RunError::Options(format!("the phase `{}`: gpu.reset: {error}", phase.name.word()))
            })?;
        }
        ids.extend(candidates(&found.inventory, &wish));
    }
    Ok(ids)
}

/// Why a phase gets no GPUs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GpuError {
    /// There is no place for leases.
    #[error(transparent)]
    State(#[from] StateError),
    /// The place for leases cannot be used.
    #[error("gpu: {0}")]
    Leases(#[from] LeaseError),
    /// The GPUs cannot be had.
    #[error(transparent)]
    Tenancy(#[from] TenancyError),
    /// The host's GPUs are others than when the run was made.
    #[error("gpu: {0} is not among the GPUs that run.json names; this host had others when the run was made")]
    Another(String),
}

impl Supervisor {
    /// Takes the GPUs that a phase asks for. It does not wait for what others hold.
    pub(crate) async fn tenancy(
        &self,
        phase: &str,
        spec: &Spec,
    ) -> Result<Result<Option<(Tenancy, Grant)>, GpuError>, RunError> {
        let Some(wish) = Wish::of(spec) else { return Ok(Ok(None)) };
        let owner = format!("run {}, phase {phase}", self.manifest.run_id);
        let known = self.manifest.gpus.clone();
        blocking(move || {
            let leases = Leases::open(&lease_directory(Sandboxes::open()?.root()))?;
            let tenancy = Tenancy::begin(&wish, &leases, &owner)?;
            let grant = tenancy.grant()?;
            let mut ids = grant.selection.gpus.iter().map(|chosen| chosen.uuid());
            match ids.find(|id| !known.iter().any(|known| known == id)) {
                Some(another) => Err(GpuError::Another(another.to_owned())),
                None => Ok(Some((tenancy, grant))),
            }
        })
        .await
    }
}
