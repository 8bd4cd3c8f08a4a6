//! The research phase against its budget, with every validation.

use std::fmt::Display;

use super::head::warning;
use super::html::{Attributes, Html};
use super::input::ReportInput;
use super::story::{Choice, Graded, Research, Story, Validation};
use super::units::{Percent, better, count, duration, score, value};
use crate::journal::Record;
use crate::score::{Direction, Score};

/// Height of the plot in pixels. Its width is that of the page, so that the text in it keeps its size.
const HEIGHT: u32 = 168;
/// Where the worst and the best score lie.
const BAND: (f64, f64) = (134.0, 44.0);
/// Where validations without a score are marked.
const FLOOR: u32 = 156;

/// The narrowest plot for which labels keep clear of each other, in pixels.
const NARROWEST: u64 = 230;

/// Longest label of a mark.
const LABEL: usize = 12;

/// Most validations that are drawn.
const MARKS: usize = 500;

pub(super) fn write(html: &mut Html, input: &ReportInput<'_>, story: &Story<'_>) {
    let Some(research) = &story.research else {
        return html.text(if input.task.baseline {
            "There is no research."
        } else {
            "Research has not begun."
        });
    };
    let budget_ns = input.task.explore_ms.saturating_mul(1_000_000);
    let span = research
        .deadline_ns
        .and_then(|deadline| deadline.checked_sub(research.started.boot_ns))
        .unwrap_or(budget_ns)
        .max(1);
    let plot = Plot { research, span, scale: Scale::new(input, story) };
    html.element("figure", &[], |html| {
        html.element("figcaption", &[], |html| caption(html, input, &plot));
        html.element(
            "svg",
            &[
                ("class", &"plot"),
                ("height", &HEIGHT),
                ("role", &"img"),
                ("aria-labelledby", &"timeline-title"),
            ],
            |html| {
                html.leaf("title", &[("id", &"timeline-title")], plot.words(story));
                plot.axes(html);
                plot.end(html);
                plot.marks(html, story);
            },
        );
    });
    if let Some((_, Choice::None(reason))) = research.ended {
        html.markup("<p>The agent’s reason for no candidate: ");
        html.element("q", &[], |html| html.foreign(reason));
        html.markup("</p>");
    }
    if story.validations.iter().any(|validation| research.elapsed(validation.requested).is_none()) {
        warning(html, |html| {
            html.text(
                "Validations after a reboot of the host have no place on this clock and are not drawn.",
            );
        });
    }
}

fn caption(html: &mut Html, input: &ReportInput<'_>, plot: &Plot<'_>) {
    html.text("Validations over the research clock");
    if let (Some(proxy), Some(_)) = (input.task.proxy, &plot.scale) {
        html.text("; height is ");
        html.name(80, &proxy.name);
        html.text(format_args!(", {}", better(proxy.metric.direction())));
    }
}

/// From scores to heights.
struct Scale {
    low: Score,
    high: Score,
    /// The ticket with the best score over all items.
    best: Option<u64>,
}

struct Plot<'a> {
    research: &'a Research<'a>,
    /// From start to deadline in nanoseconds.
    span: u64,
    scale: Option<Scale>,
}

fn scored(validation: &Validation<'_>) -> Option<Score> {
    match validation.ended {
        Some((_, Graded::Scored { score, .. })) => score,
        _ => None,
    }
}

impl Scale {
    fn new(input: &ReportInput<'_>, story: &Story<'_>) -> Option<Scale> {
        let all = || story.validations.iter().filter_map(|found| Some((found, scored(found)?)));
        let by_value = |(_, a): &(_, Score), (_, b): &(_, Score)| a.value().total_cmp(&b.value());
        let (low, high) = (all().min_by(by_value)?.1, all().max_by(by_value)?.1);
        let whole = all().filter(|(found, _)| found.subset.is_none());
        let best = match input.task.proxy.map(|proxy| proxy.metric.direction()) {
            Some(Direction::Min) => whole.min_by(by_value),
            Some(Direction::Max) | None => whole.max_by(by_value),
        };
        Some(Scale { low, high, best: best.map(|(found, _)| found.ticket) })
    }

    /// In pixels from the top, with one decimal.
    fn height(&self, score: Score) -> String {
        let range = self.high.value() - self.low.value();
        let share = if range > 0.0 { (score.value() - self.low.value()) / range } else { 0.5 };
        format!("{:.1}", BAND.0 + share * (BAND.1 - BAND.0))
    }
}

impl Plot<'_> {
    fn x(&self, record: &Record) -> Option<Percent> {
        Some(Percent::of(self.research.elapsed(record)?, self.span))
    }

    /// The picture in words.
    fn words(&self, story: &Story<'_>) -> String {
        let validations = count(story.validations.len() as u64, "validation");
        let (total, end) = (clock(self.span), self.end_words());
        format!("Research of at most {total} with {validations}; {end}.")
    }

    fn end_words(&self) -> String {
        let Some((record, choice)) = self.research.ended else { return "not over".to_owned() };
        let word = match choice {
            Choice::Submitted(_) => "submitted",
            Choice::None(_) => "no candidate",
            Choice::Deadline(_) => "out of time",
            Choice::Nothing(_) => "ended without a word",
        };
        match self.research.elapsed(record) {
            Some(ns) => format!("{word} at {}", duration(ns / 1_000_000)),
            None => format!("{word} after a reboot"),
        }
    }

    fn axes(&self, html: &mut Html) {
        line(html, "axis", ("0", HEIGHT), ("100%", HEIGHT));
        for (at, anchor) in [(0_u64, "start"), (1, "middle"), (2, "middle"), (3, "middle"), (4, "end")] {
            let x = Percent::of(at, 4);
            line(html, "axis", (x, HEIGHT), (x, HEIGHT + 5));
            if at % 2 == 0 {
                label(html, "tick", (x, HEIGHT + 20), anchor, clock(self.span / 4 * at));
            }
        }
        let Some(scale) = &self.scale else { return };
        let mut ends = vec![scale.low];
        if scale.high.value() > scale.low.value() {
            ends.push(scale.high);
        }
        for score in ends {
            let y = scale.height(score);
            line(html, "guide", ("0", &y), ("100%", &y));
            html.leaf(
                "text",
                &[
                    ("class", &"tick"),
                    ("x", &"0"),
                    ("y", &y),
                    ("dx", &"-8"),
                    ("dy", &"4"),
                    ("text-anchor", &"end"),
                ],
                value(score),
            );
        }
    }

    /// Deadline, end, and the time between them.
    fn end(&self, html: &mut Html) {
        line(html, "deadline", ("100%", 0), ("100%", HEIGHT));
        label(html, "tick", ("100%", -6), "end", "deadline");
        let Some((record, choice)) = self.research.ended else { return };
        let Some(x) = self.x(record) else { return };
        if x.0 < Percent::WHOLE {
            html.element(
                "rect",
                &[
                    ("class", &"unused"),
                    ("x", &x),
                    ("y", &"0"),
                    ("width", &Percent(Percent::WHOLE - x.0)),
                    ("height", &HEIGHT),
                ],
                |_| {},
            );
        }
        let class = if matches!(choice, Choice::Submitted(_)) { "submit" } else { "gone" };
        line(html, class, (x, 0), (x, HEIGHT));
        let (anchor, dx) = if x.0 > Percent::WHOLE / 2 { ("end", -6) } else { ("start", 6) };
        html.leaf(
            "text",
            &[("class", &class), ("x", &x), ("y", &"14"), ("dx", &dx), ("text-anchor", &anchor)],
            self.end_words(),
        );
    }

    fn marks(&self, html: &mut Html, story: &Story<'_>) {
        let labelled = self.labelled(story);
        for validation in story.validations.iter().take(MARKS) {
            let Some(from) = self.x(validation.requested) else { continue };
            let to = validation.ended.and_then(|(record, _)| self.x(record)).unwrap_or(from);
            let best = self.scale.as_ref().is_some_and(|scale| scale.best == Some(validation.ticket));
            html.element("g", &[("class", &if best { "mark best" } else { "mark" })], |html| {
                let words = describe(validation);
                html.leaf("title", &[], format_args!("Validation {}: {words}", validation.ticket));
                let (Some(score), Some(scale)) = (scored(validation), &self.scale) else {
                    return html.leaf(
                        "text",
                        &[("class", &"failed"), ("x", &to), ("y", &(FLOOR + 4)), ("text-anchor", &"middle")],
                        "×",
                    );
                };
                let y = scale.height(score);
                line(html, "wait", (from, &y), (to, &y));
                let radius = if best { "5" } else { "4" };
                html.element("circle", &[("cx", &to), ("cy", &y), ("r", &radius)], |_| {});
                if labelled.contains(&validation.ticket) {
                    let (anchor, dx) = anchor(to);
                    let place: [(&'static str, &dyn Display); 5] =
                        [("x", &to), ("y", &y), ("dx", &dx), ("dy", &"-9"), ("text-anchor", &anchor)];
                    html.element("text", &place, |html| html.brief(LABEL, score));
                }
            });
        }
    }

    /// The tickets whose score is written beside the mark: the best first, then in order, as long as there is room
    /// on the narrowest page.
    fn labelled(&self, story: &Story<'_>) -> Vec<u64> {
        let best = |validation: &&Validation<'_>| {
            self.scale.as_ref().is_some_and(|s| s.best == Some(validation.ticket))
        };
        let drawn = || story.validations.iter().take(MARKS);
        let (mut taken, mut tickets) = (Vec::<(u64, u64)>::new(), Vec::new());
        for validation in drawn().filter(best).chain(drawn().filter(|found| !best(found))) {
            let (Some(score), Some((record, _))) = (scored(validation), validation.ended) else { continue };
            let Some(x) = self.x(record) else { continue };
            let width = score.to_string().len().min(LABEL + 1) as u64 * 8 + 8;
            let middle = u64::from(x.0) * NARROWEST / u64::from(Percent::WHOLE);
            let from = match anchor(x).0 {
                "start" => middle,
                "end" => middle.saturating_sub(width),
                _ => middle.saturating_sub(width / 2),
            };
            if taken.iter().all(|(start, end)| from >= *end || from + width <= *start) {
                taken.push((from, from + width));
                tickets.push(validation.ticket);
            }
        }
        tickets
    }
}

/// A time on the axis: from a minute on to the nearest second, since the journal's line is written a little after the
/// clock is set.
fn clock(ns: u64) -> String {
    match ns / 1_000_000 {
        0 => "0".to_owned(),
        ms @ 0..59_500 => duration(ms),
        ms => duration((ms + 500) / 1000 * 1000),
    }
}

/// On which side of a point a label stays within the page.
fn anchor(x: Percent) -> (&'static str, i32) {
    match x.0 {
        0..150_000 => ("start", -4),
        150_000..850_000 => ("middle", 0),
        _ => ("end", 4),
    }
}

/// What became of a validation.
pub(super) fn describe(validation: &Validation<'_>) -> String {
    match validation.ended {
        Some((_, Graded::Scored { score: found, .. })) => score(found),
        Some((_, Graded::Failed(_))) => "failed".to_owned(),
        Some((_, Graded::Cancelled)) => "cancelled".to_owned(),
        None => "not graded".to_owned(),
    }
}

pub(super) fn line(
    html: &mut Html,
    class: &'static str,
    (x1, y1): (impl Display, impl Display),
    (x2, y2): (impl Display, impl Display),
) {
    html.element("line", &[("class", &class), ("x1", &x1), ("y1", &y1), ("x2", &x2), ("y2", &y2)], |_| {});
}

pub(super) fn label(
    html: &mut Html,
    class: &'static str,
    (x, y): (impl Display, impl Display),
    anchor: &'static str,
    text: impl Display,
) {
    let place: Attributes<'_> = &[("class", &class), ("x", &x), ("y", &y), ("text-anchor", &anchor)];
    html.element("text", place, |html| html.brief(24, text));
}
