//! What a rule is, and what it finds.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use super::subject::Subject;
use super::task::TaskFacts;
use crate::diagnostic::Place;

/// How grave a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A choice that somebody should know of.
    Info,
    /// A layer less; nothing is reached by it alone.
    Low,
    /// Reaches what others share, or leaves one mistake of the kernel between the code and the host.
    Medium,
    /// Reaches the host, the network, another tenant or the answers, with nothing else in the way.
    High,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Severity::Info => "info",
            Severity::Low => "low",
            Severity::Medium => "medium",
            Severity::High => "high",
        })
    }
}

/// The mechanism that a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Area {
    /// Namespaces missing or shared.
    Namespaces,
    /// Ids shared with the host.
    Ids,
    /// Capabilities.
    Capabilities,
    /// What of the host is mounted, and how.
    Mounts,
    /// Places that are written and later run.
    Writable,
    /// Credentials in reach.
    Secrets,
    /// System calls.
    Seccomp,
    /// Landlock.
    Landlock,
    /// Device nodes and GPUs.
    Devices,
    /// Limits.
    Limits,
    /// The network.
    Network,
    /// procfs, sysfs and their like.
    Kernel,
    /// How the phases of a task fit together.
    Grader,
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Area::Namespaces => "namespaces",
            Area::Ids => "ids",
            Area::Capabilities => "capabilities",
            Area::Mounts => "mounts",
            Area::Writable => "writable",
            Area::Secrets => "secrets",
            Area::Seccomp => "seccomp",
            Area::Landlock => "landlock",
            Area::Devices => "devices",
            Area::Limits => "limits",
            Area::Network => "network",
            Area::Kernel => "kernel",
            Area::Grader => "grader",
        })
    }
}

/// Something that an isolation should not be, and why.
pub struct Rule {
    /// `AL` and three digits; never given to another rule.
    pub id: &'static str,
    /// The mechanism.
    pub area: Area,
    /// How grave it is.
    pub severity: Severity,
    /// What is found, in a few words.
    pub title: &'static str,
    /// What it lets the code inside do.
    pub why: &'static str,
    /// Where that was reported or is documented.
    pub reference: &'static str,
    /// What to write instead.
    pub remedy: &'static str,
    pub(super) check: Check,
}

/// How a rule looks.
#[derive(Clone, Copy)]
pub(super) enum Check {
    /// At one sandbox.
    Sandbox(fn(&Subject, &mut Hits<'_>)),
    /// At the phases of a task.
    Task(fn(&TaskFacts, &mut Hits<'_>)),
}

/// What a rule found at one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// The rule's id.
    pub rule: &'static str,
    /// How grave it is.
    pub severity: Severity,
    /// The mechanism.
    pub area: Area,
    /// The rule's title.
    pub title: &'static str,
    /// The clause of the policy, or the member of the OCI document.
    pub clause: String,
    /// The file that states it: a path, or `built-in NAME`.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What was found there.
    pub found: String,
    /// What to write instead.
    pub remedy: &'static str,
}

/// What a finding is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    /// A member of a document, as a JSON pointer (RFC 6901). Where it is absent, what would hold it.
    Member(String),
    /// A clause of a policy.
    Clause(String),
}

/// Knows where a spot stands.
pub(super) trait Locate {
    /// The spot in words, and its place.
    fn locate(&self, spot: &Spot) -> (String, Place);
}

/// Collects what one rule finds.
pub(super) struct Hits<'a> {
    rule: &'static Rule,
    locate: &'a dyn Locate,
    pub(super) found: Vec<Finding>,
}

impl<'a> Hits<'a> {
    pub(super) fn new(rule: &'static Rule, locate: &'a dyn Locate) -> Self {
        Hits { rule, locate, found: Vec::new() }
    }

    /// A finding at a member of the document.
    pub(super) fn member(&mut self, pointer: impl Into<String>, found: impl Into<String>) {
        self.spot(&Spot::Member(pointer.into()), found);
    }

    /// A finding at a clause of the policy.
    pub(super) fn clause(&mut self, clause: impl Into<String>, found: impl Into<String>) {
        self.spot(&Spot::Clause(clause.into()), found);
    }

    pub(super) fn spot(&mut self, spot: &Spot, found: impl Into<String>) {
        let Rule { id, severity, area, title, remedy, .. } = *self.rule;
        let (clause, Place { file, line, column, .. }) = self.locate.locate(spot);
        let found = found.into();
        self.found.push(Finding {
            rule: id,
            severity,
            area,
            title,
            clause,
            file,
            line,
            column,
            found,
            remedy,
        });
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule").field("id", &self.id).field("severity", &self.severity).finish_non_exhaustive()
    }
}
