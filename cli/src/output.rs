//! What is shown to people: untrusted text is escaped wherever it appears.

use std::io::{self, Write as _};

/// Prints an error and what caused it, one line each, on stderr.
pub(crate) fn error(error: &anyhow::Error) {
    let lines = causes(error).into_iter().enumerate().map(|(depth, message)| {
        let lead = if depth == 0 { "airlock: " } else { "  because: " };
        format!("{lead}{}\n", escape(&message))
    });
    let text: String = lines.collect();
    // Nobody to tell if stderr is closed.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// An error and what caused it. A cause that what is above already quotes says nothing new.
pub(crate) fn causes(error: &anyhow::Error) -> Vec<String> {
    let mut causes: Vec<String> = Vec::new();
    for cause in error.chain().map(ToString::to_string) {
        if causes.iter().all(|above| !above.contains(cause.trim())) {
            causes.push(cause);
        }
    }
    causes
}

/// Control characters as escapes, line ends kept.
pub(crate) fn escape(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() && c != '\n' { c.escape_default().to_string() } else { c.to_string() })
        .collect()
}

/// As [`escape`], of what has to stay on one line.
pub(crate) fn escape_line(text: &str) -> String {
    escape(text).replace('\n', "\\n")
}

/// Prints to stdout; a closed pipe ends the output, not the program.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

/// Prints a value as JSON.
pub(crate) fn json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_escapes_are_shown_not_sent() {
        assert_eq!(escape("a\x1b[2Jb\n\u{9b}"), "a\\u{1b}[2Jb\n\\u{9b}");
        assert_eq!(escape_line("a\nfeed\t"), "a\\nfeed\\t");
    }
}
