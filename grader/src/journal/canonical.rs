//! Canonical JSON: one text for each value.

use serde::Serialize;
use serde_json::Value;

/// Why a value has no canonical JSON.
#[derive(Debug, thiserror::Error)]
pub enum CanonicalError {
    /// A binary fraction: its text is a matter of taste. Fractions are written as strings.
    #[error("{0} is not an integer; a fraction is written as a decimal string")]
    Fraction(serde_json::Number),
    /// Not JSON at all, such as a map whose keys are no strings.
    #[error("the value is not JSON")]
    NotJson(#[from] serde_json::Error),
}

/// The canonical JSON of a value: keys in the order of their UTF-8 bytes, no white space, integers only, and in
/// strings nothing escaped but `"`, `\` and control characters below U+0020 (the short form where there is
/// one, else `\u00xx` in lower case). A subset of RFC 8785 for keys in the Basic Multilingual Plane.
pub fn canonical(value: &impl Serialize) -> Result<Vec<u8>, CanonicalError> {
    let mut bytes = Vec::new();
    write(&serde_json::to_value(value)?, &mut bytes)?;
    Ok(bytes)
}

fn write(value: &Value, to: &mut Vec<u8>) -> Result<(), CanonicalError> {
    match value {
        Value::Number(number) if number.is_f64() => return Err(CanonicalError::Fraction(number.clone())),
        Value::Array(items) => list(to, b"[]", items, write)?,
        Value::Object(fields) => {
            // A map of serde_json keeps the order of insertion if any crate of the build asks it to.
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(key, _)| key.as_str());
            list(to, b"{}", fields, |(key, value), to| {
                serde_json::to_writer(&mut *to, key)?;
                to.push(b':');
                write(value, to)
            })?;
        }
        // serde_json's compact form of these is the canonical one.
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            serde_json::to_writer(to, value)?
        }
    }
    Ok(())
}

fn list<T>(
    to: &mut Vec<u8>,
    brackets: &[u8; 2],
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(T, &mut Vec<u8>) -> Result<(), CanonicalError>,
) -> Result<(), CanonicalError> {
    to.push(brackets[0]);
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            to.push(b',');
        }
        write(item, to)?;
    }
    to.push(brackets[1]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn there_is_one_text() {
        let value = json!({
            "b": [1, -2, u64::MAX, i64::MIN, true, null, {}, []],
            "a": "\" \\ / \u{8}\u{c}\n\r\t\0\u{1f}\u{7f} é \u{2028}😀",
            "é": 0, "z": 0, "Z": 0, "": 0,
        });
        let text = concat!(
            r#"{"":0,"Z":0,"a":"\" \\ / \b\f\n\r\t\u0000\u001f"#,
            "\u{7f} é \u{2028}😀",
            r#"","b":[1,-2,18446744073709551615,-9223372036854775808,true,null,{},[]],"z":0,"é":0}"#
        );
        assert_eq!(String::from_utf8(canonical(&value).unwrap()).unwrap(), text);
    }

    #[test]
    fn fractions_are_refused() {
        for value in [json!(0.5), json!([1.0]), json!({"a": {"b": 1e300}})] {
            assert!(
                matches!(canonical(&value), Err(CanonicalError::Fraction(_))),
                "{value}"
            );
        }
    }
}
