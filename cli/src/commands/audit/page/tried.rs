//! What the probes got through, under the policy and under other launchers.

use airlock_grader::report::{
    html::Html,
    table::{Column, Row, table},
};
use airlock_runtime::probe::Verdict;

use super::super::probes::{Judgement, Report, Row as Tried, brief};

pub(super) fn write(html: &mut Html, report: &Report) {
    if !report.launchers.is_empty() {
        html.leaf(
            "p",
            &[],
            "Facts about one way to call each launcher, not a rating: most of what is let through there can be asked \
             for by flags or a fuller document.",
        );
        let columns = [
            Column::Text("launcher"),
            Column::Number("denied"),
            Column::Number("allowed"),
            Column::Number("of these denied here"),
        ];
        table(html, "All probes", &columns, |html| {
            for launcher in &report.launchers {
                Row::write(html, |row| {
                    row.foreign(launcher);
                    report.counts(launcher).into_iter().for_each(|count| row.number(count));
                });
            }
        });
    }
    let area = |row: &Tried| row.id.split_once('.').map_or(row.id, |(area, _)| area);
    for rows in report.probes.chunk_by(|a, b| area(a) == area(b)) {
        let Some(name) = rows.first().map(area) else { continue };
        let denied = rows.iter().filter(|row| row.observed == Verdict::Denied).count();
        let caption = format!("{name}: {denied} of {} denied", rows.len());
        html.element("details", &[], |html| {
            html.leaf("summary", &[], &caption);
            one_area(html, report, rows, &caption);
        });
    }
}

fn one_area(html: &mut Html, report: &Report, rows: &[Tried], caption: &str) {
    super::table(html, "tried", caption, |html| {
        let launchers = report.launchers.iter().map(String::as_str);
        let heads =
            ["probe", "policy"].into_iter().chain(launchers).chain(["tries to", "should be stopped by"]);
        html.element("thead", &[], |html| {
            html.element("tr", &[], |html| {
                heads.for_each(|head| {
                    html.element("th", &[("scope", &"col")], |html| html.foreign(head));
                });
            });
        });
        html.element("tbody", &[], |html| rows.iter().for_each(|tried| one(html, report, tried)));
    });
}

fn one(html: &mut Html, report: &Report, tried: &Tried) {
    Row::write(html, |row| {
        row.code(tried.id);
        row.cell(|html| {
            let own = brief(Some(tried.observed), tried.outcome.as_ref());
            html.leaf("span", &[("class", &class(Some(tried.observed)))], own);
            if tried.result == Judgement::Unexpected {
                html.leaf("strong", &[("class", &"bad")], " unexpected");
            }
        });
        for launcher in &report.launchers {
            let verdict = tried.verdict(launcher);
            let told = brief(verdict, tried.under.get(launcher));
            row.cell(|html| html.leaf("span", &[("class", &class(verdict))], told));
        }
        row.text(tried.title);
        row.text(tried.clauses.join(", "));
    });
}

/// As the style sheet names it.
fn class(verdict: Option<Verdict>) -> &'static str {
    match verdict {
        Some(Verdict::Denied) => "denied",
        Some(Verdict::Allowed) => "allowed",
        Some(Verdict::Broken) | None => "none",
    }
}
