//! Airlock's grader: from a task directory to a verdict that anyone can verify.
//!
//! The data flow is `Task` → run (state machine) → [`journal`] → [`receipt`] → [`report`]. Nothing here knows how
//! a namespace is made: sandboxes are asked for from `airlock-runtime`.

pub mod changeset;
mod digest;
pub mod gate;
pub mod journal;
pub mod protocol;
pub mod receipt;
pub mod report;
pub mod run;
pub mod score;
pub mod seal;
pub mod task;

pub use digest::{Digest, DigestError};

/// A program of FORMATS.md, by the name in its first line.
#[cfg(test)]
fn formats_program(name: &str) -> String {
    let begin = format!("```python\n# {name}:");
    let text = include_str!("../FORMATS.md");
    let block = &text[text.find(&begin).unwrap() + "```python\n".len()..];
    block[..block.find("```").unwrap()].to_owned()
}
