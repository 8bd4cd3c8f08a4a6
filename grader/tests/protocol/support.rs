//! A grader process's inside: the server, and its link to a supervisor.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use airlock_grader::protocol::bind::{Access, bind_socket};
use airlock_grader::protocol::link::{Acts, Link, LinkLimits};
use airlock_grader::protocol::server::{Limits, serve};
use serde_json::Value;
use tokio::sync::oneshot;

pub(crate) use crate::supervisor::{ITEMS, digest, supervise};

/// A server on a socket of its own, until the drop.
pub(crate) struct Grader {
    _place: tempfile::TempDir,
    pub(crate) socket: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Limits that no test meets by chance.
pub(crate) fn wide() -> Limits {
    Limits { connections_per_second: 1_000_000, requests_per_second: 1_000_000, ..Limits::default() }
}

impl Grader {
    pub(crate) fn start(limits: Limits) -> Grader {
        let place = tempfile::tempdir().unwrap();
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let directory = std::fs::File::open(place.path()).unwrap();
        // A name of its own, by which its sockets are found in /proc/net/unix.
        let name = place.path().file_name().unwrap().to_owned();
        let listener = bind_socket(&directory, Path::new(&name), Access::Own).unwrap();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let (ours, theirs) = UnixStream::pair().unwrap();
                tokio::spawn(supervise(Acts::new(theirs, LinkLimits::default()).unwrap()));
                let link = Link::start(ours, LinkLimits::default()).unwrap();
                serve(listener, link, limits, async { drop(stopped.await) }).await.unwrap();
            });
        });
        let socket = place.path().join(name);
        Grader { _place: place, socket, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn connect(&self) -> Peer {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Peer(BufReader::new(stream))
    }

    /// Whether it answers a new connection.
    pub(crate) fn assert_well(&self) {
        let reply = self.connect().ask(HELLO);
        assert_eq!(reply["result"]["run"], "run-1", "{reply}");
    }

    /// Tells it to stop and waits until it has.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Grader {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

pub(crate) const HELLO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"hello"}"#;

/// One connection of a peer that may send anything.
pub(crate) struct Peer(pub(crate) BufReader<UnixStream>);

impl Peer {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    /// The next line, or `None` if the connection is closed.
    pub(crate) fn line(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(serde_json::from_str(&line).unwrap()),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn ask(&mut self, line: &str) -> Value {
        self.send(line.as_bytes());
        self.send(b"\n");
        self.line().unwrap()
    }
}
