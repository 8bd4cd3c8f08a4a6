//! Tables for people.

use std::fmt::Write as _;

use airlock_runtime::probe::{Matrix, Outcome, Verdict};

use super::{Judgement, Report, words};

/// Word of a verdict in a column.
pub(in super::super) fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Denied => "denied",
        Verdict::Allowed => "allowed",
        Verdict::Broken => "broken",
    }
}

/// A verdict and its error number or signal, if that is what it comes from.
pub(in super::super) fn brief(verdict: Option<Verdict>, outcome: Option<&Outcome>) -> String {
    match (verdict, outcome) {
        (Some(verdict), Some(outcome @ (Outcome::Refused(_) | Outcome::Killed(_)))) => {
            format!("{} {outcome}", word(verdict))
        }
        (Some(verdict), _) => word(verdict).to_owned(),
        (None, _) => "-".into(),
    }
}

pub(super) fn probes(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let mut line = |words: std::fmt::Arguments<'_>| {
        let _ = writeln!(text, "{words}");
    };
    let heads: String = report.launchers.iter().map(|name| format!(" {name:<20}")).collect();
    if !heads.is_empty() {
        line(format_args!("{:<31} {:<20}{heads}", "", report.policy));
    }
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
        let outcome = row.outcome.as_ref();
        if report.launchers.is_empty() {
            let clauses = if row.clauses.is_empty() { "-".into() } else { row.clauses.join(", ") };
            let observed = word(row.observed);
            let outcome = outcome.map_or("-".into(), ToString::to_string);
            line(format_args!("{mark} {:<28} {observed:<8} {outcome:<24} {clauses}", row.id));
            continue;
        }
        let differs = |name: &String| row.verdict(name).is_some_and(|verdict| verdict != row.observed);
        let star = if report.launchers.iter().any(differs) { '*' } else { ' ' };
        let columns = report.launchers.iter().map(|name| brief(row.verdict(name), row.under.get(name)));
        let columns: String = columns.map(|column| format!(" {column:<20}")).collect();
        let own = brief(Some(row.observed), outcome);
        line(format_args!("{mark}{star} {:<28} {own:<20}{}", row.id, columns.trim_end()));
    }
    line(format_args!(
        "\n{}: exposure {}; {} probes, {} denied, {} allowed, {} unexpected",
        report.policy,
        report.exposure,
        report.probes.len(),
        report.count(Verdict::Denied),
        report.count(Verdict::Allowed),
        report.unexpected,
    ));
    for launcher in &report.launchers {
        let [denied, allowed, opened] = report.counts(launcher);
        line(format_args!(
            "{launcher}: {denied} denied, {allowed} allowed; {opened} that the policy denies are allowed"
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
