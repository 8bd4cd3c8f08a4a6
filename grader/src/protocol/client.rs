//! The asking side: one connection per request, so that a caller may live as long as it likes.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

use super::REPLY_CAP;
use super::codec::{Id, Lines, NotStrict, TooLong, decode_reply, encode_call};
use super::messages::Request;
use super::refusal::{ErrorCode, Refusal};

/// Pause before a connection that was told [`ErrorCode::Busy`] is tried again.
const PAUSE: Duration = Duration::from_millis(200);

/// How long is looked for a reply when the time for it is over: whoever asks may have been frozen, and the reply be
/// there.
const GLANCE: Duration = Duration::from_millis(1);

/// Why there is no result.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The grader refused.
    #[error(transparent)]
    Refused(Refusal),
    /// The socket cannot be used.
    #[error("{step} {path}: {source}")]
    Socket {
        /// What was done.
        step: &'static str,
        /// The socket.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A reply that is not one of the protocol.
    #[error("reply of {path}: {source}")]
    Reply {
        /// The socket.
        path: PathBuf,
        /// What is wrong with it.
        source: NotStrict,
    },
}

/// Asks the grader at a socket.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    within: Duration,
}

impl Client {
    /// Waits at most `within` for each reply.
    pub fn new(socket: &Path, within: Duration) -> Client {
        Client { socket: socket.to_owned(), within }
    }

    /// Sends a request and takes its reply, as it is and as its type.
    pub fn ask<T: DeserializeOwned>(&self, request: &Request) -> Result<(Value, T), ClientError> {
        let reply = self.ask_untyped(request)?;
        let wrong = |source: serde_json::Error| ClientError::Reply {
            path: self.socket.clone(),
            source: source.into(),
        };
        Ok((reply.clone(), serde_json::from_value(reply).map_err(wrong)?))
    }

    fn ask_untyped(&self, request: &Request) -> Result<Value, ClientError> {
        let until = Instant::now() + self.within;
        loop {
            match self.ask_once(request, until) {
                // Nothing was done with the request.
                Err(ClientError::Refused(Refusal { code: ErrorCode::Busy, .. }))
                    if Instant::now() + PAUSE < until =>
                {
                    std::thread::sleep(PAUSE);
                }
                other => return other,
            }
        }
    }

    fn ask_once(&self, request: &Request, until: Instant) -> Result<Value, ClientError> {
        let failed = |step| move |source| ClientError::Socket { step, path: self.socket.clone(), source };
        let mut stream = UnixStream::connect(&self.socket).map_err(failed("connecting to"))?;
        let (method, params) = request.encode();
        let id = Id::Integer(1);
        stream.set_write_timeout(Some(self.within)).map_err(failed("writing to"))?;
        let written = stream.write_all(&encode_call(&id, method, &params));
        let line = match read_line(&mut stream, until) {
            Ok(line) => line,
            // A server that closed at once may have said why; if not, the first failure counts.
            Err(source) => {
                written.map_err(failed("writing to"))?;
                return Err(failed("reading from")(source));
            }
        };
        let reply = decode_reply(&line, &id)
            .map_err(|source| ClientError::Reply { path: self.socket.clone(), source })?;
        reply.map_err(ClientError::Refused)
    }
}

fn read_line(stream: &mut UnixStream, until: Instant) -> io::Result<Vec<u8>> {
    let mut lines = Lines::new(REPLY_CAP);
    let mut chunk = vec![0; 64 * 1024];
    loop {
        match lines.next_line() {
            Ok(Some(line)) => return Ok(line.to_vec()),
            Ok(None) => {}
            Err(error @ TooLong(_)) => return Err(io::Error::other(error)),
        }
        let left = until.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.max(GLANCE)))?;
        match stream.read(&mut chunk) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => lines.push(&chunk[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Research is frozen while a validation is graded that does not count, in the midst of asking for it.
    #[test]
    fn a_reply_that_is_there_is_taken_however_late_it_is() {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let late = Instant::now();
        assert_eq!(read_line(&mut one, late).unwrap_err().kind(), io::ErrorKind::TimedOut);
        other.write_all(b"{}\n").unwrap();
        assert_eq!(read_line(&mut one, late).unwrap(), b"{}");
    }
}
