//! What is a request, and what is answered to everything else.

use std::time::{Duration, Instant};

use airlock_grader::protocol::REQUEST_CAP;
use airlock_grader::protocol::refusal::ErrorCode;
use airlock_grader::protocol::server::Limits;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{Grader, HELLO, digest, wide};

fn error(code: ErrorCode) -> Value {
    json!({ "code": code.number(), "message": code.text() })
}

fn request(method: &str, params: Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string()
}

#[test]
fn every_method_has_its_reply() {
    let grader = Grader::start(wide());
    let mut peer = grader.connect();
    let hello = peer.ask(&request("hello", json!({})));
    assert_eq!(hello["result"]["protocol"], 1);
    assert_eq!(hello["result"]["request_bytes"], 65536);
    assert_eq!(hello["result"]["methods"], json!(["status", "validate", "submit"]));
    let queued = peer.ask(&request("validate", json!({ "candidate": "out/m", "items": ["a", "b"] })));
    assert_eq!(queued["result"], json!({ "ticket": "v-1", "candidate": digest(), "ahead": 2 }));
    let status = peer.ask(&request("status", json!({})));
    assert_eq!(status["result"]["remaining_ms"], 13_677_000);
    assert_eq!(status["result"]["open"][0]["ticket"], "v-4");
    let result = peer.ask(&request("result", json!({ "ticket": "v-1", "from": 1000 })));
    let feedback = &result["result"]["feedback"];
    assert_eq!(feedback["counts"], json!({ "planned": 1500, "graded": 750, "errored": 750 }));
    assert_eq!(feedback["items"][1]["attempts"][0]["status"], "timeout");
    assert_eq!((feedback["items"].as_array().unwrap().len(), &feedback["next"]), (500, &Value::Null));
    assert_eq!(
        peer.ask(&request("cancel", json!({ "ticket": "v-3" })))["result"],
        json!({ "ticket": "v-3" })
    );
    let submitted = peer.ask(&request("submit", json!({ "candidate": "." })));
    assert_eq!(submitted, json!({ "jsonrpc": "2.0", "id": 7, "result": { "accepted": true } }));
    let again = peer.ask(&request("no_candidate", json!({ "reason": "none" })));
    assert_eq!(again["error"], error(ErrorCode::AlreadyEnded));
}

#[test]
fn refusals_have_the_closed_lists_texts() {
    let grader = Grader::start(wide());
    let mut peer = grader.connect();
    for (method, params, code) in [
        ("final_score", json!({}), ErrorCode::UnknownMethod),
        ("validate", json!({ "candidate": "../x" }), ErrorCode::InvalidParams),
        ("validate", json!({ "candidate": "large" }), ErrorCode::NoSpace),
        ("result", json!({ "ticket": "v-99" }), ErrorCode::UnknownTicket),
        ("cancel", json!({ "ticket": "v-1" }), ErrorCode::NotQueued),
    ] {
        let reply = peer.ask(&request(method, params));
        assert_eq!(reply, json!({ "jsonrpc": "2.0", "id": 7, "error": error(code) }));
    }
    let refused = peer.ask(&request("validate", json!({ "candidate": "linked" })));
    assert_eq!(refused["error"]["code"], ErrorCode::CandidateRefused.number());
    assert_eq!(refused["error"]["data"], json!({ "fault": "link", "path": "weights/\\u{1b}[2J" }));
}

#[test]
fn ids_come_back_as_they_were() {
    let grader = Grader::start(wide());
    let mut peer = grader.connect();
    for id in [json!(0), json!(-5), json!(9_007_199_254_740_991_u64), json!(""), json!("ä".repeat(32))] {
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": "hello" }).to_string();
        assert_eq!(peer.ask(&line)["id"], id);
    }
}

// jacobian#831, verifiers#2067: duplicate keys, huge numbers, unbounded sizes and depths.
#[test]
fn bad_lines_are_told_and_the_connection_goes_on() {
    let grader = Grader::start(wide());
    let mut peer = grader.connect();
    let deep = format!("{}1{}", "[".repeat(30_000), "]".repeat(30_000));
    for (line, code) in [
        (&b""[..], ErrorCode::Parse),
        (b"\0", ErrorCode::Parse),
        (b"GET / HTTP/1.1\r", ErrorCode::Parse),
        (b"\xff\xfe{}", ErrorCode::Parse),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xc3\x28\"}", ErrorCode::Parse),
        (br#"{"jsonrpc":"2.0","id":1,"id":2,"method":"hello"}"#, ErrorCode::Parse),
        (br#"{"jsonrpc":"2.0","id":1e999,"method":"hello"}"#, ErrorCode::Parse),
        (br#"{"jsonrpc":"2.0","id":NaN,"method":"hello"}"#, ErrorCode::Parse),
        (br#"{"jsonrpc":"2.0","id":1,"method":"hel\u0000lo"}"#, ErrorCode::Parse),
        (br#"{"jsonrpc":"2.0","id":1,"method":"hello"} {}"#, ErrorCode::Parse),
        (deep.as_bytes(), ErrorCode::Parse),
        (br#"{"jsonrpc":"2.0","method":"hello"}"#, ErrorCode::InvalidRequest),
        (br#"{"jsonrpc":"2.0","id":null,"method":"hello"}"#, ErrorCode::InvalidRequest),
        (br#"[{"jsonrpc":"2.0","id":1,"method":"hello"}]"#, ErrorCode::InvalidRequest),
    ] {
        peer.send(line);
        peer.send(b"\n");
        let reply = peer.line().unwrap();
        assert_eq!(reply, json!({ "jsonrpc": "2.0", "id": null, "error": error(code) }), "{line:?}");
    }
    assert_eq!(peer.ask(HELLO)["result"]["run"], "run-1");
}

#[test]
fn the_cap_holds_to_the_byte_and_before_the_newline() {
    let grader = Grader::start(wide());
    let padded = |length: usize| format!("{HELLO}{}", " ".repeat(length - HELLO.len()));
    let mut peer = grader.connect();
    assert_eq!(peer.ask(&padded(REQUEST_CAP))["result"]["run"], "run-1");
    // No newline follows.
    peer.send(padded(REQUEST_CAP + 1).as_bytes());
    assert_eq!(peer.line().unwrap()["error"], error(ErrorCode::TooLong));
    assert_eq!(peer.line(), None);
}

#[test]
fn requests_sent_together_are_answered_in_order() {
    let grader = Grader::start(wide());
    let mut peer = grader.connect();
    let lines: String =
        (0..50).map(|id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"status\"}}\n")).collect();
    peer.send(lines.as_bytes());
    for id in 0..50 {
        assert_eq!(peer.line().unwrap()["id"], id);
    }
}

#[test]
fn half_a_line_does_not_wait_for_ever() {
    let grader = Grader::start(Limits { line: Duration::from_millis(300), ..wide() });
    let mut peer = grader.connect();
    let start = Instant::now();
    peer.send(br#"{"jsonrpc":"2.0","#);
    assert_eq!(peer.line().unwrap()["error"], error(ErrorCode::LineTimeout));
    assert_eq!(peer.line(), None);
    assert!(start.elapsed() >= Duration::from_millis(300));
    // One byte now and then does not prolong it.
    let mut peer = grader.connect();
    let start = Instant::now();
    let mut writer = peer.0.get_ref().try_clone().unwrap();
    let trickle = std::thread::spawn(move || {
        use std::io::Write;
        while writer.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    assert_eq!(peer.line().unwrap()["error"], error(ErrorCode::LineTimeout));
    assert!(start.elapsed() < Duration::from_secs(10));
    drop(peer);
    trickle.join().unwrap();
}

#[test]
fn silence_and_age_end_a_connection() {
    let grader = Grader::start(Limits { idle: Duration::from_millis(200), ..wide() });
    assert_eq!(grader.connect().line(), None);
    let grader = Grader::start(Limits { lifetime: Duration::from_millis(200), ..wide() });
    let mut peer = grader.connect();
    assert_eq!(peer.ask(HELLO)["id"], 1);
    assert_eq!(peer.line(), None);
}

#[test]
fn a_call_has_a_deadline() {
    let grader = Grader::start(Limits { seal: Duration::from_millis(200), ..wide() });
    let mut peer = grader.connect();
    let reply = peer.ask(&request("validate", json!({ "candidate": "slow" })));
    assert_eq!(reply["error"], error(ErrorCode::Deadline));
    assert_eq!(peer.ask(HELLO)["id"], 1);
}

#[test]
fn a_server_that_stops_answers_what_it_has_begun() {
    let mut grader = Grader::start(Limits { seal: Duration::from_secs(1), ..wide() });
    let (mut busy, mut idle) = (grader.connect(), grader.connect());
    busy.send(request("validate", json!({ "candidate": "slow" })).as_bytes());
    busy.send(b"\n");
    assert_eq!(idle.ask(HELLO)["id"], 1);
    let start = Instant::now();
    grader.stop();
    assert!(start.elapsed() < Duration::from_secs(4));
    assert_eq!(busy.line().unwrap()["error"], error(ErrorCode::Deadline));
    assert_eq!((busy.line(), idle.line()), (None, None));
}

#[test]
fn no_bytes_bring_it_down() {
    let grader = Grader::start(wide());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(300));
    let near_json = r#"[\[\]{}:,"0-9a-z\\ \n.e+\-]{0,200}"#.prop_map(String::into_bytes);
    let near_request = r#"\{"jsonrpc":"2\.0","id":[0-9\-"a.e]{1,4},"method":"(hello|status|[a-z]{1,3})"(,"params":[\[\]{}":a-z]{1,9})?\}"#
        .prop_map(String::into_bytes);
    let bytes = prop::collection::vec(any::<u8>(), 0..400);
    runner
        .run(&prop_oneof![bytes, near_json, near_request], |bytes| {
            let mut peer = grader.connect();
            peer.send(&bytes);
            peer.send(b"\n");
            peer.0.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
            let mut replies = 0;
            while let Some(reply) = peer.line() {
                prop_assert_eq!(&reply["jsonrpc"], "2.0");
                prop_assert!(reply["result"].is_object() != reply["error"].is_object());
                replies += 1;
            }
            prop_assert_eq!(replies, 1 + bytes.iter().filter(|byte| **byte == b'\n').count());
            Ok(())
        })
        .unwrap();
    grader.assert_well();
}
