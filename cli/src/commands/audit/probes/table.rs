//! Tables for people.

use std::fmt::Write as _;

use airlock_runtime::probe::{Matrix, Outcome, Verdict, table as all};

use super::{Judgement, Report, words};

/// Letter of a verdict in a column.
fn letter(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Denied => "denied",
        Verdict::Allowed => "allowed",
        Verdict::Broken => "broken",
    }
}

pub(super) fn probes(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let mut line = |words: std::fmt::Arguments<'_>| {
        let _ = writeln!(text, "{words}");
    };
    let outcome = |outcome: Option<&Outcome>| outcome.map_or("-".into(), ToString::to_string);
    let mut area = "";
    for row in &report.probes {
        let now = row.id.split_once('.').map_or(row.id, |(area, _)| area);
        if now != area {
            area = now;
            line(format_args!("\n{area}"));
        }
        let mark = match row.result {
            Judgement::Expected => ' ',
            Judgement::HostRefuses | Judgement::Missing => '.',
            Judgement::Unexpected => '!',
        };
        let clauses = if row.clauses.is_empty() { "-".into() } else { row.clauses.join(", ") };
        let observed = letter(row.observed);
        match &report.launcher {
            None => line(format_args!(
                "{mark} {:<28} {observed:<8} {:<24} {clauses}",
                row.id,
                outcome(row.outcome.as_ref()),
            )),
            Some(_) => {
                let under = row.under.as_ref().map_or("-", |under| {
                    all().find(|probe| probe.id == row.id).map_or("-", |probe| letter(probe.judge(under)))
                });
                let differs = if under == observed { ' ' } else { '*' };
                line(format_args!(
                    "{mark}{differs} {:<28} {observed:<8} {:<20} {under:<8} {}",
                    row.id,
                    outcome(row.outcome.as_ref()),
                    outcome(row.under.as_ref()),
                ));
            }
        }
    }
    let count = |wanted: Verdict| report.probes.iter().filter(|row| row.observed == wanted).count();
    line(format_args!(
        "\n{}: {} probes, {} denied, {} allowed, {} unexpected",
        report.policy,
        report.probes.len(),
        count(Verdict::Denied),
        count(Verdict::Allowed),
        report.unexpected,
    ));
    if let Some(launcher) = &report.launcher {
        let judged = |row: &super::Row| {
            let probe = all().find(|probe| probe.id == row.id)?;
            Some(probe.judge(row.under.as_ref()?))
        };
        let under = |wanted| report.probes.iter().filter(|row| judged(row) == Some(wanted)).count();
        let opened =
            |row: &&super::Row| row.observed == Verdict::Denied && judged(row) == Some(Verdict::Allowed);
        line(format_args!(
            "{launcher}: {} denied, {} allowed; {} that the policy denies are allowed",
            under(Verdict::Denied),
            under(Verdict::Allowed),
            report.probes.iter().filter(opened).count(),
        ));
    }
    text
}

pub(super) fn matrix(matrix: &Matrix) -> String {
    let mut text = String::new();
    let mut line = |words: std::fmt::Arguments<'_>| {
        let _ = writeln!(text, "{words}");
    };
    for result in &matrix.clauses {
        let (how, which) = words(&result.proof);
        line(format_args!("{:<28} {how:<9} {which}", result.name));
    }
    line(format_args!(
        "\nremoved: these probes are let through without the clause alone\n\
         alone:   with the clause alone, these are stopped; otherwise other layers stop them too\n\
         fixed:   no spec lacks it; it alone stops these where nothing else is left, and nothing does outside\n\
         beyond:  this caller cannot try what it stops, inside or outside"
    ));
    line(format_args!("\noverlaps"));
    for (probe, clauses) in &matrix.overlaps {
        line(format_args!("  {probe:<28} {}", clauses.join(", ")));
    }
    let list = |probes: &[&str]| if probes.is_empty() { "none".into() } else { probes.join(" ") };
    let unproven: Vec<&str> = matrix.unproven().map(|result| result.name).collect();
    line(format_args!("\nnot in this policy: {}", list(&matrix.absent)));
    line(format_args!("unproven clauses: {}", list(&unproven)));
    line(format_args!("vacuous probes: {}", list(&matrix.vacuous)));
    line(format_args!("beyond this caller: {}", list(&matrix.beyond_caller)));
    text
}
