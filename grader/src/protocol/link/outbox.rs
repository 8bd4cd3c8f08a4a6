//! Lines on their way to the other side.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::mpsc;

use super::{LinkError, UNANSWERED};
use crate::protocol::codec::NotStrict;
use crate::protocol::wire::Wire;

/// Writes lines whole, whatever becomes of those who sent them. Ends after the last of them, or when the other
/// side does not take one in time; then the socket is shut down for both directions.
#[derive(Clone)]
pub(super) struct Outbox {
    lines: mpsc::Sender<Vec<u8>>,
    cap: usize,
}

impl Outbox {
    pub(super) fn start(wire: Arc<Wire>, cap: usize, within: Duration) -> Outbox {
        let (lines, mut queue) = mpsc::channel::<Vec<u8>>(UNANSWERED);
        tokio::spawn(async move {
            while let Some(line) = queue.recv().await {
                if let Err(error) = wire.write(&line, within).await {
                    tracing::error!(%error, "writing to the supervisor link");
                    wire.shut_down();
                    return;
                }
            }
        });
        Outbox { lines, cap }
    }

    /// Puts a message in the queue, waiting for room.
    pub(super) async fn send(&self, message: &impl Serialize) -> Result<(), LinkError> {
        let mut line = serde_json::to_vec(message).map_err(NotStrict::from)?;
        if line.len() > self.cap {
            return Err(LinkError::TooLong(line.len()));
        }
        line.push(b'\n');
        self.lines.send(line).await.map_err(|_| LinkError::Broken)
    }
}
