//! The sandbox's pseudo-terminal (pty(7)) and the caller's terminal.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};

/// Opens a pair in the sandbox's own devpts: the master, and the payload's end, got from the master and not
/// by a path that could be swapped (CVE-2025-52565).
pub(crate) fn open() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let master = rustix::fs::open("/dev/pts/ptmx", flags, Mode::empty())?;
    unlockpt(&master)?;
    let peer = ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    Ok((master, peer))
}

/// Carries bytes between the caller's terminal and the payload's.
///
/// Nothing here blocks, whatever either side does: a payload that does not read, or a terminal that is stopped,
/// must not keep the monitor from its clock.
pub(crate) struct Relay {
    master: OwnedFd,
    /// Where the payload's output goes.
    user: OwnedFd,
    /// The caller's keyboard, if stdin is a terminal; raw while the relay lives.
    keyboard: Option<Raw>,
    to_user: Vec<u8>,
    to_payload: Vec<u8>,
    /// The payload has closed its end, and may open it again.
    hung_up: Option<Instant>,
}

/// How long after a hang-up the payload's end is looked at again.
const HUNG_UP: Duration = Duration::from_millis(100);

impl Relay {
    /// Starts with the caller's terminal: stdin for input if it is one, and the first of stdout, stderr and stdin
    /// that is one for output.
    pub(crate) fn start(master: OwnedFd) -> io::Result<Relay> {
        let (stdin, stdout, stderr) =
            (rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr());
        let output = [stdout, stderr, stdin].into_iter().find(|stream| isatty(stream));
        let output = output.ok_or_else(|| io::Error::other("no standard stream is a terminal"))?;
        let keyboard = if isatty(stdin) { Some(Raw::enter(stdin)?) } else { None };
        let flags = fcntl_getfl(&master)?;
        fcntl_setfl(&master, flags | OFlags::NONBLOCK)?;
        let relay = Relay {
            master,
            user: own_description(output)?,
            keyboard,
            to_user: Vec::new(),
            to_payload: Vec::new(),
            hung_up: None,
        };
        relay.copy_size();
        Ok(relay)
    }

    /// Gives the payload's terminal the size of the caller's.
    pub(crate) fn copy_size(&self) {
        if let Ok(size) = tcgetwinsize(&self.user) {
            // A terminal without a size is no reason to fail.
            let _ = tcsetwinsize(&self.master, size);
        }
    }

    /// What the relay waits for.
    pub(crate) fn interests(&self) -> Vec<PollFd<'_>> {
        let mut master = PollFlags::empty();
        master.set(PollFlags::IN, self.to_user.is_empty());
        master.set(PollFlags::OUT, !self.to_payload.is_empty());
        let listening = self.keyboard.is_some() && self.to_payload.is_empty();
        // Without a flag a hang-up would still be reported, over and over.
        let waits = [
            (self.hung_up.is_none() && !master.is_empty(), self.master.as_fd(), master),
            (!self.to_user.is_empty(), self.user.as_fd(), PollFlags::OUT),
            (listening, rustix::stdio::stdin(), PollFlags::IN),
        ];
        let wanted = waits.into_iter().filter(|(wanted, ..)| *wanted);
        wanted.map(|(_, fd, flags)| PollFd::from_borrowed_fd(fd, flags)).collect()
    }

    /// How long the wait may last at most.
    pub(crate) fn patience(&self) -> Option<Duration> {
        self.hung_up.map(|since| HUNG_UP.saturating_sub(since.elapsed()))
    }

    /// Carries what can be carried now.
    pub(crate) fn turn(&mut self) {
        if self.hung_up.is_some_and(|since| since.elapsed() >= HUNG_UP) {
            self.hung_up = None;
        }
        if self.hung_up.is_none() && self.to_user.is_empty() && is_ready(self.master.as_fd(), PollFlags::IN) {
            // EIO: the payload's end is closed everywhere.
            if !fill(&mut self.to_user, self.master.as_fd()) {
                self.hung_up = Some(Instant::now());
            }
        }
        drain(&mut self.to_user, self.user.as_fd());
        let stdin = rustix::stdio::stdin();
        if self.keyboard.is_some() && self.to_payload.is_empty() && is_ready(stdin, PollFlags::IN) {
            // The caller's terminal is gone: there is no more input, and no mode to restore.
            if !fill(&mut self.to_payload, stdin) {
                self.keyboard = None;
            }
        }
        if self.hung_up.is_none() {
            drain(&mut self.to_payload, self.master.as_fd());
        }
    }

    /// Shows what the payload wrote last, as far as the caller's terminal takes it.
    pub(crate) fn finish(mut self) {
        let latest = Instant::now() + Duration::from_secs(1);
        self.to_payload.clear();
        self.hung_up = None;
        while Instant::now() < latest {
            self.turn();
            if self.to_user.is_empty()
                && (self.hung_up.is_some() || !is_ready(self.master.as_fd(), PollFlags::IN))
            {
                return;
            }
            if !self.to_user.is_empty() && !is_ready(self.user.as_fd(), PollFlags::OUT) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// A terminal with an open file description of its own, so that its being non-blocking is nobody else's affair.
fn own_description(terminal: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", terminal.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // A terminal of another user (after su) cannot be opened again; short writes to it are the next best.
    rustix::fs::open(path, flags, Mode::empty())
        .or_else(|_| terminal.try_clone_to_owned().map_err(|_| Errno::BADF))
        .map_err(io::Error::from)
}

fn is_ready(fd: BorrowedFd<'_>, flags: PollFlags) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, flags)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|count| count > 0)
}

/// Reads once; false at the end of the source.
fn fill(buffer: &mut Vec<u8>, from: BorrowedFd<'_>) -> bool {
    let mut bytes = [0; 4096];
    match rustix::io::read(from, &mut bytes) {
        Ok(0) => false,
        Ok(count) => {
            buffer.extend_from_slice(&bytes[..count]);
            true
        }
        Err(Errno::AGAIN | Errno::INTR) => true,
        Err(_) => false,
    }
}

/// Writes as much as is taken now.
fn drain(buffer: &mut Vec<u8>, to: BorrowedFd<'_>) {
    while !buffer.is_empty() && is_ready(to, PollFlags::OUT) {
        match rustix::io::write(to, &buffer[..buffer.len().min(512)]) {
            Ok(count) => drop(buffer.drain(..count)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return,
            // It takes no more, now or ever; the sandbox goes on.
            Err(_) => buffer.clear(),
        }
    }
}

/// The caller's terminal in raw mode; restored on drop.
struct Raw {
    terminal: OwnedFd,
    before: Termios,
}

impl Raw {
    fn enter(terminal: BorrowedFd<'_>) -> io::Result<Raw> {
        let terminal = terminal.try_clone_to_owned()?;
        let before = tcgetattr(&terminal)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&terminal, OptionalActions::Now, &raw)?;
        Ok(Raw { terminal, before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}
