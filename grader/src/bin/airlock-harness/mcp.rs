//! The grader as tools of the Model Context Protocol, on stdin and stdout.
//!
//! <https://modelcontextprotocol.io/specification/2025-11-25>: lifecycle, ping, `tools/list` and `tools/call`;
//! one message per line. The server keeps no state, and answers one request after the other.

use std::io::{BufRead, Read, Write};
use std::time::Duration;

use airlock_grader::protocol::client::Client;
use airlock_grader::protocol::messages::Request;
use airlock_grader::protocol::refusal::ErrorCode;
use serde_json::{Map, Value, json};

use crate::commands::{self, Failure};

/// Versions of the protocol that this server speaks, the latest first. 2025-03-26 is not among them as it
/// demands batches.
const VERSIONS: [&str; 3] = ["2025-11-25", "2025-06-18", "2024-11-05"];

/// Longest message in bytes.
const LONGEST: u64 = 1024 * 1024;

/// Longest `wait_seconds` of the tool `result`: hosts give up on a call that takes minutes.
const LONGEST_WAIT: u64 = 60;

const INSTRUCTIONS: &str = "The grader of this research run. Use `validate` to have a candidate scored on the \
    validation set and `result` to read the outcome; both use up the time that `status` shows. `submit` is the \
    last action: it makes the final choice and ends the run.";

/// Serves until the end of the input.
pub(crate) fn serve(client: &Client, mut input: impl BufRead, mut output: impl Write) -> Result<(), Failure> {
    loop {
        let mut line = Vec::new();
        input.by_ref().take(LONGEST).read_until(b'\n', &mut line).map_err(Failure::Input)?;
        if line.is_empty() {
            return Ok(());
        }
        if line.last() != Some(&b'\n') && line.len() as u64 == LONGEST {
            skip_line(&mut input).map_err(Failure::Input)?;
        }
        if let Some(reply) = answer(client, &line) {
            writeln!(output, "{reply}").and_then(|()| output.flush()).map_err(Failure::Output)?;
        }
    }
}

fn skip_line(input: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let buffer = input.fill_buf()?;
        let newline = buffer.iter().position(|byte| *byte == b'\n');
        let used = newline.map_or(buffer.len(), |position| position + 1);
        let end = newline.is_some() || buffer.is_empty();
        input.consume(used);
        if end {
            return Ok(());
        }
    }
}

/// The reply to a message; none to a notification.
fn answer(client: &Client, line: &[u8]) -> Option<Value> {
    let Ok(message) = serde_json::from_slice::<Value>(line) else {
        return Some(error(&Value::Null, ErrorCode::Parse, None));
    };
    let Value::Object(mut message) = message else {
        return Some(error(&Value::Null, ErrorCode::InvalidRequest, None));
    };
    let Some(Value::String(method)) = message.remove("method") else {
        // A reply: this server asks for nothing.
        let reply = message.contains_key("result") || message.contains_key("error");
        return (!reply).then(|| error(&Value::Null, ErrorCode::InvalidRequest, None));
    };
    let id = match message.remove("id") {
        None => return None,
        Some(id @ (Value::String(_) | Value::Number(_))) => id,
        Some(_) => return Some(error(&Value::Null, ErrorCode::InvalidRequest, None)),
    };
    let params = message.remove("params").unwrap_or_default();
    let result = match method.as_str() {
        "initialize" => initialize(&params),
        "ping" => json!({}),
        "tools/list" => json!({ "tools": tools() }),
        "tools/call" => match call(client, params) {
            Some(result) => result,
            None => return Some(error(&id, ErrorCode::InvalidParams, Some("there is no such tool"))),
        },
        _ => return Some(error(&id, ErrorCode::UnknownMethod, None)),
    };
    Some(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

fn error(id: &Value, code: ErrorCode, text: Option<&str>) -> Value {
    let text = text.unwrap_or(code.text());
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code.number(), "message": text } })
}

fn initialize(params: &Value) -> Value {
    let wanted = params["protocolVersion"].as_str();
    let version = VERSIONS.iter().find(|version| Some(**version) == wanted).unwrap_or(&VERSIONS[0]);
    json!({
        "protocolVersion": version,
        "capabilities": { "tools": {} },
        "serverInfo": { "name": "airlock-harness", "version": env!("CARGO_PKG_VERSION") },
        "instructions": INSTRUCTIONS,
    })
}

/// Calls a tool; `None` if there is none of that name.
fn call(client: &Client, mut params: Value) -> Option<Value> {
    let name = params["name"].as_str()?.to_owned();
    tools().iter().find(|tool| tool["name"] == name.as_str())?;
    let arguments = match params.get_mut("arguments").map(Value::take) {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(arguments)) => arguments,
        Some(_) => return Some(failed("the arguments are not an object")),
    };
    Some(match perform(client, &name, arguments) {
        Ok(result) => json!({
            "content": [{ "type": "text", "text": result.to_string() }],
            "structuredContent": result,
            "isError": false,
        }),
        Err(text) => failed(&text),
    })
}

/// A failure that is for the model to see.
fn failed(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }], "isError": true })
}

fn perform(client: &Client, name: &str, mut arguments: Map<String, Value>) -> Result<Value, String> {
    let wait = match name {
        "result" => arguments.remove("wait_seconds"),
        _ => None,
    };
    let seconds = match wait.as_ref().map(Value::as_u64) {
        None => 0,
        Some(Some(seconds)) if seconds <= LONGEST_WAIT => seconds,
        Some(_) => return Err(format!("wait_seconds is not a whole number up to {LONGEST_WAIT}")),
    };
    let request = Request::decode(name, arguments)
        .map_err(|_| format!("the arguments are not those of {name}; see its input schema"))?;
    let result = match &request {
        Request::Result(of) if seconds > 0 => {
            commands::wait(client, of.ticket, Some(Duration::from_secs(seconds)))
                .and_then(|_| client.ask::<Value>(&request))
        }
        _ => client.ask::<Value>(&request),
    };
    result.map(|(reply, _)| reply).map_err(|error| error.to_string())
}

fn tools() -> [Value; 6] {
    let object = |properties: Value, required: &[&str]| {
        json!({
            "type": "object", "properties": properties, "required": required, "additionalProperties": false,
        })
    };
    let candidate = json!({
        "type": "string",
        "description": "Path relative to the workspace, without ..; \".\" is the workspace itself",
    });
    let ticket = json!({ "type": "string", "pattern": "^v-(0|[1-9][0-9]*)$" });
    [
        json!({
            "name": "status",
            "description": "Phase, elapsed and remaining time in milliseconds, open validations",
            "inputSchema": object(json!({}), &[]),
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        }),
        json!({
            "name": "validate",
            "description": "Seal a candidate as it is now and queue its validation. Returns a ticket at once; \
                the time until the result counts against the budget",
            "inputSchema": object(
                json!({
                    "candidate": candidate,
                    "items": {
                        "type": "array", "items": { "type": "string" }, "minItems": 1, "uniqueItems": true,
                        "description": "Only these items; all without it",
                    },
                }),
                &["candidate"],
            ),
            "annotations": { "readOnlyHint": false, "destructiveHint": false, "openWorldHint": false },
        }),
        json!({
            "name": "result",
            "description": "State of a validation; when it is done, its score over all planned items and the \
                attempts at each item, in pages",
            "inputSchema": object(
                json!({
                    "ticket": ticket,
                    "from": { "type": "integer", "minimum": 0, "description": "First item of the page" },
                    "wait_seconds": {
                        "type": "integer", "minimum": 0, "maximum": LONGEST_WAIT,
                        "description": "Wait so long for the validation to end",
                    },
                }),
                &["ticket"],
            ),
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        }),
        json!({
            "name": "cancel",
            "description": "Drop a validation that is still queued",
            "inputSchema": object(json!({ "ticket": ticket }), &["ticket"]),
            "annotations": { "readOnlyHint": false, "destructiveHint": true, "openWorldHint": false },
        }),
        json!({
            "name": "submit",
            "description": "Make a candidate the final choice. This ends the run: every process in the sandbox is \
                killed, and nothing can be changed any more",
            "inputSchema": object(json!({ "candidate": candidate }), &["candidate"]),
            "annotations": { "readOnlyHint": false, "destructiveHint": true, "openWorldHint": false },
        }),
        json!({
            "name": "no_candidate",
            "description": "End the run without a candidate",
            "inputSchema": object(
                json!({ "reason": { "type": "string", "minLength": 1, "maxLength": 1000 } }),
                &["reason"],
            ),
            "annotations": { "readOnlyHint": false, "destructiveHint": true, "openWorldHint": false },
        }),
    ]
}
