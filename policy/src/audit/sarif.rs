//! A report in the Static Analysis Results Interchange Format 2.1.0 (OASIS), for code scanning and editors.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::report::{Audited, Report};
use super::rule::{Finding, Rule, Severity};

/// Where the format's schema is published.
const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// The report as one run of one tool. All rules are listed; a result's place is a line of a file, and its clause.
pub fn sarif(report: &Report) -> Value {
    let rules: Vec<&Rule> = super::rules().collect();
    let of =
        |audited: &Audited| audited.findings.iter().map(|found| result(found, audited, &rules)).collect();
    let results: Vec<Value> =
        report.audited.iter().flat_map(|audited| -> Vec<Value> { of(audited) }).collect();
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "airlock",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules.iter().map(|rule| descriptor(rule)).collect::<Vec<_>>(),
            } },
            // Columns count characters, not UTF-16 units.
            "columnKind": "unicodeCodePoints",
            "invocations": [invocation(report)],
            "results": results,
            "properties": { "exposure": exposures(report) },
        }],
    })
}

/// Whether all was audited (section 3.20).
fn invocation(report: &Report) -> Value {
    let unread = report.unread.iter().map(|one| {
        json!({ "level": "error", "message": { "text": format!("not audited: {}: {}", one.name, one.why) } })
    });
    json!({
        "executionSuccessful": report.unread.is_empty(),
        "toolExecutionNotifications": unread.collect::<Vec<_>>(),
    })
}

fn exposures(report: &Report) -> Value {
    report
        .audited
        .iter()
        .map(|audited| json!({ "name": audited.name, "exposure": audited.exposure }))
        .collect()
}

fn descriptor(rule: &Rule) -> Value {
    let sentence = |text: &str| json!({ "text": text });
    json!({
        "id": rule.id,
        "shortDescription": sentence(rule.title),
        "fullDescription": sentence(rule.why),
        "help": sentence(rule.remedy),
        "defaultConfiguration": { "level": level(rule.severity) },
        "properties": {
            "tags": ["security", rule.area.to_string()],
            "security-severity": score(rule.severity),
            "reference": rule.reference,
        },
    })
}

fn result(found: &Finding, audited: &Audited, rules: &[&Rule]) -> Value {
    let kind = if found.severity == Severity::Info { "informational" } else { "fail" };
    json!({
        "ruleId": found.rule,
        "ruleIndex": rules.iter().position(|rule| rule.id == found.rule),
        "kind": kind,
        "level": level(found.severity),
        "message": { "text": format!("{}: {}", found.title, found.found) },
        "locations": [{
            "physicalLocation": {
                "artifactLocation": { "uri": uri(&found.file) },
                "region": { "startLine": found.line, "startColumn": found.column },
            },
            "logicalLocations": [{ "fullyQualifiedName": found.clause }],
        }],
        // The place may move while the finding stays the same.
        "partialFingerprints": { "clause/v1": format!("{}:{}", found.rule, found.clause) },
        "properties": { "audited": audited.name, "remedy": found.remedy },
    })
}

/// A kind that is no failure has the level `none` (section 3.27.9).
fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::High => "error",
        Severity::Medium => "warning",
        Severity::Low => "note",
        Severity::Info => "none",
    }
}

/// What code scanning sorts by, as scores of CVSS.
fn score(severity: Severity) -> &'static str {
    match severity {
        Severity::High => "8.0",
        Severity::Medium => "5.5",
        Severity::Low => "2.0",
        Severity::Info => "0.0",
    }
}

/// A file's name as a reference (RFC 3986). A built-in policy is no file, and has a scheme of its own.
fn uri(file: &str) -> String {
    let (mut uri, path) = match file.strip_prefix("built-in ") {
        Some(name) => (String::from("airlock:built-in/"), name),
        None if file.starts_with('/') => (String::from("file://"), file),
        None => (String::new(), file),
    };
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            uri.push(byte.into());
        } else {
            // Writing to a String cannot fail.
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_references() {
        assert_eq!(uri("built-in base"), "airlock:built-in/base");
        assert_eq!(uri("/srv/a b/ü.toml"), "file:///srv/a%20b/%C3%BC.toml");
        assert_eq!(uri("./a:b.toml"), "./a%3Ab.toml");
    }
}
