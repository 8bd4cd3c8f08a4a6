//! One connected stream socket whose peer is not trusted, for an event loop that must not stand still.

use std::io::{self, IoSliceMut};
use std::os::fd::OwnedFd;
use std::os::unix::net;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::set_socket_oobinline;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, Shutdown, recv, recvmsg, shutdown};
use thiserror::Error;
use tokio::io::Interest;
use tokio::net::{UnixStream, unix};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};

use super::codec::{Lines, TooLong};

/// Bytes read at a time.
pub(crate) const CHUNK: usize = 16 * 1024;

/// Why there is no next line.
#[derive(Debug, Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    TooLong(#[from] TooLong),
    #[error("descriptors came with the data")]
    Descriptors,
    #[error("a line was begun and not completed in time")]
    LineTimeout,
    #[error("nothing came in time")]
    Idle,
    #[error("reading: {0}")]
    Io(#[from] io::Error),
}

/// Closes a socket in a thread of its own.
///
/// What lies unread in it may hold descriptors, whose last reference goes with it, and to close those can take
/// as long as their sender likes: a TCP socket with `SO_LINGER` and unsent data (socket(7)), a device. Should
/// there be no thread to have, it is closed here.
pub(super) fn close_apart(socket: OwnedFd, place: Option<OwnedSemaphorePermit>) {
    let close = move || {
        drop(socket);
        drop(place);
    };
    if let Err(error) = thread::Builder::new().name("close".into()).spawn(close) {
        tracing::warn!(%error, "starting a thread to close a socket in");
    }
}

/// A connection. It holds its place among the connections until it is closed indeed.
pub(crate) struct Wire {
    /// There until the drop.
    stream: Option<UnixStream>,
    place: Option<OwnedSemaphorePermit>,
}

impl Wire {
    pub(super) fn new(stream: UnixStream) -> io::Result<Wire> {
        // Data sent with MSG_OOB (Linux 5.15) would else be passed over by a look, and dropped by the next read
        // together with its descriptors.
        set_socket_oobinline(&stream, true)?;
        Ok(Wire { stream: Some(stream), place: None })
    }

    pub(super) fn hold(&mut self, place: OwnedSemaphorePermit) {
        self.place = Some(place);
    }

    /// One end of a socket pair.
    pub(crate) fn of_pair(stream: net::UnixStream) -> io::Result<Wire> {
        stream.set_nonblocking(true)?;
        Wire::new(UnixStream::from_std(stream)?)
    }

    fn stream(&self) -> io::Result<&UnixStream> {
        self.stream.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Who connected, in the ids of this process's namespaces. A label: pids are used again.
    pub(super) fn peer(&self) -> io::Result<unix::UCred> {
        self.stream()?.peer_cred()
    }

    /// Reads what is there, at most a chunk; nothing at the end of the stream.
    pub(crate) async fn read<'a>(&self, chunk: &'a mut [u8; CHUNK]) -> Result<&'a [u8], ReadError> {
        let stream = self.stream()?;
        loop {
            stream.readable().await?;
            match stream.try_io(Interest::READABLE, || receive(stream, chunk)) {
                Ok(Some(length)) => return Ok(&chunk[..length]),
                Ok(None) => return Err(ReadError::Descriptors),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Writes all of it within this time.
    pub(crate) async fn write(&self, mut bytes: &[u8], within: Duration) -> io::Result<()> {
        let stream = self.stream()?;
        let all = async {
            while !bytes.is_empty() {
                stream.writable().await?;
                match stream.try_write(bytes) {
                    Ok(written) => bytes = &bytes[written..],
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        timeout(within, all).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Ends one direction: what is not written to here the other side reads as the end, and what is not read from
    /// here the other side cannot write.
    pub(crate) fn shut(&self, direction: Shutdown) {
        if let Ok(stream) = self.stream() {
            let _ = shutdown(stream, direction);
        }
    }

    /// Ends both directions, which a reader of this side sees too.
    pub(super) fn shut_down(&self) {
        self.shut(Shutdown::Both);
    }

    /// Writes what goes at once, which is all of a short line on a new connection.
    pub(super) fn write_now(&self, bytes: &[u8]) {
        if let Ok(stream) = self.stream() {
            let _ = stream.try_write(bytes);
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let Some(Ok(stream)) = self.stream.take().map(UnixStream::into_std) else { return };
        // From here on nothing more can be sent to it.
        let _ = shutdown(&stream, Shutdown::Both);
        let unread = recv(&stream, &mut [0; 1], RecvFlags::PEEK);
        if !matches!(unread, Ok((0, _))) {
            close_apart(stream.into(), self.place.take());
        }
    }
}

/// Receives data; `None` if descriptors came with it.
///
/// There is no room for control data, so the kernel never installs a descriptor here; it says `MSG_CTRUNC`
/// (recvmsg(2)). Data is looked at first, as taking it would close them here and now: see [`close_apart`]. Looking
/// goes to the end of the queue (Linux 6.18), so that descriptors may be found before the data they are with.
fn receive(stream: &UnixStream, chunk: &mut [u8]) -> io::Result<Option<usize>> {
    let mut take = |length: usize, flags| {
        let mut no_control = RecvAncillaryBuffer::default();
        let received = recvmsg(stream, &mut [IoSliceMut::new(&mut chunk[..length])], &mut no_control, flags)?;
        Ok::<_, io::Error>((received.bytes, received.flags.contains(ReturnFlags::CTRUNC)))
    };
    let (there, descriptors) = take(CHUNK, RecvFlags::PEEK)?;
    if descriptors {
        return Ok(None);
    }
    if there == 0 {
        return Ok(Some(0));
    }
    let (taken, descriptors) = take(there, RecvFlags::empty())?;
    Ok((!descriptors).then_some(taken))
}

/// The lines that come over a wire.
pub(super) struct Reader {
    wire: Arc<Wire>,
    lines: Lines,
    /// By when the line that was begun has to end.
    due: Option<Instant>,
    /// Longest time between the first byte of a line and its newline.
    within: Duration,
}

impl Reader {
    pub(super) fn new(wire: Arc<Wire>, cap: usize, within: Duration) -> Reader {
        Reader { wire, lines: Lines::new(cap), due: None, within }
    }

    /// The next line, or `None` at the end of the stream. Its first byte has to come before `idle`.
    ///
    /// Nothing is lost when the future is dropped.
    pub(super) async fn line(&mut self, idle: Option<Instant>) -> Result<Option<Vec<u8>>, ReadError> {
        loop {
            if let Some(line) = self.lines.next_line()? {
                self.due = None;
                return Ok(Some(line.to_vec()));
            }
            let within_line = self.lines.is_within_line();
            let more = async {
                let mut chunk = [0; CHUNK];
                let chunk = self.wire.read(&mut chunk).await?;
                self.lines.push(chunk);
                Ok::<_, ReadError>(!chunk.is_empty())
            };
            let more = if within_line {
                let due = *self.due.get_or_insert_with(|| Instant::now() + self.within);
                timeout_at(due, more).await.map_err(|_| ReadError::LineTimeout)??
            } else if let Some(idle) = idle {
                timeout_at(idle, more).await.map_err(|_| ReadError::Idle)??
            } else {
                more.await?
            };
            if !more {
                return Ok(None);
            }
        }
    }
}
