//! The result of an audit as one page for people: without scripts, light and dark, for any width.

mod clauses;
mod findings;
mod tried;

use std::fmt::Display;

use airlock_grader::report::{html::Html, page, section};
use airlock_policy::audit::{self, Audited, Exposure};
use airlock_runtime::probe::{Matrix, Verdict};

use super::probes::Report;

const STYLE: &str = include_str!("style.css");

/// Of `airlock audit FILE...`.
pub(super) fn findings(report: &audit::Report) -> String {
    let read = report.audited.iter().map(|one| one.name.as_str());
    let names: Vec<&str> = read.chain(report.unread.iter().map(|one| one.name.as_str())).collect();
    audit(names.join(", "), |html| {
        facts(html, |html| {
            for one in &report.audited {
                fact(html, format_args!("exposure of {}", one.name), one.exposure);
            }
            if !report.unread.is_empty() {
                fact(html, "could not be audited", report.unread.len());
            }
        });
        section(html, "findings", "Findings", |html| {
            findings::write(html, &report.audited);
            findings::unread(html, &report.unread);
        });
    })
}

/// Of `airlock audit --probe`.
pub(super) fn probes(audited: &[Audited], report: &Report) -> String {
    audit(&report.policy, |html| {
        facts(html, |html| {
            fact(html, "exposure", report.exposure);
            fact(html, "denied", report.count(Verdict::Denied));
            fact(html, "allowed", report.count(Verdict::Allowed));
            fact(html, "unexpected", report.unexpected);
        });
        section(html, "probes", "Probes", |html| tried::write(html, report));
        section(html, "findings", "Findings", |html| findings::write(html, audited));
    })
}

/// Of `airlock audit --mutate`.
pub(super) fn matrix(audited: &[Audited], matrix: &Matrix) -> String {
    let names: Vec<&str> = audited.iter().map(|one| one.name.as_str()).collect();
    let found: Vec<_> = audited.iter().flat_map(|one| &one.findings).cloned().collect();
    let found = Exposure::of(&found);
    audit(names.join(", "), |html| {
        facts(html, |html| {
            fact(html, "exposure", found.and_reach(matrix.reach).figure());
            fact(html, "clauses", matrix.clauses.len());
            fact(html, "unproven", matrix.unproven().count());
            fact(html, "vacuous probes", matrix.vacuous.len());
        });
        section(html, "clauses", "Clauses, each taken out", |html| clauses::proofs(html, found, matrix));
        section(html, "matrix", "Clauses and probes", |html| clauses::matrix(html, matrix));
        section(html, "findings", "Findings", |html| findings::write(html, audited));
    })
}

fn audit(name: impl Display, inside: impl FnOnce(&mut Html)) -> String {
    page(format_args!("Audit: {name}"), STYLE, |html| {
        html.leaf("p", &[("class", &"over")], "Airlock audit");
        html.element("h1", &[], |html| html.foreign(&name));
        inside(html);
    })
}

fn facts(html: &mut Html, inside: impl FnOnce(&mut Html)) {
    html.element("div", &[("class", &"verdict")], inside);
}

fn fact(html: &mut Html, name: impl Display, value: impl Display) {
    html.element("div", &[], |html| {
        html.leaf("span", &[("class", &"label")], name);
        html.leaf("strong", &[], value);
    });
}

/// A table that scrolls within itself; its caption is for those who hear the page.
fn table(html: &mut Html, class: &'static str, caption: &str, inside: impl FnOnce(&mut Html)) {
    let region: &[(&'static str, &dyn Display)] =
        &[("class", &"scroll"), ("role", &"region"), ("aria-label", &caption), ("tabindex", &"0")];
    html.element("div", region, |html| {
        html.element("table", &[("class", &class)], |html| {
            html.leaf("caption", &[("class", &"unseen")], caption);
            inside(html);
        });
    });
}

/// Parts of a bar: class of the style sheet, and share in hundredths.
fn bar(html: &mut Html, title: impl Display, parts: &[(&'static str, f64)]) {
    let picture: &[(&'static str, &dyn Display)] =
        &[("class", &"bar"), ("role", &"img"), ("height", &"12"), ("aria-label", &title)];
    html.element("svg", picture, |html| {
        html.leaf("title", &[], &title);
        html.element("rect", &[("class", &"ground"), ("width", &"100%"), ("height", &"12")], |_| {});
        let mut from = 0.0;
        for (class, share) in parts {
            let (x, width) = (format!("{from:.2}%"), format!("{share:.2}%"));
            html.element(
                "rect",
                &[("class", class), ("x", &x), ("width", &width), ("height", &"12")],
                |_| {},
            );
            from += share;
        }
    });
}
