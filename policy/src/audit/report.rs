//! What an audit comes to: JSON of a stable shape, a table for people, and the table of rules.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::rule::{Finding, Severity};

/// The findings of all that was audited.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Report {
    /// Version of this shape: 1.
    pub version: u32,
    /// A finding of this severity or above makes the audit fail.
    pub fail_on: Severity,
    /// Whether there is one.
    pub failed: bool,
    /// What was audited, in the order of the command line.
    pub audited: Vec<Audited>,
}

/// One thing that was audited.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Audited {
    /// As the command line names it; a phase of a task in parentheses.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// What the rules found, the gravest first.
    pub findings: Vec<Finding>,
}

/// What was audited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An Airlock policy.
    Policy,
    /// An OCI bundle.
    Bundle,
    /// A task directory.
    Task,
    /// The policy of one phase of a task.
    Phase,
}

impl Report {
    /// Puts the parts together.
    pub fn new(fail_on: Severity, audited: Vec<Audited>) -> Self {
        let failed = audited.iter().flat_map(|one| &one.findings).any(|found| found.severity >= fail_on);
        Report { version: 1, fail_on, failed, audited }
    }

    /// For people: a block for each thing audited, a line for each finding, what to do about it below.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for Audited { name, findings, .. } in &self.audited {
            let count = |severity| findings.iter().filter(|found| found.severity == severity).count();
            let levels = [Severity::High, Severity::Medium, Severity::Low, Severity::Info];
            let counts = levels.map(|severity| format!("{} {severity}", count(severity)));
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name}: {}", counts.join(", "));
            for found in findings {
                let Finding { rule, severity, title, clause, file, line, column, .. } = found;
                let _ = writeln!(text, "  {severity:<6} {rule}  {title}: {}", found.found);
                let _ = writeln!(text, "                {file}:{line}:{column}  {clause}");
                let _ = writeln!(text, "                = {}", found.remedy);
            }
        }
        text
    }
}

/// The JSON Schema (draft 2020-12) of [`Report`].
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(Report);
    schema.insert("title".into(), "Airlock audit report".into());
    schema.to_value()
}

/// The rules as a table in Markdown, in the order of their ids.
pub fn markdown() -> String {
    let mut text = String::from(
        "| id | severity | area | what is found | why it matters | reported or documented in | remedy |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for rule in super::rules() {
        let cells = [rule.title, rule.why, rule.reference, rule.remedy].map(|cell| cell.replace('|', "\\|"));
        let _ = writeln!(text, "| {} | {} | {} | {} |", rule.id, rule.severity, rule.area, cells.join(" | "));
    }
    text
}
