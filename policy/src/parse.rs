//! From text to tables: syntax, unknown keys, wrong types.

use serde::de::DeserializeOwned;

use crate::diagnostic::{Diagnostic, Fault, Source, did_you_mean};

/// Reads a file's text. The parser stops at the first error of this kind.
pub fn parse<T: DeserializeOwned>(source: &Source) -> Result<T, Diagnostic> {
    toml::from_str(&source.text).map_err(|error| {
        let end = source.text.len();
        explain(error.message()).at(source.place(error.span().unwrap_or(end..end)))
    })
}

/// serde names the key or value that it did not know first, and then all that it knows, each between
/// backticks.
fn explain(message: &str) -> Fault {
    let message = message.lines().collect::<Vec<_>>().join("; ");
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
