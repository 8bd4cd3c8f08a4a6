//! What the run came to, at a glance.

use super::html::Html;
use super::input::ReportInput;
use super::story::{Choice, State, Story};
use super::table::{fact, facts};
use super::units::{better, count, duration, utc, value};
use crate::journal::{Event, Outcome};
use crate::score::{Score, Sigma};
use crate::task::Lifecycle;

/// Most departures from the task that are listed.
const OVERRIDES: usize = 20;

/// What the task is called.
pub(super) fn title<'a>(input: &'a ReportInput<'_>) -> &'a str {
    input.task.title.unwrap_or(input.task.id)
}

pub(super) fn write(html: &mut Html, input: &ReportInput<'_>, story: &Story<'_>) {
    html.element("header", &[], |html| {
        html.element("p", &[("class", &"over")], |html| {
            html.text("Airlock run ");
            html.element("code", &[], |html| html.foreign(input.run_id));
        });
        html.element("h1", &[], |html| html.foreign(title(input)));
        verdict(html, input, story);
        warnings(html, input, story);
        facts(html, |html| overview(html, input, story));
        html.markup(
            "<nav aria-label=\"Sections\"><a href=\"#research\">Research</a> <a href=\"#final\">Final scoring</a> \
             <a href=\"#isolation\">Isolation</a> <a href=\"#journal\">Journal</a> <a href=\"#receipt\">Receipt</a>\
             </nav>",
        );
    });
    html.markup("\n");
}

/// The last event with a result.
fn result(input: &ReportInput<'_>) -> Option<(Option<Score>, Option<Sigma>)> {
    input.records.iter().rev().find_map(|record| match &record.event {
        Event::Scored { score, sigma, .. } => Some((*score, *sigma)),
        _ => None,
    })
}

fn verdict(html: &mut Html, input: &ReportInput<'_>, story: &Story<'_>) {
    html.element("div", &[("class", &"verdict")], |html| {
        let (word, class) = state(story.state);
        html.element("div", &[("class", &"outcome")], |html| {
            html.leaf("span", &[("class", &"label")], "Outcome");
            html.leaf("strong", &[("class", &class)], word);
        });
        let Some((score, sigma)) = result(input) else { return };
        html.element("div", &[], |html| {
            html.element("span", &[("class", &"label")], |html| html.name(40, &input.task.metric.name));
            html.element("strong", &[], |html| match score {
                None => html.text("no score"),
                Some(score) if score.n.get() == 1 => html.text(score.sum),
                Some(score) => {
                    html.text(score.sum);
                    html.leaf("small", &[], format_args!(" / {}", score.n));
                }
            });
        });
        if let Some(sigma) = sigma {
            html.element("div", &[], |html| {
                html.leaf("span", &[("class", &"label")], "σ on the ladder");
                html.leaf("strong", &[], sigma);
            });
        }
    });
}

fn state(state: State<'_>) -> (&'static str, &'static str) {
    match state {
        State::Closed(Outcome::Scored) => ("Scored", "good"),
        State::Closed(Outcome::NoCandidate) => ("No candidate", "fair"),
        State::Closed(Outcome::DeadlinePassed) => ("Deadline passed", "fair"),
        State::Closed(Outcome::NothingSubmitted) => ("Nothing submitted", "fair"),
        State::Closed(Outcome::GateFailed) => ("Refused by a gate", "bad"),
        State::Closed(Outcome::NothingValid) => ("Nothing valid", "bad"),
        State::Closed(Outcome::Interrupted) | State::Interrupted(_) => ("Interrupted", "bad"),
        State::Between | State::In(_) => ("Unfinished", "fair"),
    }
}

/// What a reader must know before trusting the number.
fn warnings(html: &mut Html, input: &ReportInput<'_>, story: &Story<'_>) {
    match story.state {
        State::Interrupted(cause) => warning(html, |html| {
            html.text("The run cannot go on by itself: ");
            html.foreign(cause);
        }),
        State::In(phase) => warning(html, |html| {
            html.text("The run was not over when this page was written; its phase was ");
            html.foreign(phase);
            html.text(".");
        }),
        State::Between => warning(html, |html| html.text("The run was not over when this page was written.")),
        State::Closed(_) => {}
    }
    if let (State::Closed(_), None) = (story.state, input.receipt) {
        warning(html, |html| html.text("There is no receipt: nobody has signed this result."));
    }
    for text in input.task.overrides.iter().take(OVERRIDES) {
        warning(html, |html| {
            html.text("Not as the task’s author wrote it: ");
            html.foreign(text);
        });
    }
    if story.again > 0 {
        let times = count(story.again, "time");
        warning(html, |html| {
            html.text(format_args!("An operator had interrupted work done once more, {times}."));
        });
    }
    if input.task.in_process {
        warning(html, |html| {
            html.text(
                "Graded in-process: the tests run within the candidate’s own process, which can lie to them.",
            );
        });
    }
    let lowered: usize = input.phases.iter().map(|phase| phase.end.lowered.len()).sum();
    let weaker = input.receipt.map_or(0, |receipt| receipt.weaker.len());
    if lowered + weaker > 0 {
        warning(html, |html| {
            html.text("Weaker than the task and its policies ask for by default: see ");
            html.markup("<a href=\"#isolation\">Isolation</a>.");
        });
    }
}

pub(super) fn warning(html: &mut Html, inside: impl FnOnce(&mut Html)) {
    html.element("p", &[("class", &"warning")], inside);
}

fn overview(html: &mut Html, input: &ReportInput<'_>, story: &Story<'_>) {
    let task = &input.task;
    fact(html, "Task", |html| html.element("code", &[], |html| html.foreign(task.id)));
    fact(html, "Lifecycle", |html| {
        html.text(match task.lifecycle {
            Lifecycle::Replay => "replay: explore, patch, fresh replay, score",
            Lifecycle::Direct => "direct: research with validation, select, score",
        });
    });
    fact(html, "Metric", |html| {
        html.name(80, &task.metric.name);
        let (items, k) = (task.metric.metric.items().len() as u64, task.metric.metric.k().get());
        html.text(format_args!(", {} planned", count(items, "item")));
        if k > 1 {
            html.text(format_args!(" × {k} attempts"));
        }
        html.text(format_args!(", {}", better(task.metric.metric.direction())));
    });
    if let Some((Some(score), _)) = result(input).filter(|(score, _)| score.is_some_and(|s| s.n.get() > 1)) {
        fact(html, "Score as a fraction", |html| html.text(value(score)));
    }
    fact(html, "Research", |html| research(html, input, story));
    if let (Some(first), Some(last)) = (input.records.first(), input.records.last()) {
        fact(html, "Started", |html| html.text(utc(first.wall_ms)));
        let name = if matches!(story.state, State::Closed(_)) { "Closed" } else { "Last event" };
        fact(html, name, |html| html.text(utc(last.wall_ms)));
    }
}

fn research(html: &mut Html, input: &ReportInput<'_>, story: &Story<'_>) {
    let budget = duration(input.task.explore_ms);
    if input.task.baseline {
        return html.text("none: the unmodified initial system is scored");
    }
    let Some(research) = &story.research else {
        return html.text(format_args!("not begun; the budget is {budget}"));
    };
    let how = match research.ended {
        Some((_, Choice::Submitted(_))) => "submitted",
        Some((_, Choice::None(_))) => "gave up",
        Some((_, Choice::Deadline(_))) => "out of time",
        Some((_, Choice::Nothing(_))) => "ended without a word",
        None => "not over",
    };
    let used = research.ended.and_then(|(record, _)| research.elapsed(record));
    match used {
        Some(ns) => html.text(format_args!("{how} after {} of {budget}", duration(ns / 1_000_000))),
        None => html.text(format_args!("{how}; the budget is {budget}")),
    }
    html.text(format_args!(", {}", count(story.validations.len() as u64, "validation")));
}
