//! A session of the Model Context Protocol with the client's program.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::HARNESS;
use crate::support::{Grader, digest, wide};

struct Session {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Session {
    fn start(grader: &Grader) -> Session {
        let mut command = Command::new(HARNESS);
        command.arg("mcp").arg("--socket").arg(&grader.socket);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Session { child, input, output: BufReader::new(output) }
    }

    fn send(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.send(&json!({ "jsonrpc": "2.0", "id": "q", "method": method, "params": params }).to_string());
        let reply = self.line();
        assert_eq!((&reply["jsonrpc"], &reply["id"]), (&json!("2.0"), &json!("q")));
        reply
    }

    fn call(&mut self, name: &str, arguments: Value) -> Value {
        let reply = self.ask("tools/call", json!({ "name": name, "arguments": arguments, "_meta": {} }));
        reply["result"].clone()
    }

    /// The end of the input is the end of the program.
    fn end(mut self) {
        drop(self.input);
        assert!(self.child.wait().unwrap().success());
        let mut rest = String::new();
        self.output.read_line(&mut rest).unwrap();
        assert_eq!(rest, "");
    }
}

#[test]
fn a_session_from_its_start_to_the_final_choice() {
    let grader = Grader::start(wide());
    let mut session = Session::start(&grader);
    let client = json!({ "name": "agent", "version": "1" });
    let start = session.ask(
        "initialize",
        json!({ "protocolVersion": "2025-06-18", "capabilities": { "roots": {} }, "clientInfo": client }),
    );
    assert_eq!(start["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(start["result"]["serverInfo"]["name"], "airlock-harness");
    assert_eq!(start["result"]["capabilities"], json!({ "tools": {} }));
    // No reply to a notification: the next line is the ping's.
    session.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    assert_eq!(session.ask("ping", json!({}))["result"], json!({}));

    let tools = session.ask("tools/list", json!({}))["result"]["tools"].clone();
    let names: Vec<&str> =
        tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["status", "validate", "result", "cancel", "submit", "no_candidate"]);
    for tool in tools.as_array().unwrap() {
        assert_eq!(tool["inputSchema"]["type"], "object");
        assert_eq!(tool["inputSchema"]["additionalProperties"], false);
    }

    let queued = session.call("validate", json!({ "candidate": "out/m" }));
    assert_eq!(queued["structuredContent"], json!({ "ticket": "v-1", "candidate": digest(), "ahead": 2 }));
    assert_eq!(queued["isError"], false);
    let text: Value = serde_json::from_str(queued["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(text, queued["structuredContent"]);
    let result = session.call("result", json!({ "ticket": "v-1", "wait_seconds": 5 }));
    assert_eq!(result["structuredContent"]["feedback"]["score"], 0.5);
    let page = session.call("result", json!({ "ticket": "v-1", "from": 1499 }));
    assert_eq!(page["structuredContent"]["feedback"]["items"][0]["item"], "item-1499");
    let waited = session.call("result", json!({ "ticket": "v-3", "wait_seconds": 1 }));
    assert_eq!(waited["structuredContent"]["state"], "queued");
    assert_eq!(session.call("status", json!({}))["structuredContent"]["validations"], 1);
    let submitted = session.call("submit", json!({ "candidate": "." }));
    assert_eq!(submitted["structuredContent"], json!({ "accepted": true }));
    session.end();
}

#[test]
fn failures_of_tools_are_results_and_those_of_the_protocol_errors() {
    let grader = Grader::start(wide());
    let mut session = Session::start(&grader);
    for version in ["2024-10-07", "2025-03-26", "x"] {
        let start = session.ask("initialize", json!({ "protocolVersion": version }));
        assert_eq!(start["result"]["protocolVersion"], "2025-11-25");
    }
    for (name, arguments, text) in [
        ("validate", json!({ "candidate": "linked" }), "the candidate is refused (-32012): symbolic link at"),
        ("validate", json!({ "candidate": "../x" }), "the arguments are not those of validate"),
        ("validate", json!({ "name": "x" }), "the arguments are not those of validate"),
        ("status", json!({ "x": 1 }), "the arguments are not those of status"),
        ("status", json!([]), "the arguments are not an object"),
        (
            "result",
            json!({ "ticket": "v-1", "wait_seconds": 61 }),
            "wait_seconds is not a whole number up to 60",
        ),
        ("result", json!({ "ticket": "v-99" }), "there is no such ticket (-32011)"),
    ] {
        let result = session.call(name, arguments);
        assert_eq!(result["isError"], true);
        let found = result["content"][0]["text"].as_str().unwrap();
        assert!(found.starts_with(text), "{found}");
    }
    assert_eq!(session.ask("tools/call", json!({ "name": "final_score" }))["error"]["code"], -32602);
    assert_eq!(session.ask("resources/list", json!({}))["error"]["code"], -32601);
    for (line, code) in [
        ("{", -32700),
        (&"x".repeat(3_000_000), -32700),
        ("[]", -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1}"#, -32600),
    ] {
        session.send(line);
        let reply = session.line();
        assert_eq!((&reply["id"], &reply["error"]["code"]), (&Value::Null, &json!(code)));
    }
    assert_eq!(session.ask("ping", json!({}))["result"], json!({}));
    session.end();
}

#[test]
fn without_a_grader_a_tool_fails_and_the_session_goes_on() {
    let mut grader = Grader::start(wide());
    let mut session = Session::start(&grader);
    grader.stop();
    // The socket is closed in another thread.
    while UnixStream::connect(&grader.socket).is_ok() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let result = session.call("status", json!({}));
    assert_eq!(result["isError"], true);
    assert!(result["content"][0]["text"].as_str().unwrap().contains("Connection refused"));
    assert_eq!(session.ask("ping", json!({}))["result"], json!({}));
    session.end();
}
