//! `airlock policy diff` and `airlock policy explain`.

use std::fmt::Write;
use std::process::ExitCode;

use airlock_policy::diff::{Change, Effect};
use airlock_policy::explain::{Answer, Explained, Question, ThisHost, USUAL};
use airlock_policy::{Overrides, Place, Policy};
use anyhow::{Context, Result};
use serde::Serialize;

use crate::args::{ExplainArgs, FormatArgs};
use crate::output;

pub(super) fn diff(before: &str, after: &str, format: &FormatArgs) -> Result<ExitCode> {
    let cwd = std::env::current_dir()?;
    let load = |name: &str| Policy::load(name, &Overrides::default(), &cwd);
    let changes = airlock_policy::diff::diff(&load(before)?, &load(after)?)?;
    if format.json {
        output::json(&changes)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    for (effect, head) in [
        (Effect::Possible, "becomes possible"),
        (Effect::Impossible, "becomes impossible"),
        (Effect::Changed, "changes"),
    ] {
        let of: Vec<&Change> = changes.iter().filter(|change| change.effect == effect).collect();
        if !of.is_empty() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{head}");
        }
        for Change { clause, what, place, .. } in of {
            let _ = writeln!(text, "  {what}\n      {clause}{}", at(place.as_ref()));
        }
    }
    output::print(&output::escape(&text))?;
    Ok(ExitCode::SUCCESS)
}

/// One question with its answer.
#[derive(Serialize)]
struct Answered {
    question: String,
    #[serde(flatten)]
    answer: Answer,
}

pub(super) fn explain(args: ExplainArgs) -> Result<ExitCode> {
    let cwd = std::env::current_dir()?;
    let policy = Policy::load(&args.policy, &args.overrides.into(), &cwd)?;
    let spec = crate::commands::resolved(&policy, vec!["explained".into()])?;
    let (spec, plan) = crate::commands::plan::explained(spec).context("what would be launched")?;
    let explained = Explained::new(&policy, &spec, &plan, &ThisHost);
    let asked = !args.what.is_empty();
    let questions: Vec<Question> = match args.what {
        what if asked => what,
        _ => USUAL.iter().map(|question| question.parse()).collect::<Result<_, _>>()?,
    };
    let answered: Vec<Answered> = questions
        .iter()
        .map(|question| Answered { question: question.to_string(), answer: explained.answer(question) })
        .collect();
    if args.format.json {
        output::json(&answered)?;
    } else {
        let mut text = String::new();
        for Answered { question, answer: Answer { yes, clause, place, why } } in &answered {
            let word = if *yes { "yes" } else { "no" };
            let _ =
                writeln!(text, "{word:<4} {question}\n       {why}\n       {clause}{}", at(place.as_ref()));
        }
        output::print(&output::escape(&text))?;
    }
    let refused = asked && answered.iter().any(|answered| !answered.answer.yes);
    Ok(ExitCode::from(u8::from(refused)))
}

fn at(place: Option<&Place>) -> String {
    place.map_or_else(String::new, |place| format!(" ({}:{})", place.file, place.line))
}
