//! `airlock audit --pid`: what confines a process that runs.

use std::fmt::Write as _;
use std::process::ExitCode;

use airlock_policy::Overrides;
use airlock_runtime::live::{Finding, Live, against, exposure, payload_of};
use airlock_runtime::state::Sandboxes;
use anyhow::{Context, Result};
use serde::Serialize;

use crate::output;

#[derive(Debug, Serialize)]
struct Report {
    process: Live,
    /// Compared with the host.
    exposure: Vec<Finding>,
    /// Compared with a policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    against: Option<Vec<Finding>>,
}

/// Exit status 1 if the process is confined less than the policy says.
pub(super) fn live(name: &str, policy: Option<&str>, json: bool) -> Result<ExitCode> {
    let process = Live::read(pid(name)?)?;
    let spec = policy.map(|policy| super::super::spec(policy, Overrides::default(), vec!["audit".into()]));
    let compared = spec.transpose()?.map(|spec| against(&process, &spec));
    let wider = compared.iter().flatten().any(|finding| finding.open);
    let report = Report { exposure: exposure(&process), against: compared, process };
    if json {
        output::json(&report)?;
    } else {
        output::print(&output::escape(&text(&report)))?;
    }
    Ok(ExitCode::from(u8::from(wider)))
}

/// A number is a process; anything else the name of a sandbox, whose command is meant.
pub(super) fn pid(name: &str) -> Result<i32> {
    if let Ok(pid) = name.parse() {
        return Ok(pid);
    }
    let records = Sandboxes::open()?.list()?;
    let record = records.into_iter().find(|record| record.id == name);
    let init = record.with_context(|| format!("no sandbox {name:?} runs (see `airlock list`)"))?.init;
    Ok(payload_of(init.with_context(|| format!("sandbox {name:?} is being built"))?.pid))
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let mut line = |words: std::fmt::Arguments<'_>| {
        let _ = writeln!(text, "{words}");
    };
    let process = &report.process;
    line(format_args!("process {} ({})\n", process.pid, process.name));
    let mut findings = |title: &str, findings: &[Finding]| {
        line(format_args!("{title}"));
        for finding in findings {
            let mark = if finding.open { '!' } else { ' ' };
            line(format_args!("{mark} {:<18} {}", finding.clause, finding.what));
        }
        line(format_args!(""));
    };
    findings("compared with the host (! confines less than it might)", &report.exposure);
    if let Some(against) = &report.against {
        findings("compared with the policy (! confines less than it says)", against);
    }
    line(format_args!("uid_map {}; gid_map {}", process.uid_map.join(", "), process.gid_map.join(", ")));
    line(format_args!("\nmounts"));
    for mount in &process.mounts {
        line(format_args!("  {:<32} {:<10} {}", mount.target, mount.kind, mount.options.join(",")));
    }
    line(format_args!("\ndescriptors"));
    for descriptor in &process.descriptors {
        let mark = if descriptor.outside && descriptor.directory { '!' } else { ' ' };
        line(format_args!("{mark} {:<4} {}", descriptor.number, descriptor.target));
    }
    line(format_args!("\ncontrol groups"));
    for group in &process.cgroups {
        let name = if group.controllers.is_empty() { "version 2" } else { &group.controllers };
        let settings: Vec<String> =
            group.settings.iter().map(|setting| format!("{}={}", setting.file, setting.value)).collect();
        line(format_args!("  {name:<16} {} {}", group.path, settings.join(" ")));
    }
    line(format_args!("\nsockets of its network namespace"));
    for (protocol, sockets) in process.sockets.iter().filter(|(_, sockets)| sockets.count > 0) {
        let listening = sockets.listening.join(" ");
        let held = sockets.held.join(" ");
        line(format_args!("  {protocol:<5} {}; listening: {listening}; its own: {held}", sockets.count));
    }
    line(format_args!("\nenvironment: {}", process.environment.join(" ")));
    line(format_args!("\nnot seen"));
    for unseen in &process.unseen {
        line(format_args!("  {}: {}", unseen.what, unseen.why));
    }
    text
}
