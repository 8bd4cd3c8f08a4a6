//! `airlock doctor`.

use std::process::ExitCode;

use anyhow::Result;

use crate::args::FormatArgs;

pub(crate) fn doctor(_: FormatArgs) -> Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
