//! What supervisor, launcher and monitor say to each other.
//!
//! The supervisor hands the launcher one [`Order`] per sandbox together with one end of a new socket pair,
//! the line. From then on it talks to that sandbox's monitor alone. Documents of any size travel as
//! sealed memfds.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::gpu::Selection;
use crate::launch::{Channel, LaunchError};
use crate::report::EndReport;
use crate::spec::Spec;

/// Largest document in bytes.
const LARGEST: usize = 16 * 1024 * 1024;

/// Longest error text in bytes.
const LONGEST_MESSAGE: usize = 2048;

/// A sandbox to be started. Its descriptors: the line, this document, the one to hold, the leases, the alarm and the
/// standard streams if there are any, then those for the payload.
#[derive(Serialize, Deserialize)]
pub(super) struct Order<'a> {
    pub(super) spec: Cow<'a, Spec>,
    /// One to hold is among the descriptors.
    pub(super) hold: bool,
    /// Standard streams are among the descriptors.
    pub(super) stdio: bool,
    /// Numbers of the payload's descriptors.
    pub(super) pass: Vec<i32>,
    pub(super) cgroup_parent: Option<PathBuf>,
    pub(super) report: Option<PathBuf>,
    pub(super) gpu: Option<Selection>,
    /// How many leases are among the descriptors.
    pub(super) leases: usize,
    /// An alarm is among them.
    pub(super) alarm: bool,
}

/// From the supervisor to a monitor.
#[derive(Serialize, Deserialize)]
pub(super) enum ToMonitor {
    Signal(i32),
    Kill,
    /// Comes with the socket on which the monitor says [`Frozen`].
    Freeze,
    Thaw,
}

/// What came of [`ToMonitor::Freeze`].
#[derive(Serialize, Deserialize)]
pub(super) struct Frozen {
    /// Why not; none if every process is stopped.
    pub(super) error: Option<String>,
}

/// From a monitor to the supervisor.
#[derive(Serialize, Deserialize)]
pub(super) enum FromMonitor {
    /// The payload was released.
    Started { id: String, pid: i32 },
    /// The sandbox could not be built, or the command not be executed.
    Failed { message: String, status: u8 },
    /// The sandbox has ended; its end report is attached.
    Ended,
}

/// A monitor's end of the line.
pub(crate) struct Line(pub(super) Channel);

/// What a supervisor wants of a monitor.
pub(crate) enum Wish {
    /// Send this signal to the payload.
    Signal(i32),
    /// Kill the sandbox.
    Kill,
    /// Stop everything in the sandbox, and say so.
    Freeze(Asked),
    /// Let it run on.
    Thaw,
    /// Bring the sandbox to its end: the supervisor has let go of it, or is gone itself.
    End,
}

/// Where a supervisor waits to hear that a sandbox is frozen.
pub(crate) struct Asked(Channel);

impl Asked {
    pub(crate) fn tell(&self, result: Result<(), String>) {
        // A supervisor that is gone is seen on the line.
        let _ = self.0.send(&Frozen { error: result.err() }, &[]);
    }
}

impl Line {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }

    /// The next wish, waiting for it.
    pub(crate) fn wish(&self) -> Wish {
        match self.0.receive() {
            Ok(Some((ToMonitor::Signal(number), _))) => Wish::Signal(number),
            Ok(Some((ToMonitor::Kill, _))) => Wish::Kill,
            Ok(Some((ToMonitor::Thaw, _))) => Wish::Thaw,
            Ok(Some((ToMonitor::Freeze, mut fds))) => match fds.pop() {
                Some(answer) => Wish::Freeze(Asked(Channel::from(answer))),
                None => Wish::End,
            },
            Ok(None) | Err(_) => Wish::End,
        }
    }

    // A supervisor that is gone hears nothing, which the next wish shows.

    pub(crate) fn tell_started(&self, id: &str, pid: Option<i32>) {
        let _ = self.0.send(&FromMonitor::Started { id: id.into(), pid: pid.unwrap_or(0) }, &[]);
    }

    pub(super) fn tell_failed(&self, mut message: String, status: u8) {
        // What a channel carries in one message, whatever JSON makes of the characters.
        message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
        let _ = self.0.send(&FromMonitor::Failed { message, status }, &[]);
    }

    pub(super) fn tell_end(&self, result: &Result<EndReport, LaunchError>) {
        match result {
            Ok(report) => match write_document(report) {
                Ok(document) => drop(self.0.send(&FromMonitor::Ended, &[document.as_fd()])),
                Err(error) => self.tell_failed(format!("handing over the end report: {error}"), 125),
            },
            Err(error) => self.tell_failed(error.to_string(), error.exit_status()),
        }
    }
}

/// The document as JSON in memory that nobody can change any more.
pub(super) fn write_document(document: &impl Serialize) -> io::Result<OwnedFd> {
    let bytes = serde_json::to_vec(document)?;
    if bytes.len() > LARGEST {
        return Err(io::Error::other(format!(
            "{} bytes of JSON, at most {LARGEST} are supported",
            bytes.len()
        )));
    }
    let memory = memfd_create("airlock", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = File::from(memory);
    file.write_all(&bytes)?;
    fcntl_add_seals(&file, SealFlags::SEAL | SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK)?;
    Ok(file.into())
}

/// Reads a document that cannot change meanwhile.
pub(super) fn read_document<D: DeserializeOwned>(document: OwnedFd) -> io::Result<D> {
    if !fcntl_get_seals(&document)?.contains(SealFlags::WRITE | SealFlags::SHRINK) {
        return Err(io::Error::other("the document is not sealed"));
    }
    let file = File::from(document);
    let size = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    if size > LARGEST {
        return Err(io::Error::other(format!("{size} bytes of JSON, at most {LARGEST} are supported")));
    }
    let mut bytes = vec![0; size];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(serde_json::from_slice(&bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_arrives_whole_and_cannot_be_changed() {
        let text = "x".repeat(300_000);
        let document = write_document(&text).unwrap();
        let file = File::from(document.try_clone().unwrap());
        assert!(file.write_at(b"y", 1).is_err());
        assert!(file.set_len(0).is_err());
        assert_eq!(read_document::<String>(document).unwrap(), text);
    }

    #[test]
    fn what_could_change_or_is_too_large_is_refused() {
        let memory = memfd_create("open", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::io::write(&memory, b"1").unwrap();
        assert!(read_document::<u8>(memory).unwrap_err().to_string().contains("not sealed"));
        assert!(read_document::<u8>(tempfile::tempfile().unwrap().into()).is_err());
        assert!(write_document(&"x".repeat(LARGEST)).is_err());
    }
}
