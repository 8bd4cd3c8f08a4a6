//! What the rules found: a bar of severities, and each finding with its evidence and remedy.

use airlock_grader::report::html::Html;
use airlock_policy::audit::{Audited, Finding, SEVERITIES, Severity, Unread};

pub(super) fn write(html: &mut Html, audited: &[Audited]) {
    for one in audited {
        html.element("h3", &[], |html| html.foreign(&one.name));
        if one.findings.is_empty() {
            html.leaf("p", &[], "No rule found anything.");
            continue;
        }
        severities(html, one);
        for found in &one.findings {
            html.element("article", &[("class", &"finding")], |html| finding(html, found));
        }
    }
}

/// What nothing is known of.
pub(super) fn unread(html: &mut Html, unread: &[Unread]) {
    for one in unread {
        html.element("h3", &[], |html| html.foreign(&one.name));
        html.element("p", &[("class", &"bad")], |html| {
            html.markup("Not audited: ");
            html.foreign(&one.why);
        });
    }
}

fn finding(html: &mut Html, found: &Finding) {
    html.element("p", &[("class", &"mark")], |html| {
        html.leaf("span", &[("class", &class(found.severity))], found.severity);
        html.leaf("code", &[], found.rule);
    });
    html.element("div", &[], |html| {
        html.element("p", &[], |html| {
            html.leaf("strong", &[], found.title);
            html.markup(": ");
            html.foreign(&found.found);
        });
        html.element("p", &[("class", &"key")], |html| {
            html.element("code", &[], |html| {
                html.foreign(format_args!("{}:{}:{}", found.file, found.line, found.column));
            });
            html.markup(" ");
            html.foreign(&found.clause);
        });
        html.leaf("p", &[], found.remedy);
    });
}

fn severities(html: &mut Html, one: &Audited) {
    let all = one.findings.len().max(1) as f64;
    let counts = SEVERITIES.map(|severity| (severity, one.count(severity)));
    let words = counts.map(|(severity, count)| format!("{count} {severity}")).join(", ");
    let parts = counts.map(|(severity, count)| (class(severity), count as f64 * 100.0 / all));
    super::bar(html, words, &parts);
    html.element("p", &[("class", &"legend")], |html| {
        for (severity, count) in counts {
            html.element("span", &[("class", &"fate")], |html| {
                html.element("i", &[("class", &class(severity))], |_| {});
                html.text(format_args!("{severity} "));
                html.leaf("b", &[], count);
            });
        }
    });
}

/// As the style sheet names it.
fn class(severity: Severity) -> &'static str {
    match severity {
        Severity::High => "high",
        Severity::Medium => "medium",
        Severity::Low => "low",
        Severity::Info => "info",
    }
}
