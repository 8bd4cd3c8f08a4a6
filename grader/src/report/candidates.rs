//! What was submitted, what became of it, and how it scored.

use super::head::warning;
use super::html::Html;
use super::input::ReportInput;
use super::ladder::sigma;
use super::story::{Candidate, Choice, Story};
use super::table::{Column, Row, rest, table};
use super::units::{count, score, short, size, value};
use crate::journal::CandidateKind;
use crate::score::Ladder;
use crate::task::Lifecycle;

/// Most lines of what one gate refused.
const WORDS: usize = 20;
/// Most rows of a table.
const ROWS: usize = 200;

const COLUMNS: [Column; 9] = [
    Column::Text("Candidate"),
    Column::Text("Tree digest"),
    Column::Number("Progress"),
    Column::Text("Valid"),
    Column::Number("Score"),
    Column::Number("As a fraction"),
    Column::Number("σ"),
    Column::Number("Graded of planned"),
    Column::Text("Result"),
];

pub(super) fn write(html: &mut Html, input: &ReportInput<'_>, story: &Story<'_>) {
    submission(html, story);
    gates(html, input, story);
    let caption = match input.task.lifecycle {
        Lifecycle::Replay => "Checkpoints of the replay",
        Lifecycle::Direct => "Candidates",
    };
    if story.candidates.is_empty() {
        return html.markup("<p>Nothing came to be scored.</p>");
    }
    table(html, caption, &COLUMNS, |html| {
        for candidate in story.candidates.iter().take(ROWS) {
            let best = story.result == Some(Some(candidate.digest));
            Row::marked(html, if best { "best" } else { "" }, |row| {
                cells(row, input.task.ladder, story, candidate, best);
            });
        }
        if story.candidates.len() > ROWS {
            let more = count((story.candidates.len() - ROWS) as u64, "further candidate");
            rest(html, COLUMNS.len(), format_args!("{more}: in journal.jsonl"));
        }
    });
}

fn submission(html: &mut Html, story: &Story<'_>) {
    if let Some(cause) = story.refused {
        warning(html, |html| {
            html.text("The choice cannot be scored: ");
            html.foreign(cause);
        });
    }
    let choice = story.research.as_ref().and_then(|research| research.ended);
    let (digest, word) = match choice {
        Some((_, Choice::Submitted(Some(digest)))) => (digest, "Submitted: "),
        Some((_, Choice::Deadline(Some(digest)) | Choice::Nothing(Some(digest)))) => {
            (digest, "Captured at the end of research as evidence, and not submitted: ")
        }
        _ => return,
    };
    html.element("p", &[], |html| {
        html.text(word);
        let Some(sealed) = story.sealed(&digest) else {
            return html.leaf("code", &[], short(&digest));
        };
        html.text(match sealed.kind {
            CandidateKind::Patch => "patch ",
            CandidateKind::Tree => "tree ",
        });
        html.leaf("code", &[], short(&digest));
        html.text(format_args!(" of {}, {}.", count(sealed.files, "file"), size(sealed.bytes)));
    });
}

fn gates(html: &mut Html, input: &ReportInput<'_>, story: &Story<'_>) {
    if story.gates.is_empty() {
        return;
    }
    table(
        html,
        "Gates",
        &[Column::Text("Gate"), Column::Text("Candidate"), Column::Text("Result"), Column::Text("Refused")],
        |html| {
            for gate in story.gates.iter().take(ROWS) {
                Row::write(html, |row| {
                    row.foreign(gate.gate);
                    row.code(short(&gate.candidate));
                    row.cell(|html| match gate.passed {
                        true => html.leaf("span", &[("class", &"good")], "passed"),
                        false => html.leaf("b", &[("class", &"bad")], "refused"),
                    });
                    let words = input.gates.iter().find(|found| found.report == gate.report);
                    row.cell(|html| {
                        refused(html, words.map(|found| found.words.as_slice()).unwrap_or_default())
                    });
                });
            }
            if story.gates.len() > ROWS {
                let more = count((story.gates.len() - ROWS) as u64, "further result");
                rest(html, 4, format_args!("{more}: in journal.jsonl"));
            }
        },
    );
}

fn refused(html: &mut Html, words: &[String]) {
    for line in words.iter().take(WORDS) {
        html.element("div", &[], |html| html.foreign(line));
    }
    if words.len() > WORDS {
        html.leaf("div", &[], format_args!("and {} more: in changesets/", words.len() - WORDS));
    }
}

fn cells(
    row: &mut Row<'_>,
    ladder: Option<&Ladder>,
    story: &Story<'_>,
    candidate: &Candidate<'_>,
    best: bool,
) {
    row.foreign(candidate.name(story));
    row.code(short(&candidate.digest));
    match &candidate.checkpoint {
        Some(checkpoint) => {
            row.number(checkpoint.progress);
            row.text(if checkpoint.valid { "yes" } else { "no" });
        }
        None => (0..2).for_each(|_| row.text("")),
    }
    match candidate.verdict {
        Some((found, counts)) => {
            row.number(score(found));
            row.number(found.map_or_else(String::new, value));
            let place = ladder.and_then(|ladder| sigma(ladder, candidate));
            row.number(place.map_or_else(String::new, |sigma| sigma.to_string()));
            row.number(format_args!("{} of {}", counts.ok + counts.wrong, counts.planned));
        }
        None => (0..4).for_each(|_| row.text("")),
    }
    match (best, candidate.verdict, candidate.claimed) {
        (true, ..) => row.cell(|html| html.leaf("b", &[], "best: the result")),
        (false, Some(_), _) => row.text("scored"),
        (false, None, Some(phase)) => row.text(format_args!("claimed by phase {phase}, no verdict")),
        (false, None, None) if candidate.checkpoint.as_ref().is_some_and(|found| !found.valid) => {
            row.cell(|html| html.leaf("b", &[("class", &"bad")], "not valid"));
        }
        (false, None, None) if candidate.passed_over => row.text("not selected"),
        (false, None, None) => row.text("not scored"),
    }
}
