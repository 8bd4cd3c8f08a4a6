//! Scores against the ladder.

use super::html::Html;
use super::input::ReportInput;
use super::story::{Candidate, Story};
use super::timeline::{label, line};
use super::units::{Percent, score};
use crate::score::{Ladder, Sigma};

/// Height of a candidate's row, in pixels.
const ROW: usize = 44;
/// Most candidates that are drawn.
const ROWS: usize = 12;
/// Where σ = 0.1 lies.
const BASELINE: Percent = Percent(100_000);

pub(super) fn write(html: &mut Html, input: &ReportInput<'_>, story: &Story<'_>) {
    let Some(ladder) = input.task.ladder else {
        return html.markup("<p>The task has no ladder.</p>");
    };
    let placed: Vec<_> =
        story.candidates.iter().filter_map(|found| Some((found, sigma(ladder, found)?))).collect();
    let drawn = placed.len().min(ROWS);
    let height = drawn.max(1) * ROW + 8;
    html.element("figure", &[], |html| {
        html.element("figcaption", &[], |html| {
            html.text("Place on the ladder, σ from 0 to 1, of ");
            html.name(80, &input.task.metric.name);
        });
        html.element(
            "svg",
            &[
                ("class", &"plot ladder"),
                ("height", &height),
                ("role", &"img"),
                ("aria-labelledby", &"ladder-title"),
            ],
            |html| {
                let words = format_args!("The ladder with {} scored", placed.len());
                html.leaf("title", &[("id", &"ladder-title")], words);
                axis(html, ladder, height);
                if placed.is_empty() {
                    label(html, "tick", ("50%", ROW / 2 + 4), "middle", "nothing scored");
                }
                for (index, (candidate, sigma)) in placed.iter().take(ROWS).enumerate() {
                    row(html, story, index * ROW, candidate, *sigma);
                }
            },
        );
    });
    if placed.len() > ROWS {
        html.leaf("p", &[], format_args!("{} further candidates are in the table.", placed.len() - ROWS));
    }
}

/// The place of what was scored; none of what was not.
pub(super) fn sigma(ladder: &Ladder, candidate: &Candidate<'_>) -> Option<Sigma> {
    ladder.sigma(candidate.verdict?.0).ok()
}

fn axis(html: &mut Html, ladder: &Ladder, height: usize) {
    line(html, "axis", ("0", height), ("100%", height));
    for (at, class) in [(Percent(0), "guide"), (BASELINE, "baseline"), (Percent(Percent::WHOLE), "guide")] {
        line(html, class, (at, 0), (at, height + 5));
    }
    label(html, "tick", ("0", height + 20), "start", "0");
    label(html, "tick", (BASELINE, height + 20), "middle", "0.1");
    label(html, "tick", ("100%", height + 20), "end", "1");
    label(
        html,
        "tick",
        ("0", height + 38),
        "start",
        format_args!("uninformative {}", ladder.uninformative()),
    );
    label(html, "tick", ("100%", height + 38), "end", format_args!("optimum {}", ladder.optimum()));
    label(html, "tick", (BASELINE, height + 56), "start", format_args!("baseline {}", ladder.baseline()));
}

fn row(html: &mut Html, story: &Story<'_>, top: usize, candidate: &Candidate<'_>, sigma: Sigma) {
    let best = story.result == Some(Some(candidate.digest));
    html.element("g", &[("class", &if best { "mark best" } else { "mark" })], |html| {
        let x = Percent(sigma.millionths());
        html.element("text", &[("x", &"0"), ("y", &(top + 16)), ("dx", &"6")], |html| {
            html.element("tspan", &[], |html| html.brief(12, candidate.name(story)));
            let found = candidate.verdict.map_or_else(String::new, |(found, _)| score(found));
            html.text(" · ");
            html.brief(10, found);
            html.text(format_args!(" · σ {sigma}"));
        });
        let y = top + 30;
        line(html, "rail", ("0", y), ("100%", y));
        line(html, "reach", ("0", y), (x, y));
        html.element("circle", &[("cx", &x), ("cy", &y), ("r", &if best { "6" } else { "5" })], |_| {});
    });
}
