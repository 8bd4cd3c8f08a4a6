//! Graded runs from research to receipt: the real command, real sandboxes, scripted agents.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

mod attacks;
mod choices;
mod documents;
mod lifecycles;
mod replays;
mod validations;

use airlock_tests::{Graded, Lead};

/// An agent that hands in what `files`, a directory beside the task, brings, by way of a shell script.
pub(crate) fn solving<'a>(graded: &'a Graded, script: &str) -> Lead<'a> {
    graded.shell(script).option("--agent-files", graded.task("solution"))
}

/// A replay task whose agent puts this in the place of `soup.py` and submits.
pub(crate) fn soup<'a>(graded: &'a Graded, program: &str) -> Lead<'a> {
    graded.shell(&format!("cat > soup.py <<'END'\n{program}\nEND\n/opt/harness/submit.sh"))
}
