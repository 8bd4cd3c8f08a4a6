//! From text to tables: syntax, unknown keys, wrong types.

use serde::de::DeserializeOwned;

use crate::diagnostic::{Diagnostic, Fault, Source, did_you_mean};
use crate::tables::Tables;

/// Reads a file's text. The parser stops at the first error of this kind.
pub fn parse<T: DeserializeOwned>(source: &Source) -> Result<T, Diagnostic> {
    let read = toml::Deserializer::parse(&source.text).and_then(|text| T::deserialize(Tables(text)));
    read.map_err(|error| {
        let end = source.text.len();
        let span = error.span().unwrap_or(end..end);
        explain(error.message(), source.text(span.clone())).at(source.place(span))
    })
}

/// The parser's message in words of the file. `text` is what it is about.
///
/// serde names the key or value that it did not know first, and then all that it knows, each between
/// backticks.
fn explain(message: &str, text: &str) -> Fault {
    let message = message.lines().collect::<Vec<_>>().join("; ");
    if let Some(fault) = wrong_type(&message).or_else(|| wrong_count(&message, text)) {
        return fault;
    }
    let mut words = message.split('`').skip(1).step_by(2);
    let fault = match words.next() {
        Some(word) if message.starts_with("unknown field") => Fault::new(format!("unknown key `{word}`")),
        Some(word) if message.starts_with("unknown variant") => Fault::new(format!("unknown value `{word}`")),
        _ => return Fault::new(message),
    };
    let known: Vec<&str> = words.collect();
    let word = message.split('`').nth(1).unwrap_or_default();
    fault.help(match did_you_mean(word, known.iter().copied()) {
        Some(near) => near,
        None => format!("expected one of `{}`", known.join("`, `")),
    })
}

/// A key that is there twice, or not at all.
fn wrong_count(message: &str, text: &str) -> Option<Fault> {
    if message == "duplicate key" {
        let fault = Fault::new(format!("`{text}` stands here a second time"));
        return Some(fault.help("a key or table stands once: leave one, or join the two"));
    }
    let name = message.strip_prefix("missing field `")?.strip_suffix('`')?;
    Some(Fault::new(format!("the key `{name}` is missing")).help(format!("add `{name} = ...`")))
}

/// A value of another kind than the key takes, or a number that is too large or too small for it.
fn wrong_type(message: &str) -> Option<Fault> {
    if message == "wanted string or table" {
        return Some(Fault::new("expected text between quotes"));
    }
    let value = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "))?;
    // The value comes first and may hold anything.
    let (found, wanted) = value.rsplit_once(", expected ")?;
    let (wanted, example) = match wanted {
        "a boolean" => ("`true` or `false`", None),
        "a string" => ("text between quotes", Some("\"name\"")),
        "a sequence" => ("a list", Some("[\"one\", \"two\"]")),
        "a map" => ("a table", None),
        "f32" | "f64" => ("a number", Some("1.5")),
        "u8" => ("a whole number from 0 to 255", Some("2")),
        "u16" => ("a whole number from 0 to 65535", Some("2")),
        "u32" => ("a whole number from 0 to 4294967295", Some("2")),
        "u64" | "usize" => ("a whole number from 0", Some("2")),
        "i8" | "i16" | "i32" | "i64" | "isize" => ("a whole number", Some("2")),
        table if table.starts_with("struct ") => ("a table", None),
        other => (other, None),
    };
    let quoted = found.strip_prefix("string ").map(|text| text.trim_matches('"'));
    let fault = Fault::new(match (found, quoted) {
        (_, Some(text)) => format!("expected {wanted}, found the text \"{text}\""),
        ("sequence", _) => format!("expected {wanted}, found a list"),
        ("map", _) => format!("expected {wanted}, found a table"),
        // `integer `5``, `boolean `true``
        (found, _) => format!("expected {wanted}, found {}", found.split('`').nth(1).unwrap_or(found)),
    });
    let is_one = |text: &str| match wanted {
        "`true` or `false`" => matches!(text, "true" | "false"),
        "a number" => text.parse::<f64>().is_ok_and(f64::is_finite),
        _ => wanted.starts_with("a whole number") && text.parse::<i64>().is_ok(),
    };
    let help = match quoted {
        Some(text) if wanted == "a list" => Some(format!("in brackets: [\"{text}\"]")),
        Some(text) if is_one(text) => Some(format!("without quotes: {text}")),
        None if (found, wanted) == ("sequence", "a table") => {
            Some("a table that stands once has one pair of brackets, [name], and its keys below".into())
        }
        None if (found, wanted) == ("map", "a list") => {
            Some("a list of tables has two pairs of brackets: [[name]]".into())
        }
        _ => example.map(|example| format!("such as {example}")),
    };
    Some(Fault { help, ..fault })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::apply::{Layer, apply};
    use crate::merged::Policy;

    /// Reads and checks a text; what comes out must be showable.
    fn feed(text: &str) {
        let source = Source { name: "p.toml".into(), text: text.into() };
        let layer = Layer { source: &source, base: Path::new("/"), extends_lists: false };
        let faults = match parse(&source) {
            Ok(document) => apply(&mut Policy::default(), &layer, document),
            Err(diagnostic) => vec![diagnostic],
        };
        for fault in faults {
            assert!(fault.to_string().starts_with("p.toml:"));
        }
    }

    #[test]
    fn deep_nesting_is_an_error_and_no_stack_overflow() {
        feed(&format!("name = {}", "[".repeat(500_000)));
        feed(&format!("name{} = 1", ".a".repeat(200_000)));
        feed(&"[a.b]\n".repeat(50_000));
    }

    /// Lines that are nearly policies, so that what lies behind the parser is reached.
    fn line() -> impl Strategy<Value = String> {
        let key = prop::sample::select(vec![
            "[limits]",
            "[root]",
            "[[mount]]",
            "[env]",
            "[gpu]",
            "[seccomp]",
            "[landlock]",
            "memory",
            "cpus",
            "pids",
            "wall",
            "source",
            "target",
            "set",
            "pass",
            "count",
            "allow",
            "user",
            "cpuset",
            "min_abi",
        ]);
        let value = prop_oneof![
            any::<String>().prop_map(|text| format!("= {text:?}")),
            "= [0-9.eE+-]{1,12}(GiB|h|%)?",
            "= \"[0-9:./,-]{0,12}(GiB|ms|B)?\"",
            "= \\[\"[a-z/=]{0,4}\", \"[a-z]{0,8}\"\\]",
            Just(String::new()),
        ];
        (key, value).prop_map(|(key, value)| format!("{key} {value}"))
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            feed(&String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn no_near_policy_makes_the_checks_panic(lines in prop::collection::vec(line(), 0..12)) {
            feed(&lines.join("\n"));
        }
    }
}
