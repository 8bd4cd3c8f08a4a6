//! Bytes to documents and back: lines with a cap, strict JSON, and the JSON-RPC envelope.

mod envelope;
mod lines;
mod strict;

pub use envelope::{Call, Id, Rejected, decode_call, decode_reply, encode_call, encode_error, encode_reply};
pub use lines::{Lines, TooLong};
pub use strict::{NotStrict, from_line, parse};
