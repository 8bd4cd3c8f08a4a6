//! The part of the command line of `airlock audit` that looks at what runs.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    /// Launch a sandbox of POLICY and try from inside what it lets through; exit status 1 if anything is unexpected.
    /// Limits are lowered to what is tried
    #[arg(long, value_name = "POLICY", conflicts_with_all = ["names", "mutate", "pid"])]
    pub(crate) probe: Option<String>,
    /// Take each clause of POLICY out and show which probes that opens; exit status 1 if a clause is proven by none, or
    /// a probe is stopped by nothing
    #[arg(long, value_name = "POLICY", conflicts_with_all = ["names", "pid"])]
    pub(crate) mutate: Option<String>,
    /// Show what confines a running process: by pid, or by the name of a sandbox
    #[arg(long, value_name = "PID|ID", conflicts_with = "names")]
    pub(crate) pid: Option<String>,
    /// Compare the process with this policy
    #[arg(long, value_name = "POLICY", requires = "pid")]
    pub(crate) against: Option<String>,
    /// Try the same under another launcher, side by side; may be given more than once
    #[arg(long, value_enum, value_name = "LAUNCHER", requires = "probe", value_delimiter = ',')]
    pub(crate) under: Vec<Launcher>,
    /// Try the same under this OCI runtime, side by side; may be given more than once
    #[arg(long = "runtime", value_name = "RUNTIME", requires = "probe", value_delimiter = ',')]
    pub(crate) runtimes: Vec<String>,
    /// With this bundle instead of the runtimes' own documents (`RUNTIME spec`)
    #[arg(long, value_name = "DIR", requires = "runtimes")]
    pub(crate) bundle: Option<PathBuf>,
    /// Make the control groups of probes below this one
    #[arg(long, value_name = "/GROUP")]
    pub(crate) cgroup_parent: Option<PathBuf>,
    /// Let the policy lower these clauses to what the host can do: limits, devices
    #[arg(long, value_name = "CLAUSE", value_delimiter = ',')]
    pub(crate) best_effort: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Launcher {
    /// bubblewrap, with its usual arguments
    Bwrap,
    /// podman, with its defaults
    Podman,
}
