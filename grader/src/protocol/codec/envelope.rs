//! JSON-RPC 2.0: requests, replies and errors (<https://www.jsonrpc.org/specification>).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::strict::{NotStrict, from_line, parse};
use crate::protocol::names::check_printable;
use crate::protocol::refusal::{ErrorCode, Fault, Refusal};

/// Longest text of an id in bytes.
const LONGEST_ID: usize = 64;

/// What a reply is known by: an integer or a text of at most 64 bytes. `null` and fractions are refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Id {
    /// An integer.
    Integer(i64),
    /// A text.
    Text(String),
}

impl Id {
    fn from_value(value: Value) -> Option<Id> {
        match value {
            Value::Number(number) => number.as_i64().map(Id::Integer),
            Value::String(text) if text.len() <= LONGEST_ID && text.chars().all(check_printable) => {
                Some(Id::Text(text))
            }
            _ => None,
        }
    }
}

/// A request whose envelope is right.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// To be given back.
    pub id: Id,
    /// The method, not checked.
    pub method: String,
    /// The parameters, not checked.
    pub params: Map<String, Value>,
}

/// A line that is no request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The id where it could be told.
    pub id: Option<Id>,
    /// [`ErrorCode::Parse`], [`ErrorCode::InvalidRequest`] or [`ErrorCode::InvalidParams`].
    pub code: ErrorCode,
}

/// Decodes a line into a request.
pub fn decode_call(line: &[u8]) -> Result<Call, Rejected> {
    let document = parse(line).map_err(|_| Rejected { id: None, code: ErrorCode::Parse })?;
    let Value::Object(mut members) = document else {
        return Err(Rejected { id: None, code: ErrorCode::InvalidRequest });
    };
    let id = members.remove("id").and_then(Id::from_value);
    let version = members.remove("jsonrpc");
    let method = members.remove("method");
    let params = members.remove("params").unwrap_or_else(|| json!({}));
    let (Some(id), Some(Value::String(method))) = (id.clone(), method) else {
        return Err(Rejected { id, code: ErrorCode::InvalidRequest });
    };
    if version != Some(json!("2.0")) || !members.is_empty() {
        return Err(Rejected { id: Some(id), code: ErrorCode::InvalidRequest });
    }
    match params {
        Value::Object(params) => Ok(Call { id, method, params }),
        _ => Err(Rejected { id: Some(id), code: ErrorCode::InvalidParams }),
    }
}

/// The line of a request, with its newline.
pub fn encode_call(id: &Id, method: &str, params: &Value) -> Vec<u8> {
    line(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
}

/// The line of a reply, with its newline.
pub fn encode_reply(id: &Id, result: &Value) -> Vec<u8> {
    line(&json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

/// The line of an error, with its newline.
pub fn encode_error(id: Option<&Id>, refusal: &Refusal) -> Vec<u8> {
    let mut error = json!({ "code": refusal.code.number(), "message": refusal.code.text() });
    if let Some(fault) = &refusal.fault {
        error["data"] = json!(fault);
    }
    line(&json!({ "jsonrpc": "2.0", "id": id, "error": error }))
}

fn line(document: &Value) -> Vec<u8> {
    let mut line = document.to_string().into_bytes();
    line.push(b'\n');
    line
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplyMembers {
    #[serde(rename = "jsonrpc")]
    _version: Version,
    id: Option<Id>,
    result: Option<Value>,
    error: Option<ErrorMembers>,
}

#[derive(Deserialize)]
enum Version {
    #[serde(rename = "2.0")]
    Two,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorMembers {
    code: ErrorCode,
    #[serde(rename = "message")]
    _message: String,
    data: Option<Fault>,
}

/// Decodes a line into the reply to the request of this id. A refusal whose id is `null` is the answer too:
/// the server could not tell which request it is about, and there is only one.
pub fn decode_reply(line: &[u8], id: &Id) -> Result<Result<Value, Refusal>, NotStrict> {
    let reply: ReplyMembers = from_line(line)?;
    match reply {
        ReplyMembers { id: Some(theirs), result: Some(result), error: None, .. } if theirs == *id => {
            Ok(Ok(result))
        }
        ReplyMembers { id: theirs, result: None, error: Some(error), .. }
            if theirs.as_ref().is_none_or(|theirs| theirs == id) =>
        {
            Ok(Err(Refusal { code: error.code, fault: error.data }))
        }
        _ => Err(NotStrict::new("not the reply to this request")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(line: &str) -> (Option<Id>, ErrorCode) {
        let rejected = decode_call(line.as_bytes()).expect_err(line);
        (rejected.id, rejected.code)
    }

    #[test]
    fn a_request_has_an_id_a_method_and_named_parameters() {
        let call = decode_call(br#"{"jsonrpc":"2.0","id":"a","method":"m","params":{"x":1}}"#).unwrap();
        assert_eq!((call.id, call.method.as_str()), (Id::Text("a".into()), "m"));
        let call = decode_call(br#"{"jsonrpc":"2.0","id":-7,"method":"m"}"#).unwrap();
        assert_eq!((call.id, call.params.len()), (Id::Integer(-7), 0));
    }

    #[test]
    fn everything_else_is_rejected_with_the_id_where_there_is_one() {
        let seven = Some(Id::Integer(7));
        let long = format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"m"}}"#, "x".repeat(65));
        for (line, id, code) in [
            ("", None, ErrorCode::Parse),
            ("{", None, ErrorCode::Parse),
            (r#"{"jsonrpc":"2.0","id":7,"id":7,"method":"m"}"#, None, ErrorCode::Parse),
            ("[]", None, ErrorCode::InvalidRequest),
            (r#"[{"jsonrpc":"2.0","id":7,"method":"m"}]"#, None, ErrorCode::InvalidRequest),
            (r#"{"jsonrpc":"2.0","method":"m"}"#, None, ErrorCode::InvalidRequest),
            (r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#, None, ErrorCode::InvalidRequest),
            (r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#, None, ErrorCode::InvalidRequest),
            (r#"{"jsonrpc":"2.0","id":18446744073709551616,"method":"m"}"#, None, ErrorCode::InvalidRequest),
            (r#"{"jsonrpc":"2.0","id":[],"method":"m"}"#, None, ErrorCode::InvalidRequest),
            (r#"{"jsonrpc":"2.0","id":true,"method":"m"}"#, None, ErrorCode::InvalidRequest),
            (&long, None, ErrorCode::InvalidRequest),
            (r#"{"id":7,"method":"m"}"#, seven.clone(), ErrorCode::InvalidRequest),
            (r#"{"jsonrpc":"1.0","id":7,"method":"m"}"#, seven.clone(), ErrorCode::InvalidRequest),
            (r#"{"jsonrpc":2.0,"id":7,"method":"m"}"#, seven.clone(), ErrorCode::InvalidRequest),
            (r#"{"jsonrpc":"2.0","id":7,"method":"m","x":1}"#, seven.clone(), ErrorCode::InvalidRequest),
            (r#"{"jsonrpc":"2.0","id":7,"method":1}"#, seven.clone(), ErrorCode::InvalidRequest),
            (r#"{"jsonrpc":"2.0","id":7,"result":1}"#, seven.clone(), ErrorCode::InvalidRequest),
            (r#"{"jsonrpc":"2.0","id":7,"method":"m","params":[]}"#, seven.clone(), ErrorCode::InvalidParams),
            (
                r#"{"jsonrpc":"2.0","id":7,"method":"m","params":null}"#,
                seven.clone(),
                ErrorCode::InvalidParams,
            ),
        ] {
            assert_eq!(rejected(line), (id, code), "{line}");
        }
    }

    #[test]
    fn a_reply_belongs_to_its_request() {
        let id = Id::Integer(1);
        let reply = encode_reply(&id, &json!({"a": 1}));
        assert_eq!(decode_reply(&reply, &id).unwrap(), Ok(json!({"a": 1})));
        assert!(decode_reply(&reply, &Id::Integer(2)).is_err());
        let error = encode_error(None, &ErrorCode::Busy.into());
        assert_eq!(decode_reply(&error, &id).unwrap(), Err(ErrorCode::Busy.into()));
        assert!(decode_reply(br#"{"jsonrpc":"2.0","id":1}"#, &id).is_err());
        assert!(decode_reply(br#"{"jsonrpc":"2.0","id":1,"error":{"code":5,"message":""}}"#, &id).is_err());
    }
}
