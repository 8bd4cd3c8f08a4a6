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
    let value = serde_json::to_value(&policy)
        .map_err(|error| PolicyError::Write { format: "JSON", message: error.to_string() })?;
    let mut lines = Lines { policy: &policy, text: String::new() };
    lines.table("", &value);
    for mount in value["mount"].as_array().into_iter().flatten() {
        lines.text.push_str("\n[[mount]]\n");
        let target = format!("[[mount]] {}", mount["target"].as_str().unwrap_or_default());
        for (key, value) in mount.as_object().into_iter().flatten() {
            lines.line(key, value, &target);
        }
    }
    Ok(lines.text)
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

/// A policy file in the making. Strings, numbers and lists are written as JSON writes them, which TOML reads
/// the same way; a string never spans lines, so that a comment can follow it.
struct Lines<'a> {
    policy: &'a Policy,
    text: String,
}

impl Lines<'_> {
    /// The plain values of a table, then the tables in it.
    fn table(&mut self, name: &str, table: &Value) {
        let clause = |key: &str| {
            if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") }
        };
        let fields = || table.as_object().into_iter().flatten();
        for (key, value) in fields().filter(|(key, value)| !value.is_object() && *key != "mount") {
            self.line(key, value, &clause(key));
        }
        for (key, value) in fields().filter(|(_, value)| value.is_object()) {
            // Writing to a String cannot fail.
            let _ = writeln!(self.text, "\n[{}]", clause(key));
            self.table(&clause(key), value);
        }
    }

    fn line(&mut self, key: &str, value: &Value, clause: &str) {
        let bare = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        let key = if bare && !key.is_empty() { key.to_owned() } else { toml_text(&key.into()) };
        let line = format!("{key} = {}", toml_text(value));
        let _ = match self.policy.place(clause) {
            Some(place) => writeln!(self.text, "{line:<40} # {}:{}", place.file, place.line),
            None => writeln!(self.text, "{line}"),
        };
    }
}

/// TOML wants DEL escaped, JSON does not.
fn toml_text(value: &Value) -> String {
    value.to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_policy_is_a_policy_file_that_says_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("p.toml");
        let text = "version = 1\nname = \"p\"\nextends = \"research\"\n\
            [[mount]]\nsource = \"/srv/data\"\ntarget = \"/data\"\nmode = \"rw\"\n\
            [limits]\ncpus = 1.5\ncpuset = \"0-3\"\nmemory = \"1.5GiB\"\n\
            [landlock]\nread = [\"/usr\"]\n\
            [gpu]\ncount = 2\ncapabilities = [\"compute\"]\nshared = true\nfeatures = [\"gds\"]\n\
            cdi = [\"a.com/b=c\"]\ncdi_hooks = \"skip\"\nnodes = [\"/dev/kfd\"]\n\
            [env.set]\n\"a b\" = \"# \\\"quoted\\\"\\nfoo = 1 \\u007f\"\n";
        std::fs::write(&file, text).unwrap();
        for arg in builtin::names().map(String::from).chain([file.display().to_string()]) {
            let policy = Policy::load(&arg, &Overrides::default(), directory.path()).unwrap();
            let shown = show(&arg, directory.path()).unwrap();
            std::fs::write(directory.path().join("shown.toml"), &shown).unwrap();
            let again = Policy::load("./shown.toml", &Overrides::default(), directory.path()).unwrap();
            assert_eq!(again.digest().unwrap(), policy.digest().unwrap(), "{shown}");
        }
    }

    #[test]
    fn a_shown_policy_says_where_each_value_comes_from() {
        let shown = show("replay", Path::new("/")).unwrap();
        let line = |start: &str| shown.lines().find(|line| line.starts_with(start)).unwrap();
        assert!(line("hostname = ").contains("# built-in replay:"));
        assert!(line("memory = ").contains("# built-in research:"));
        assert!(line("swap = ").contains("# built-in base:"));
        assert!(line("PYTHONUNBUFFERED = ").contains("# built-in research:"));
    }

    #[test]
    fn every_built_in_policy_says_what_it_is_for() {
        assert!(list().all(|(_, summary)| summary.ends_with('.') || summary.len() > 30));
        assert_eq!(list().count(), 7);
    }

    #[test]
    fn the_json_schema_knows_every_table_and_refuses_unknown_keys() {
        let schema = json_schema();
        for key in ["version", "extends", "mount", "limits", "seccomp", "gpu"] {
            assert!(schema["properties"].get(key).is_some(), "{key}");
        }
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema["$defs"]["LimitsTable"]["additionalProperties"], false);
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    }
}
