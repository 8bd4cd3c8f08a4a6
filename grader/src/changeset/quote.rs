//! Paths as git writes them in patches: C-quoted where they hold a quote or a backslash.

use std::borrow::Cow;

/// Writes a path.
pub(super) fn quote(path: &str) -> Cow<'_, str> {
    if !path.contains(['"', '\\']) {
        return Cow::Borrowed(path);
    }
    Cow::Owned(format!("\"{}\"", path.replace('\\', r"\\").replace('"', "\\\"")))
}

/// Reads a quoted path at the start of `text`; gives it and what follows.
pub(super) fn unquote(text: &str) -> Option<(String, &str)> {
    let mut bytes = Vec::new();
    let mut rest = text.strip_prefix('"')?.bytes().enumerate();
    while let Some((at, byte)) = rest.next() {
        match byte {
            b'"' => return Some((String::from_utf8(bytes).ok()?, &text[at + 2..])),
            b'\\' => bytes.push(match rest.next()?.1 {
                b'a' => 7,
                b'b' => 8,
                b't' => b'\t',
                b'n' => b'\n',
                b'v' => 11,
                b'f' => 12,
                b'r' => b'\r',
                quoted @ (b'"' | b'\\') => quoted,
                first @ b'0'..=b'3' => {
                    let mut octal = || {
                        rest.next()
                            .map(|(_, byte)| byte)
                            .filter(|byte| (b'0'..=b'7').contains(byte))
                    };
                    let (second, third) = (octal()?, octal()?);
                    (first - b'0') << 6 | (second - b'0') << 3 | (third - b'0')
                }
                _ => return None,
            }),
            _ => bytes.push(byte),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_and_git_write() {
        for path in ["a/b", "a b", "a\"b", "a\\b\\\"", "ü"] {
            let quoted = quote(path);
            let read = unquote(&quoted).map(|(path, rest)| (path, rest.to_owned()));
            let plain = || (quoted.clone().into_owned(), String::new());
            assert_eq!(read.unwrap_or_else(plain), (path.to_owned(), String::new()));
        }
        assert_eq!(
            unquote(r#""a/\303\274\t" rest"#),
            Some(("a/ü\t".to_owned(), " rest"))
        );
        for wrong in [r#""open"#, r#""\q""#, r#""\400""#, r#""\377""#, r#""\12""#] {
            assert_eq!(unquote(wrong), None, "{wrong}");
        }
    }
}
