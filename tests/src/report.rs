//! The end report, read as anyone reads it: from its JSON.

use std::path::Path;

use serde_json::Value;

/// An end report.
#[derive(Clone, Debug)]
pub struct Report(Value);

impl Report {
    /// Reads a report, if the file holds one.
    pub fn read(path: &Path) -> Option<Report> {
        let text = std::fs::read_to_string(path).ok()?;
        let value = serde_json::from_str(&text);
        Some(Report(value.unwrap_or_else(|error| panic!("the report is no JSON: {error}\n{text}"))))
    }

    /// Why the sandbox ended.
    pub fn reason(&self) -> &str {
        self.text("reason")
    }

    /// A text field.
    pub fn text(&self, field: &str) -> &str {
        self.field(field).as_str().unwrap_or_else(|| panic!("`{field}` is no text in {self}"))
    }

    /// A whole number.
    pub fn number(&self, field: &str) -> u64 {
        self.field(field).as_u64().unwrap_or_else(|| panic!("`{field}` is no whole number in {self}"))
    }

    /// A field, which must be there.
    pub fn field(&self, field: &str) -> &Value {
        self.0.get(field).unwrap_or_else(|| panic!("no `{field}` in {self}"))
    }

    /// What was enforced: clause and evidence.
    pub fn enforced<'a>(&'a self) -> Vec<(&'a str, &'a str)> {
        let list = self.field("enforced").as_array().expect("`enforced` is a list");
        let part = |item: &'a Value, name: &str| {
            item[name].as_str().unwrap_or_else(|| panic!("an enforced clause lacks `{name}`: {item}"))
        };
        list.iter().map(|item| (part(item, "clause"), part(item, "evidence"))).collect()
    }

    /// The evidence for the clauses whose name starts so.
    pub fn evidence(&self, clause: &str) -> Vec<&str> {
        let found = self.enforced().into_iter().filter(|(name, _)| name.starts_with(clause));
        found.map(|(_, evidence)| evidence).collect()
    }

    /// What was lowered to what the host can do.
    pub fn lowered(&self) -> String {
        self.field("lowered").to_string()
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#}", self.0)
    }
}
