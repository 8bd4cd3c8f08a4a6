//! The validations, one a row.

use super::html::Html;
use super::input::ReportInput;
use super::story::{Graded, Story, Validation};
use super::table::{Column, Row, rest, table};
use super::units::{count, duration, score, short, value};

/// Most rows.
const ROWS: usize = 500;

const COLUMNS: [Column; 8] = [
    Column::Number("Ticket"),
    Column::Number("Requested at"),
    Column::Number("Took"),
    Column::Text("Candidate"),
    Column::Number("Score"),
    Column::Number("As a fraction"),
    Column::Number("Graded of planned"),
    Column::Text("Note"),
];

pub(super) fn write(html: &mut Html, input: &ReportInput<'_>, story: &Story<'_>) {
    let all = &story.validations;
    if all.is_empty() {
        return html.markup("<p>No validation was asked for.</p>");
    }
    table(html, "Validations", &COLUMNS, |html| {
        for validation in all.iter().take(ROWS) {
            Row::write(html, |row| cells(row, input, story, validation));
        }
        if all.len() > ROWS {
            let more = count((all.len() - ROWS) as u64, "further validation");
            rest(html, COLUMNS.len(), format_args!("{more}: in journal.jsonl"));
        }
    });
}

fn cells(row: &mut Row<'_>, input: &ReportInput<'_>, story: &Story<'_>, validation: &Validation<'_>) {
    let elapsed = |record| story.research.as_ref().and_then(|research| research.elapsed(record));
    let requested = elapsed(validation.requested);
    row.number(validation.ticket);
    row.number(requested.map_or_else(|| "?".to_owned(), |ns| duration(ns / 1_000_000)));
    let took = validation.ended.and_then(|(record, _)| elapsed(record)?.checked_sub(requested?));
    row.number(took.map_or_else(String::new, |ns| duration(ns / 1_000_000)));
    row.code(short(&validation.candidate));
    match validation.ended {
        Some((_, Graded::Scored { phase, score: found, counts })) => {
            row.number(score(found));
            row.number(found.map_or_else(String::new, value));
            row.number(format_args!("{} of {}", counts.ok + counts.wrong, counts.planned));
            let kept = input.graded.iter().find(|graded| graded.phase == phase);
            row.cell(|html| {
                if let Some(items) = validation.subset {
                    html.text(format_args!("only {}. ", count(items as u64, "item")));
                }
                if let Some(path) = kept.and_then(|graded| graded.trajectories.as_ref()) {
                    html.text("trajectories: ");
                    html.element("code", &[], |html| html.foreign(path));
                }
            });
        }
        other => {
            (0..3).for_each(|_| row.text(""));
            match other {
                Some((_, Graded::Failed(cause))) => row.cell(|html| {
                    html.leaf("b", &[("class", &"bad")], "failed");
                    html.text(": ");
                    html.foreign(cause);
                }),
                Some((_, Graded::Cancelled)) => row.text("cancelled"),
                _ => row.text("not graded"),
            }
        }
    }
}
