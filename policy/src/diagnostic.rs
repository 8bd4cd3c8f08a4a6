//! Errors that point at the place in a policy file where the mistake stands.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// The text of one policy file, of a file that embeds parts of one, or of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// What to call it: a path, `built-in base`, or `command line`.
    pub(crate) name: Arc<str>,
    /// The whole text.
    pub(crate) text: Arc<str>,
}

/// A byte range of a source. Its [`Place`] is worked out when it is asked for: most never are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    source: Source,
    span: Range<usize>,
}

impl Spot {
    pub(crate) fn place(&self) -> Place {
        self.source.place(self.span.clone())
    }
}

impl Source {
    /// A text, and what to call the file that it is from.
    pub fn new(name: &str, text: &str) -> Self {
        Source { name: name.into(), text: text.into() }
    }

    /// The part of the text that a byte range stands for; empty where the text has no such part.
    pub fn text(&self, span: Range<usize>) -> &str {
        self.text.get(span).unwrap_or_default()
    }

    pub(crate) fn spot(&self, span: Range<usize>) -> Spot {
        Spot { source: self.clone(), span }
    }

    /// The place that a byte range of the text stands for.
    pub fn place(&self, span: Range<usize>) -> Place {
        let start = self.text.floor_char_boundary(span.start.min(self.text.len()));
        let before = &self.text[..start];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |newline| start + newline);
        let end = self.text.floor_char_boundary(span.end.clamp(start, line_end));
        Place {
            file: self.name.to_string(),
            line: before.matches('\n').count() + 1,
            column: self.text[line_start..start].chars().count() + 1,
            width: self.text[start..end].chars().count().max(1),
            text: self.text[line_start..line_end].trim_end_matches('\r').to_owned(),
        }
    }
}

/// A place in a policy file.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Place {
    /// The file as the user named it, `built-in NAME`, or `command line`.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// How many characters of the line are meant.
    pub width: usize,
    /// The line itself.
    pub text: String,
}

/// One mistake, and how to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Where it stands.
    pub place: Place,
    /// What is wrong.
    pub message: String,
    /// What to write instead, if that is known.
    pub help: Option<String>,
}

/// What a value is refused for, before its place is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

impl Fault {
    /// What is wrong.
    pub fn new(message: impl Into<String>) -> Self {
        Fault { message: message.into(), help: None }
    }

    /// What to write instead.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Where it stands.
    pub fn at(self, place: Place) -> Diagnostic {
        Diagnostic { place, message: self.message, help: self.help }
    }
}

/// Characters of a line that are shown at most.
const LINE_SHOWN: usize = 120;

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { file, line, column, width, text } = &self.place;
        let number = line.to_string();
        let gutter = " ".repeat(number.len());
        // A long line is shown from a little before what it is about.
        let skipped = if *column > LINE_SHOWN { column - LINE_SHOWN / 2 } else { 0 };
        let text = text.chars().skip(skipped).take(LINE_SHOWN);
        // Tabs and control characters would move the caret away from what it points at.
        let shown: String = text.map(|c| if c.is_control() { ' ' } else { c }).collect();
        writeln!(f, "{}:{line}:{column}: {}", printable(file), printable(&self.message))?;
        writeln!(f, "{gutter} |")?;
        writeln!(f, "{number} | {shown}")?;
        write!(f, "{gutter} | {}{}", " ".repeat(column - 1 - skipped), "^".repeat((*width).min(LINE_SHOWN)))?;
        if let Some(help) = &self.help {
            write!(f, "\n{gutter} = help: {}", printable(help))?;
        }
        Ok(())
    }
}

/// Text from a file may hold escape sequences; a terminal must not obey them.
fn printable(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

/// Why a policy could not be loaded or resolved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The policy says something that is wrong; every mistake that was found.
    #[error("{}", join(.0))]
    Invalid(Vec<Diagnostic>),
    /// A built-in policy of that name does not exist.
    #[error("no built-in policy is called `{name}`: {help}")]
    UnknownBuiltin {
        /// The name asked for.
        name: String,
        /// The names that exist, or the one that was meant.
        help: String,
    },
    /// A policy file could not be read.
    #[error("read policy {path}: {source}{}", reason(.wanted_by))]
    Read {
        /// The file.
        path: PathBuf,
        /// The `extends` or `profile` that names it.
        wanted_by: Option<Place>,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// An argument of the command line cannot be understood.
    #[error("{option} {value}: {message}")]
    Argument {
        /// The option.
        option: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it, and what it should look like.
        message: String,
    },
    /// The host lacks something that the policy builds on.
    #[error("{clause}: {message}")]
    Host {
        /// The policy clause.
        clause: String,
        /// What is missing, and the remedy.
        message: String,
    },
    /// The resolved policy could not be put into an OCI document.
    #[error("compile {clause} to OCI: {source}")]
    Oci {
        /// The policy clause.
        clause: &'static str,
        /// What oci-spec refused.
        source: oci_spec::OciSpecError,
    },
    /// A policy or its JSON Schema could not be written out.
    #[error("write policy as {format}: {message}")]
    Write {
        /// `JSON` or `TOML`.
        format: &'static str,
        /// What the serializer said.
        message: String,
    },
}

impl From<Diagnostic> for PolicyError {
    fn from(diagnostic: Diagnostic) -> Self {
        PolicyError::Invalid(vec![diagnostic])
    }
}

fn join(diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n\n")
}

fn reason(place: &Option<Place>) -> String {
    match place {
        Some(Place { file, line, column, .. }) => format!(" (wanted by {file}:{line}:{column})"),
        None => String::new(),
    }
}

/// `did you mean …` for the candidate nearest to `word`, if one is near enough to be a slip of the hand.
pub fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let word = word.to_lowercase();
    let length = word.chars().count();
    let limit = (length / 3).clamp(1, 3);
    candidates
        .into_iter()
        .map(|candidate| (distance(&word, &candidate.to_lowercase()), candidate))
        // A word of which nothing is left is another one.
        .filter(|(distance, _)| *distance <= limit && *distance < length)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| format!("did you mean `{candidate}`?"))
}

/// Optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let substitution = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = substitution.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_characters_not_bytes() {
        let source = Source { name: "p.toml".into(), text: "a = 1\nä = \"x\"\n".into() };
        let place = source.place(11..14);
        assert_eq!((place.line, place.column, place.width), (2, 5, 3));
        assert_eq!(place.text, "ä = \"x\"");
    }

    #[test]
    fn a_span_over_several_lines_marks_only_the_first() {
        let source = Source { name: "p.toml".into(), text: "[a]\nb = 1\n".into() };
        assert_eq!(source.place(1..9).width, 2);
        assert_eq!(source.place(99..200).line, 3);
    }

    #[test]
    fn near_words_are_offered_and_far_ones_are_not() {
        let words = ["memory", "cpus", "pids"];
        assert_eq!(did_you_mean("memroy", words).unwrap(), "did you mean `memory`?");
        assert_eq!(did_you_mean("CPU", words).unwrap(), "did you mean `cpus`?");
        assert_eq!(did_you_mean("frobnicate", words), None);
        assert_eq!(did_you_mean("x", ["d", "h"]), None);
        assert_eq!(did_you_mean("H", ["d", "h"]).unwrap(), "did you mean `h`?");
    }

    #[test]
    fn a_rendered_diagnostic_points_with_a_caret_and_obeys_no_escape_sequence() {
        let source = Source { name: "p.toml".into(), text: "cpus = \"\u{1b}[2J\"".into() };
        let shown = Fault::new("bad \u{1b}").help("write 8").at(source.place(7..13)).to_string();
        assert_eq!(
            shown,
            "p.toml:1:8: bad \\u{1b}\n  |\n1 | cpus = \" [2J\"\n  |        ^^^^^^\n  = help: write 8"
        );
    }

    #[test]
    fn of_a_long_line_only_the_part_that_is_meant_is_shown() {
        let text = format!("{} bad {}", "x".repeat(5000), "y".repeat(5000));
        let source = Source { name: "p.toml".into(), text: text.into() };
        let shown = Fault::new("no").at(source.place(5001..5004)).to_string();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "p.toml:1:5002: no");
        let caret = lines[3].find('^').unwrap();
        assert_eq!(&lines[2][caret..caret + 3], "bad");
        assert!(lines.iter().all(|line| line.len() < 140));
    }
}
