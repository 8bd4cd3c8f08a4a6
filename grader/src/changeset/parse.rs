//! Reading a patch: git's format or a plain unified diff, strictly.

use super::error::{PatchError, PatchFault};
use super::quote::unquote;
use super::render::NO_NEWLINE;
use super::{Hunk, Mark};
use crate::seal::TreePath;

/// What a patch says about one file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Section<'a> {
    /// Line of the patch on which it starts, from 1.
    pub(super) line: usize,
    pub(super) path: TreePath,
    pub(super) action: Action,
    pub(super) hunks: Vec<PatchHunk<'a>>,
}

/// What happens to the file. `true` is 100755, `false` 100644.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Add(bool),
    Remove(Option<bool>),
    /// The old mode, where it is stated, and the new one, where it is another.
    Change(Option<bool>, Option<bool>),
}

/// A hunk, and the line of the patch on which each of its lines stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PatchHunk<'a> {
    pub(super) hunk: Hunk<'a>,
    pub(super) line: usize,
    pub(super) places: Vec<usize>,
}

/// Reads all sections of a patch.
pub(super) fn parse(text: &str) -> Result<Vec<Section<'_>>, PatchError> {
    let mut reader = Reader {
        lines: text.split_inclusive('\n').collect(),
        at: 0,
        file: None,
        hunk: None,
    };
    if !text.is_empty() && !text.ends_with('\n') {
        reader.at = reader.lines.len() - 1;
        return Err(reader.error(PatchFault::CutOff));
    }
    let mut sections = Vec::new();
    while reader.peek().is_some() {
        (reader.file, reader.hunk) = (None, None);
        sections.push(reader.section()?);
    }
    Ok(sections)
}

struct Reader<'a> {
    lines: Vec<&'a str>,
    at: usize,
    file: Option<TreePath>,
    hunk: Option<usize>,
}

/// The extended headers of git's format.
#[derive(Default)]
struct Headers {
    old_mode: Option<bool>,
    new_mode: Option<bool>,
    new_file: Option<bool>,
    deleted: Option<bool>,
    index_mode: Option<bool>,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.lines
            .get(self.at)
            .map(|line| line.strip_suffix('\n').unwrap_or(line))
    }

    /// The rest of the next line, if it starts with `prefix`; it is consumed then.
    fn take(&mut self, prefix: &str) -> Option<&'a str> {
        let rest = self.peek()?.strip_prefix(prefix)?;
        self.at += 1;
        Some(rest)
    }

    /// An error on the next line.
    fn error(&self, fault: PatchFault) -> PatchError {
        PatchError {
            line: self.at + 1,
            file: self.file.clone(),
            hunk: self.hunk,
            fault,
        }
    }

    /// An error on the line just consumed.
    fn error_before(&self, fault: PatchFault) -> PatchError {
        PatchError {
            line: self.at,
            ..self.error(fault)
        }
    }

    fn section(&mut self) -> Result<Section<'a>, PatchError> {
        let line = self.at + 1;
        let (path, headers) = match self.take("diff --git ") {
            Some(names) => {
                let path = both_names(names).map_err(|fault| self.error_before(fault))?;
                self.file = Some(path.clone());
                (Some(path), self.headers()?)
            }
            None => (None, Headers::default()),
        };
        let git = path.is_some();
        let (named, sides) = match self.peek() {
            Some(line) if line.starts_with("--- ") => {
                let (path, sides) = self.names(path.as_ref())?;
                (Some(path), Some(sides))
            }
            _ if git => (path, None),
            _ => return Err(self.error(PatchFault::Expected("a line `diff --git` or `---`"))),
        };
        // Present in one of the two forms by now.
        let Some(path) = named else {
            return Err(self.error(PatchFault::Expected("a path")));
        };
        self.file = Some(path.clone());
        let action = self.action(&headers, git, sides)?;
        let mut hunks = Vec::new();
        while sides.is_some() && self.peek().is_some_and(|line| line.starts_with("@@ ")) {
            self.hunk = Some(hunks.len() + 1);
            hunks.push(self.hunk()?);
        }
        if sides.is_some() && hunks.is_empty() {
            return Err(self.error(PatchFault::Expected("a hunk")));
        }
        Ok(Section {
            line,
            path,
            action,
            hunks,
        })
    }

    fn headers(&mut self) -> Result<Headers, PatchError> {
        let mut headers = Headers::default();
        while let Some(line) = self.peek() {
            let refused = ["rename ", "copy ", "similarity ", "dissimilarity "];
            if refused.iter().any(|prefix| line.starts_with(prefix)) {
                return Err(self.error(PatchFault::Rename));
            }
            if line == "GIT binary patch" || line.starts_with("Binary files ") {
                return Err(self.error(PatchFault::Binary));
            }
            let (slot, mode) = if let Some(mode) = line.strip_prefix("old mode ") {
                (&mut headers.old_mode, mode)
            } else if let Some(mode) = line.strip_prefix("new mode ") {
                (&mut headers.new_mode, mode)
            } else if let Some(mode) = line.strip_prefix("new file mode ") {
                (&mut headers.new_file, mode)
            } else if let Some(mode) = line.strip_prefix("deleted file mode ") {
                (&mut headers.deleted, mode)
            } else if let Some(index) = line.strip_prefix("index ") {
                match index_mode(index) {
                    Some(Some(mode)) => (&mut headers.index_mode, mode),
                    Some(None) => {
                        self.at += 1;
                        continue;
                    }
                    None => return Err(self.error(PatchFault::Expected("two object names"))),
                }
            } else {
                break;
            };
            let executable = match mode {
                "100644" => false,
                "100755" => true,
                other => return Err(self.error(PatchFault::Mode(shown(other).into()))),
            };
            if slot.replace(executable).is_some() {
                return Err(self.error(PatchFault::Expected("each header once")));
            }
            self.at += 1;
        }
        Ok(headers)
    }

    /// The path of the lines `---` and `+++`, and which of the two sides exist.
    fn names(&mut self, expected: Option<&TreePath>) -> Result<(TreePath, (bool, bool)), PatchError> {
        let mut side = |prefix: &str, letter: &str, what| -> Result<Option<TreePath>, PatchError> {
            let name = self
                .take(prefix)
                .ok_or_else(|| self.error(PatchFault::Expected(what)))?;
            side_name(name, letter).map_err(|fault| self.error_before(fault))
        };
        let old = side("--- ", "a/", "a line `---`")?;
        let new = side("+++ ", "b/", "a line `+++`")?;
        let sides = (old.is_some(), new.is_some());
        let differ = old.is_some() && new.is_some() && old != new;
        match old.or(new) {
            Some(path) if !differ && expected.is_none_or(|expected| *expected == path) => Ok((path, sides)),
            _ => Err(self.error_before(PatchFault::TwoPaths)),
        }
    }

    /// What the headers and the sides together say.
    fn action(
        &self,
        headers: &Headers,
        git: bool,
        sides: Option<(bool, bool)>,
    ) -> Result<Action, PatchError> {
        let Headers {
            old_mode,
            new_mode,
            new_file,
            deleted,
            index_mode,
        } = *headers;
        let action = match (new_file, deleted, old_mode, new_mode) {
            (Some(mode), None, None, None) => Action::Add(mode),
            (None, Some(mode), None, None) => Action::Remove(Some(mode)),
            (None, None, Some(old), Some(new)) if old != new => Action::Change(Some(old), Some(new)),
            (None, None, None, None) if git => Action::Change(index_mode, None),
            (None, None, None, None) => match sides {
                Some((false, _)) => Action::Add(false),
                Some((_, false)) => Action::Remove(None),
                _ => Action::Change(None, None),
            },
            _ => return Err(self.error_before(PatchFault::Expected("headers that agree"))),
        };
        let wanted = match action {
            Action::Add(_) => (false, true),
            Action::Remove(_) => (true, false),
            Action::Change(..) => (true, true),
        };
        if sides.is_some_and(|sides| sides != wanted) {
            return Err(self.error_before(PatchFault::Expected("sides that agree with the headers")));
        }
        Ok(action)
    }

    fn hunk(&mut self) -> Result<PatchHunk<'a>, PatchError> {
        let line = self.at + 1;
        let header = self.take("@@ ").and_then(ranges);
        let wrong = PatchFault::Expected("a hunk header `@@ -A,B +C,D @@`");
        let ((old_start, old_len), (new_start, new_len)) = header.ok_or_else(|| self.error_before(wrong))?;
        let mut hunk = Hunk {
            old_start,
            new_start,
            lines: Vec::new(),
        };
        let (mut places, mut old, mut new) = (Vec::new(), 0, 0);
        while old < old_len || new < new_len {
            let full = self.lines.get(self.at).copied().unwrap_or_default();
            let mark = match full.as_bytes().first() {
                Some(b' ') => Mark::Context,
                Some(b'-') => Mark::Removed,
                Some(b'+') => Mark::Added,
                _ => return Err(self.error(PatchFault::Expected("a line of the hunk"))),
            };
            if full.contains('\0') {
                return Err(self.error(PatchFault::Binary));
            }
            old += usize::from(mark != Mark::Added);
            new += usize::from(mark != Mark::Removed);
            if old > old_len || new > new_len {
                return Err(self.error(PatchFault::Expected("as many lines as the hunk's header states")));
            }
            self.at += 1;
            places.push(self.at);
            let mut content = &full[1..];
            if self.lines.get(self.at) == Some(&NO_NEWLINE) {
                content = content.strip_suffix('\n').unwrap_or(content);
                self.at += 1;
            }
            hunk.lines.push((mark, content));
        }
        if hunk.lines.iter().all(|(mark, _)| *mark == Mark::Context) {
            return Err(self.error_before(PatchFault::Nothing));
        }
        Ok(PatchHunk { hunk, line, places })
    }
}

/// The one path of `a/PATH b/PATH`.
fn both_names(names: &str) -> Result<TreePath, PatchFault> {
    let pair = if names.starts_with('"') {
        unquote(names).and_then(|(old, rest)| {
            let (new, rest) = unquote(rest.strip_prefix(' ')?)?;
            rest.is_empty().then_some((old, new))
        })
    } else {
        // Both halves are equal but for their first letter, so spaces in the path do no harm.
        let half = names.len() / 2;
        let split = names.is_char_boundary(half).then(|| names.split_at(half));
        split.and_then(|(old, new)| Some((old.to_owned(), new.strip_prefix(' ')?.to_owned())))
    };
    let (old, new) = pair.ok_or(PatchFault::TwoPaths)?;
    let (old, new) = (stripped(&old, "a/")?, stripped(&new, "b/")?);
    if old == new {
        Ok(old)
    } else {
        Err(PatchFault::TwoPaths)
    }
}

/// The path of a line `---` or `+++`; `None` for `/dev/null`. What follows a tab (a time) does not count.
fn side_name(name: &str, letter: &str) -> Result<Option<TreePath>, PatchFault> {
    let (name, rest) = match unquote(name) {
        Some((name, rest)) => (name, rest),
        None => {
            let end = name.find('\t').unwrap_or(name.len());
            (name[..end].to_owned(), &name[end..])
        }
    };
    if !rest.is_empty() && !rest.starts_with('\t') {
        return Err(PatchFault::Expected("nothing after the path"));
    }
    if name == "/dev/null" {
        Ok(None)
    } else {
        stripped(&name, letter).map(Some)
    }
}

fn stripped(name: &str, letter: &str) -> Result<TreePath, PatchFault> {
    let path = name
        .strip_prefix(letter)
        .ok_or(PatchFault::Expected("paths that start with a/ and b/"))?;
    let path = TreePath::new(path)?;
    if path.names().any(|name| name.eq_ignore_ascii_case(".git")) {
        return Err(PatchFault::GitPath);
    }
    Ok(path)
}

/// The mode at the end of an index line, if it has one; `None` if it is no index line.
fn index_mode(index: &str) -> Option<Option<&str>> {
    let (names, mode) = index
        .split_once(' ')
        .map_or((index, None), |(names, mode)| (names, Some(mode)));
    let (old, new) = names.split_once("..")?;
    let hex =
        |name: &str| (4..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    (hex(old) && hex(new)).then_some(mode)
}

/// The two ranges of a hunk header, as lines before and lines in the hunk.
fn ranges(header: &str) -> Option<((usize, usize), (usize, usize))> {
    let range = |text: &str| {
        let (start, len) = text.split_once(',').unwrap_or((text, "1"));
        let number = |text: &str| {
            text.bytes()
                .all(|byte| byte.is_ascii_digit())
                .then(|| text.parse::<usize>().ok())?
        };
        let (start, len) = (number(start)?, number(len)?);
        // An empty range names the line before it, any other its first line.
        Some((if len == 0 { start } else { start.checked_sub(1)? }, len))
    };
    let (old, rest) = header.strip_prefix('-')?.split_once(" +")?;
    let (new, heading) = rest.split_once(" @@")?;
    (heading.is_empty() || heading.starts_with(' ')).then_some((range(old)?, range(new)?))
}

/// A short form of a word of the patch for an error.
fn shown(word: &str) -> String {
    word.escape_debug().take(16).collect()
}
