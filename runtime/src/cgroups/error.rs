//! What can go wrong with a cgroup, and what to do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::facts::{Controller, Version};
use super::scope::ScopeError;

/// What an ordinary user can do about a cgroup that is not theirs.
pub(super) const DELEGATE: &str = "start Airlock in a delegated cgroup, for example by \
     `systemd-run --user --scope -p Delegate=yes airlock …`, or, without --cgroup-parent, let limits be lowered by \
     `--best-effort limits`";

/// What anybody can do who gets no scope.
const DELEGATE_OR_NAME: &str = "start Airlock in a delegated cgroup (`systemd-run --user --scope -p Delegate=yes \
     airlock …`, as root without `--user`), name another place with --cgroup-parent, or let limits be lowered by \
     `--best-effort limits`";

/// A step on a cgroup that failed.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// The kernel refused one access.
    #[error("cannot {step} {}: {source}", path.display())]
    Io {
        /// What was attempted, as a verb phrase.
        step: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The errno.
        source: io::Error,
    },
    /// A path or a name that cannot denote a cgroup of ours.
    #[error("cgroup path {path:?} {reason}")]
    InvalidPath {
        /// As it was given.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The host has no such controller, or it is not mounted.
    #[error(
        "this host has no usable {controller} cgroup controller; enable it (kernel command line \
         `cgroup_enable={controller}`, or the parent's cgroup.subtree_control), or drop the clause that needs it"
    )]
    NoController {
        /// The one that a limit needs.
        controller: Controller,
    },
    /// The caller's own cgroup lies outside what the mount shows.
    #[error(
        "the caller's own cgroup is not visible below {}; name another place with --cgroup-parent",
        mount.display()
    )]
    NotVisible {
        /// Where the hierarchy is mounted.
        mount: PathBuf,
    },
    /// The caller may not make cgroups in its own cgroup.
    #[error("no delegated cgroup: {} is not writable; {DELEGATE}", path.display())]
    NotDelegated {
        /// The caller's own cgroup.
        path: PathBuf,
    },
    /// The caller's own cgroup is systemd's, which gave no other.
    #[error("no delegated cgroup: {} is systemd's, and {why}; {DELEGATE_OR_NAME}", path.display())]
    NoScope {
        /// The caller's own cgroup.
        path: PathBuf,
        /// Why there is no scope.
        why: ScopeError,
    },
    /// Controllers cannot be enabled for children while processes sit in the parent (cgroup v2).
    #[error(
        "{} holds other processes ({}), so cgroup v2 refuses to enable {controllers} below it; start Airlock \
         alone in a delegated cgroup, or name an empty one with --cgroup-parent",
        path.display(), pid_list(pids)
    )]
    InnerProcesses {
        /// The cgroup whose children were to get controllers.
        path: PathBuf,
        /// The controllers asked for, in `+name` form.
        controllers: String,
        /// The processes in the way.
        pids: Vec<u32>,
    },
    /// The parent takes part in a threaded subtree, where resource controllers cannot be enabled.
    #[error(
        "{} is a {kind} cgroup, which cannot hold resource controllers; name a domain cgroup with --cgroup-parent",
        path.display()
    )]
    Threaded {
        /// The cgroup whose children were to get controllers.
        path: PathBuf,
        /// Its `cgroup.type`.
        kind: String,
    },
    /// The directory exists, so it is someone else's.
    #[error("cgroup {} exists already; it is not touched", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// A limit whose value makes no sense, or means two things.
    #[error("limit {what} = {value}: {reason}")]
    InvalidLimit {
        /// The setting, in OCI terms.
        what: &'static str,
        /// As it was given.
        value: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A setting that this cgroup version cannot express.
    #[error("{what} cannot be set through cgroup {version}")]
    Unsupported {
        /// The setting, in OCI terms.
        what: String,
        /// The version of the tree that has the controller.
        version: Version,
    },
    /// A device rule that cannot be expressed.
    #[error("device rule `{rule}`: {reason}")]
    DeviceRule {
        /// The rule, in the form of `devices.list`.
        rule: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The device filter was asked for where no tree can carry it.
    #[error("no cgroup can carry the device filter; it needs root, and a v1 devices tree or cgroup v2")]
    NoDeviceFilter,
    /// Killing or freezing was asked of a cgroup without any directory.
    #[error("cgroup {name} has no directory that can {step}")]
    NoDirectory {
        /// The cgroup's name.
        name: String,
        /// What was asked.
        step: &'static str,
    },
    /// Processes survived SIGKILL within the time allowed, for example in uninterruptible sleep.
    #[error(
        "leaked cgroup {}: processes {} still there {} ms after SIGKILL; look for state D in /proc/PID/status",
        path.display(), pid_list(pids), waited.as_millis()
    )]
    StillAlive {
        /// The directory that is not empty.
        path: PathBuf,
        /// Who is left, as the reader's PID namespace numbers them.
        pids: Vec<u32>,
        /// How long was waited.
        waited: Duration,
    },
    /// The cgroup did not reach the frozen state within the time allowed.
    #[error("{} is not frozen after {} ms; it was thawed again", path.display(), waited.as_millis())]
    NotFrozen {
        /// The directory.
        path: PathBuf,
        /// How long was waited.
        waited: Duration,
    },
    /// A recorded cgroup that this host's facts do not bear out.
    #[error("recorded cgroup {path:?} {reason}; it is not touched")]
    Record {
        /// As it was recorded.
        path: PathBuf,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl CgroupError {
    /// Wraps an errno with its step and path.
    pub(super) fn io(step: &'static str, path: impl Into<PathBuf>, source: impl Into<io::Error>) -> Self {
        Self::Io { step, path: path.into(), source: source.into() }
    }

    /// The directory was removed: its name is not found, or an open file of it has no device (ENODEV) any more.
    pub(super) fn means_gone(&self) -> bool {
        matches!(self.errno(), Some(libc::ENOENT | libc::ENODEV))
    }

    /// The errno of a refused access.
    pub(super) fn errno(&self) -> Option<i32> {
        match self {
            Self::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}

fn pid_list(pids: &[u32]) -> String {
    const SHOWN: usize = 16;
    let mut text = pids.iter().take(SHOWN).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if pids.len() > SHOWN {
        text.push_str(&format!(" and {} more", pids.len() - SHOWN));
    }
    if text.is_empty() { "not visible from here".into() } else { text }
}
