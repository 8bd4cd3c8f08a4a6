//! One file per command.

use std::io;
use std::process::ExitCode;

use airlock_policy::{HostTree, Overrides, Policy, ResolveInput, resolve};
use airlock_runtime::Spec;
use anyhow::Result;
use clap::CommandFactory;

use crate::args::{Cli, CompletionArgs, Shell};

pub(crate) mod doctor;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod run;
pub(crate) mod sandboxes;
pub(crate) mod score;

/// The spec of a policy with the command line on top.
fn spec(policy: &str, overrides: Overrides, command: Vec<String>) -> Result<Spec> {
    let cwd = std::env::current_dir()?;
    let policy = Policy::load(policy, &overrides, &cwd)?;
    let host = HostTree::read().with_sources(&policy);
    // Variables that are not UTF-8 cannot be named in a policy, so they are never passed.
    let text = |value: std::ffi::OsString| value.into_string().ok();
    let caller_env = std::env::vars_os().filter_map(|(key, value)| Some((text(key)?, text(value)?))).collect();
    Ok(resolve(&policy, &ResolveInput { args: command, caller_env, host })?)
}

pub(crate) fn completions(args: CompletionArgs) -> Result<ExitCode> {
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Fish => clap_complete::Shell::Fish,
        Shell::Zsh => clap_complete::Shell::Zsh,
    };
    clap_complete::generate(shell, &mut Cli::command(), "airlock", &mut io::stdout());
    Ok(ExitCode::SUCCESS)
}
