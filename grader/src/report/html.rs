//! The one way into the page: a writer that escapes.
//!
//! Markup can only be a literal of this program. All else is text, and there is no way to write text that is not
//! escaped and capped.

use std::fmt::{self, Display, Write};

use unicode_normalization::char::is_combining_mark;

/// Most characters of one text, as they are shown.
const LONGEST: usize = 300;

/// Most marks upon one character; more would paint over the lines above and below.
const MARKS: usize = 4;

/// Names and values of a tag's attributes.
pub type Attributes<'a> = &'a [(&'static str, &'a dyn Display)];

/// A page in the making.
#[derive(Debug, Default)]
pub struct Html(String);

impl Html {
    /// What was written.
    pub fn finish(self) -> String {
        self.0
    }

    /// Markup of this program's own.
    pub fn markup(&mut self, markup: &'static str) {
        self.0.push_str(markup);
    }

    /// Text, escaped and capped.
    pub fn text(&mut self, text: impl Display) {
        self.brief(LONGEST, text);
    }

    /// Text where there is room for this many characters only.
    pub fn brief(&mut self, room: usize, text: impl Display) {
        let mut escaping = Escaping { out: &mut self.0, left: room, marks: 0 };
        // It fails to end a text that is too long, which says so itself.
        let _ = write!(escaping, "{text}");
    }

    /// Text of foreign origin, whose writing direction stays within it.
    pub fn foreign(&mut self, text: impl Display) {
        self.name(LONGEST, text);
    }

    /// A foreign name where there is room for this many characters only.
    pub fn name(&mut self, room: usize, name: impl Display) {
        self.element("bdi", &[], |html| html.brief(room, name));
    }

    /// An element and what is in it.
    pub fn element(&mut self, tag: &'static str, attributes: Attributes<'_>, inside: impl FnOnce(&mut Html)) {
        self.open(tag, attributes);
        inside(self);
        self.markup("</");
        self.markup(tag);
        self.markup(">");
    }

    /// An element with text in it.
    pub fn leaf(&mut self, tag: &'static str, attributes: Attributes<'_>, text: impl Display) {
        self.element(tag, attributes, |html| html.text(text));
    }

    /// A tag.
    fn open(&mut self, tag: &'static str, attributes: Attributes<'_>) {
        self.markup("<");
        self.markup(tag);
        for (name, value) in attributes {
            self.markup(" ");
            self.markup(name);
            self.markup("=\"");
            self.text(value);
            self.markup("\"");
        }
        self.markup(">");
    }
}

/// Escapes what is written to it until there was enough of it.
struct Escaping<'a> {
    out: &'a mut String,
    left: usize,
    /// Combining marks in a row.
    marks: usize,
}

impl Write for Escaping<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            self.marks = if is_combining_mark(c) { self.marks + 1 } else { 0 };
            let escaped = match c {
                '\t' | '\n' | '\r' => Some(c.escape_default().to_string()),
                _ if misleading(c) || self.marks > MARKS => Some(c.escape_unicode().to_string()),
                _ => None,
            };
            let width = escaped.as_ref().map_or(1, String::len);
            if self.left < width {
                self.out.push('…');
                return Err(fmt::Error);
            }
            self.left -= width;
            match (escaped, c) {
                (Some(escaped), _) => self.out.push_str(&escaped),
                (None, '&') => self.out.push_str("&amp;"),
                (None, '<') => self.out.push_str("&lt;"),
                (None, '>') => self.out.push_str("&gt;"),
                (None, '"') => self.out.push_str("&quot;"),
                (None, '\'') => self.out.push_str("&#39;"),
                (None, _) => self.out.push(c),
            }
        }
        Ok(())
    }
}

/// Control characters, and those that are not seen or that move others: directional formatting (UAX #9), joiners and
/// other zero-width characters, separators of lines, tags, variation selectors and private use.
fn misleading(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{e000}'..='\u{f8ff}' | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{10ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: impl Display) -> String {
        let mut html = Html::default();
        html.text(text);
        html.finish()
    }

    #[test]
    fn text_stays_text() {
        assert_eq!(
            text("<script>alert('1')</script>&amp;"),
            "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;amp;"
        );
        assert_eq!(text("naïve 数字 🧪 שלום"), "naïve 数字 🧪 שלום");
    }

    #[test]
    fn an_attribute_is_not_left() {
        let mut html = Html::default();
        html.leaf("td", &[("title", &"\" onload=\"alert(1)"), ("class", &3)], "x");
        assert_eq!(html.finish(), "<td title=\"&quot; onload=&quot;alert(1)\" class=\"3\">x</td>");
    }

    #[test]
    fn what_is_not_seen_is_shown() {
        assert_eq!(text("a\u{202e}b\u{2066}c\u{200f}"), "a\\u{202e}b\\u{2066}c\\u{200f}");
        assert_eq!(text("\0\x1b[2J\r\n\t\u{9b}\x7f"), "\\u{0}\\u{1b}[2J\\r\\n\\t\\u{9b}\\u{7f}");
        assert_eq!(text("\u{feff}\u{e0041}\u{200b}\u{ad}"), "\\u{feff}\\u{e0041}\\u{200b}\\u{ad}");
    }

    #[test]
    fn marks_do_not_pile_up() {
        let pile = format!("e{}", "\u{301}".repeat(6));
        assert_eq!(text(pile), format!("e{}\\u{{301}}\\u{{301}}", "\u{301}".repeat(MARKS)));
    }

    #[test]
    fn a_long_text_ends_with_a_sign() {
        assert_eq!(text("x".repeat(LONGEST)), "x".repeat(LONGEST));
        assert_eq!(text("<".repeat(LONGEST + 1)), format!("{}…", "&lt;".repeat(LONGEST)));
        // Whatever pieces it comes in.
        let pieces = format!("{}y…", "x".repeat(LONGEST - 1));
        assert_eq!(text(format_args!("{}{}", "x".repeat(LONGEST - 1), "yz")), pieces);
        // An escape is not cut.
        assert_eq!(text("x".repeat(LONGEST - 1) + "\n"), "x".repeat(LONGEST - 1) + "…");
    }

    #[test]
    fn foreign_text_is_isolated() {
        let mut html = Html::default();
        html.foreign("שלום<");
        assert_eq!(html.finish(), "<bdi>שלום&lt;</bdi>");
    }
}
