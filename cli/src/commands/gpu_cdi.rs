//! `airlock gpu cdi`.

use std::process::ExitCode;

use airlock_runtime::gpu::{DRIVER_REMEDY, GpuHost, discover, nvidia};
use airlock_runtime::spec::{Gpu, RootKind};
use anyhow::{Context, Result};

use crate::output;

pub(crate) fn cdi(kind: &str) -> Result<ExitCode> {
    let found = discover()?;
    let all = nvidia::whole(&found.inventory).with_context(|| match &found.remark {
        Some(remark) => format!("no NVIDIA driver: {remark}; {DRIVER_REMEDY}"),
        None => "no NVIDIA GPU that can be used; `airlock gpu list` shows what there is".into(),
    })?;
    let host = GpuHost::read(&Gpu::default(), &RootKind::Host, Some(&all))?;
    let document = nvidia::document(kind, &all, &host)?;
    document.check().map_err(anyhow::Error::msg)?;
    output::json(&document)?;
    Ok(ExitCode::SUCCESS)
}
