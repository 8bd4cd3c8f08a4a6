//! What an audit comes to: JSON of a stable shape, a table for people, and the table of rules.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::exposure::Exposure;
use super::rule::{Area, Finding, Severity};

/// The findings of all that was audited.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Report {
    /// Version of this shape: 1.
    pub version: u32,
    /// A finding of this severity or above makes the audit fail; absent if none does.
    pub fail_on: Option<Severity>,
    /// Whether there is one.
    pub failed: bool,
    /// What was audited, in the order of the command line.
    pub audited: Vec<Audited>,
    /// What could not be audited.
    pub unread: Vec<Unread>,
}

/// One thing that could not be audited.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Unread {
    /// As the command line names it.
    pub name: String,
    /// What kept it from being read.
    pub why: String,
}

/// One thing that was audited.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Audited {
    /// As the command line names it; a phase of a task in parentheses.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// How much is exposed by what was found, from 0 to 100; `AUDIT.md` has the formula.
    pub exposure: u8,
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

/// Severities, the gravest first.
pub const SEVERITIES: [Severity; 4] = [Severity::High, Severity::Medium, Severity::Low, Severity::Info];

impl Audited {
    /// What was found in something.
    pub fn new(name: String, kind: Kind, findings: Vec<Finding>) -> Self {
        Audited { name, kind, exposure: Exposure::of(&findings).figure(), findings }
    }

    /// Findings of a severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|found| found.severity == severity).count()
    }

    /// For people: a block for each mechanism that has findings, the gravest mechanism first.
    fn text(&self, text: &mut String) {
        let counts = SEVERITIES.map(|severity| format!("{} {severity}", self.count(severity)));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}: exposure {}, {}", self.name, self.exposure, counts.join(", "));
        let mut areas: Vec<Area> = Vec::new();
        for found in &self.findings {
            if !areas.contains(&found.area) {
                areas.push(found.area);
            }
        }
        for area in areas {
            let _ = writeln!(text, "  {area}");
            for found in self.findings.iter().filter(|found| found.area == area) {
                let Finding { rule, severity, title, clause, file, line, column, .. } = found;
                let _ = writeln!(text, "    {severity:<6} {rule}  {title}: {}", found.found);
                let _ = writeln!(text, "                  {file}:{line}:{column}  {clause}");
                let _ = writeln!(text, "                  = {}", found.remedy);
            }
        }
    }
}

impl Report {
    /// Puts the parts together.
    pub fn new(fail_on: Option<Severity>, audited: Vec<Audited>, unread: Vec<Unread>) -> Self {
        let mut found = audited.iter().flat_map(|one| &one.findings);
        let failed = fail_on.is_some_and(|least| found.any(|found| found.severity >= least));
        Report { version: 1, fail_on, failed, audited, unread }
    }

    /// For people: a block for each thing audited, in it one for each mechanism, and what to do about each finding.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.audited.iter().for_each(|audited| audited.text(&mut text));
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
