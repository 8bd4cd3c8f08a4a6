//! Text to [`Document`]: syntax, unknown keys, wrong types.

use crate::diagnostic::{Diagnostic, Fault, Source, did_you_mean};
use crate::schema::Document;

/// Reads one policy file's text. The parser stops at the first error of this kind.
pub(crate) fn parse(source: &Source) -> Result<Document, Diagnostic> {
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
