//! What scorer and candidate say to each other: JSON lines on descriptor 4 of both.
//!
//! Each has a socket to the supervisor, which passes whole lines on, so that neither has the other's address,
//! and no descriptor can go from one to the other. Nothing but newlines is looked for in them. A line is read when
//! the one before it has been taken: who does not read stops who writes.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::time::Duration;

use rustix::net::Shutdown;

use crate::protocol::wire::{CHUNK, ReadError, Wire};

/// What may pass.
#[derive(Clone, Copy, Debug)]
pub struct RelayLimits {
    /// Longest line in bytes, its newline not counted.
    pub line: usize,
    /// Most bytes that pass in each direction.
    pub total: u64,
}

impl Default for RelayLimits {
    fn default() -> RelayLimits {
        RelayLimits { line: 1 << 20, total: 1 << 30 }
    }
}

/// Who is at one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The scorer.
    Scorer,
    /// The candidate.
    Candidate,
}

/// Why nothing more comes from a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEnd {
    /// It closed its socket, or its writing half.
    Closed,
    /// It did so within a line, which did not pass.
    TornLine,
    /// The other side takes nothing more.
    NotTaken,
    /// The other direction ended in a way that ends both.
    Cut,
    /// It sent a line that is too long. This and what follows end the whole relay.
    LongLine,
    /// It sent more than may pass.
    TooMuch,
    /// It sent descriptors, which were closed.
    Descriptors,
    /// Its socket failed.
    Failed(io::ErrorKind),
}

impl FlowEnd {
    /// Whether something was refused, or failed.
    pub fn is_fault(self) -> bool {
        matches!(self, FlowEnd::LongLine | FlowEnd::TooMuch | FlowEnd::Descriptors | FlowEnd::Failed(_))
    }
}

/// What came from one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Bytes that passed, newlines counted.
    pub bytes: u64,
    /// Why no more did.
    pub end: FlowEnd,
}

/// How a relay ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayEnd {
    /// Who closed first, or did what ends the relay.
    pub first: Side,
    /// From the scorer to the candidate.
    pub from_scorer: Flow,
    /// From the candidate to the scorer.
    pub from_candidate: Flow,
}

/// Both sockets of the supervisor. When it is dropped, both sides read the end; or once `ECONNRESET`, if what they
/// wrote was not taken.
pub struct Relay {
    scorer: Wire,
    candidate: Wire,
    limits: RelayLimits,
}

impl Relay {
    /// Makes both socket pairs, within a tokio runtime. The first end is the scorer's, the second one the
    /// candidate's: close them here once the sandboxes have them, else their ends are never read.
    pub fn start(limits: RelayLimits) -> io::Result<(OwnedFd, OwnedFd, Relay)> {
        let (scorer_end, scorer) = UnixStream::pair()?;
        let (candidate_end, candidate) = UnixStream::pair()?;
        let relay = Relay { scorer: Wire::of_pair(scorer)?, candidate: Wire::of_pair(candidate)?, limits };
        Ok((scorer_end.into(), candidate_end.into(), relay))
    }

    /// Passes lines on until neither side can say anything more.
    pub async fn run(self) -> RelayEnd {
        let Relay { scorer, candidate, limits } = &self;
        let (mut scorer_bytes, mut candidate_bytes) = (0, 0);
        let (first, scorer_end, candidate_end) = {
            let mut from_scorer = pin!(pass(scorer, candidate, *limits, &mut scorer_bytes));
            let mut from_candidate = pin!(pass(candidate, scorer, *limits, &mut candidate_bytes));
            tokio::select! {
                end = &mut from_scorer => {
                    let first = if end == FlowEnd::NotTaken { Side::Candidate } else { Side::Scorer };
                    (first, end, if end.is_fault() { FlowEnd::Cut } else { from_candidate.await })
                }
                end = &mut from_candidate => {
                    let first = if end == FlowEnd::NotTaken { Side::Scorer } else { Side::Candidate };
                    (first, if end.is_fault() { FlowEnd::Cut } else { from_scorer.await }, end)
                }
            }
        };
        RelayEnd {
            first,
            from_scorer: Flow { bytes: scorer_bytes, end: scorer_end },
            from_candidate: Flow { bytes: candidate_bytes, end: candidate_end },
        }
    }
}

/// Passes lines in one direction, and its end too.
async fn pass(from: &Wire, to: &Wire, limits: RelayLimits, passed: &mut u64) -> FlowEnd {
    let mut lines = WholeLines { bytes: Vec::new(), whole: 0, cap: limits.line };
    let mut chunk = [0; CHUNK];
    loop {
        let chunk = match from.read(&mut chunk).await {
            Ok(chunk) => chunk,
            Err(ReadError::Descriptors) => return FlowEnd::Descriptors,
            Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::ConnectionReset => &[],
            Err(ReadError::Io(error)) => return FlowEnd::Failed(error.kind()),
            Err(_) => return FlowEnd::Failed(io::ErrorKind::Other),
        };
        if chunk.is_empty() {
            to.shut(Shutdown::Write);
            return if lines.is_within_line() { FlowEnd::TornLine } else { FlowEnd::Closed };
        }
        let Some(whole) = lines.push(chunk) else { return FlowEnd::LongLine };
        if whole.len() as u64 > limits.total - *passed {
            return FlowEnd::TooMuch;
        }
        // Who is slow to read is told by its own deadline, not here.
        match to.write(whole, Duration::MAX).await {
            Ok(()) => *passed += whole.len() as u64,
            Err(_) => {
                from.shut(Shutdown::Read);
                return FlowEnd::NotTaken;
            }
        }
    }
}

/// Collects chunks and hands out whole lines, several at a time.
struct WholeLines {
    bytes: Vec<u8>,
    /// How many of them have been handed out.
    whole: usize,
    cap: usize,
}

impl WholeLines {
    /// All whole lines after this chunk, with their newlines; `None` if a line is too long, ended or not.
    fn push(&mut self, chunk: &[u8]) -> Option<&[u8]> {
        self.bytes.drain(..self.whole);
        self.whole = 0;
        let mut length = self.bytes.len();
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            let ended = piece.ends_with(b"\n");
            length += piece.len() - usize::from(ended);
            if length > self.cap {
                return None;
            }
            self.bytes.extend_from_slice(piece);
            if ended {
                self.whole = self.bytes.len();
                length = 0;
            }
        }
        Some(&self.bytes[..self.whole])
    }

    fn is_within_line(&self) -> bool {
        self.whole < self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Read, Write};
    use std::os::fd::AsFd;
    use std::thread;

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use rustix::pipe::pipe;
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn start(line: usize, total: u64) -> (UnixStream, UnixStream, JoinHandle<RelayEnd>) {
        let (scorer, candidate, relay) = Relay::start(RelayLimits { line, total }).unwrap();
        (scorer.into(), candidate.into(), tokio::spawn(relay.run()))
    }

    async fn end(relay: JoinHandle<RelayEnd>) -> RelayEnd {
        timeout(SOON, relay).await.unwrap().unwrap()
    }

    async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        tokio::task::spawn_blocking(work).await.unwrap()
    }

    /// All that comes until the end.
    async fn rest(mut socket: UnixStream) -> Vec<u8> {
        blocking(move || {
            let mut bytes = Vec::new();
            socket.read_to_end(&mut bytes).unwrap();
            bytes
        })
        .await
    }

    fn flow(bytes: u64, end: FlowEnd) -> Flow {
        Flow { bytes, end }
    }

    #[test]
    fn lines_come_whole_however_they_arrive() {
        let text = b"one\n\ntwo\r\nthree";
        for size in 1..=text.len() {
            let mut lines = WholeLines { bytes: Vec::new(), whole: 0, cap: 5 };
            let mut seen = Vec::new();
            for chunk in text.chunks(size) {
                let whole = lines.push(chunk).unwrap();
                assert!(whole.is_empty() || whole.ends_with(b"\n"));
                seen.extend_from_slice(whole);
            }
            assert_eq!(seen, b"one\n\ntwo\r\n", "chunks of {size}");
            assert!(lines.is_within_line());
            assert_eq!(lines.push(b"\n"), Some(&b"three\n"[..]));
            assert!(!lines.is_within_line());
            assert_eq!(lines.push(b"1\n123456"), None);
        }
    }

    #[tokio::test]
    async fn lines_pass_both_ways_and_so_do_the_ends() {
        let (mut scorer, mut candidate, relay) = start(100, 100);
        blocking(move || {
            scorer.write_all(b"{\"question\":1}\n").unwrap();
            let mut question = [0; 15];
            candidate.read_exact(&mut question).unwrap();
            assert_eq!(&question, b"{\"question\":1}\n");
            candidate.write_all(b"42\n43\n").unwrap();
            let mut answers = [0; 6];
            scorer.read_exact(&mut answers).unwrap();
            assert_eq!(&answers, b"42\n43\n");
            // One direction ends and the other one goes on.
            scorer.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(candidate.read(&mut answers).unwrap(), 0);
            candidate.write_all(b"44\n").unwrap();
            scorer.read_exact(&mut answers[..3]).unwrap();
            assert_eq!(&answers[..3], b"44\n");
        })
        .await;
        let end = end(relay).await;
        assert_eq!(end.first, Side::Scorer);
        assert_eq!(end.from_scorer, flow(15, FlowEnd::Closed));
        assert_eq!(end.from_candidate, flow(9, FlowEnd::Closed));
    }

    #[tokio::test]
    async fn half_a_line_does_not_pass() {
        let (scorer, mut candidate, relay) = start(100, 100);
        candidate.write_all(b"whole\nhalf").unwrap();
        drop(candidate);
        let copy = scorer.try_clone().unwrap();
        assert_eq!(rest(copy).await, b"whole\n");
        drop(scorer);
        let end = end(relay).await;
        assert_eq!((end.first, end.from_candidate), (Side::Candidate, flow(6, FlowEnd::TornLine)));
    }

    #[tokio::test]
    async fn a_long_line_ends_both_and_the_longest_does_not() {
        let (scorer, mut candidate, relay) = start(70_000, u64::MAX);
        let writer = thread::spawn(move || {
            candidate.write_all(&[&[b'x'; 70_000][..], b"\n"].concat()).unwrap();
            // It cannot finish: the supervisor lets go first.
            let _ = candidate.write_all(&[b'x'; 1_000_000]);
        });
        assert_eq!(rest(scorer).await.len(), 70_001);
        writer.join().unwrap();
        let end = end(relay).await;
        assert_eq!(end.first, Side::Candidate);
        assert_eq!(end.from_candidate, flow(70_001, FlowEnd::LongLine));
        assert_eq!(end.from_scorer, flow(0, FlowEnd::Cut));
    }

    #[tokio::test]
    async fn no_more_than_the_total_passes() {
        let (scorer, mut candidate, relay) = start(10, 10);
        candidate.write_all(b"1234\n5678\n").unwrap();
        let mut copy = scorer.try_clone().unwrap();
        blocking(move || copy.read_exact(&mut [0; 10]).unwrap()).await;
        candidate.write_all(b"\n").unwrap();
        assert_eq!(rest(scorer).await, b"");
        let end = end(relay).await;
        assert_eq!(end.from_candidate, flow(10, FlowEnd::TooMuch));
    }

    #[tokio::test]
    async fn a_descriptor_does_not_pass_and_is_closed() {
        for with in [true, false] {
            let (scorer, candidate, relay) = start(100, 100);
            let (read, write) = pipe().unwrap();
            {
                let rights = [write.as_fd()];
                let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut control = SendAncillaryBuffer::new(&mut space);
                if with {
                    assert!(control.push(SendAncillaryMessage::ScmRights(&rights)));
                }
                sendmsg(&candidate, &[IoSlice::new(b"line\n")], &mut control, SendFlags::empty()).unwrap();
            }
            drop((write, candidate));
            let passed = rest(scorer).await;
            let end = end(relay).await;
            // The pipe is at its end once nobody has the descriptor.
            let mut closed = std::fs::File::from(read);
            assert_eq!(blocking(move || closed.read(&mut [0; 1]).unwrap()).await, 0);
            if with {
                assert_eq!((passed, end.from_candidate), (vec![], flow(0, FlowEnd::Descriptors)));
                assert_eq!(end.first, Side::Candidate);
            } else {
                assert_eq!((&passed[..], end.from_candidate), (&b"line\n"[..], flow(5, FlowEnd::Closed)));
            }
        }
    }

    #[tokio::test]
    async fn who_does_not_read_stops_who_writes() {
        let (scorer, candidate, relay) = start(1 << 20, u64::MAX);
        candidate.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        let mut writer = candidate.try_clone().unwrap();
        let written = blocking(move || {
            let mut written = 0;
            while let Ok(length) = writer.write(&[b'\n'; 4096]) {
                written += length;
            }
            written
        })
        .await;
        // Two sockets' buffers and one chunk.
        assert!(written < 2 << 20, "{written}");
        drop(candidate);
        assert_eq!(rest(scorer).await.len(), written);
        assert_eq!(end(relay).await.from_candidate, flow(written as u64, FlowEnd::Closed));
    }

    /// Writes until it cannot.
    async fn write_in_vain(mut socket: UnixStream) -> io::Error {
        blocking(move || {
            loop {
                if let Err(error) = socket.write_all(b"anyone?\n") {
                    return error;
                }
            }
        })
        .await
    }

    /// A socket that is closed with something unread in it resets its peer once (`unix_release_sock`, Linux 6.18).
    fn is_gone(error: &io::Error) -> bool {
        matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
    }

    #[tokio::test]
    async fn who_is_gone_is_told_to_the_other_side() {
        let (scorer, candidate, relay) = start(100, u64::MAX);
        drop(candidate);
        assert!(is_gone(&write_in_vain(scorer).await));
        let end = end(relay).await;
        assert_eq!((end.first, end.from_candidate), (Side::Candidate, flow(0, FlowEnd::Closed)));
    }

    #[tokio::test]
    async fn who_takes_nothing_can_still_speak() {
        let (scorer, mut candidate, relay) = start(100, u64::MAX);
        candidate.shutdown(std::net::Shutdown::Read).unwrap();
        assert!(is_gone(&write_in_vain(scorer.try_clone().unwrap()).await));
        candidate.write_all(b"last\n").unwrap();
        drop(candidate);
        let mut scorer = scorer;
        let last = blocking(move || {
            let mut last = [0; 5];
            scorer.read_exact(&mut last).map(|()| last)
        });
        assert_eq!(&last.await.unwrap(), b"last\n");
        let end = end(relay).await;
        assert_eq!((end.first, end.from_scorer.end), (Side::Candidate, FlowEnd::NotTaken));
        assert_eq!(end.from_candidate, flow(5, FlowEnd::Closed));
    }
}
