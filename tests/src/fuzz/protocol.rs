//! The lines of the grader protocol, and those of the link behind it.

use airlock_grader::protocol::codec::{
    Id, Lines, Rejected, decode_call, decode_reply, encode_call, encode_error, encode_reply, from_line, parse,
};
use airlock_grader::protocol::link::{Act, Done};
use airlock_grader::protocol::messages::Request;
use airlock_grader::protocol::refusal::Refusal;
use serde_json::Value;

use super::Target;

/// A line is held once as bytes, once as a document, and at most once more as a typed message and as what is written of it.
pub(super) const PROTOCOL: Target = Target { name: "protocol", held: (64 << 10, 512), body: protocol };

/// Longest line of this target. The real caps are 16 and more times as large, and meant for whole replies.
const CAP: usize = 4096;

/// The bytes come in chunks of what their first says. Lines come whole and within the cap; each is refused, or is a
/// message that is written and read again as the same.
fn protocol(data: &[u8]) {
    let Some((first, stream)) = data.split_first() else { return };
    let mut lines = Lines::new(CAP);
    let mut seen: Vec<Vec<u8>> = Vec::new();
    'stream: for chunk in stream.chunks(usize::from(*first) + 1) {
        lines.push(chunk);
        loop {
            match lines.next_line() {
                Ok(Some(line)) => seen.push(line.to_vec()),
                Ok(None) => break,
                Err(_) => break 'stream,
            }
        }
    }
    let mut all = stream.split(|byte| *byte == b'\n');
    for line in &seen {
        assert_eq!(all.next(), Some(&line[..]));
        assert!(line.len() <= CAP);
        message(line);
    }
}

fn message(line: &[u8]) {
    if let Ok(document) = parse(line) {
        // Fractions have more digits than a reader needs to keep; whole numbers are exact.
        let text = serde_json::to_vec(&document).unwrap();
        assert!(parse(&text).is_ok(), "{document}");
    }
    match decode_call(line) {
        Ok(call) => {
            let written = encode_call(&call.id, &call.method, &Value::Object(call.params.clone()));
            let again = decode_call(&written[..written.len() - 1]).unwrap();
            assert_eq!((&again.id, &again.method), (&call.id, &call.method));
            if let Ok(request) = Request::decode(&call.method, call.params) {
                let (method, params) = request.encode();
                let Value::Object(params) = params else { panic!("{params}") };
                assert_eq!(Request::decode(method, params), Ok(request));
            }
            let reply = encode_reply(&call.id, &Value::Bool(true));
            assert_eq!(decode_reply(&reply, &call.id).unwrap(), Ok(Value::Bool(true)));
        }
        Err(Rejected { id, code }) => {
            let refused = encode_error(id.as_ref(), &Refusal::from(code));
            let asked = id.unwrap_or(Id::Integer(0));
            assert_eq!(decode_reply(&refused, &asked).unwrap(), Err(Refusal::from(code)));
        }
    }
    if let Ok(Err(refusal)) = decode_reply(line, &Id::Integer(1)) {
        let written = encode_error(Some(&Id::Integer(1)), &refusal);
        assert_eq!(decode_reply(&written, &Id::Integer(1)).unwrap(), Err(refusal));
    }
    if let Ok(act) = from_line::<Act>(line) {
        assert_eq!(serde_json::from_slice::<Act>(&serde_json::to_vec(&act).unwrap()).unwrap(), act);
    }
    if let Ok(done) = from_line::<Done>(line) {
        assert!(serde_json::from_slice::<Done>(&serde_json::to_vec(&done).unwrap()).is_ok());
    }
}
