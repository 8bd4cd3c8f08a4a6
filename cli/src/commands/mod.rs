//! One file per command.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use airlock_policy::{HostTree, Overrides, Policy, ResolveInput, resolve};
use airlock_runtime::Spec;
use airlock_runtime::cgroups::CgroupPath;
use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::args::{Cli, CompletionArgs, Shell};
use crate::output;

pub(crate) mod audit;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod gpu;
pub(crate) mod gpu_cdi;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod run;
pub(crate) mod sandboxes;
pub(crate) mod score;
pub(crate) mod task;

/// The spec of a policy with the command line on top.
pub(crate) fn spec(policy: &str, overrides: Overrides, command: Vec<String>) -> Result<Spec> {
    let cwd = std::env::current_dir().context("the working directory")?;
    resolved(&Policy::load(policy, &overrides, &cwd)?, command)
}

/// The spec of a policy on this host.
fn resolved(policy: &Policy, command: Vec<String>) -> Result<Spec> {
    let host = HostTree::read().with_sources(policy);
    // Values that are not UTF-8 cannot stand in a spec, so they are never passed.
    let passed = policy.env.pass.iter().filter_map(|name| Some((name.clone(), std::env::var(name).ok()?)));
    let caller_env = passed.collect();
    Ok(resolve(policy, &ResolveInput { args: command, caller_env, host })?)
}

/// The value of `--cgroup-parent`.
pub(crate) fn cgroup_parent(path: &Path) -> Result<CgroupPath> {
    CgroupPath::new(path)
        .with_context(|| format!("--cgroup-parent {}", output::escape(&path.display().to_string())))
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
