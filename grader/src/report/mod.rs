//! `RUN/report.html`: one self-contained page about a run, for people.
//!
//! It proves nothing by itself: the receipt does, and the page says how to verify it. It has no script and loads
//! nothing, follows the reader's light or dark scheme, and is the same bytes for the same input. Nearly all that it
//! shows came from an agent, a scorer or a task, so text has one way into it, which escapes.

mod candidates;
mod gpus;
mod head;
pub mod html;
mod input;
mod items;
mod journal;
mod ladder;
mod phases;
mod receipt;
mod story;
pub mod table;
mod timeline;
mod units;
mod validations;

use std::fmt::Display;

use html::Html;
pub use input::{GateWords, Graded, PhaseReport, ReceiptFacts, ReportInput, ReportTask};
use story::Story;

const BEGIN: &str = "<!DOCTYPE html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
base-uri 'none'; form-action 'none'\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta name=\"color-scheme\" content=\"light dark\">
<meta name=\"referrer\" content=\"no-referrer\">
";

/// The page. Lists that are very long are cut, and say by how much and where the rest is.
pub fn render(input: &ReportInput<'_>) -> String {
    let story = Story::new(input.records);
    page(format_args!("{}: {}", head::title(input), input.run_id), "", |html| {
        head::write(html, input, &story);
        section(html, "research", "Research", |html| {
            timeline::write(html, input, &story);
            validations::write(html, input, &story);
        });
        section(html, "final", "Final scoring", |html| {
            ladder::write(html, input, &story);
            candidates::write(html, input, &story);
            items::write(html, input, &story);
        });
        section(html, "isolation", "Isolation", |html| phases::write(html, input, &story));
        section(html, "journal", "Journal", |html| journal::write(html, input));
        section(html, "receipt", "Receipt", |html| receipt::write(html, input));
    })
}

/// A page of Airlock's look, with what a style sheet of its own adds to that.
pub fn page(title: impl Display, style: &'static str, inside: impl FnOnce(&mut Html)) -> String {
    let mut html = Html::default();
    html.markup(BEGIN);
    html.leaf("title", &[], title);
    html.markup("\n<style>\n");
    html.markup(include_str!("style.css"));
    html.markup(style);
    html.markup("</style>\n</head>\n<body>\n<main>\n");
    inside(&mut html);
    html.markup("</main>\n</body>\n</html>\n");
    html.finish()
}

/// A part of a page, with a heading.
pub fn section(html: &mut Html, id: &'static str, title: &'static str, inside: impl FnOnce(&mut Html)) {
    let heading = format!("{id}-heading");
    html.element("section", &[("id", &id), ("aria-labelledby", &heading)], |html| {
        html.leaf("h2", &[("id", &heading)], title);
        inside(html);
    });
    html.markup("\n");
}
