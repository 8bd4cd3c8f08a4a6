//! What a phase says on standard output and standard error.
//!
//! A sandbox writes to a pipe and never waits for the disk: one thread empties the pipe into memory, at most as
//! much as is kept at all, and another one writes that to the file.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::drain::{each_chunk, in_thread};

/// What is kept of a log unless said otherwise, in bytes.
pub const LOG_CAP: u64 = 16 << 20;

/// Why a log is not what the sandbox wrote.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A step failed.
    #[error("log {path}: {step}: {source}")]
    Io {
        /// What was done.
        step: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The disk took too long, or somebody can still write to the pipe.
    #[error("log {path}: it did not end within {within:?} of the sandbox")]
    Unfinished {
        /// The file.
        path: PathBuf,
        /// How long it was waited for.
        within: Duration,
    },
}

/// How a log ended.
#[derive(Debug)]
pub struct LogEnd {
    /// Bytes of the sandbox that are in the file; a last line that tells of dropped ones is not counted.
    pub bytes: u64,
    /// Bytes that the sandbox wrote and that are not in the file.
    pub dropped: u64,
    /// What failed first.
    pub error: Option<LogError>,
}

/// A log that is being written.
///
/// It is written to its end even if it is dropped.
#[derive(Debug)]
pub struct LogPump {
    shared: Arc<Shared>,
    /// Nobody can write to the pipe any more.
    emptied: oneshot::Receiver<()>,
    /// The file has everything.
    written: oneshot::Receiver<()>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    cap: u64,
    state: Mutex<State>,
    /// There is something to write, or the end.
    more: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// To be written.
    pending: Vec<u8>,
    /// Bytes that came.
    received: u64,
    /// Bytes that were put into `pending`.
    accepted: u64,
    /// Bytes in the file.
    written: u64,
    ended: bool,
    error: Option<LogError>,
}

impl LogPump {
    /// Creates the file `path`, which must not be there, and the pipe that is written to it. Of what comes, `cap`
    /// bytes are kept.
    ///
    /// The first of what is returned goes to the sandbox; who holds it keeps the log from ending.
    pub fn start(path: &Path, cap: u64) -> Result<(OwnedFd, LogPump), LogError> {
        let file = OpenOptions::new()
            .write(true)
            // O_EXCL, which follows no link either (open(2)).
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(|source| LogError::Io { step: "creating the file", path: path.to_owned(), source })?;
        LogPump::start_on(file, path, cap)
    }

    fn start_on(file: File, path: &Path, cap: u64) -> Result<(OwnedFd, LogPump), LogError> {
        let (state, more) = Default::default();
        let shared = Arc::new(Shared { path: path.to_owned(), cap, state, more });
        let (read, write) =
            pipe_with(PipeFlags::CLOEXEC).map_err(|errno| shared.error("making a pipe", errno.into()))?;
        let written = in_thread("log-file", {
            let shared = Arc::clone(&shared);
            move || shared.write_all(&file)
        })
        .map_err(|source| shared.error("starting a thread", source))?;
        let emptied = in_thread("log-pipe", {
            let shared = Arc::clone(&shared);
            move || {
                let end = each_chunk(read, |chunk| shared.receive(chunk));
                shared.end(end.err().map(|source| shared.error("reading the pipe", source)));
            }
        })
        .map_err(|source| {
            // For the other thread.
            shared.end(None);
            shared.error("starting a thread", source)
        })?;
        Ok((write, LogPump { shared, emptied, written }))
    }

    /// Waits until everything is in the file. Call it when the sandbox has ended and the write end is closed here;
    /// after `within` the log is given up.
    pub async fn finish(self, within: Duration) -> LogEnd {
        let both = async { (self.emptied.await, self.written.await) };
        if timeout(within, both).await.is_err() {
            let path = self.shared.path.clone();
            self.shared.end(Some(LogError::Unfinished { path, within }));
        }
        let mut state = self.shared.lock();
        LogEnd { bytes: state.written, dropped: state.received - state.written, error: state.error.take() }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is right between any two statements of those that hold it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, step: &'static str, source: io::Error) -> LogError {
        LogError::Io { step, path: self.path.clone(), source }
    }

    fn receive(&self, chunk: &[u8]) {
        let mut state = self.lock();
        state.received += chunk.len() as u64;
        if state.ended {
            return;
        }
        let room = usize::try_from(self.cap - state.accepted).unwrap_or(usize::MAX);
        let kept = &chunk[..chunk.len().min(room)];
        state.pending.extend_from_slice(kept);
        state.accepted += kept.len() as u64;
        self.more.notify_one();
    }

    /// Nothing is accepted from here on. With an error nothing is written either.
    fn end(&self, error: Option<LogError>) {
        let mut state = self.lock();
        state.ended = true;
        if error.is_some() {
            state.pending = Vec::new();
        }
        state.error = state.error.take().or(error);
        self.more.notify_one();
    }

    /// Writes what comes until the end.
    fn write_all(&self, file: &File) {
        let mut within_line = false;
        loop {
            let mut state = self.lock();
            while state.pending.is_empty() && !state.ended {
                state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let pending = std::mem::take(&mut state.pending);
            if pending.is_empty() {
                let dropped = state.received - state.accepted;
                let failed = state.error.is_some();
                drop(state);
                if !failed {
                    self.close(file, dropped, within_line);
                }
                return;
            }
            drop(state);
            within_line = !pending.ends_with(b"\n");
            if let Err(source) = self.write(file, &pending) {
                self.end(Some(self.error("writing to the file", source)));
            }
        }
    }

    fn write(&self, mut file: &File, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match file.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(length) => {
                    bytes = &bytes[length..];
                    self.lock().written += length as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn close(&self, mut file: &File, dropped: u64, within_line: bool) {
        let told = if dropped > 0 {
            let newline = if within_line { "\n" } else { "" };
            let cap = self.cap;
            let line = format!("{newline}[airlock: {dropped} bytes after the first {cap} are dropped]\n");
            file.write_all(line.as_bytes())
        } else {
            Ok(())
        };
        // The journal will hold this file's digest, and that has to be true after a power failure too.
        if let Err(source) = told.and_then(|()| file.sync_data()) {
            self.end(Some(self.error("writing the end of the file", source)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::process::{Child, Command};

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn shell(script: &str, stdout: OwnedFd) -> Child {
        Command::new("/bin/sh").args(["-c", script]).stdout(stdout).spawn().unwrap()
    }

    async fn log_of(script: &str, cap: u64) -> (String, LogEnd) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("stdout.log");
        let (write, pump) = LogPump::start(&path, cap).unwrap();
        assert!(shell(script, write).wait().unwrap().success());
        let end = pump.finish(SOON).await;
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        (String::from_utf8(fs::read(&path).unwrap()).unwrap(), end)
    }

    #[tokio::test]
    async fn everything_up_to_the_cap_is_kept() {
        let (text, end) = log_of("echo one; sleep 0.05; printf two", 7).await;
        assert_eq!(text, "one\ntwo");
        assert!(matches!(end, LogEnd { bytes: 7, dropped: 0, error: None }), "{end:?}");
        let (text, end) = log_of("true", 7).await;
        assert!(text.is_empty() && end.bytes == 0 && end.error.is_none(), "{end:?}");
    }

    #[tokio::test]
    async fn the_rest_is_counted_in_a_line_of_its_own() {
        let (text, end) = log_of("echo one; printf twos", 6).await;
        assert_eq!(text, "one\ntw\n[airlock: 2 bytes after the first 6 are dropped]\n");
        assert!(matches!(end, LogEnd { bytes: 6, dropped: 2, error: None }), "{end:?}");
        let (text, _) = log_of("echo one; printf twos", 4).await;
        assert_eq!(text, "one\n[airlock: 4 bytes after the first 4 are dropped]\n");
    }

    #[tokio::test]
    async fn a_gigabyte_neither_stalls_its_writer_nor_fills_the_disk() {
        let (text, end) = log_of("head -c 1G /dev/zero", 1 << 20).await;
        assert!(text.len() < (1 << 20) + 100, "{}", text.len());
        assert!(matches!(end, LogEnd { bytes: 1_048_576, dropped: 1_072_693_248, error: None }), "{end:?}");
    }

    #[tokio::test]
    async fn what_stands_at_the_path_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "kept").unwrap();
        let link = place.path().join("link");
        symlink(place.path().join("nowhere"), &link).unwrap();
        for path in [&file, &link] {
            let error = LogPump::start(path, 1).unwrap_err();
            let kind = io::ErrorKind::AlreadyExists;
            assert!(matches!(&error, LogError::Io { source, .. } if source.kind() == kind), "{error}");
        }
        assert_eq!(fs::read(&file).unwrap(), b"kept");
        assert!(!place.path().join("nowhere").exists());
        LogPump::start(&place.path().join("new"), 1).unwrap();
    }

    /// A file whose writes fail as those on a full disk do.
    #[tokio::test]
    async fn a_full_disk_is_reported_and_stalls_nobody() {
        let path = Path::new("/dev/full");
        let file = OpenOptions::new().write(true).open(path).unwrap();
        let (write, pump) = LogPump::start_on(file, path, LOG_CAP).unwrap();
        assert!(shell("head -c 10M /dev/zero", write).wait().unwrap().success());
        let end = pump.finish(SOON).await;
        assert_eq!((end.bytes, end.dropped), (0, 10 << 20));
        let Some(LogError::Io { source, .. }) = end.error else { panic!("{end:?}") };
        assert_eq!(source.kind(), io::ErrorKind::StorageFull);
    }

    #[tokio::test]
    async fn a_writer_that_stays_does_not_keep_the_end_back() {
        let place = tempfile::tempdir().unwrap();
        let (write, pump) = LogPump::start(&place.path().join("log"), LOG_CAP).unwrap();
        let mut child = shell("echo begun; exec sleep 60", write);
        while pump.shared.lock().written == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let end = pump.finish(Duration::from_millis(50)).await;
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(end.error, Some(LogError::Unfinished { .. })), "{end:?}");
        assert_eq!(end.bytes, 6);
    }
}
