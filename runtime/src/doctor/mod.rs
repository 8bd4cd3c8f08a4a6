//! What this host can enforce for the present caller, with a remedy for each lack.
//!
//! Where the kernel can be asked by doing the thing, it is done, in a child that ends within
//! [`PATIENCE`](crate::attempt::PATIENCE); everything else is read from files. Nothing of the host changes, and no network
//! is used.

mod cgroup;
mod files;
mod hardening;
mod idmaps;
mod kernel;
mod namespaces;
mod secrets;
mod table;

use serde::Serialize;

pub use table::Table;

/// Whether something can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It can.
    Ok,
    /// It cannot; the remedy says what to do.
    Lacking,
    /// The sandbox holds without it; the remedy makes the host better.
    Advice,
}

/// One line of the examination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Stable name, for programs.
    pub id: &'static str,
    /// Name for people.
    pub title: &'static str,
    /// Whether it can be had.
    pub status: Status,
    /// What is there. May hold names of files that others chose: escape it where it is shown.
    pub found: String,
    /// What to do about it; always there with [`Status::Lacking`].
    pub remedy: Option<String>,
    /// Without it the policy `research` cannot be enforced whole.
    pub needed_for_research: bool,
}

/// Examines the host as the present caller.
pub fn examine() -> Vec<Check> {
    let root = crate::host::is_root();
    let mut checks = kernel::checks(root);
    checks.extend(namespaces::checks(root));
    checks.extend(cgroup::checks(root));
    checks.push(idmaps::check(root));
    checks.extend(files::checks(root));
    checks.extend(hardening::checks());
    checks.push(secrets::check(root));
    checks
}

/// The policy `research` can be enforced whole: nothing that it needs is lacking.
pub fn research_enforceable(checks: &[Check]) -> bool {
    lacking_for_research(checks).next().is_none()
}

fn lacking_for_research(checks: &[Check]) -> impl Iterator<Item = &Check> {
    checks.iter().filter(|check| check.needed_for_research && check.status == Status::Lacking)
}

/// What a check is about.
#[derive(Clone, Copy)]
struct Topic {
    id: &'static str,
    title: &'static str,
    needed: bool,
}

impl Topic {
    /// A topic without which `research` cannot be enforced.
    const fn needed(id: &'static str, title: &'static str) -> Self {
        Self { id, title, needed: true }
    }

    /// A topic that `research` can do without.
    const fn new(id: &'static str, title: &'static str) -> Self {
        Self { id, title, needed: false }
    }

    fn ok(self, found: impl Into<String>) -> Check {
        self.check(Status::Ok, found.into(), None)
    }

    fn lacking(self, found: impl Into<String>, remedy: impl Into<String>) -> Check {
        self.check(Status::Lacking, found.into(), Some(remedy.into()))
    }

    fn advice(self, found: impl Into<String>, remedy: impl Into<String>) -> Check {
        self.check(Status::Advice, found.into(), Some(remedy.into()))
    }

    fn check(self, status: Status, found: String, remedy: Option<String>) -> Check {
        let Self { id, title, needed: needed_for_research } = self;
        Check { id, title, status, found, remedy, needed_for_research }
    }
}

/// A number in a file of /proc or /sys; absent where the kernel has no such file.
fn number(path: &str) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_research_needs_decides() {
        let needed = Topic::needed("a", "a");
        let other = Topic::new("b", "b");
        assert!(research_enforceable(&[needed.ok(""), other.lacking("", "x"), needed.advice("", "x")]));
        assert!(!research_enforceable(&[needed.ok(""), needed.lacking("", "x")]));
    }

    #[test]
    fn a_check_is_published_with_these_names() {
        let json = serde_json::to_value(Topic::needed("id", "title").lacking("none", "add one")).unwrap();
        let expected = serde_json::json!({
            "id": "id", "title": "title", "status": "lacking", "found": "none", "remedy": "add one",
            "needed_for_research": true,
        });
        assert_eq!(json, expected);
    }
}
