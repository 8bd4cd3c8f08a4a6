//! The supervisor's hold on the GPUs of a phase.

use airlock_runtime::Spec;
use airlock_runtime::gpu::lease::{LeaseError, Leases};
use airlock_runtime::gpu::{Tenancy, TenancyError, Wish, lease_directory};
use airlock_runtime::state::{Sandboxes, StateError};

use super::error::RunError;
use super::{Supervisor, blocking};

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
}

impl Supervisor {
    /// Takes the GPUs that a phase asks for. It does not wait for what others hold.
    pub(crate) async fn tenancy(
        &self,
        phase: &str,
        spec: &Spec,
    ) -> Result<Result<Option<Tenancy>, GpuError>, RunError> {
        let Some(wish) = Wish::of(spec) else { return Ok(Ok(None)) };
        let owner = format!("run {}, phase {phase}", self.manifest.run_id);
        blocking(move || {
            let leases = Leases::open(&lease_directory(Sandboxes::open()?.root()))?;
            Ok(Some(Tenancy::begin(&wish, &leases, &owner)?))
        })
        .await
    }
}
