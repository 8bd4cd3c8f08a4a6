//! The command line.

use std::path::PathBuf;

use airlock_grader::score::Ladder;
use airlock_policy::{MountArg, Overrides};
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Run untrusted code in a sandbox that shows what its isolation really is.
#[derive(Debug, Parser)]
#[command(name = "airlock", version, max_term_width = 100, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command in a new sandbox
    Run(RunArgs),
    /// Show the kernel steps that would build a sandbox, without building it
    Plan(PlanArgs),
    /// Say what policies, OCI bundles and tasks let the code inside reach
    Audit(crate::audit_args::AuditArgs),
    /// List, show, check, compare, explain policies, or print their schema
    Policy(PolicyArgs),
    /// Lead, resume, watch and verify runs of tasks, and check task directories
    Task(crate::task_args::TaskArgs),
    /// See a whole task run: the unmodified source, an honest agent, a cheating one
    Demo(DemoArgs),
    /// Say what this host can enforce, with a remedy for each lack
    Doctor(FormatArgs),
    /// List the sandboxes that run
    List(FormatArgs),
    /// End a sandbox
    Kill(KillArgs),
    /// Remove what is left of sandboxes whose monitor was killed
    Gc(FormatArgs),
    /// See the GPUs of this host
    Gpu(GpuArgs),
    /// Place scores on a task's ladder
    Score(ScoreArgs),
    /// Print the JSON Schema of end reports
    ReportSchema,
    /// Print a completion script for a shell
    Completions(CompletionArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
    /// Write the end report here, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Make the control group below this one (from each hierarchy's root) instead of the caller's own, or of a scope
    /// where that is systemd's
    #[arg(long, value_name = "/GROUP")]
    pub(crate) cgroup_parent: Option<PathBuf>,
    /// Leave the sandbox running in the background and print its name; its output is discarded, and how it ended
    /// is told by --report alone
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// Give the command no pseudo-terminal even if stdin is a terminal
    #[arg(long)]
    pub(crate) no_tty: bool,
    /// The command and its arguments, after `--` if it has flags of its own
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// Built-in policy name, or a file (has a `/` or ends in .toml)
    #[arg(value_name = "POLICY")]
    pub(crate) policy: String,
    #[command(flatten)]
    pub(crate) overrides: OverrideArgs,
    /// Make the control group below this one
    #[arg(long, value_name = "/GROUP")]
    pub(crate) cgroup_parent: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    /// The command and its arguments, after `--` if it has flags of its own
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SandboxArgs {
    /// Built-in policy name, or a file (has a `/` or ends in .toml)
    #[arg(short, long, default_value = "base", value_name = "POLICY")]
    pub(crate) policy: String,
    #[command(flatten)]
    pub(crate) overrides: OverrideArgs,
}

/// Changes to the policy for this run.
#[derive(Debug, Args)]
pub(crate) struct OverrideArgs {
    /// Mount DIR read-write at /workspace and start there
    #[arg(short, long, value_name = "DIR", value_parser = workspace)]
    workspace: Option<PathBuf>,
    /// Mount SRC at DST: read-only unless `:rw` is added, without programs and native libraries unless `:exec` is;
    /// with `:optional`, only if SRC is there
    #[arg(short, long = "mount", value_name = "SRC:DST[:rw,exec,optional,socket]", value_parser = mount)]
    mounts: Vec<MountArg>,
    /// Memory limit, swap included: 4GiB
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    memory: Option<String>,
    /// CPU limit: 2.5
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    cpus: Option<String>,
    /// Limit of processes and threads; the first is Airlock's own init
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pids: Option<String>,
    /// Wall-clock limit: 90s, 4h
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    wall: Option<String>,
    /// Set a variable (K=V) or pass the caller's (K)
    #[arg(short, long, value_name = "K[=V]")]
    env: Vec<String>,
    /// GPUs: a count, or devices separated by commas: `all`, an index, GPU:SLICE, a UUID, a PCI address, or a kind
    /// such as H100 or 1g.10gb (see `airlock gpu list`)
    #[arg(long, value_name = "N|LIST", allow_negative_numbers = true)]
    gpus: Option<String>,
    /// Working directory inside
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Lower these clauses to what the host can do, and say so in the report: limits, devices
    #[arg(long, value_name = "CLAUSE", value_delimiter = ',')]
    best_effort: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct FormatArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GpuArgs {
    #[command(subcommand)]
    pub(crate) command: GpuCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GpuCommand {
    /// List GPUs, their slices, who uses them, and how they are connected
    List(FormatArgs),
    /// Print a CDI document of the GPUs, as JSON, for engines that read one from /etc/cdi
    Cdi {
        /// `vendor.com/class` of the devices
        #[arg(long, default_value = "nvidia.com/gpu", value_name = "KIND")]
        kind: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    pub(crate) command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// List the built-in policies
    List(FormatArgs),
    /// Print a policy with everything that it extends, and where each value comes from
    Show {
        /// Built-in name or file
        policy: String,
    },
    /// Check policies; mistakes are named with line and column (a syntax error or an unknown key ends a check)
    Check {
        /// Built-in names or files
        #[arg(required = true)]
        policies: Vec<String>,
    },
    /// Say what becomes possible and what impossible from one policy to another
    Diff {
        /// Built-in name or file
        before: String,
        /// Built-in name or file
        after: String,
        #[command(flatten)]
        format: FormatArgs,
    },
    /// Say whether something can be done under a policy on this host, and which clause decides
    Explain(Box<ExplainArgs>),
    /// Print the JSON Schema of policy files
    Schema,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Questions: `open PATH` or `read PATH`, `write PATH`, `exec PATH`, `see PATH`, `connect ADDRESS:PORT`, `connect PATH` \
(a Unix socket), `syscall NAME`. Without --what some thirty usual ones are answered.

Exit status: 0 yes to all of --what, 1 no to one of them, 125 Airlock failed.")]
pub(crate) struct ExplainArgs {
    /// Built-in name or file
    pub(crate) policy: String,
    /// What is asked
    #[arg(long, value_name = "QUESTION")]
    pub(crate) what: Vec<airlock_policy::explain::Question>,
    #[command(flatten)]
    pub(crate) overrides: OverrideArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Uses no network and nothing but this program and those beside it; takes less than a minute. The runs stay, with their \
report pages, receipts and the public half of the key that signed them; the secret half is removed.

Exit status: 0 everything went as it must, 1 something did not, 125 Airlock failed.")]
pub(crate) struct DemoArgs {
    /// Directory of the runs, which must not exist or be empty; default: a new one among the temporary files
    #[arg(long, value_name = "DIR")]
    pub(crate) run: Option<PathBuf>,
    /// Leave everything where it is even if the demo fails or is interrupted
    #[arg(long)]
    pub(crate) keep: bool,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

#[derive(Debug, Args)]
pub(crate) struct KillArgs {
    /// Names of sandboxes, as `airlock list` shows them
    #[arg(required = true)]
    pub(crate) ids: Vec<String>,
    /// Ask the command to end (SIGTERM) instead of killing the sandbox
    #[arg(long)]
    pub(crate) term: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Prints one line with six decimals for each value: 0 is an uninformed model or worse, 0.1 the baseline, 1 the \
optimum or better. A value is a JSON number: -12.76, 0.17, 1e-05. If one is not, or has no place on the ladder, \
nothing is printed but an error that names it.")]
pub(crate) struct ScoreArgs {
    /// phi=identity|negate|neg-log, then uninformative=X|inf|-inf, baseline=X, optimum=X and, if you like,
    /// below=linear|ratio; separated by commas
    #[arg(long, value_name = "KEY=VALUE,...")]
    pub(crate) ladder: Ladder,
    /// Scores, or `-` alone to read them from stdin, one a line
    #[arg(required = true, allow_hyphen_values = true, value_name = "VALUE")]
    pub(crate) values: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Fish,
    Zsh,
}

fn mount(text: &str) -> Result<MountArg, String> {
    airlock_policy::parse_mount_arg(text).map_err(|error| error.to_string())
}

/// A missing one is told of with those of the policy.
fn workspace(text: &str) -> Result<PathBuf, String> {
    match std::fs::metadata(text) {
        Ok(metadata) if !metadata.is_dir() => {
            Err("it is not a directory; `--mount FILE:/workspace/NAME` mounts a file".into())
        }
        _ => Ok(text.into()),
    }
}

impl From<OverrideArgs> for Overrides {
    fn from(args: OverrideArgs) -> Overrides {
        let OverrideArgs { workspace, mounts, memory, cpus, pids, wall, env, gpus, cwd, best_effort } = args;
        Overrides { workspace, mounts, memory, cpus, pids, wall, env, gpus, best_effort, cwd }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
