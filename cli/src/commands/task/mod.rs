//! `airlock task`.

mod check;
mod lead;
mod progress;
mod status;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use airlock_grader::task::json_schema;
use anyhow::{Result, bail};

pub(crate) use lead::programs;
pub(crate) use verify::sentence;

use crate::output;
use crate::task_args::{TaskArgs, TaskCommand};

pub(crate) fn task(args: TaskArgs) -> Result<ExitCode> {
    match args.command {
        TaskCommand::Run(args) => lead::run(args),
        TaskCommand::Resume(args) => lead::resume(args),
        TaskCommand::Status(args) => status::status(&args),
        TaskCommand::Verify(args) => verify::verify(&args),
        TaskCommand::Check { tasks, format } => check::check(&tasks, &format),
        TaskCommand::Schema => {
            output::json(&json_schema())?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Where the signing key lies unless another is named.
fn usual_key() -> Result<PathBuf> {
    let config = match (std::env::var_os("XDG_CONFIG_HOME"), std::env::var_os("HOME")) {
        (Some(config), _) if !config.is_empty() => PathBuf::from(config),
        (_, Some(home)) if !home.is_empty() => PathBuf::from(home).join(".config"),
        _ => bail!("neither XDG_CONFIG_HOME nor HOME is set; name the signing key with --key"),
    };
    Ok(config.join("airlock/signing.key"))
}
