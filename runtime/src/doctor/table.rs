//! The examination as text.

use std::fmt;

use super::{Check, Status, lacking_for_research};

/// Shows checks as aligned lines, each remedy below what it is for, and the verdict last.
pub struct Table<'a>(pub &'a [Check]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|check| check.title.len()).max().unwrap_or(0);
        for Check { title, status, found, remedy, .. } in self.0 {
            let status = match status {
                Status::Ok => "ok",
                Status::Lacking => "LACKING",
                Status::Advice => "advice",
            };
            writeln!(f, "{status:<7}  {title:<width$}  {}", escaped(found))?;
            if let Some(remedy) = remedy {
                writeln!(f, "{:<7}  {:<width$}  -> {}", "", "", escaped(remedy))?;
            }
        }
        let lacking: Vec<&str> = lacking_for_research(self.0).map(|check| check.title).collect();
        if lacking.is_empty() {
            writeln!(f, "\nThe policy `research` can be enforced whole.")
        } else {
            writeln!(f, "\nThe policy `research` cannot be enforced whole; lacking: {}.", lacking.join(", "))
        }
    }
}

/// File names come from anyone: control characters and those that turn the writing direction are shown as
/// escapes, so that no line can be forged and no terminal be driven.
fn escaped(text: &str) -> String {
    let turns =
        |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().fold(String::with_capacity(text.len()), |mut line, c| {
        if c.is_control() || turns(c) {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
        line
    })
}

#[cfg(test)]
mod tests {
    use super::super::Topic;
    use super::*;

    #[test]
    fn lines_are_aligned_and_the_verdict_names_what_lacks() {
        let checks =
            [Topic::new("a", "short").ok("there"), Topic::needed("b", "longer").lacking("none", "add it")];
        let expected = "\
ok       short   there
LACKING  longer  none
                 -> add it

The policy `research` cannot be enforced whole; lacking: longer.
";
        assert_eq!(Table(&checks).to_string(), expected);
    }

    #[test]
    fn a_file_name_can_neither_forge_a_line_nor_drive_the_terminal() {
        let check = Topic::new("a", "files").advice("/opt/\u{1b}[2J\nok  \u{202e}x", "chmod");
        let text = Table(&[check]).to_string();
        assert!(text.contains(r"/opt/\u{1b}[2J\nok  \u{202e}x"), "{text}");
        assert_eq!(text.lines().count(), 4);
    }
}
