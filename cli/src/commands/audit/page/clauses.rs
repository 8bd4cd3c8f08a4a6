//! The matrix of clauses and probes, and what taking each clause out changes.

use airlock_grader::report::html::Html;
use airlock_policy::audit::Exposure;
use airlock_runtime::probe::{ClauseResult, Matrix, Proof, Tried};

use super::super::probes::words;

/// Clause by clause: the proof, and the exposure before and after.
pub(super) fn proofs(html: &mut Html, found: Exposure, matrix: &Matrix) {
    html.leaf(
        "p",
        &[],
        "The exposure with all clauses, and what the sandbox has without one of them. Where it stays the same, other \
         layers stop the same probes, or no probe outside of a sandbox tells of it.",
    );
    let before = found.and_reach(matrix.reach).figure();
    for result in &matrix.clauses {
        html.element("article", &[("class", &"clause")], |html| proof(html, found, before, result));
    }
}

fn proof(html: &mut Html, found: Exposure, before: u8, result: &ClauseResult) {
    let (how, which) = words(&result.proof);
    let unproven = matches!(result.proof, Proof::None | Proof::Failed(_));
    html.leaf("h4", &[], result.name);
    html.leaf("span", &[("class", &if unproven { "bad" } else { "key" })], how);
    match result.reach.map(|reach| found.and_reach(reach).figure()) {
        Some(after) => {
            html.leaf("span", &[("class", &"n")], format_args!("{before} → {after}"));
            let more = f64::from(after.saturating_sub(before));
            let parts = [("before", f64::from(before)), ("after", more)];
            super::bar(html, format_args!("{before} before, {after} after"), &parts);
        }
        None => html.leaf("span", &[("class", &"key always")], "in every sandbox"),
    }
    html.element("div", &[], |html| match &result.proof {
        Proof::Removed(ids) | Proof::Alone(ids) | Proof::Fixed(ids) => probes(html, ids),
        Proof::Beyond | Proof::None | Proof::Failed(_) => html.foreign(which),
    });
}

/// Few are shown, many are opened.
fn probes(html: &mut Html, ids: &[&str]) {
    let list = |html: &mut Html| {
        for id in ids {
            html.leaf("code", &[], id);
            html.markup(" ");
        }
    };
    if ids.len() <= 4 {
        return list(html);
    }
    html.element("details", &[("class", &"plain")], |html| {
        html.leaf("summary", &[], format_args!("{} probes", ids.len()));
        list(html);
    });
}

/// A row for each probe, a column for each clause.
pub(super) fn matrix(html: &mut Html, matrix: &Matrix) {
    html.element("p", &[("class", &"legend")], |html| {
        for (sign, meaning) in SIGNS {
            html.element("span", &[("class", &"fate")], |html| {
                html.leaf("b", &[("class", &"sign")], sign);
                html.text(meaning);
            });
        }
    });
    let area = |row: &Tried| row.id.split_once('.').map_or(row.id, |(area, _)| area);
    for rows in matrix.probes.chunk_by(|a, b| area(a) == area(b)) {
        let Some(name) = rows.first().map(area) else { continue };
        // A clause that stops nothing here would be an empty column.
        let columns: Vec<&ClauseResult> = matrix
            .clauses
            .iter()
            .filter(|result| rows.iter().any(|row| sign(result, row).is_some()))
            .collect();
        let caption = format!("{name}: {} probes, {} clauses", rows.len(), columns.len());
        html.element("details", &[("open", &"")], |html| {
            html.leaf("summary", &[], &caption);
            one_area(html, &caption, &columns, rows);
        });
    }
}

fn one_area(html: &mut Html, caption: &str, columns: &[&ClauseResult], rows: &[Tried]) {
    super::table(html, "matrix", caption, |html| {
        html.element("thead", &[], |html| {
            html.element("tr", &[], |html| {
                html.leaf("th", &[("scope", &"col")], "probe");
                for column in columns {
                    let name = |html: &mut Html| html.leaf("span", &[], column.name);
                    html.element("th", &[("scope", &"col"), ("class", &"v")], name);
                }
                html.markup("<th></th>");
            });
        });
        html.element("tbody", &[], |html| {
            for row in rows {
                html.element("tr", &[], |html| {
                    let name = |html: &mut Html| html.leaf("code", &[], row.id);
                    html.element("th", &[("scope", &"row"), ("title", &row.title)], name);
                    for column in columns {
                        html.leaf("td", &[("class", &"c")], sign(column, row).unwrap_or_default());
                    }
                    html.markup("<td></td>");
                });
            }
        });
    });
}

const SIGNS: [(&str, &str); 4] = [
    ("●", "let through without this clause alone"),
    ("◐", "stopped by it alone; other layers stop it too"),
    ("◆", "stopped by it, and no sandbox lacks it"),
    ("○", "should stop it, beside others"),
];

/// What a clause has to do with a probe.
fn sign(result: &ClauseResult, row: &Tried) -> Option<&'static str> {
    let [removed, alone, fixed, beside] = SIGNS.map(|(sign, _)| sign);
    match &result.proof {
        Proof::Removed(probes) if probes.contains(&row.id) => Some(removed),
        Proof::Alone(probes) if probes.contains(&row.id) => Some(alone),
        Proof::Fixed(probes) if probes.contains(&row.id) => Some(fixed),
        _ => row.clauses.contains(&result.clause).then_some(beside),
    }
}
