//! The calls that nvml-wrapper does not have.

use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_try};
use nvml_wrapper_sys::bindings::nvmlDevice_t;

/// Rows of memory that were, or could not be, replaced by spare ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RemappedRows {
    /// Some will be at the next reset.
    pub(crate) pending: bool,
    /// Some could not be.
    pub(crate) failed: bool,
}

/// `nvmlDeviceGetRemappedRows`: Ampere and newer.
pub(crate) fn remapped_rows(device: &Device<'_>) -> Result<RemappedRows, NvmlError> {
    let call = device.nvml().lib().nvmlDeviceGetRemappedRows.as_ref();
    let call = call.map_err(|error| NvmlError::FailedToLoadSymbol(error.to_string()))?;
    let (mut corrected, mut uncorrected, mut pending, mut failed) = (0, 0, 0, 0);
    let handle = handle(device);
    // SAFETY: the handle is valid while `device` is, and each pointer is of a number of the declared type.
    let code =
        unsafe { call(handle, &raw mut corrected, &raw mut uncorrected, &raw mut pending, &raw mut failed) };
    nvml_try(code)?;
    Ok(RemappedRows { pending: pending != 0, failed: failed != 0 })
}

/// Ids of the GPU instance and the compute instance that a MIG device is.
pub(crate) fn instance_ids(device: &Device<'_>) -> Result<(u32, u32), NvmlError> {
    let library = device.nvml().lib();
    let get = |call: Result<&unsafe extern "C" fn(nvmlDevice_t, *mut u32) -> u32, String>| {
        let call = call.map_err(NvmlError::FailedToLoadSymbol)?;
        let mut id = 0;
        let handle = handle(device);
        // SAFETY: the handle is valid while `device` is, and the pointer is of a number of the declared type.
        nvml_try(unsafe { call(handle, &raw mut id) })?;
        Ok::<u32, NvmlError>(id)
    };
    let gi = library.nvmlDeviceGetGpuInstanceId.as_ref().map_err(ToString::to_string);
    let ci = library.nvmlDeviceGetComputeInstanceId.as_ref().map_err(ToString::to_string);
    Ok((get(gi)?, get(ci)?))
}

fn handle(device: &Device<'_>) -> nvmlDevice_t {
    // SAFETY: the handle is passed to the library at once, while `device` is there.
    unsafe { device.handle() }
}
