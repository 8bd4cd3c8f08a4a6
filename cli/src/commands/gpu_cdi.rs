//! `airlock gpu cdi`.

use std::process::ExitCode;

use airlock_runtime::gpu::{GpuHost, discover, nvidia};
use airlock_runtime::spec::{Gpu, RootKind};
use anyhow::{Context, Result};

use crate::output;

pub(crate) fn cdi(kind: &str) -> Result<ExitCode> {
    let found = discover()?;
    let remark = || found.remark.clone().unwrap_or_else(|| "there is none that can be used".into());
    let all = nvidia::whole(&found.inventory).with_context(|| format!("no NVIDIA GPU: {}", remark()))?;
    let host = GpuHost::read(&Gpu::default(), &RootKind::Host, Some(&all))?;
    let document = nvidia::document(kind, &all, &host)?;
    document.check().map_err(anyhow::Error::msg)?;
    output::json(&document)?;
    Ok(ExitCode::SUCCESS)
}
