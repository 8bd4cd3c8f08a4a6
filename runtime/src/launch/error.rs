//! Why a sandbox could not be built.

use std::io;
use std::path::PathBuf;

use super::message::StepFailure;
use crate::cgroups::CgroupError;
use crate::host::HostError;
use crate::ids::IdError;
use crate::plan::{Plan, PlanError, Step};
use crate::state::StateError;

/// Name of init's process while it builds, before the step's index. comm has 15 bytes (proc_pid_comm(5)).
pub(super) const STEP_NAME: &str = "init step ";

/// A launch failed; nothing of the sandbox is left.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// fork after threads deadlocks in malloc and in glibc's set-id broadcast.
    #[error("launch: this process has {0} threads; a sandbox is started only from a process with one")]
    Threads(usize),
    /// Real and effective ids differ.
    #[error("launch: airlock runs set-user-id or set-group-id; remove these bits (`chmod ug-s`)")]
    SetId,
    /// A standard stream that would be a way out.
    #[error("stdio: {stream} is a {kind}; {remedy}")]
    Stdio {
        /// Which.
        stream: &'static str,
        /// What it is.
        kind: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// A number for a descriptor that no descriptor of the payload can have, or that two would have.
    #[error("descriptors: {0} is not a number of its own from 3 to 1023")]
    Number(i32),
    /// The host's facts.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The ids.
    #[error(transparent)]
    Ids(#[from] IdError),
    /// The plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The state directory.
    #[error(transparent)]
    State(#[from] StateError),
    /// A step on the host side.
    #[error("{step}: {source}{}", hint_text(*.hint))]
    HostStep {
        /// The step in words.
        step: String,
        /// Why.
        source: io::Error,
        /// What to do, where it is known.
        hint: Option<&'static str>,
    },
    /// A control group step.
    #[error("{step}: {source}")]
    Cgroup {
        /// The step in words.
        step: String,
        /// Why.
        source: CgroupError,
    },
    /// A step on the child side.
    #[error("{step}: {message}{}", hint_text(*.hint))]
    ChildStep {
        /// The step in words.
        step: String,
        /// errno, where the kernel refused.
        errno: Option<i32>,
        /// Why.
        message: String,
        /// What to do, where it is known.
        hint: Option<&'static str>,
    },
    /// Init ended without a word.
    #[error("init ended before the sandbox was built (killed from outside, or out of memory)")]
    InitLost,
    /// Init lives and says nothing.
    #[error(
        "{step}: init has not got beyond it in time ({state})\n  help: a file system behind a mount that does not \
         answer (NFS, FUSE), a frozen control group, or a machine without memory or CPU time to spare are the \
         usual causes; see to it and run again"
    )]
    InitHangs {
        /// The step in words.
        step: String,
        /// What the kernel says of init.
        state: String,
    },
    /// What the kernel shows is not what was asked for.
    #[error("verification: {}", .0.join("; "))]
    Verify(Vec<String>),
    /// The command is not in the sandbox, or not executable.
    #[error("{command}: {source}")]
    Exec {
        /// The command.
        command: String,
        /// Why.
        source: io::Error,
    },
    /// A system call outside any step.
    #[error("{what}: {source}")]
    Call {
        /// What was done.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// A path of a file that the launch needs.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl LaunchError {
    /// The shell's exit status for a command that cannot be run, else Airlock's own.
    pub fn exit_status(&self) -> u8 {
        match self {
            LaunchError::Exec { source, .. } if source.kind() == io::ErrorKind::NotFound => 127,
            LaunchError::Exec { .. } => 126,
            _ => 125,
        }
    }

    pub(super) fn host(step: &Step, source: io::Error) -> LaunchError {
        let hint = hint(step, source.raw_os_error());
        LaunchError::HostStep { step: step.to_string(), source, hint }
    }

    /// Of an init that takes too long: the step at which it is, as its name says.
    pub(super) fn init_hangs(plan: &Plan, pid: i32) -> LaunchError {
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let step = read("comm").trim().strip_prefix(STEP_NAME).and_then(|index| index.parse::<usize>().ok());
        let step = step.and_then(|index| plan.child.get(index)).or(plan.child.first());
        let status = read("status");
        let state = status.lines().find_map(|line| line.strip_prefix("State:"));
        LaunchError::InitHangs {
            step: step.map(ToString::to_string).unwrap_or_default(),
            state: format!("process {pid} is {}", state.map_or("gone", str::trim)),
        }
    }

    pub(super) fn child(plan: &Plan, failure: StepFailure) -> LaunchError {
        let step = plan.child.get(failure.index);
        LaunchError::ChildStep {
            step: step.map_or_else(|| format!("step {}", failure.index), ToString::to_string),
            errno: failure.errno,
            hint: step.and_then(|step| hint(step, failure.errno)),
            message: failure.message,
        }
    }
}

fn hint_text(hint: Option<&'static str>) -> String {
    hint.map(|hint| format!("\n  help: {hint}")).unwrap_or_default()
}

/// The remedy for the failures that have a usual cause.
fn hint(step: &Step, errno: Option<i32>) -> Option<&'static str> {
    use crate::plan::Action;
    match (&step.action, errno?) {
        (Action::CloneInit { .. }, libc::EPERM) => Some(
            "this host forbids user namespaces to ordinary users: see sysctl kernel.unprivileged_userns_clone and \
             kernel.apparmor_restrict_unprivileged_userns (an AppArmor profile with `userns,` for airlock lifts the latter)",
        ),
        (Action::CloneInit { .. }, libc::EACCES) => Some(
            "the kernel starts a process only in a control group that shares a group of yours with the one you are in: \
             start airlock inside the delegated group (`systemd-run --user --scope -p Delegate=yes airlock ...`)",
        ),
        (Action::CloneInit { .. }, libc::ENOSPC | libc::EUSERS) => Some(
            "no more namespaces may be made: raise sysctl user.max_user_namespaces (and user.max_*_namespaces)",
        ),
        (Action::CloneInit { .. }, libc::ENOSYS) => Some(
            "a surrounding seccomp filter hides clone3: start airlock outside of that container or sandbox",
        ),
        (Action::CloneInit { .. }, libc::EAGAIN) => {
            Some("too many processes: see `ulimit -u` and the pids limit of your control group")
        }
        // Under AppArmor's restriction the namespace is made and everything in it is refused.
        (Action::PrivateMounts | Action::Unshare { .. } | Action::LoopbackUp, libc::EPERM | libc::EACCES) => {
            Some(
                "a user namespace was made but gives no privilege: AppArmor limits it (sysctl \
             kernel.apparmor_restrict_unprivileged_userns; a profile with `userns,` for airlock lifts it)",
            )
        }
        (Action::NewSession, libc::EDQUOT) => {
            Some("this user has too many keyrings: see /proc/keys and sysctl kernel.keys.maxkeys")
        }
        (Action::Attach { .. }, libc::ENOENT) => Some(
            "the target does not exist in the mount that covers it; make it there, or mount somewhere else",
        ),
        (Action::Attach { .. }, libc::ENOTDIR | libc::EINVAL) => {
            Some("a directory can only be mounted over a directory, and a file over a file")
        }
        (Action::Attach { .. }, libc::ELOOP) => {
            Some("the target leads through a symbolic link; name the real path")
        }
        (Action::EnterWorkingDirectory { .. }, libc::ENOENT) => {
            Some("the working directory does not exist inside")
        }
        (Action::CloneTree { .. } | Action::CloneDevice { .. }, libc::EACCES) => {
            Some("you may not look into that directory")
        }
        _ => None,
    }
}
