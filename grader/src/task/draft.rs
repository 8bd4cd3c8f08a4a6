//! A task in the making, and the mistakes found in it so far.

use std::fmt::Display;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use airlock_policy::embed::{At, Fault, Source};

use super::error::Finding;

/// Where a task is read from, and what is wrong with it.
pub(super) struct Draft<'a> {
    pub(super) dir: &'a Path,
    pub(super) source: &'a Source,
    pub(super) findings: Vec<Finding>,
}

impl Draft<'_> {
    pub(super) fn fault(&mut self, span: Range<usize>, fault: Fault) {
        self.findings.push(fault.at(self.source.place(span)).into());
    }

    pub(super) fn at<T>(&mut self, at: &At<T>, fault: Fault) {
        self.fault(at.span(), fault);
    }

    pub(super) fn ok<T, U>(&mut self, at: &At<T>, result: Result<U, Fault>) -> Option<U> {
        result.map_err(|fault| self.at(at, fault)).ok()
    }

    pub(super) fn tree(&mut self, path: &Path, message: impl Display, help: &'static str) {
        let path = self.dir.join(path);
        self.findings.push(Finding::Tree { path, message: message.to_string(), help });
    }

    /// A path of the task that exists.
    pub(super) fn existing(&mut self, text: &At<String>) -> Option<PathBuf> {
        let path = self.ok(text, inside(text))?;
        let found = self.dir.join(&path).symlink_metadata();
        let found = found.map_err(|error| Fault::new(format!("`{}`: {error}", path.display())));
        self.ok(text, found).map(|_| path)
    }

    /// A program and its arguments.
    pub(super) fn command(&mut self, command: &At<Vec<String>>) -> Option<Vec<String>> {
        let wrong = match command.first() {
            None => "an empty command",
            Some(program) if program.is_empty() => "the program's name is empty",
            _ if command.iter().any(|word| word.contains('\0')) => "a NUL character",
            _ => return Some(command.to_vec()),
        };
        self.at(command, Fault::new(wrong).help("[\"python3\", \"-I\", \"/tests/score.py\"]"));
        None
    }

    /// A count of at least `least`.
    pub(super) fn count(&mut self, number: &At<i64>, least: u32, most: u32, what: &str) -> Option<u32> {
        let count = u32::try_from(**number).ok().filter(|count| (least..=most).contains(count));
        self.ok(
            number,
            count.ok_or_else(|| {
                Fault::new(format!("{} is not a {what}", **number))
                    .help(format!("a whole number from {least} to {most}"))
            }),
        )
    }

    /// A name that stands in file names and tables.
    pub(super) fn name(&mut self, name: &At<String>) -> Option<String> {
        let fits = (1..=64).contains(&name.len())
            && !name.starts_with('.')
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        let fault =
            || Fault::new("a name is 1 to 64 letters, digits, `-`, `_` and `.`, and begins with no `.`");
        self.ok(name, if fits { Ok(name.to_string()) } else { Err(fault()) })
    }
}

/// A path below the task directory.
pub(super) fn inside(text: &str) -> Result<PathBuf, Fault> {
    if text.contains(char::is_control) {
        return Err(Fault::new("a path with a NUL, a newline or another control character in it"));
    }
    let path = Path::new(text);
    let parts = path.components().filter(|part| *part != Component::CurDir);
    if path.is_absolute() || parts.clone().any(|part| !matches!(part, Component::Normal(_))) {
        return Err(Fault::new(format!("`{text}` is not a path in the task directory"))
            .help("a relative path without `..`; what lies elsewhere is an asset without `path`"));
    }
    let path: PathBuf = parts.collect();
    if path.as_os_str().is_empty() {
        return Err(Fault::new("the task directory as a whole").help("name what in it is meant"));
    }
    Ok(path)
}

/// Whether one path is the other or lies in it.
pub(super) fn overlap(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}
