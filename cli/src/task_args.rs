//! The command line of `airlock task`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::args::FormatArgs;

#[derive(Debug, Args)]
pub(crate) struct TaskArgs {
    #[command(subcommand)]
    pub(crate) command: TaskCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Lead a task from research to its receipt
    Run(RunTaskArgs),
    /// Take a run up again whose supervisor ended
    Resume(ResumeArgs),
    /// Show how a run stands, open or closed; nothing is changed
    Status(StatusArgs),
    /// Compute everything of a closed run again, from its directory and the public key alone
    Verify(VerifyArgs),
    /// Check task directories; all mistakes are named with line and column
    Check {
        /// Task directories
        #[arg(required = true, value_name = "DIR")]
        tasks: Vec<PathBuf>,
        #[command(flatten)]
        format: FormatArgs,
    },
    /// Print the JSON Schema of task.toml
    Schema,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The agent runs in the research sandbox, in the task's workspace, without a network. It finds its scripts in \
/opt/harness (timer.sh, fast_eval.sh, validate.sh, submit.sh, no_candidate.sh; `airlock-harness mcp` for agents that \
speak MCP), its own files (--agent-files) in /opt/agent, and what validations return in /run/airlock/feedback.

Exit status: 0 the run has a score, 1 it is over without one, 3 it waits for an operator (`airlock task resume`), \
125 Airlock failed.")]
pub(crate) struct RunTaskArgs {
    /// Task directory
    pub(crate) task: PathBuf,
    /// Directory of the run, which must not exist or be empty; default: the task's name and the time, here
    #[arg(long, value_name = "DIR")]
    pub(crate) run: Option<PathBuf>,
    /// Program and arguments of the agent; everything that follows belongs to it
    #[arg(
        long,
        value_name = "CMD",
        num_args = 1..,
        allow_hyphen_values = true,
        required_unless_present = "baseline",
        conflicts_with = "baseline"
    )]
    pub(crate) agent: Vec<String>,
    /// Score the unmodified source by the same procedure, without an agent
    #[arg(long)]
    pub(crate) baseline: bool,
    /// Directory of the agent's own files, of which a copy is mounted read-only at /opt/agent
    #[arg(long, value_name = "DIR")]
    pub(crate) agent_files: Option<PathBuf>,
    /// What the task leaves to the operator
    #[arg(long = "asset", value_name = "NAME=PATH", value_parser = asset)]
    pub(crate) assets: Vec<(String, PathBuf)>,
    /// Another budget of research than the task's, such as 30m; the run is then not official
    #[arg(long, value_name = "TIME")]
    pub(crate) explore: Option<String>,
    /// Let policies lower these clauses to what the host can do, and say so in the receipt: limits, devices
    #[arg(long, value_name = "CLAUSE", value_delimiter = ',')]
    pub(crate) best_effort: Vec<String>,
    #[command(flatten)]
    pub(crate) supervisor: SupervisorArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// Directory of the run
    pub(crate) run: PathBuf,
    /// Decide on an interrupted run: do what was cut off once more; the receipt says so
    #[arg(long, conflicts_with = "close")]
    pub(crate) again: bool,
    /// Decide on a run: end it without a score
    #[arg(long)]
    pub(crate) close: bool,
    #[command(flatten)]
    pub(crate) supervisor: SupervisorArgs,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Directory of the run
    pub(crate) run: PathBuf,
    /// Go on with each event until the run is closed
    #[arg(long)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Reads every file of the run and compares it with the receipt, the receipt with the key, the journal with the receipt, \
and all that both say with the files: specs, end reports, gates, sealed candidates, verdicts, counts, score and sigma. \
The task, Airlock's other programs and the machine that ran it are not needed.

Exit status: 0 verified; 1 not verified, and the first thing that does not fit is named on stderr; 125 Airlock failed.")]
pub(crate) struct VerifyArgs {
    /// Directory of the run
    pub(crate) run: PathBuf,
    /// Public half of the key that signed the receipt, such as k.pub of k.key; default: signing.pub beside the usual
    /// signing key
    #[arg(long, value_name = "PUB")]
    pub(crate) key: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SupervisorArgs {
    /// Signing key, outside of the run; default: airlock/signing.key in the user's configuration directory. It is made
    /// where it is missing, and with it its public half, which has the same name but for the ending .pub
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Validations that run at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) validations_at_once: u8,
    /// Control group to work below; default: the caller's own, or a scope where that is systemd's
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup_parent: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
}

fn asset(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok((name.to_owned(), path.into())),
        _ => Err("not NAME=PATH".into()),
    }
}
