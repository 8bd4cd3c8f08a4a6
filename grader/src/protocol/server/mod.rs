//! The serving side: connections of a run's socket, each a line of requests that are answered one by one.
//!
//! Nothing a peer does holds the loop: every wait has an end, and what may block goes to another thread.

mod backend;
mod connection;
mod pace;

pub use backend::Backend;

use std::io;
use std::os::unix::net;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::net::UnixListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout};

use super::codec::encode_error;
use super::refusal::ErrorCode;
use super::wire::{Wire, close_apart};
use pace::Pace;

/// Connections beyond the bound that are being told so and closed.
const SPARE: usize = 16;

/// How long a connection waits for one before it to be closed indeed, before it is one too many.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long to wait when a connection cannot be accepted, as for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Bounds on what a peer can take.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at a time. The next is told [`ErrorCode::Busy`] and closed.
    pub connections: usize,
    /// New connections per second. More wait in the kernel's queue.
    pub connections_per_second: u32,
    /// Requests per second on one connection. More wait in its buffer.
    pub requests_per_second: u32,
    /// Longest wait for the first byte of a line.
    pub idle: Duration,
    /// Longest time from there to its newline.
    pub line: Duration,
    /// Longest time for the peer to take a reply.
    pub write: Duration,
    /// After this time a connection takes no further request.
    pub lifetime: Duration,
    /// Deadline of a call.
    pub call: Duration,
    /// Deadline of `validate` and `submit`, which may copy a large tree.
    pub seal: Duration,
    /// How long calls may go on after the server was told to stop.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 16,
            connections_per_second: 500,
            requests_per_second: 100,
            idle: Duration::from_secs(60),
            line: Duration::from_secs(10),
            write: Duration::from_secs(10),
            lifetime: Duration::from_secs(3600),
            call: Duration::from_secs(30),
            seal: Duration::from_secs(1800),
            grace: Duration::from_secs(5),
        }
    }
}

/// The listening socket cannot be used.
#[derive(Debug, Error)]
#[error("preparing the listening socket: {0}")]
pub struct ServeError(#[from] io::Error);

/// Serves the socket until `stop` is done, then waits for calls under way.
///
/// All connections are attended to on the calling thread, which must have a tokio runtime with I/O and time.
pub async fn serve<B: Backend + 'static>(
    listener: net::UnixListener,
    backend: B,
    limits: Limits,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let server = Server {
        places: Arc::new(Semaphore::new(limits.connections)),
        spare: Arc::new(Semaphore::new(SPARE)),
        shared: Rc::new((backend, limits)),
    };
    LocalSet::new().run_until(server.accept(listener, stop)).await;
    Ok(())
}

struct Server<B> {
    places: Arc<Semaphore>,
    spare: Arc<Semaphore>,
    shared: Rc<(B, Limits)>,
}

impl<B: Backend + 'static> Server<B> {
    async fn accept(&self, listener: UnixListener, stop: impl Future<Output = ()>) {
        let limits = &self.shared.1;
        let mut pace = Pace::new(limits.connections_per_second);
        let mut stop = pin!(stop);
        let mut connections = JoinSet::new();
        // Dropped when it is time to stop.
        let (serving, stopped) = watch::channel(());
        loop {
            let next = async {
                let (stream, _) = listener.accept().await?;
                let mut wire = Wire::new(stream)?;
                pace.wait().await;
                if let Ok(place) = timeout(PATIENCE, Arc::clone(&self.places).acquire_owned()).await {
                    wire.hold(place.map_err(io::Error::other)?);
                    return Ok((wire, true));
                }
                wire.hold(Arc::clone(&self.spare).acquire_owned().await.map_err(io::Error::other)?);
                Ok::<_, io::Error>((wire, false))
            };
            let accepted = tokio::select! {
                accepted = next => accepted,
                () = &mut stop => break,
            };
            while connections.try_join_next().is_some() {}
            match accepted {
                Ok((wire, false)) => wire.write_now(&encode_error(None, &ErrorCode::Busy.into())),
                Ok((wire, true)) => {
                    let (shared, stopped) = (Rc::clone(&self.shared), stopped.clone());
                    connections.spawn_local(async move {
                        connection::attend(wire, &shared.0, &shared.1, stopped).await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection");
                    sleep(PAUSE).await;
                }
            }
        }
        drop(serving);
        // With those that were not accepted.
        if let Ok(listener) = listener.into_std() {
            close_apart(listener.into(), None);
        }
        let _ = timeout(limits.grace, async { while connections.join_next().await.is_some() {} }).await;
    }
}
