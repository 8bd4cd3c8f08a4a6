//! Yes or no, and the clause that decides: what a policy lets the code inside do.
//!
//! An answer is computed from the spec and the plan that would be launched: the mounts with their flags, the modes of
//! the host's files and the ids that they are seen with, Landlock's rules, the seccomp program, the network. What is
//! asked of the host's files goes through [`HostFiles`]. What earlier runs left in a root that keeps its
//! writes is not looked at, nor what a process inside makes before it asks.

mod calls;
mod files;
mod question;
mod tree;

use std::path::{Path, PathBuf};

use airlock_runtime::Spec;
use airlock_runtime::plan::{Action, LandlockRule, Plan, Step};
use airlock_runtime::seccomp::Program;
use serde::Serialize;

use crate::diagnostic::Place;
use crate::merged::Policy;

pub use question::{Question, QuestionError, USUAL};

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// It can be done. A system call under a condition can, with the right arguments.
    pub yes: bool,
    /// The clause that decides: of a refusal the first that refuses.
    pub clause: String,
    /// Where the clause was set.
    pub place: Option<Place>,
    /// Why, in words.
    pub why: String,
}

/// Who says no, and why.
struct Refusal {
    clause: String,
    why: String,
}

/// What is asked of the host's files.
pub trait HostFiles {
    /// The file at this path, links not followed.
    fn look(&self, path: &Path) -> Option<HostFile>;
}

/// A file of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFile {
    /// What it is.
    pub kind: HostKind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// What a file of the host is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// A directory.
    Directory,
    /// A symbolic link, and its text.
    Link(PathBuf),
    /// A regular file, a device, a socket.
    File,
}

/// A policy, ready to be asked.
pub struct Explained<'a> {
    policy: &'a Policy,
    spec: &'a Spec,
    plan: &'a Plan,
    host: &'a dyn HostFiles,
}

impl Refusal {
    fn new(clause: &str, why: impl Into<String>) -> Self {
        Refusal { clause: clause.to_owned(), why: why.into() }
    }
}

impl<'a> Explained<'a> {
    /// A policy with the spec and the plan that were made of it.
    pub fn new(policy: &'a Policy, spec: &'a Spec, plan: &'a Plan, host: &'a dyn HostFiles) -> Self {
        Explained { policy, spec, plan, host }
    }

    /// Answers one question.
    pub fn answer(&self, question: &Question) -> Answer {
        match question {
            Question::File { act, path } => self.file(*act, path),
            Question::Connect(address) => self.connect(*address),
            Question::ConnectUnix(path) => self.connect_unix(path),
            Question::Syscall { name, .. } => self.syscall(name),
        }
    }

    fn yes(&self, clause: &str, why: impl Into<String>) -> Answer {
        self.with(true, clause, why)
    }

    fn no(&self, clause: &str, why: impl Into<String>) -> Answer {
        self.with(false, clause, why)
    }

    fn refusal(&self, Refusal { clause, why }: Refusal) -> Answer {
        self.no(&clause, why)
    }

    fn with(&self, yes: bool, clause: &str, why: impl Into<String>) -> Answer {
        // What Airlock puts into every sandbox comes with the root.
        let clause = if matches!(clause, "root" | "devices") { "root.kind" } else { clause };
        Answer { yes, clause: clause.to_owned(), place: self.policy.place(clause), why: why.into() }
    }

    fn actions(&self) -> impl Iterator<Item = &Action> {
        self.plan.host.iter().chain(&self.plan.child).map(|Step { action, .. }| action)
    }

    /// Landlock's rules; `None` where it is off.
    fn landlock(&self) -> Option<&[LandlockRule]> {
        self.actions().find_map(|action| match action {
            Action::Landlock { rules, .. } => Some(rules.as_slice()),
            _ => None,
        })
    }

    /// The seccomp program; `None` where no call is filtered.
    fn program(&self) -> Option<&Program> {
        self.actions().find_map(|action| match action {
            Action::Seccomp { program, .. } => Some(program),
            _ => None,
        })
    }
}

/// This host's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThisHost;

impl HostFiles for ThisHost {
    fn look(&self, path: &Path) -> Option<HostFile> {
        use std::os::unix::fs::MetadataExt;
        let facts = std::fs::symlink_metadata(path).ok()?;
        let kind = if facts.is_symlink() {
            HostKind::Link(std::fs::read_link(path).ok()?)
        } else if facts.is_dir() {
            HostKind::Directory
        } else {
            HostKind::File
        };
        Some(HostFile { kind, mode: facts.mode() & 0o7777, uid: facts.uid(), gid: facts.gid() })
    }
}
