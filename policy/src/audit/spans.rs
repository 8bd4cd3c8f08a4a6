//! Where the members of a JSON or TOML text stand.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The byte range of each member, by JSON pointer (RFC 6901). An object's member starts at its key, an array's
/// item at its value.
#[derive(Clone, Debug, Default)]
pub(super) struct Spans(BTreeMap<String, Range<usize>>);

impl Spans {
    /// Of a text that a JSON parser has accepted, which also bounds how deep it is.
    pub(super) fn json(text: &str) -> Self {
        let mut walk = Walk { text: text.as_bytes(), at: 0, spans: Spans::default() };
        walk.value("", 0);
        walk.spans
    }

    /// Of a TOML text; empty where it is none.
    pub(super) fn toml(text: &str) -> Self {
        let mut spans = Spans::default();
        if let Ok(table) = DeTable::parse(text) {
            spans.0.insert(String::new(), 0..0);
            spans.table("", table.get_ref());
        }
        spans
    }

    /// The member, or the nearest one that would hold it.
    pub(super) fn nearest(&self, pointer: &str) -> Range<usize> {
        let mut pointer = pointer;
        loop {
            match (self.0.get(pointer), pointer.rfind('/')) {
                (Some(span), _) => return span.clone(),
                (None, Some(slash)) => pointer = &pointer[..slash],
                (None, None) => return 0..0,
            }
        }
    }

    fn table(&mut self, pointer: &str, table: &DeTable<'_>) {
        for (key, value) in table.iter() {
            let pointer = format!("{pointer}/{}", escape(key.get_ref()));
            self.toml_value(&pointer, key.span(), value);
        }
    }

    fn toml_value(&mut self, pointer: &str, span: Range<usize>, value: &Spanned<DeValue<'_>>) {
        self.0.insert(pointer.to_owned(), span);
        match value.get_ref() {
            DeValue::Table(table) => self.table(pointer, table),
            DeValue::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.toml_value(&format!("{pointer}/{index}"), item.span(), item);
                }
            }
            _ => {}
        }
    }
}

/// A key as one step of a JSON pointer.
pub(super) fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

struct Walk<'a> {
    text: &'a [u8],
    at: usize,
    spans: Spans,
}

impl Walk<'_> {
    /// Reads one value; `start` is where its key, or it itself, begins.
    fn value(&mut self, pointer: &str, start: usize) {
        self.space();
        match self.peek() {
            Some(b'{') => self.object(pointer),
            Some(b'[') => self.array(pointer),
            Some(b'"') => drop(self.string()),
            _ => {
                while self.peek().is_some_and(|byte| !b",]} \t\r\n".contains(&byte)) {
                    self.at += 1;
                }
            }
        }
        self.spans.0.insert(pointer.to_owned(), start..self.at);
    }

    fn object(&mut self, pointer: &str) {
        self.at += 1;
        loop {
            self.space();
            let start = self.at;
            if self.peek() != Some(b'"') {
                break;
            }
            let key = self.string();
            self.space();
            // The colon.
            self.at += 1;
            self.value(&format!("{pointer}/{}", escape(&key)), start);
            if !self.more() {
                break;
            }
        }
        self.at += 1;
    }

    fn array(&mut self, pointer: &str) {
        self.at += 1;
        for index in 0.. {
            self.space();
            if matches!(self.peek(), Some(b']') | None) {
                break;
            }
            self.value(&format!("{pointer}/{index}"), self.at);
            if !self.more() {
                break;
            }
        }
        self.at += 1;
    }

    /// Passes a comma, if there is one.
    fn more(&mut self) -> bool {
        self.space();
        let comma = self.peek() == Some(b',');
        self.at += usize::from(comma);
        comma
    }

    fn string(&mut self) -> String {
        let start = self.at;
        self.at += 1;
        while let Some(byte) = self.peek() {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                break;
            }
        }
        let raw = self.text.get(start..self.at).unwrap_or_default();
        serde_json::from_slice(raw).unwrap_or_default()
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|byte| b" \t\r\n".contains(&byte)) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn members_are_found_where_they_stand() {
        let text = "{ \"a/b\": [1, {\"c\\\"\": \"x\"}],\n \"d\": {}, \"e\": [] }";
        let spans = Spans::json(text);
        let part = |pointer: &str| &text[spans.nearest(pointer)];
        assert_eq!(part("/a~1b/0"), "1");
        assert_eq!(part("/a~1b/1/c\""), "\"c\\\"\": \"x\"");
        assert_eq!(part("/d"), "\"d\": {}");
        assert_eq!(part("/e/7/x"), "\"e\": []");
        assert_eq!(part("/none"), text);
    }

    #[test]
    fn a_toml_text_has_places_too() {
        let text = "[[a.b]]\nc = 1\n[[a.b]]\nc = [{ d = 2 }]\n";
        let spans = Spans::toml(text);
        assert_eq!(spans.nearest("/a/b/1/c/0/d").start, text.rfind('d').unwrap());
        assert_eq!(spans.nearest("/a/b/1/c/0/x").start, text.rfind('{').unwrap());
    }

    fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..5)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// The text at each member's range is what a parser reads there.
        #[test]
        fn every_range_holds_its_member(document in document(), pretty in any::<bool>()) {
            let write = if pretty { serde_json::to_string_pretty } else { serde_json::to_string };
            let text = write(&document).unwrap();
            for (pointer, span) in &Spans::json(&text).0 {
                let part = &text[span.clone()];
                let whole = serde_json::from_str::<Value>(part)
                    .or_else(|_| serde_json::from_str::<Value>(&format!("{{{part}}}"))
                        .map(|object| object.as_object().unwrap().values().next().unwrap().clone()));
                prop_assert_eq!(document.pointer(pointer).cloned(), whole.ok(), "{} {}", pointer, part);
            }
        }
    }
}
