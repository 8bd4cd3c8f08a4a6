//! What the rules found: a bar of severities, and a row for each finding.

use airlock_grader::report::{
    html::Html,
    table::{Column, Row, table},
};
use airlock_policy::audit::{Audited, SEVERITIES, Severity};

pub(super) fn write(html: &mut Html, audited: &[Audited]) {
    for one in audited {
        html.element("h3", &[], |html| html.foreign(&one.name));
        if one.findings.is_empty() {
            html.leaf("p", &[], "No rule found anything.");
            continue;
        }
        severities(html, one);
        let caption = format!("{} findings of {}", one.findings.len(), one.name);
        let columns = ["severity", "rule", "found", "where", "remedy"].map(Column::Text);
        table(html, caption, &columns, |html| {
            for found in &one.findings {
                Row::write(html, |row| {
                    row.cell(|html| html.leaf("span", &[("class", &class(found.severity))], found.severity));
                    row.code(found.rule);
                    row.cell(|html| {
                        html.leaf("span", &[], found.title);
                        html.markup("<br>");
                        html.element("span", &[("class", &"key")], |html| html.foreign(&found.found));
                    });
                    row.cell(|html| {
                        html.element("code", &[], |html| {
                            html.foreign(format_args!("{}:{}:{}", found.file, found.line, found.column));
                        });
                        html.markup("<br>");
                        html.element("span", &[("class", &"key")], |html| html.foreign(&found.clause));
                    });
                    row.text(found.remedy);
                });
            }
        });
    }
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
