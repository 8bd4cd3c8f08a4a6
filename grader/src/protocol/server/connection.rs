//! One connection: a request is read, performed and answered before the next is looked at.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::pace::Pace;
use super::{Backend, Limits};
use crate::protocol::codec::{Rejected, decode_call, encode_error, encode_reply};
use crate::protocol::messages::{Accepted, Hello, Request};
use crate::protocol::refusal::{ErrorCode, Refusal};
use crate::protocol::wire::{ReadError, Reader, Wire};
use crate::protocol::{REPLY_CAP, REQUEST_CAP, VERSION};

/// Attends to a connection until its end. When the sender of `stopped` is gone, it takes no further request.
pub(super) async fn attend<B: Backend>(
    wire: Wire,
    backend: &B,
    limits: &Limits,
    mut stopped: watch::Receiver<()>,
) {
    if let Ok(peer) = wire.peer() {
        tracing::info!(pid = peer.pid(), uid = peer.uid(), gid = peer.gid(), "connection");
    }
    let wire = Arc::new(wire);
    let mut reader = Reader::new(Arc::clone(&wire), REQUEST_CAP, limits.line);
    let mut pace = Pace::new(limits.requests_per_second);
    let end = Instant::now() + limits.lifetime;
    loop {
        if Instant::now() >= end {
            return;
        }
        let idle = end.min(Instant::now() + limits.idle);
        let line = tokio::select! {
            line = reader.line(Some(idle)) => line,
            _ = stopped.changed() => return,
        };
        let (reply, last) = match line {
            Ok(Some(line)) => {
                pace.wait().await;
                (answer(&line, backend, limits).await, false)
            }
            Err(ReadError::TooLong(_)) => (encode_error(None, &ErrorCode::TooLong.into()), true),
            Err(ReadError::LineTimeout) => (encode_error(None, &ErrorCode::LineTimeout.into()), true),
            Ok(None) => return,
            Err(error @ (ReadError::Descriptors | ReadError::Idle | ReadError::Io(_))) => {
                tracing::debug!(%error, "connection dropped");
                return;
            }
        };
        if let Err(error) = wire.write(&reply, limits.write).await {
            tracing::debug!(%error, "reply not taken");
            return;
        }
        if last {
            return;
        }
    }
}

async fn answer<B: Backend>(line: &[u8], backend: &B, limits: &Limits) -> Vec<u8> {
    let call = match decode_call(line) {
        Ok(call) => call,
        Err(Rejected { id, code }) => return encode_error(id.as_ref(), &code.into()),
    };
    let result = match Request::decode(&call.method, call.params) {
        Ok(request) => {
            let within = match request {
                Request::Validate(_) | Request::Submit(_) => limits.seal,
                _ => limits.call,
            };
            let performed = timeout(within, perform(request, backend, limits)).await;
            performed.unwrap_or_else(|_| Err(ErrorCode::Deadline.into()))
        }
        Err(code) => Err(code.into()),
    };
    let reply = match result {
        Ok(result) => encode_reply(&call.id, &result),
        Err(refusal) => return encode_error(Some(&call.id), &refusal),
    };
    if reply.len() > REPLY_CAP {
        tracing::error!(bytes = reply.len(), method = call.method, "a reply is longer than allowed");
        return encode_error(Some(&call.id), &ErrorCode::Internal.into());
    }
    reply
}

async fn perform<B: Backend>(request: Request, backend: &B, limits: &Limits) -> Result<Value, Refusal> {
    Ok(match request {
        Request::Hello => json!(Hello {
            protocol: VERSION,
            facts: backend.hello().await?,
            request_bytes: REQUEST_CAP,
            reply_bytes: REPLY_CAP,
            connections: limits.connections,
            requests_per_second: limits.requests_per_second,
        }),
        Request::Status => json!(backend.status().await?),
        Request::Validate(request) => json!(backend.validate(request).await?),
        Request::Result(request) => json!(backend.result(request).await?),
        Request::Cancel(request) => {
            backend.cancel(request.clone()).await?;
            json!(request)
        }
        Request::Submit(request) => {
            backend.submit(request).await?;
            json!(Accepted::default())
        }
        Request::NoCandidate(request) => {
            backend.no_candidate(request).await?;
            json!(Accepted::default())
        }
    })
}
