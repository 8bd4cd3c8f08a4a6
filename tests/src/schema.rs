//! As much of JSON Schema as Airlock's published schemas use.

use serde_json::Value;

/// Checks a value against a schema; says where it does not fit. A keyword that is not known here is an error, not
/// a pass.
pub fn check(schema: &Value, value: &Value) -> Result<(), String> {
    fits(schema, schema, value, "")
}

fn fits(root: &Value, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
    let keywords = match schema {
        Value::Bool(true) => return Ok(()),
        Value::Object(keywords) => keywords,
        other => return Err(format!("{place}: {other} allows nothing")),
    };
    for (keyword, wanted) in keywords {
        let fault = || Err(format!("{place}: {value} does not fit `{keyword}`: {wanted}"));
        let choices = || wanted.as_array().into_iter().flatten();
        let fitting = || choices().filter(|choice| fits(root, choice, value, place).is_ok()).count();
        match keyword.as_str() {
            "$schema" | "$id" | "$defs" | "definitions" | "title" | "description" | "format" | "default"
            | "examples" => {}
            "$ref" => {
                let target = wanted.as_str().and_then(|name| root.pointer(name.strip_prefix('#')?));
                fits(root, target.ok_or(format!("{place}: no {wanted}"))?, value, place)?;
            }
            "type" if wanted.is_string() && !is(value, wanted) => return fault(),
            "type" if wanted.is_array() && !choices().any(|kind| is(value, kind)) => return fault(),
            "type" => {}
            "const" if value != wanted => return fault(),
            "enum" if !choices().any(|choice| choice == value) => return fault(),
            "const" | "enum" => {}
            "anyOf" if fitting() == 0 => return fault(),
            "oneOf" if fitting() != 1 => return fault(),
            "anyOf" | "oneOf" => {}
            "minimum" if value.as_f64() < wanted.as_f64() && value.is_number() => return fault(),
            "maximum" if value.as_f64() > wanted.as_f64() && value.is_number() => return fault(),
            "minItems" if value.as_array().is_some_and(|items| (items.len() as u64) < number(wanted)) => {
                return fault();
            }
            "uniqueItems" if value.as_array().is_some_and(|items| repeated(items)) => return fault(),
            "minimum" | "maximum" | "minItems" | "uniqueItems" => {}
            "required" => {
                let missing = choices().filter_map(Value::as_str).find(|name| value.get(name).is_none());
                if value.is_object() && missing.is_some() {
                    return fault();
                }
            }
            "properties" | "additionalProperties" => {}
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    fits(root, wanted, item, &format!("{place}/{index}"))?;
                }
            }
            _ => return Err(format!("{place}: `{keyword}` is not known here")),
        }
    }
    let others = keywords.get("additionalProperties").unwrap_or(&Value::Bool(true));
    for (name, item) in value.as_object().into_iter().flatten() {
        let described = keywords.get("properties").and_then(|all| all.get(name));
        fits(root, described.unwrap_or(others), item, &format!("{place}/{name}"))?;
    }
    Ok(())
}

fn number(wanted: &Value) -> u64 {
    wanted.as_u64().unwrap_or(u64::MAX)
}

/// Two items are the same.
fn repeated(items: &[Value]) -> bool {
    items.iter().enumerate().any(|(at, item)| items[..at].contains(item))
}

fn is(value: &Value, kind: &Value) -> bool {
    match kind.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::check;

    #[test]
    fn what_does_not_fit_is_named() {
        let schema = json!({
            "type": "object", "required": ["a"], "additionalProperties": false,
            "properties": { "a": { "$ref": "#/$defs/A" }, "b": { "type": ["string", "null"] } },
            "$defs": { "A": { "type": "array", "items": { "oneOf": [{ "const": 1 }, { "const": 2 }] } } },
        });
        assert_eq!(check(&schema, &json!({ "a": [1, 2], "b": null })), Ok(()));
        for (wrong, place) in [
            (json!({ "a": [1, 3] }), "/a/1:"),
            (json!({ "a": [], "b": 1 }), "/b:"),
            (json!({ "a": [], "c": 1 }), "/c:"),
            (json!({}), "required"),
            (json!([]), "type"),
        ] {
            let fault = check(&schema, &wrong).unwrap_err();
            assert!(fault.contains(place), "{fault}");
        }
        assert!(check(&json!({ "pattern": "a" }), &json!("a")).is_err());
    }
}
