//! What `airlock policy` prints.

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

use crate::builtin;
use crate::diagnostic::PolicyError;
use crate::merged::Policy;
use crate::overrides::Overrides;
use crate::schema::Document;

/// Name and purpose of each built-in policy.
pub fn list() -> impl Iterator<Item = (&'static str, &'static str)> {
    builtin::names().map(|name| (name, builtin::summary(name).unwrap_or_default()))
}

/// The merged policy that `arg` names, as a policy file that needs no other; a comment on each line says
/// where its value was last set.
pub fn show(arg: &str, cwd: &Path) -> Result<String, PolicyError> {
    let policy = Policy::load(arg, &Overrides::default(), cwd)?;
    let text = toml::to_string(&policy).map_err(|error| PolicyError::Write {
        format: "TOML",
        message: error.to_string(),
    })?;
    Ok(annotate(&text, &policy))
}

/// Loads the policy that `arg` names and throws it away.
///
/// # Errors
/// Every mistake found in it and in what it extends.
pub fn check(arg: &str, cwd: &Path) -> Result<(), PolicyError> {
    Policy::load(arg, &Overrides::default(), cwd).map(drop)
}

/// The JSON Schema (draft 2020-12) of a policy file.
pub fn json_schema() -> Value {
    let mut schema = schemars::schema_for!(Document);
    schema.insert("title".into(), "Airlock policy".into());
    schema.to_value()
}

/// The serializer writes one table header or one `key = value` per line.
fn annotate(text: &str, policy: &Policy) -> String {
    let mut table = String::new();
    let mut shown = String::new();
    for line in text.lines() {
        if let Some(header) = line.strip_prefix('[') {
            table = header.trim_end_matches(']').to_owned();
        }
        let place = line.split_once(" = ").and_then(|(key, value)| {
            let clause = match table.as_str() {
                "" => key.to_owned(),
                "[mount" => format!("[[mount]] {}", value.trim_matches('"')),
                table => format!("{table}.{key}"),
            };
            policy.places.get(&clause)
        });
        // Writing to a String cannot fail.
        let _ = match place {
            Some(place) => writeln!(shown, "{line:<40} # {}:{}", place.file, place.line),
            None => writeln!(shown, "{line}"),
        };
    }
    shown
}
