//! Replies for people.

use std::fmt::Write;

use airlock_grader::protocol::messages::{Hello, Item, Outcome, Queued, Status};
use serde::Serialize;

use crate::export::Copied;

/// The word that a value has in JSON.
fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        other => format!("{other:?}"),
    }
}

fn clock(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

fn lines(rows: &[(&str, String)]) -> String {
    rows.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "{name:<12} {value}");
        text
    })
}

pub(crate) fn hello(hello: &Hello) -> String {
    let methods: Vec<String> = hello.facts.methods.iter().map(word).collect();
    lines(&[
        ("run", hello.facts.run.to_string()),
        ("task", hello.facts.task.to_string()),
        ("phase", word(hello.facts.phase)),
        ("budget", clock(hello.facts.budget_ms)),
        ("methods", methods.join(" ")),
        ("protocol", hello.protocol.to_string()),
    ])
}

pub(crate) fn status(status: &Status) -> String {
    let mut text = lines(&[
        ("phase", word(status.phase)),
        ("elapsed", clock(status.elapsed_ms)),
        ("remaining", clock(status.remaining_ms)),
        ("validations", status.validations.to_string()),
    ]);
    for open in &status.open {
        let _ = writeln!(text, "{:<12} {:<9} {}", open.ticket.to_string(), word(open.state), open.candidate);
    }
    text
}

pub(crate) fn timer(status: &Status) -> String {
    format!("{} left, {} used\n", clock(status.remaining_ms), clock(status.elapsed_ms))
}

pub(crate) fn queued(queued: &Queued) -> String {
    format!("{} {} ahead={}\n", queued.ticket, queued.candidate, queued.ahead)
}

pub(crate) fn outcome(outcome: &Outcome) -> String {
    let mut rows = vec![
        ("ticket", outcome.ticket.to_string()),
        ("candidate", outcome.candidate.to_string()),
        ("state", word(outcome.state)),
    ];
    rows.extend(outcome.failure.map(|failure| ("failure", word(failure))));
    let Some(feedback) = &outcome.feedback else { return lines(&rows) };
    let counts = feedback.counts;
    let of = if outcome.subset { " (a subset)" } else { "" };
    rows.push(("score", feedback.score.get().to_string()));
    rows.push(("planned", format!("{}{of}", counts.planned)));
    rows.push(("graded", counts.graded.to_string()));
    rows.push(("errored", counts.errored.to_string()));
    rows.extend(feedback.trajectories.as_ref().map(|name| ("trajectories", name.to_string())));
    feedback.items.iter().fold(lines(&rows), |text, item| text + &attempts(item))
}

fn attempts(item: &Item) -> String {
    item.attempts.iter().fold(String::new(), |mut text, attempt| {
        let _ = writeln!(
            text,
            "  {:<24} {:<12} {:<8} {} ms",
            item.item.as_str(),
            word(attempt.status),
            attempt.score.get(),
            attempt.wall_ms
        );
        text
    })
}

pub(crate) fn copied(copied: &Copied) -> String {
    format!("{} files, {} bytes\n", copied.files, copied.bytes)
}
