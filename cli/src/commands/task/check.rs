//! `airlock task check`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use airlock_grader::run::check_place;
use airlock_grader::task::{Finding, Task, TaskError};
use anyhow::Result;
use serde::Serialize;

use crate::args::FormatArgs;
use crate::output;

pub(crate) fn check(tasks: &[PathBuf], format: &FormatArgs) -> Result<ExitCode> {
    let results: Vec<_> = tasks.iter().map(|dir| (dir.as_path(), Task::load(dir))).collect();
    let good = results.iter().all(|(_, result)| result.is_ok());
    if format.json {
        output::json(&results.iter().map(|(dir, result)| Checked::of(dir, result)).collect::<Vec<_>>())?;
    } else {
        for (dir, result) in results {
            show(dir, result)?;
        }
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(crate::OWN_FAILURE) })
}

fn show(dir: &Path, result: Result<Task, TaskError>) -> Result<()> {
    let task = match result {
        Ok(task) => task,
        Err(error) => {
            output::error(&error.into());
            return Ok(());
        }
    };
    output::print(&format!("{}: ok\n", output::escape(&dir.display().to_string())))?;
    for unused in &task.unused {
        let place = format!("{}:{}:{}", unused.place.file, unused.place.line, unused.place.column);
        let key = &unused.key;
        output::print(&output::escape(&format!("  {place}: note: Airlock makes no use of `{key}`\n")))?;
    }
    if let Some(warning) = warning(&task) {
        output::print(&output::escape(&format!("  warning: {warning}\n")))?;
    }
    for name in task.supplied() {
        output::print(&output::escape(&format!("  note: the operator supplies the asset `{name}`\n")))?;
    }
    Ok(())
}

/// Why a task that has no mistake cannot be run where it lies.
fn warning(task: &Task) -> Option<String> {
    check_place(task).err().map(|error| error.to_string())
}

/// What `--json` says of one directory.
#[derive(Serialize)]
struct Checked<'a> {
    dir: String,
    ok: bool,
    errors: Vec<Mistake>,
    /// Keys of `task.toml` that Airlock makes no use of.
    #[serde(skip_serializing_if = "Option::is_none")]
    unused: Option<Vec<&'a str>>,
    /// Why it cannot be run where it lies.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<&'a Task>,
}

#[derive(Serialize)]
struct Mistake {
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<usize>,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<String>,
}

impl<'a> Checked<'a> {
    fn of(dir: &Path, result: &'a Result<Task, TaskError>) -> Self {
        let dir = dir.display().to_string();
        match result {
            Ok(task) => {
                let unused = task.unused.iter().map(|unused| unused.key.as_str()).collect();
                let (unused, warning, task) = (Some(unused), warning(task), Some(task));
                Checked { dir, ok: true, errors: Vec::new(), unused, warning, task }
            }
            Err(error) => {
                Checked { dir, ok: false, errors: mistakes(error), unused: None, warning: None, task: None }
            }
        }
    }
}

fn mistakes(error: &TaskError) -> Vec<Mistake> {
    let whole = |file: String, message: String, help: Option<String>| Mistake {
        file,
        line: None,
        column: None,
        message,
        help,
    };
    let mistake = |finding: &Finding| match finding.clone() {
        Finding::Text(text) => Mistake {
            file: text.place.file,
            line: Some(text.place.line),
            column: Some(text.place.column),
            message: text.message,
            help: text.help,
        },
        Finding::Tree { path, message, help } => {
            whole(path.display().to_string(), message, Some(help.to_owned()))
        }
    };
    match error {
        TaskError::Invalid(findings) => findings.iter().map(mistake).collect(),
        TaskError::Read { path, source } => {
            vec![whole(path.display().to_string(), source.to_string(), None)]
        }
        other => vec![whole(String::new(), other.to_string(), None)],
    }
}
