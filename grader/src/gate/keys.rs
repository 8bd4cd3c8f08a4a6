//! The keys of a JSON document, all of them: at any depth, and also those that come twice.

use std::fmt;
use std::io::Read;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// What a document's reader is told.
pub(super) trait Listener {
    /// A key, wherever it stands.
    fn key(&mut self, key: &str);

    /// A string, and the keys that lead to it.
    fn string(&mut self, keys: &[String], value: &str);
}

/// Reads one JSON document to its end.
pub(super) fn listen(document: impl Read, listener: &mut dyn Listener) -> Result<(), serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_reader(document);
    Node {
        keys: &mut Vec::new(),
        listener,
    }
    .deserialize(&mut reader)?;
    reader.end()
}

struct Node<'a> {
    keys: &'a mut Vec<String>,
    listener: &'a mut dyn Listener,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.listener.string(self.keys, value);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items
            .next_element_seed(Node {
                keys: self.keys,
                listener: self.listener,
            })?
            .is_some()
        {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(key) = entries.next_key::<String>()? {
            self.listener.key(&key);
            self.keys.push(key);
            entries.next_value_seed(Node {
                keys: self.keys,
                listener: self.listener,
            })?;
            self.keys.pop();
        }
        Ok(())
    }
}
