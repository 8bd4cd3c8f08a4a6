//! The planned items of the final scoring, one by one.

use std::collections::HashMap;

use super::html::Html;
use super::input::{Graded, ReportInput};
use super::story::Story;
use super::table::{Column, Row, fact, facts, rest, table};
use super::units::{Percent, count, duration};
use crate::journal::Event;
use crate::score::{Attempt, Counts, Metric, Status};

/// Most rows on the page, over all candidates.
const ROWS: usize = 1000;
/// Most attempts at an item that are shown.
const ATTEMPTS: usize = 16;

/// What became of an attempt, the missing ones among them, from the worst.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Missing,
    Infra,
    GateFailed,
    ExecFailure,
    Timeout,
    Wrong,
    Ok,
}

pub(super) fn write(html: &mut Html, input: &ReportInput<'_>, story: &Story<'_>) {
    let mut verdicts: Vec<_> = input
        .records
        .iter()
        .filter_map(|record| match &record.event {
            Event::Verdict { phase, candidate, counts, .. } => Some((*phase, *candidate, counts)),
            _ => None,
        })
        .collect();
    verdicts.sort_by_key(|(_, candidate, _)| story.result != Some(Some(*candidate)));
    let mut left = ROWS;
    for (phase, digest, counts) in verdicts {
        let best = story.result == Some(Some(digest));
        let candidate = story.candidates.iter().find(|found| found.digest == digest);
        html.element("div", &[("class", &"scoring")], |html| {
            html.element("h3", &[], |html| {
                html.text("Items of ");
                html.foreign(candidate.map_or("a candidate", |found| found.name(story)));
                html.text(if best { ", the result" } else { "" });
            });
            bar(html, counts);
            match input.graded.iter().find(|graded| graded.phase == phase) {
                Some(graded) => items(html, &input.task.metric.metric, graded, &mut left),
                None => html.markup("<p>Its verdict is not at hand, so its items are not shown.</p>"),
            }
        });
    }
}

/// The counts over the planned denominator, as one bar and its legend.
fn bar(html: &mut Html, counts: &Counts) {
    let parts = [
        (Fate::Ok, counts.ok),
        (Fate::Wrong, counts.wrong),
        (Fate::Timeout, counts.timeout),
        (Fate::ExecFailure, counts.exec_failure),
        (Fate::GateFailed, counts.gate_failed),
        (Fate::Infra, counts.infra),
        (Fate::Missing, counts.missing),
    ];
    html.element("svg", &[("class", &"bar"), ("height", &"12"), ("aria-hidden", &"true")], |html| {
        let mut before = 0;
        for (fate, number) in parts.iter().filter(|(_, number)| *number > 0) {
            let (from, to) =
                (Percent::of(before, counts.planned), Percent::of(before + number, counts.planned));
            let width = Percent(to.0 - from.0);
            html.element(
                "rect",
                &[("class", &fate.class()), ("x", &from), ("y", &"0"), ("width", &width), ("height", &"12")],
                |_| {},
            );
            before += number;
        }
    });
    html.element("p", &[("class", &"legend")], |html| {
        html.leaf("b", &[], format_args!("{} planned: ", count(counts.planned, "attempt")));
        for (fate, number) in parts {
            if number > 0 || matches!(fate, Fate::Ok | Fate::Wrong | Fate::Missing) {
                html.element("span", &[("class", &fate.class())], |html| {
                    html.markup("<i></i>");
                    html.text(format_args!("{number} {}", fate.word()));
                });
                html.text(" ");
            }
        }
    });
}

fn items(html: &mut Html, metric: &Metric, graded: &Graded, left: &mut usize) {
    facts(html, |html| {
        for (name, number) in graded.auxiliary.iter().take(ATTEMPTS) {
            html.markup("<div>");
            html.element("dt", &[], |html| html.foreign(name));
            html.leaf("dd", &[], format_args!("{number} (does not count)"));
            html.markup("</div>");
        }
        if let Some(path) = &graded.trajectories {
            fact(html, "Trajectories", |html| html.element("code", &[], |html| html.foreign(path)));
        }
    });
    let found: HashMap<&str, &[Attempt]> =
        graded.items.iter().map(|item| (item.id.as_str(), item.attempts.as_slice())).collect();
    let k = metric.k().get() as usize;
    let mut rows: Vec<(&str, &[Attempt])> = metric
        .items()
        .iter()
        .map(|id| (id.as_str(), found.get(id.as_str()).copied().unwrap_or_default()))
        .collect();
    // A stable sort: equal ones stay in the planned order.
    rows.sort_by_cached_key(|(_, attempts)| {
        let mut fates: Vec<Fate> = attempts.iter().map(|attempt| attempt.status.into()).collect();
        fates.resize(k.max(attempts.len()), Fate::Missing);
        fates.sort_unstable();
        fates
    });
    let shown = rows.len().min(*left);
    *left -= shown;
    let failed = rows.iter().filter(|(_, attempts)| !all_ok(attempts, k)).count();
    html.element("details", &[], |html| {
        html.element("summary", &[], |html| {
            html.text(format_args!("{} planned, ", count(rows.len() as u64, "item")));
            html.text(format_args!("{failed} of them not ok throughout, which come first"));
        });
        let (columns, wide) = columns(k);
        table(html, "Items", columns, |html| {
            for (id, attempts) in &rows[..shown] {
                Row::write(html, |row| {
                    row.foreign(id);
                    if wide { several(row, attempts, k) } else { one(row, attempts.first()) }
                });
            }
            let (hidden, path) = (&rows[shown..], format!("phases/{}-*/verdict.json", graded.phase));
            if !hidden.is_empty() {
                let ok = hidden.iter().filter(|(_, attempts)| all_ok(attempts, k)).count();
                let more = count(hidden.len() as u64, "further item");
                rest(html, columns.len(), format_args!("{more}, {ok} of them ok: in {path}"));
            }
        });
    });
}

fn all_ok(attempts: &[Attempt], k: usize) -> bool {
    attempts.len() >= k && attempts.iter().all(|attempt| attempt.status == Status::Ok)
}

/// The columns, and whether there are several attempts.
fn columns(k: usize) -> (&'static [Column], bool) {
    const ONE: [Column; 4] =
        [Column::Text("Item"), Column::Text("Status"), Column::Number("Score"), Column::Number("Time")];
    const SEVERAL: [Column; 3] =
        [Column::Text("Item"), Column::Number("Ok of planned"), Column::Text("Attempts")];
    if k > 1 { (&SEVERAL, true) } else { (&ONE, false) }
}

fn one(row: &mut Row<'_>, attempt: Option<&Attempt>) {
    let fate = attempt.map_or(Fate::Missing, |attempt| attempt.status.into());
    row.cell(|html| status(html, fate));
    row.number(attempt.map_or_else(|| "0".to_owned(), |attempt| attempt.score.to_string()));
    row.number(attempt.map_or_else(String::new, |attempt| duration(attempt.wall_ms)));
}

fn several(row: &mut Row<'_>, attempts: &[Attempt], k: usize) {
    let ok = attempts.iter().filter(|attempt| attempt.status == Status::Ok).count();
    row.number(format_args!("{ok} of {k}"));
    row.cell(|html| {
        for (index, attempt) in attempts.iter().take(ATTEMPTS).enumerate() {
            html.text(if index > 0 { "; " } else { "" });
            status(html, attempt.status.into());
            html.text(format_args!(" {} in {}", attempt.score, duration(attempt.wall_ms)));
        }
        if attempts.len() > ATTEMPTS {
            html.text(format_args!("; {} more", attempts.len() - ATTEMPTS));
        }
        if attempts.len() < k {
            html.text(if attempts.is_empty() { "" } else { "; " });
            html.text(format_args!("{} ", k - attempts.len()));
            status(html, Fate::Missing);
        }
    });
}

fn status(html: &mut Html, fate: Fate) {
    html.leaf("span", &[("class", &fate.class())], fate.word());
}

impl From<Status> for Fate {
    fn from(status: Status) -> Fate {
        match status {
            Status::Ok => Fate::Ok,
            Status::Wrong => Fate::Wrong,
            Status::Timeout => Fate::Timeout,
            Status::ExecFailure => Fate::ExecFailure,
            Status::GateFailed => Fate::GateFailed,
            Status::Infra => Fate::Infra,
        }
    }
}

impl Fate {
    fn word(self) -> &'static str {
        match self {
            Fate::Missing => "missing",
            Fate::Infra => "infra",
            Fate::GateFailed => "gate failed",
            Fate::ExecFailure => "exec failure",
            Fate::Timeout => "timeout",
            Fate::Wrong => "wrong",
            Fate::Ok => "ok",
        }
    }

    /// Of the style sheet.
    fn class(self) -> &'static str {
        match self {
            Fate::Missing => "fate missing",
            Fate::Infra => "fate infra",
            Fate::GateFailed => "fate gate",
            Fate::ExecFailure => "fate exec",
            Fate::Timeout => "fate late",
            Fate::Wrong => "fate wrong",
            Fate::Ok => "fate ok",
        }
    }
}
