//! Reading a pipe whose writer is not trusted.
//!
//! Even a read that must not wait does: a writer holds the pipe's lock while it copies its data in, and that takes
//! as long as its page faults do, or as its place among four thousand busy threads of its cgroup lets it (Linux
//! 6.18; a fault that userfaultfd(2) kept waiting for two seconds kept the reader waiting as long). So no event
//! loop reads such a pipe: each has a thread, which lives until the last writer is gone.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::thread;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tokio::sync::oneshot;

/// Bytes read at a time; a pipe holds as many unless it is asked to hold more (pipe(7)).
const CHUNK: usize = 64 * 1024;

/// Why a pipe's bytes are not there.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// More came than is kept; the rest was read and dropped.
    #[error("more than {cap} bytes were written; write less")]
    TooLong {
        /// What is kept at most, in bytes.
        cap: usize,
    },
    /// The pipe could not be read, or no thread be had to read it.
    #[error("reading a pipe: {0}")]
    Io(#[from] io::Error),
}

/// Reads a pipe to its end, which is when nobody can write to it any more.
///
/// What is beyond the cap is read too, so that the writer never waits, and not stored. If the future is dropped,
/// the reading goes on until the writers are gone.
pub async fn read_capped(pipe: OwnedFd, cap: usize) -> Result<Vec<u8>, ReadError> {
    let read = in_thread("pipe", move || {
        let mut kept = Vec::new();
        let mut too_long = false;
        each_chunk(pipe, |chunk| {
            if too_long || chunk.len() > cap - kept.len() {
                too_long = true;
                kept = Vec::new();
            } else {
                kept.extend_from_slice(chunk);
            }
        })?;
        if too_long { Err(ReadError::TooLong { cap }) } else { Ok(kept) }
    })?;
    read.await.unwrap_or_else(|_| Err(io::Error::other("the reading thread ended").into()))
}

/// Does the work in a thread of its own; what comes of it is received.
pub(super) fn in_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (done, result) = oneshot::channel();
    thread::Builder::new().name(name.into()).spawn(move || {
        // Nobody may be waiting any more.
        let _ = done.send(work());
    })?;
    Ok(result)
}

/// Hands out what comes through a pipe until its end. Blocks.
pub(super) fn each_chunk(pipe: OwnedFd, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    fcntl_setfl(&pipe, fcntl_getfl(&pipe)? - OFlags::NONBLOCK)?;
    let mut pipe = File::from(pipe);
    let mut chunk = vec![0; CHUNK];
    loop {
        match pipe.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(length) => take(&chunk[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use rustix::pipe::{PipeFlags, pipe_with};
    use tokio::time::{sleep, timeout};

    use super::*;

    fn pipe() -> (OwnedFd, OwnedFd) {
        pipe_with(PipeFlags::CLOEXEC).unwrap()
    }

    #[tokio::test]
    async fn the_cap_is_met_exactly() {
        for (written, cap, fits) in [(0, 0, true), (5, 5, true), (6, 5, false), (300_000, 299_999, false)] {
            let (read, write) = pipe();
            let writer = thread::spawn(move || File::from(write).write_all(&vec![b'x'; written]));
            let result = read_capped(read, cap).await;
            writer.join().unwrap().unwrap();
            match result {
                Ok(bytes) => assert!(fits && bytes == vec![b'x'; written], "{written} of {cap}"),
                Err(ReadError::TooLong { cap: told }) => assert!(!fits && told == cap, "{written} of {cap}"),
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[tokio::test]
    async fn a_writer_of_a_gigabyte_ends_and_nothing_of_it_is_kept() {
        let (read, write) = pipe();
        let mut child = Command::new("head").args(["-c", "1G", "/dev/zero"]).stdout(write).spawn().unwrap();
        let error = read_capped(read, 1 << 20).await.unwrap_err();
        assert!(matches!(error, ReadError::TooLong { cap: 1_048_576 }), "{error}");
        // A reader that had closed the pipe would have killed it with SIGPIPE.
        assert!(child.wait().unwrap().success());
    }

    #[tokio::test]
    async fn the_loop_goes_on_while_the_writer_writes_nothing() {
        let (read, write) = pipe();
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(write).stderr(Stdio::null()).spawn().unwrap();
        let mut reading = Box::pin(read_capped(read, 10));
        assert!(timeout(Duration::from_millis(50), &mut reading).await.is_err());
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"late").unwrap();
        drop(input);
        assert_eq!(reading.await.unwrap(), b"late");
        child.wait().unwrap();
    }

    #[tokio::test]
    async fn a_pipe_that_is_not_blocking_is_waited_for_as_well() {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let writer = tokio::spawn(async move {
            sleep(Duration::from_millis(20)).await;
            File::from(write).write_all(b"1")
        });
        assert_eq!(read_capped(read, 10).await.unwrap(), b"1");
        writer.await.unwrap().unwrap();
    }

    /// A page that nobody provides until the handle is closed (userfaultfd(2)): its start, and the handle. None
    /// where that takes a privilege.
    fn page_that_waits() -> Option<(usize, OwnedFd)> {
        const LENGTH: usize = 4096;
        /// `_IOWR(0xAA, 0x3F, struct uffdio_api)` and `_IOWR(0xAA, 0x00, struct uffdio_register)`.
        const API: libc::Ioctl = 0xC018_AA3F_u32 as libc::Ioctl;
        const REGISTER: libc::Ioctl = 0xC020_AA00_u32 as libc::Ioctl;
        // SAFETY: a call without pointers.
        let handle = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
        if handle < 0 {
            return None;
        }
        // SAFETY: a new descriptor that nobody else has.
        let handle = unsafe { OwnedFd::from_raw_fd(handle.try_into().unwrap()) };
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the kernel chooses where, so no other memory changes.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), LENGTH, access, kind, -1, 0) };
        assert_ne!(page, libc::MAP_FAILED);
        // Version 0xAA; then the range, the mode for missing pages, and room for what the kernel answers.
        let mut api = [0xAA_u64, 0, 0];
        let mut register = [page as u64, LENGTH as u64, 1, 0];
        // SAFETY: `api` has the size of the struct uffdio_api.
        assert_eq!(unsafe { libc::ioctl(handle.as_raw_fd(), API, &raw mut api) }, 0);
        // SAFETY: `register` has the size of the struct uffdio_register.
        assert_eq!(unsafe { libc::ioctl(handle.as_raw_fd(), REGISTER, &raw mut register) }, 0);
        Some((page as usize, handle))
    }

    #[tokio::test]
    async fn the_loop_goes_on_while_the_writer_holds_the_pipe() {
        let Some((page, handle)) = page_that_waits() else {
            eprintln!("not shown: userfaultfd(2) is not allowed here");
            return;
        };
        let (read, write) = pipe();
        let started = Instant::now();
        rustix::io::write(&write, b"ready").unwrap();
        let writer = thread::spawn(move || {
            // SAFETY: a mapped page; the kernel reads it.
            unsafe { libc::write(write.as_raw_fd(), page as *const libc::c_void, 10) }
        });
        thread::sleep(Duration::from_millis(200));
        let release = thread::spawn(move || {
            thread::sleep(Duration::from_secs(2));
            drop(handle);
        });
        let mut reading = Box::pin(read_capped(read, 100));
        assert!(timeout(Duration::from_millis(50), &mut reading).await.is_err());
        assert!(started.elapsed() < Duration::from_secs(1), "the loop stood still");
        assert_eq!(reading.await.unwrap().len(), 15);
        assert_eq!(writer.join().unwrap(), 10);
        release.join().unwrap();
    }
}
