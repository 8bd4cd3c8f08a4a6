//! `airlock task status`.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use airlock_grader::run::status::{RunStatus, Stage, ValidationState, read};
use anyhow::Result;
use serde::Serialize;

use super::lead;
use crate::output;
use crate::task_args::StatusArgs;

/// Between two looks at a run that is followed.
const PAUSE: Duration = Duration::from_millis(500);

pub(crate) fn status(args: &StatusArgs) -> Result<ExitCode> {
    let (mut status, records) = read(&args.run)?;
    show(&status, args)?;
    let mut seen = records.len();
    while args.follow && status.stage != Stage::Closed {
        std::thread::sleep(PAUSE);
        let records;
        (status, records) = read(&args.run)?;
        let news = records.get(seen..).unwrap_or_default();
        seen = records.len();
        if args.format.json && !news.is_empty() {
            show(&status, args)?;
        }
        for line in news.iter().filter(|_| !args.format.json).map(|record| lead::words(&record.event)) {
            if !line.is_empty() {
                output::print(&format!("{}\n", output::escape(&line)))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// One document, or where one follows another, one a line.
fn show(status: &RunStatus, args: &StatusArgs) -> Result<()> {
    match (args.format.json, args.follow) {
        (true, true) => output::print(&format!("{}\n", serde_json::to_string(status)?)),
        (true, false) => output::json(status),
        (false, _) => output::print(&output::escape(&words(status))),
    }
}

fn words(status: &RunStatus) -> String {
    let mut text = format!("run        {}\ntask       {}", status.run_id, status.task);
    if let Some(title) = &status.title {
        text += &format!(" ({title:?})");
    }
    let _ = write!(text, "\nstage      {}", word(&status.stage));
    for phase in &status.phases {
        let _ = write!(text, ", phase {} {}", phase.phase, phase.name);
    }
    if let Some(cause) = &status.interrupted {
        let _ = write!(text, ": {cause}");
    }
    if status.outcome.is_none() {
        match status.supervisor {
            Some(pid) => {
                let _ = write!(text, "\nsupervisor at work, pid {pid}");
            }
            None if status.interrupted.is_some() => {
                text += "\nsupervisor none is seen from here; `airlock task resume` with `--again` or `--close` decides";
            }
            None => {
                text += "\nsupervisor none is seen from here; `airlock task resume` takes the run up again";
            }
        }
    }
    let clock = status.research;
    let _ = writeln!(
        text,
        "\nresearch   {} of {}, {} left",
        time(clock.elapsed_ms),
        time(clock.budget_ms),
        time(clock.left_ms)
    );
    for validation in &status.validations {
        let _ = write!(text, "validation v-{} {}", validation.ticket, word(&validation.state));
        match (validation.state, validation.counts) {
            (ValidationState::Done, Some(counts)) => {
                let score = validation.score.map_or_else(|| "void".to_owned(), |score| score.to_string());
                let _ = write!(text, ": {score} ({} of {} graded)", counts.graded(), counts.planned);
            }
            (ValidationState::Failed, _) => {
                let _ = write!(text, ": {}", validation.cause.as_deref().unwrap_or_default());
            }
            _ => {}
        }
        text.push('\n');
    }
    if let Some(submitted) = status.submitted {
        let _ = writeln!(text, "submitted  {submitted}");
    }
    for gate in &status.gates {
        let _ =
            writeln!(text, "gate       {}: {}", gate.gate, if gate.passed { "passed" } else { "refused" });
    }
    for checkpoint in &status.checkpoints {
        let stands = match (checkpoint.valid, checkpoint.selected) {
            (false, _) => "not valid",
            (true, false) => "valid",
            (true, true) => "selected",
        };
        let score = checkpoint.score.map(|score| format!(", {score}")).unwrap_or_default();
        let _ = writeln!(text, "checkpoint {:?} ({}): {stands}{score}", checkpoint.name, checkpoint.progress);
    }
    if let Some(result) = &status.result {
        let score = result.score.map_or_else(|| "none".to_owned(), |score| score.to_string());
        let sigma = result.sigma.map(|sigma| format!(", sigma {sigma}")).unwrap_or_default();
        let _ = writeln!(text, "score      {score}{sigma}");
    }
    if let Some(outcome) = status.outcome {
        let _ = writeln!(text, "outcome    {}", word(&outcome));
    }
    text
}

/// What JSON calls it.
fn word(value: &impl Serialize) -> String {
    serde_json::to_value(value).unwrap_or_default().as_str().unwrap_or_default().replace('_', " ")
}

/// `1h 02m 03s`, without what is zero in front.
fn time(ms: u64) -> String {
    let seconds = ms / 1000;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m {seconds:02}s"),
        _ => format!("{hours}h {minutes:02}m {seconds:02}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        for (ms, text) in [(999, "0s"), (61_000, "1m 01s"), (3_600_000, "1h 00m 00s")] {
            assert_eq!(time(ms), text);
        }
    }
}
