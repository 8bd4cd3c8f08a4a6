//! Messages between a monitor and its sandbox's init, over a sequenced-packet socket pair.
//!
//! Before the release both ends are Airlock's own code. After it the payload cannot reach init's end
//! (init is not dumpable), yet the monitor takes what comes from there as untrusted: bounded, strictly
//! decoded, and never more than a reason to end the sandbox.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Largest message.
const LARGEST: usize = 16 * 1024;
/// Descriptors in one message (SCM_MAX_FD of unix(7)).
const MOST_DESCRIPTORS: usize = 253;

/// From the monitor to init.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToInit {
    /// The id maps are written.
    Mapped,
    /// Descriptors: mounts in the plan's order, then `tasks` files of v1 groups.
    Descriptors {
        /// More of them follow in another message.
        more: bool,
        /// How many of all of them are `tasks` files, at the end.
        tasks: usize,
    },
    /// All is verified: run the payload.
    Release {
        /// Say so when it is executed.
        confirm: bool,
    },
    /// Send this signal to the payload.
    Signal(i32),
}

/// From init to the monitor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromInit {
    /// The pseudo-terminal's other end is attached.
    Terminal,
    /// All steps are done; what the child's probes showed.
    Ready(Vec<Probe>),
    /// A step failed.
    Failed(StepFailure),
    /// The payload is executed.
    Executed,
    /// The payload could not be executed.
    ExecFailed {
        /// errno
        errno: i32,
    },
    /// What comes before the payload's execution failed.
    StartFailed {
        /// What.
        step: String,
        /// errno
        errno: i32,
    },
    /// The payload ended.
    Ended {
        /// Exit status, if it exited.
        code: Option<i32>,
        /// Signal, if one killed it.
        signal: Option<i32>,
    },
}

/// Why a step failed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StepFailure {
    /// Index into the plan's child steps.
    pub(crate) index: usize,
    /// errno, where the kernel refused.
    pub(crate) errno: Option<i32>,
    /// Text.
    pub(crate) message: String,
}

/// Something that the child tried and that had to fail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Probe {
    /// The clause it proves.
    pub(crate) clause: String,
    /// What was tried and how it ended.
    pub(crate) what: String,
}

/// One end of the pair.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

impl From<OwnedFd> for Channel {
    fn from(end: OwnedFd) -> Channel {
        Channel(end)
    }
}

impl Channel {
    pub(crate) fn pair() -> io::Result<(Channel, Channel)> {
        let (one, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Channel(one), Channel(other)))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    pub(crate) fn send(&self, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.send_with(message, fds, SendFlags::NOSIGNAL)
    }

    /// Sends a signal's number if there is room: a busy init must not keep the monitor from its clock.
    pub(crate) fn send_signal(&self, number: i32) {
        // Init that is gone is seen when receiving; one that has not read a full queue has signals enough.
        let _ = self.send_with(&ToInit::Signal(number), &[], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }

    fn send_with(
        &self,
        message: &impl Serialize,
        fds: &[BorrowedFd<'_>],
        flags: SendFlags,
    ) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::Error::other("too many descriptors in one message"));
        }
        // MSG_NOSIGNAL: a dead peer is an error, not a SIGPIPE.
        rustix::io::retry_on_intr(|| sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, flags))?;
        Ok(())
    }

    /// Sends any number of descriptors.
    pub(crate) fn send_descriptors(&self, fds: &[BorrowedFd<'_>], tasks: usize) -> io::Result<()> {
        let mut chunks = fds.chunks(MOST_DESCRIPTORS).peekable();
        if chunks.peek().is_none() {
            return self.send(&ToInit::Descriptors { more: false, tasks }, &[]);
        }
        while let Some(chunk) = chunks.next() {
            self.send(&ToInit::Descriptors { more: chunks.peek().is_some(), tasks }, chunk)?;
        }
        Ok(())
    }

    /// The next message if it comes in time, else an error of the kind `TimedOut`.
    pub(crate) fn receive_within<M: DeserializeOwned>(
        &self,
        limit: Duration,
    ) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        let end = Instant::now() + limit;
        let mut fds = [PollFd::from_borrowed_fd(self.fd(), PollFlags::IN)];
        let ready = rustix::io::retry_on_intr(|| {
            let left = end.saturating_duration_since(Instant::now());
            poll(&mut fds, Timespec::try_from(left).ok().as_ref())
        })?;
        if ready == 0 { Err(io::ErrorKind::TimedOut.into()) } else { self.receive() }
    }

    /// The next message; `None` when the other end is gone.
    pub(crate) fn receive<M: DeserializeOwned>(&self) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
        let mut bytes = [0; LARGEST];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut take = || {
            let bytes = &mut [IoSliceMut::new(&mut bytes)];
            rustix::io::retry_on_intr(|| recvmsg(&self.0, bytes, &mut control, RecvFlags::CMSG_CLOEXEC))
        };
        // A peer that is gone without having read everything is told first and once, and only then what it said last
        // (unix_release_sock and __skb_try_recv_datagram, Linux 6.18).
        let received = match take() {
            Err(rustix::io::Errno::CONNRESET) => take(),
            received => received,
        };
        let received = match received {
            Ok(received) => received,
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        if received.bytes == 0 {
            return Ok(None);
        }
        if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(io::Error::other("a message was cut short"));
        }
        let message = serde_json::from_slice(&bytes[..received.bytes])?;
        Ok(Some((message, fds)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A monitor whose sandbox was killed as it ended: its end report was lost.
    #[test]
    fn last_words_are_heard_of_one_who_did_not_listen() {
        let (one, other) = Channel::pair().unwrap();
        one.send(&"unheard", &[]).unwrap();
        other.send(&"last", &[]).unwrap();
        drop(other);
        assert_eq!(one.receive::<String>().unwrap().unwrap().0, "last");
        assert!(one.receive::<String>().unwrap().is_none());
    }

    #[test]
    fn descriptors_arrive_in_order_and_a_closed_end_is_seen() {
        let (one, other) = Channel::pair().unwrap();
        let files: Vec<std::fs::File> = (0..300).map(|_| tempfile::tempfile().unwrap()).collect();
        let fds: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        one.send_descriptors(&fds, 2).unwrap();
        let mut received = Vec::new();
        loop {
            let (message, fds) = other.receive::<ToInit>().unwrap().unwrap();
            received.extend(fds);
            match message {
                ToInit::Descriptors { more: true, .. } => {}
                ToInit::Descriptors { more: false, tasks } => break assert_eq!(tasks, 2),
                other => panic!("{other:?}"),
            }
        }
        let inode = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).unwrap().st_ino;
        assert!(files.iter().zip(&received).all(|(sent, got)| inode(sent.as_fd()) == inode(got.as_fd())));
        let late = other.receive_within::<ToInit>(Duration::from_millis(1)).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
        drop(one);
        assert!(other.receive_within::<ToInit>(Duration::from_millis(1)).unwrap().is_none());
    }
}
