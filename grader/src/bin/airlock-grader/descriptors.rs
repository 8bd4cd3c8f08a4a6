//! The sockets that the supervisor hands over.

use std::fmt;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::fs::{FileType, fstat};
use rustix::net::{AddressFamily, SocketType, sockopt};
use thiserror::Error;

/// A descriptor that is not what it has to be.
#[derive(Debug, Error)]
#[error("descriptor {number} is not {wanted}: {source}; this program is started by a supervisor")]
pub(crate) struct Unfit {
    number: RawFd,
    wanted: Wanted,
    source: io::Error,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Listener,
    Link,
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Wanted::Listener => "a listening Unix stream socket",
            Wanted::Link => "a connected Unix stream socket",
        })
    }
}

/// Takes over the listening socket. To be called once for a number.
pub(crate) fn listener(number: RawFd) -> Result<UnixListener, Unfit> {
    take(number, Wanted::Listener).map(UnixListener::from)
}

/// Takes over one end of a socket pair. To be called once for a number.
pub(crate) fn link(number: RawFd) -> Result<UnixStream, Unfit> {
    take(number, Wanted::Link).map(UnixStream::from)
}

fn take(number: RawFd, wanted: Wanted) -> Result<OwnedFd, Unfit> {
    let unfit = |source| Unfit { number, wanted, source };
    // SAFETY: only the number is looked at.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(unfit(io::Error::last_os_error()));
    }
    // SAFETY: it is open, and nothing else in this program has it: it was there before the program was.
    let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
    match is(&descriptor, wanted) {
        Ok(true) => Ok(descriptor),
        Ok(false) => Err(unfit(io::ErrorKind::InvalidInput.into())),
        Err(source) => Err(unfit(source)),
    }
}

fn is(descriptor: &OwnedFd, wanted: Wanted) -> io::Result<bool> {
    if FileType::from_raw_mode(fstat(descriptor)?.st_mode) != FileType::Socket
        || sockopt::socket_domain(descriptor)? != AddressFamily::UNIX
        || sockopt::socket_type(descriptor)? != SocketType::STREAM
    {
        return Ok(false);
    }
    let listens = sockopt::socket_acceptconn(descriptor)?;
    if wanted == Wanted::Link {
        rustix::net::getpeername(descriptor)?;
    }
    Ok(listens == (wanted == Wanted::Listener))
}
