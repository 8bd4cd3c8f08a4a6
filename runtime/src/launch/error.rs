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

/// Its name when all is built.
pub(super) const READY_NAME: &str = "airlock-init";

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
    #[error("{step}: init ended before it had done this (killed from outside, or out of memory)")]
    InitLost {
        /// The step in words.
        step: String,
    },
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
    /// Init could not get as far as to execute the command.
    #[error("starting the command: {step}: {source}")]
    Start {
        /// What failed.
        step: String,
        /// Why.
        source: io::Error,
    },
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

    /// Of an init that takes too long.
    pub(super) fn init_hangs(plan: &Plan, pid: i32) -> LaunchError {
        let status = of_init(pid, "status");
        let state = status.lines().find_map(|line| line.strip_prefix("State:"));
        LaunchError::InitHangs {
            step: step_of_init(plan, pid),
            state: format!("process {pid} is {}", state.map_or("gone", str::trim)),
        }
    }

    /// Of an init that is gone and has not been reaped, or else its name would be gone too.
    pub(super) fn init_lost(plan: &Plan, pid: i32) -> LaunchError {
        LaunchError::InitLost { step: step_of_init(plan, pid) }
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

/// The step at which init is or was, as its name says: before it has one of its own, the first.
fn step_of_init(plan: &Plan, pid: i32) -> String {
    let name = of_init(pid, "comm");
    let index = match name.trim() {
        READY_NAME => return "wait to be released".into(),
        name => name.strip_prefix(STEP_NAME).and_then(|index| index.parse().ok()).unwrap_or(0),
    };
    plan.child.get::<usize>(index).map(ToString::to_string).unwrap_or_default()
}

fn of_init(pid: i32, file: &str) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default()
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
        // Nothing but a filter forbids it in a namespace of one's own.
        (Action::Hostname { .. }, libc::EPERM) => Some(
            "a surrounding seccomp filter forbids what sandboxes are made of: start airlock outside of that container \
             (for podman: --cap-add SYS_ADMIN, which its filter goes by, beside --security-opt unmask=ALL)",
        ),
        // No overlay in user namespaces (a kernel or a security module without it), or not on this file system.
        (Action::NewOverlay { .. }, libc::EINVAL | libc::EPERM | libc::ENODEV | libc::EOPNOTSUPP) => Some(
            "the kernel mounts no such overlay in a user namespace; a `root.writable` directory must lie on ext4, xfs, \
             btrfs or a tmpfs, not on an overlay or NFS; elsewhere mount the tree by fuse-overlayfs and name it as \
             `[root] kind = \"dir\"`",
        ),
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
