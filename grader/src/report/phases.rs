//! How each phase ended, and what confined it.

use std::collections::BTreeMap;

use airlock_runtime::report::{EndReport, EvidenceKind, Reason};

use super::gpus;
use super::head::warning;
use super::html::Html;
use super::input::ReportInput;
use super::story::Story;
use super::table::{Column, Row, fact, facts, rest, table};
use super::units::{count, duration, size};

/// What the phase of the grader process is called.
const GRADER: &str = "grader";

/// Most phases in the table.
const PHASES: usize = 200;
/// Most phases whose evidence is listed.
const LISTED: usize = 60;
/// Most rows of evidence on the page.
const ROWS: usize = 3000;

const COLUMNS: [Column; 8] = [
    Column::Number("Phase"),
    Column::Text("Name"),
    Column::Text("Policy"),
    Column::Text("Ended"),
    Column::Number("Wall time"),
    Column::Number("CPU time"),
    Column::Number("Peak memory"),
    Column::Text("Evidence"),
];

/// A phase by its name and, where it has ended, its report.
type Phases<'a> = BTreeMap<u32, (&'a str, Option<&'a EndReport>)>;

pub(super) fn write(html: &mut Html, input: &ReportInput<'_>, story: &Story<'_>) {
    let mut phases: Phases<'_> =
        story.phases.iter().map(|(number, phase)| (*number, (phase.name, None))).collect();
    for phase in input.phases {
        phases.insert(phase.phase, (&phase.name, Some(&phase.end)));
    }
    if phases.is_empty() {
        return html.markup("<p>No phase has begun.</p>");
    }
    weaker(html, input, &phases);
    table(html, "Phases, each in a sandbox of its own", &COLUMNS, |html| {
        for (number, (name, report)) in phases.iter().take(PHASES) {
            Row::write(html, |row| overview(row, *number, name, *report));
        }
        if phases.len() > PHASES {
            let more = count((phases.len() - PHASES) as u64, "further phase");
            rest(html, COLUMNS.len(), format_args!("{more}: in phases/*/end.json"));
        }
    });
    html.markup(
        "<p>How a clause is known to hold: <b>read</b> back from the kernel; <b>tried</b> inside before the command \
         existed, and refused; <b>set</b> by a call that succeeded, where the kernel shows nothing to read.</p>",
    );
    let mut left = ROWS;
    let reports = phases.iter().filter_map(|(number, (name, report))| Some((*number, *name, (*report)?)));
    for (number, name, report) in reports.take(LISTED) {
        details(html, number, name, report, &mut left);
    }
    if phases.len() > LISTED {
        let more = count((phases.len() - LISTED) as u64, "further phase");
        html.leaf("p", &[], format_args!("The evidence of {more} is in phases/*/end.json."));
    }
}

/// What confined less than the policies ask for.
fn weaker(html: &mut Html, input: &ReportInput<'_>, phases: &Phases<'_>) {
    let said = input.receipt.map(|receipt| receipt.weaker.as_slice()).unwrap_or_default();
    let lowered: Vec<_> = phases
        .iter()
        .flat_map(|(number, (name, report))| {
            let lowered = report.iter().flat_map(|report| &report.lowered);
            lowered.map(move |low| (number, name, low))
        })
        .collect();
    if said.is_empty() && lowered.is_empty() {
        return html.markup("<p>Nothing was weaker than the task and its policies ask for by default.</p>");
    }
    warning(html, |html| html.text("Weaker than the task and its policies ask for by default:"));
    html.element("ul", &[], |html| {
        for text in said.iter().take(PHASES) {
            html.element("li", &[], |html| html.foreign(text));
        }
        for (number, name, low) in lowered.iter().take(PHASES) {
            html.element("li", &[], |html| {
                html.text(format_args!("Phase {number}, "));
                html.foreign(name);
                html.text(": ");
                html.foreign(&low.clause);
                html.text(": ");
                html.foreign(&low.what);
            });
        }
    });
    let more = said.len().saturating_sub(PHASES) + lowered.len().saturating_sub(PHASES);
    if more > 0 {
        html.leaf("p", &[], format_args!("And {more} more: in receipt.json and phases/*/end.json."));
    }
}

fn overview(row: &mut Row<'_>, number: u32, name: &str, report: Option<&EndReport>) {
    row.number(number);
    row.foreign(name);
    let Some(report) = report else {
        row.text("");
        row.text("no end report");
        return (0..4).for_each(|_| row.text(""));
    };
    row.foreign(&report.policy);
    row.cell(|html| {
        // The grader process serves until its supervisor kills it.
        let by_design = name == GRADER && report.reason == Reason::Signalled && report.signal == Some(9);
        let well = by_design || report.reason == Reason::Exited && report.exit_code == Some(0);
        let words = if by_design { "by its supervisor".to_owned() } else { ending(report) };
        html.leaf("span", &[("class", &if well { "good" } else { "fair" })], words);
    });
    row.number(duration(report.wall_ms));
    row.number(cpu(report).map_or_else(String::new, duration));
    row.number(report.memory_peak.map_or_else(String::new, size));
    let of = |kind| report.enforced.iter().filter(|evidence| evidence.evidence == kind).count();
    row.text(format_args!(
        "{} read, {} tried, {} set",
        of(EvidenceKind::KernelRead),
        of(EvidenceKind::ChildProbe),
        of(EvidenceKind::StepOk)
    ));
}

fn cpu(report: &EndReport) -> Option<u64> {
    Some(report.user_ms?.saturating_add(report.sys_ms?))
}

fn ending(report: &EndReport) -> String {
    match report.reason {
        Reason::Exited => report.exit_code.map_or_else(|| "exited".to_owned(), |code| format!("exit {code}")),
        Reason::Signalled => {
            report.signal.map_or_else(|| "signalled".to_owned(), |signal| format!("signal {signal}"))
        }
        Reason::Oom => "out of memory".to_owned(),
        Reason::WallTimeout => "out of time".to_owned(),
        Reason::PidsLimitHit => "out of processes".to_owned(),
        Reason::GpuLimit => "too much of a GPU".to_owned(),
        Reason::SetupFailed => "not started".to_owned(),
        Reason::SupervisorLost => "supervisor lost".to_owned(),
    }
}

fn details(html: &mut Html, number: u32, name: &str, report: &EndReport, left: &mut usize) {
    html.element("details", &[], |html| {
        html.element("summary", &[], |html| {
            html.text(format_args!("Phase {number}, "));
            html.foreign(name);
            html.text(format_args!(": {} of evidence", count(report.enforced.len() as u64, "piece")));
            if !report.lowered.is_empty() {
                html.text(format_args!(", {} lowered", report.lowered.len()));
            }
        });
        facts(html, |html| {
            resources(html, report);
            if let Some(gpus) = &report.gpus {
                gpus::facts(html, gpus);
            }
        });
        if let Some(gpus) = &report.gpus {
            gpus::devices(html, gpus);
        }
        let shown = report.enforced.len().min(*left);
        *left -= shown;
        let columns = [Column::Text("Clause"), Column::Text("What holds"), Column::Text("Known")];
        table(html, "Evidence", &columns, |html| {
            for evidence in &report.enforced[..shown] {
                Row::write(html, |row| {
                    row.foreign(&evidence.clause);
                    row.foreign(&evidence.what);
                    row.text(match evidence.evidence {
                        EvidenceKind::KernelRead => "read",
                        EvidenceKind::ChildProbe => "tried",
                        EvidenceKind::StepOk => "set",
                    });
                });
            }
            if shown < report.enforced.len() {
                let more = count((report.enforced.len() - shown) as u64, "further piece");
                rest(html, columns.len(), format_args!("{more}: in phases/{number}-*/end.json"));
            }
        });
    });
}

fn resources(html: &mut Html, report: &EndReport) {
    if let Some(error) = &report.error {
        fact(html, "Error", |html| html.foreign(error));
    }
    if let Some(left) = &report.left_behind {
        fact(html, "Left behind", |html| html.foreign(left));
    }
    fact(html, "Sandbox", |html| html.element("code", &[], |html| html.foreign(&report.id)));
    fact(html, "Policy digest", |html| html.element("code", &[], |html| html.foreign(&report.policy_digest)));
    fact(html, "Spec digest", |html| html.element("code", &[], |html| html.foreign(&report.spec_digest)));
    if let (Some(user), Some(sys)) = (report.user_ms, report.sys_ms) {
        fact(html, "CPU time", |html| {
            html.text(format_args!("{} user, {} kernel", duration(user), duration(sys)));
        });
    }
    if let Some(io) = &report.io {
        fact(html, "Block devices", |html| {
            html.text(format_args!("{} read, {} written", size(io.read), size(io.written)));
        });
    }
    if let Some(pids) = report.pids_peak {
        fact(html, "Most tasks", |html| html.text(pids));
    }
    if let Some(kills) = report.oom_kills.filter(|kills| *kills > 0) {
        fact(html, "Killed for memory", |html| html.text(kills));
    }
    if let Some(refused) = report.pids_refused.filter(|refused| *refused > 0) {
        fact(html, "Forks refused", |html| html.text(refused));
    }
}
