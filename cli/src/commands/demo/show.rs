//! What the demo prints: plain text of at most 80 columns. What agents and tasks wrote is escaped.

use std::cell::RefCell;
use std::collections::BTreeMap;

use airlock_grader::Digest;
use airlock_grader::journal::{Event, Record};
use airlock_grader::score::{Score, Sigma};
use anyhow::Result;

use super::Demo;
use super::agents::Attempt;
use super::checked::Checked;
use crate::output;

/// Columns of the page.
const WIDTH: usize = 80;
/// Where what belongs to a line's word begins.
const COLUMN: usize = 25;

/// Tells a run while it goes on.
#[derive(Default)]
pub(super) struct Teller {
    quiet: bool,
    /// Names of checkpoints.
    names: RefCell<BTreeMap<Digest, String>>,
}

impl Teller {
    pub(super) fn new(quiet: bool) -> Teller {
        Teller { quiet, names: RefCell::default() }
    }

    /// A heading.
    pub(super) fn title(&self, text: &str) {
        self.print(&format!("\n{text}\n"));
    }

    /// A word, and what belongs to it.
    pub(super) fn fact(&self, word: &str, text: &str) {
        self.print(&fact(word, text));
    }

    /// Text as it is.
    pub(super) fn print(&self, text: &str) {
        if !self.quiet {
            // Whoever does not listen any more does not stop a demo.
            let _ = output::print(text);
        }
    }

    /// An event of a run, if it is worth a line.
    pub(super) fn event(&self, record: &Record) {
        let name_of = |digest: &Digest| self.names.borrow().get(digest).cloned().unwrap_or_default();
        match &record.event {
            Event::ValidationResult { ticket, score, .. } => {
                self.fact(&format!("validation v-{ticket}"), &points(*score));
            }
            Event::GateResult { gate, passed, .. } if gate == "submission" => {
                self.fact("patch gate", if *passed { "passed" } else { "refused" });
            }
            Event::CheckpointValidated { checkpoint, name, valid, .. } => {
                self.names.borrow_mut().insert(*checkpoint, name.clone());
                self.fact("replay", &format!("{name} is {}", if *valid { "valid" } else { "not valid" }));
            }
            Event::Verdict { candidate, score, .. } => {
                self.fact("hidden rows", &format!("{}  {}", points(*score), name_of(candidate)));
            }
            Event::Scored { score, sigma, .. } => self.fact("score", &place(*score, *sigma)),
            _ => {}
        }
    }
}

/// The attempts in two columns.
pub(super) fn attempts(attempts: &[Attempt]) -> String {
    let row = |tried: &str, happened: &str| columns(tried, happened, 3, 44);
    let rows = attempts.iter().map(|attempt| row(&attempt.tried, &attempt.happened));
    format!("\n{}{}", row("tried", "what happened"), rows.collect::<String>())
}

/// What the gate refused.
pub(super) fn refusals(refusals: &[String]) -> String {
    let lines = refusals.iter().map(|refusal| columns("refused", refusal, 3, COLUMN));
    lines.collect()
}

/// What verification says of a run.
pub(super) fn checked(checked: &Checked) -> String {
    fact(&checked.run, &checked.says)
}

/// Where the runs stand on the task's ladder, where everything is, and whether all went as it must.
pub(super) fn ending(demo: &Demo) -> String {
    let mut text = String::from("\nThe ladder\n");
    text += &columns("", "accuracy  sigma", 3, COLUMN);
    text += &columns("guessing", "  0.1000  0.000000", 3, COLUMN);
    for run in &demo.runs {
        let score = run.score.map_or_else(|| "    none".to_owned(), |score| format!("{:8.4}", score.value()));
        let sigma = run.sigma.map(|sigma| sigma.to_string()).unwrap_or_default();
        text += &columns(run.role.name(), &format!("{score}  {sigma}"), 3, COLUMN);
    }
    text += &columns("all rows", "  1.0000  1.000000", 3, COLUMN);
    let directory = output::escape(&demo.directory.display().to_string());
    text += &format!("\nEverything is in {directory}\n");
    for run in &demo.runs {
        text += &columns(&format!("{}/report.html", run.role.name()), run.role.page(), 3, COLUMN + 4);
    }
    text += &columns("signing.pub", "the public key; this demo's secret one is gone", 3, COLUMN + 4);
    text += &format!("   airlock task verify {directory}/honest --key {directory}/signing.pub\n");
    text += "   To remove it: chmod -R u+w, since what is sealed is read-only, and rm -r.\n";
    text += &format!("\n{}\n", demo.verdict());
    text
}

/// A word, and what belongs to it, on one line or more.
fn fact(word: &str, text: &str) -> String {
    columns(word, text, 3, COLUMN)
}

/// `0.8517 (511 of 600)`.
fn points(score: Option<Score>) -> String {
    score.map_or_else(
        || "none".to_owned(),
        |score| format!("{:.4} ({} of {})", score.value(), score.sum, score.n),
    )
}

fn place(score: Option<Score>, sigma: Option<Sigma>) -> String {
    let sigma = sigma.map(|sigma| format!(", sigma {sigma}")).unwrap_or_default();
    format!("{}{sigma}", points(score))
}

/// A word at column `from` and a text at column `at`, both wrapped.
fn columns(word: &str, text: &str, from: usize, at: usize) -> String {
    let (left, right) = (wrap(word, at - from - 2), wrap(text, WIDTH - at));
    let (lines, gap) = (left.len().max(right.len()), at - from);
    let cell = |cells: &[String], line: usize| cells.get(line).cloned().unwrap_or_default();
    (0..lines)
        .map(|line| {
            let row = format!("{:from$}{:<gap$}{}", "", cell(&left, line), cell(&right, line));
            format!("{}\n", row.trim_end())
        })
        .collect()
}

/// Lines of at most `width` characters, broken between words where that is possible.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let text = output::escape(text).replace('\n', "\\n");
    let mut lines = vec![String::new()];
    for word in text.split_inclusive(' ') {
        let mut rest: Vec<char> = word.chars().collect();
        while !rest.is_empty() {
            let used = lines.last().map_or(0, |line| line.chars().count());
            let needed = rest.iter().collect::<String>().trim_end().chars().count();
            let fits = used + needed <= width;
            let taken = if fits {
                rest.len()
            } else if used == 0 {
                width
            } else {
                0
            };
            if let Some(line) = lines.last_mut() {
                line.extend(rest.drain(..taken));
            }
            if !fits {
                lines.push(String::new());
            }
        }
    }
    lines
}

/// Prints the demo for programs.
pub(super) fn json(demo: &Demo) -> Result<()> {
    output::json(demo)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_to_their_width_and_lose_nothing() {
        let text = format!("{} and {}", "x".repeat(30), "words ".repeat(5));
        let lines = wrap(&text, 12);
        assert!(lines.iter().all(|line| line.trim_end().chars().count() <= 12), "{lines:?}");
        assert_eq!(lines.concat(), text);
        assert_eq!(wrap("", 12), [""]);
    }

    #[test]
    fn what_agents_write_moves_no_column() {
        let shown = columns("a\x1b[2J", "b\nc", 3, 25);
        assert_eq!(shown, "   a\\u{1b}[2J            b\\nc\n");
    }
}
