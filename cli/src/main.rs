//! The `airlock` command.

mod args;
mod audit_args;
mod audit_live_args;
mod commands;
mod output;
mod task_args;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};

/// Exit status of Airlock's own failures, as docker and podman have it.
const OWN_FAILURE: u8 = 125;

fn main() -> ExitCode {
    let level = std::env::var("AIRLOCK_LOG").ok().and_then(|level| level.parse().ok());
    tracing_subscriber::fmt()
        .with_max_level(level.unwrap_or(tracing::Level::WARN))
        .with_writer(std::io::stderr)
        .without_time()
        .with_target(false)
        .init();
    if let Err(error) = airlock_runtime::signals::settle() {
        output::error(&anyhow::anyhow!("setting what becomes of signals: {error}"));
        return ExitCode::from(OWN_FAILURE);
    }
    let cli = Cli::try_parse().unwrap_or_else(|error| {
        // Help and version are no failures; they go to stdout with status 0.
        let status = if error.use_stderr() { OWN_FAILURE } else { 0 };
        let _ = error.print();
        std::process::exit(status.into());
    });
    let result = match cli.command {
        Command::Run(args) => commands::run::run(args),
        Command::Audit(args) => commands::audit::audit(args),
        Command::Plan(args) => commands::plan::plan(args),
        Command::Policy(args) => commands::policy::policy(args),
        Command::Task(args) => commands::task::task(args),
        Command::Demo(args) => commands::demo::demo(args),
        Command::Doctor(args) => commands::doctor::doctor(args),
        Command::List(args) => commands::sandboxes::list(args),
        Command::Kill(args) => commands::sandboxes::kill(args),
        Command::Gc(args) => commands::sandboxes::gc(args),
        Command::Gpu(args) => commands::gpu::gpu(args),
        Command::Score(args) => commands::score::score(args),
        Command::ReportSchema => commands::run::report_schema(),
        Command::Completions(args) => commands::completions(args),
    };
    result.unwrap_or_else(|error| {
        output::error(&error);
        ExitCode::from(OWN_FAILURE)
    })
}
