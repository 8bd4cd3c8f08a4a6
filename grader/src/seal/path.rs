//! Names and paths of a tree, and how a name that is refused is shown.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt::{self, Write as _};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Longest name that any file system here can hold, in bytes (`NAME_MAX`).
pub const LONGEST_NAME: usize = 255;

/// Most characters that an error shows of a name or path.
const LONGEST_SHOWN: usize = 200;

/// A path inside a tree: valid names joined by `/`, relative to the tree's root.
///
/// A name is 1 to 255 bytes of UTF-8 and holds no `/`, no control character (U+0000–U+001F, U+007F–U+009F), no
/// line or paragraph separator (U+2028, U+2029) and no character that turns the direction of text
/// (U+202A–U+202E, U+2066–U+2069); `.` and `..` are not names. Such a path needs no quoting in a line of text.
///
/// Paths are ordered name by name, each name by its bytes: the order in which a tree is walked.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TreePath(String);

/// Why something is not a name of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing between two slashes, or a path that starts or ends with one.
    #[error("an empty name")]
    Empty,
    /// `.` or `..`.
    #[error("the name of a directory itself or of its parent")]
    Dots,
    /// More than [`LONGEST_NAME`] bytes.
    #[error("{0} bytes long, more than {LONGEST_NAME}")]
    Long(usize),
    /// Bytes that are not UTF-8.
    #[error("not UTF-8")]
    Encoding,
    /// A character that could split a line or turn its direction.
    #[error("the character U+{:04X}", u32::from(*.0))]
    Character(char),
}

impl TreePath {
    /// The root of a tree.
    pub const ROOT: Self = Self(String::new());

    /// The path `text`, which is not the root.
    pub fn new(text: &str) -> Result<Self, NameError> {
        text.split('/').try_for_each(check_name)?;
        Ok(Self(text.to_owned()))
    }

    /// The entry `name` of the directory `self`.
    pub fn join(&self, name: &str) -> Result<Self, NameError> {
        if name.contains('/') {
            return Err(NameError::Character('/'));
        }
        check_name(name)?;
        Ok(if self.is_root() {
            Self(name.to_owned())
        } else {
            Self(format!("{}/{name}", self.0))
        })
    }

    /// Whether this is the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The path as text; empty for the root.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The names from the root on.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/').filter(|name| !name.is_empty())
    }

    /// The last name; empty for the root.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// The directory that holds it; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        if self.is_root() {
            return None;
        }
        Some(
            self.0
                .rsplit_once('/')
                .map_or(Self::ROOT, |(parent, _)| Self(parent.to_owned())),
        )
    }
}

/// Checks one name; see [`TreePath`].
fn check_name(name: &str) -> Result<(), NameError> {
    match name {
        "" => Err(NameError::Empty),
        "." | ".." => Err(NameError::Dots),
        _ if name.len() > LONGEST_NAME => Err(NameError::Long(name.len())),
        _ => name
            .chars()
            .find(|c| is_unsafe(*c))
            .map_or(Ok(()), |c| Err(NameError::Character(c))),
    }
}

/// Whether a character could break or reorder the line that it is shown in.
fn is_unsafe(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

impl PartialOrd for TreePath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TreePath {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.split('/').cmp(other.0.split('/'))
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return f.write_str(".");
        }
        Escaped::new(self.0.as_bytes()).fmt(f)
    }
}

impl fmt::Debug for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for TreePath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for TreePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// Bytes that someone else chose, shown on one line: what is not printable appears as `\xNN` or `\u{NNNN}`, and
/// no more than 200 characters are shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Escaped(Box<[u8]>);

impl Escaped {
    /// Shows `bytes`.
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Display for Escaped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = LONGEST_SHOWN;
        for chunk in self.0.utf8_chunks() {
            let characters = chunk.valid().chars().map(|c| -> Cow<'static, str> {
                if is_unsafe(c) || c == '\\' {
                    c.escape_default().to_string().into()
                } else {
                    c.to_string().into()
                }
            });
            let bytes = chunk
                .invalid()
                .iter()
                .map(|byte| Cow::Owned(format!("\\x{byte:02x}")));
            for shown in characters.chain(bytes) {
                if left == 0 {
                    return f.write_char('…');
                }
                left -= 1;
                f.write_str(&shown)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Escaped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_is_not_a_plain_name() {
        for (path, error) in [
            ("", NameError::Empty),
            ("/etc/passwd", NameError::Empty),
            ("a//b", NameError::Empty),
            ("a/", NameError::Empty),
            ("../a", NameError::Dots),
            ("a/./b", NameError::Dots),
            ("a\nb", NameError::Character('\n')),
            ("a\u{1b}[2Jb", NameError::Character('\u{1b}')),
            ("a\u{9b}b", NameError::Character('\u{9b}')),
            ("gpj.\u{202e}exe", NameError::Character('\u{202e}')),
        ] {
            assert_eq!(TreePath::new(path), Err(error), "{path:?}");
        }
        assert_eq!(TreePath::new(&"n".repeat(256)), Err(NameError::Long(256)));
        for path in ["a", "a/b", "...", "a b\\\"'*", "данные/模型.py", ".git"] {
            assert!(TreePath::new(path).is_ok(), "{path:?}");
        }
    }

    #[test]
    fn orders_as_a_walk_does() {
        let mut paths = ["a.b", "a/b", "a", "a/b/c", "a-b", "B"].map(|path| TreePath::new(path).unwrap());
        paths.sort();
        assert_eq!(
            paths.map(|path| path.as_str().to_owned()),
            ["B", "a", "a/b", "a/b/c", "a-b", "a.b"]
        );
    }

    #[test]
    fn shows_foreign_bytes_on_one_short_line() {
        let shown = Escaped::new(b"a\nb\xff\x1b[31m\\").to_string();
        assert_eq!(shown, r"a\nb\xff\u{1b}[31m\\");
        assert_eq!(
            Escaped::new(&[b'x'; 5000]).to_string().chars().count(),
            LONGEST_SHOWN + 1
        );
    }
}
