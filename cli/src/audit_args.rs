//! The command line of `airlock audit`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::audit_live_args::ProbeArgs;

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Exit status: 0 nothing of the severity of --fail-on or above, 1 something of it (--probe: something unexpected; --mutate: \
a clause that nothing proves; --against: less than the policy says; with these, --fail-on has no meaning and is \
refused), 125 something could not be audited; the rest is told all the same."
)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    pub(crate) command: Option<AuditCommand>,
    /// Policies (built-in names or files), OCI bundles (directories or config.json), task directories
    #[arg(value_name = "FILE|DIR", required_unless_present_any = ["rules", "schema", "probe", "mutate", "pid"])]
    pub(crate) names: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Write one page for people, without scripts; `-` for standard output
    #[arg(long, value_name = "FILE", conflicts_with = "pid")]
    pub(crate) html: Option<PathBuf>,
    /// Write the findings as SARIF 2.1.0; `-` for standard output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["probe", "mutate", "pid"])]
    pub(crate) sarif: Option<PathBuf>,
    /// The least severity of a finding that makes the audit fail
    #[arg(
        long,
        value_enum,
        default_value = "high",
        value_name = "SEVERITY",
        conflicts_with_all = ["probe", "mutate", "pid"]
    )]
    pub(crate) fail_on: FailOn,
    /// Print the rules as a table
    #[arg(long, exclusive = true)]
    pub(crate) rules: bool,
    /// Print the JSON Schema of --json
    #[arg(long, exclusive = true)]
    pub(crate) schema: bool,
    #[command(flatten)]
    pub(crate) live: ProbeArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum FailOn {
    High,
    Medium,
    Low,
    /// Status 0 whatever is found
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Show what a seccomp filter answers to every system call, proven by executing it
    Seccomp(SeccompArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit status: 0 the table is what the filter does (and with --diff: both filters are the same), 1 --diff found a \
difference, 125 Airlock failed, or some calls are not decided: a filter is followed and executed for a set number of \
steps, and those for which they do not suffice are named.")]
pub(crate) struct SeccompArgs {
    /// A policy (built-in name or file), or an OCI bundle
    #[arg(value_name = "POLICY|BUNDLE", required_unless_present_any = ["diff", "pid"])]
    pub(crate) name: Option<String>,
    /// Show the filters of this process (a pid, or the name of a sandbox), read from the kernel: it is stopped for a
    /// moment. Takes CAP_SYS_ADMIN on the host
    #[arg(long, value_name = "PID|ID", conflicts_with_all = ["name", "diff"])]
    pub(crate) pid: Option<String>,
    /// Show what differs from the first to the second
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with = "name")]
    pub(crate) diff: Option<Vec<String>>,
    /// Print the program's instructions too
    #[arg(long, conflicts_with = "diff")]
    pub(crate) disassemble: bool,
    /// Show these system calls alone
    #[arg(long = "call", value_name = "NAME", value_delimiter = ',')]
    pub(crate) calls: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
