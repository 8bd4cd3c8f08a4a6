//! `airlock audit`.

mod live;
mod output;
mod page;
mod probes;
mod seccomp;
mod task;

use std::path::Path;
use std::process::ExitCode;

use airlock_policy::audit::{Audited, Kind, Report, Severity, Subject, Unread, markdown, sarif, schema};
use anyhow::{Result, bail};

use self::output::Output;
use crate::audit_args::{AuditArgs, AuditCommand, FailOn};

pub(crate) fn audit(args: AuditArgs) -> Result<ExitCode> {
    if let Some(AuditCommand::Seccomp(args)) = args.command {
        return seccomp::seccomp(&args);
    }
    let mut output = Output::of(&args)?;
    if let Some(policy) = &args.live.probe {
        return probes::probe(policy, &args.live, &mut output);
    }
    if let Some(policy) = &args.live.mutate {
        return probes::mutate(policy, &args.live, &mut output);
    }
    if let Some(name) = &args.live.pid {
        return live::live(name, args.live.against.as_deref(), args.json);
    }
    if args.rules {
        crate::output::print(&markdown())?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.schema {
        crate::output::json(&schema())?;
        return Ok(ExitCode::SUCCESS);
    }
    let (mut audited, mut errors) = (Vec::new(), Vec::new());
    for name in &args.names {
        match one(name) {
            Ok(one) => audited.extend(one),
            Err(error) => errors.push((name, error)),
        }
    }
    let fail_on = match args.fail_on {
        FailOn::High => Some(Severity::High),
        FailOn::Medium => Some(Severity::Medium),
        FailOn::Low => Some(Severity::Low),
        FailOn::Never => None,
    };
    let why = |error| crate::output::causes(error).join(": ");
    let unread = errors.iter().map(|(name, error)| Unread { name: (*name).clone(), why: why(error) });
    let report = Report::new(fail_on, audited, unread.collect());
    output.say(&report, || report.text())?;
    output.sarif(|| sarif(&report))?;
    output.page(|| page::findings(&report))?;
    for (name, error) in errors {
        crate::output::error(&error.context(format!("audit {name}")));
    }
    let unread = !report.unread.is_empty();
    Ok(ExitCode::from(if unread { crate::OWN_FAILURE } else { u8::from(report.failed) }))
}

/// What a name of the command line stands for: a bundle, a task, a policy.
fn one(name: &str) -> Result<Vec<Audited>> {
    let path = Path::new(name);
    let (kind, subject) = match kind(path)? {
        Kind::Task => return task::audit(path.is_dir().then_some(path).or(path.parent()).unwrap_or(path)),
        kind => (kind, subject(name)?),
    };
    Ok(vec![Audited::new(name.to_owned(), kind, subject.findings())])
}

/// The policy or the bundle that a name stands for.
pub(crate) fn subject(name: &str) -> Result<Subject> {
    let path = Path::new(name);
    Ok(match kind(path)? {
        Kind::Bundle if path.is_dir() => Subject::bundle(&path.join("config.json"))?,
        Kind::Bundle => Subject::bundle(path)?,
        _ => Subject::policy_named(name, &std::env::current_dir()?)?,
    })
}

fn kind(path: &Path) -> Result<Kind> {
    if path.is_dir() {
        return match (path.join("config.json").is_file(), path.join("task.toml").is_file()) {
            (true, _) => Ok(Kind::Bundle),
            (false, true) => Ok(Kind::Task),
            (false, false) => bail!("the directory has neither a config.json nor a task.toml"),
        };
    }
    Ok(match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => Kind::Bundle,
        Some("toml") if path.file_name().is_some_and(|name| name == "task.toml") => Kind::Task,
        _ => Kind::Policy,
    })
}
