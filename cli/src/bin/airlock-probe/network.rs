//! Sockets, interfaces, and objects that processes share by name.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use airlock_runtime::probe::Outcome;
use nix::errno::Errno;

use crate::files::errno;
use crate::{Attempt, Verb, Words, call, done, number, word};

pub(crate) const VERBS: &[Verb] = &[
    ("socket", socket),
    ("connect-tcp", connect_tcp),
    ("listen-tcp", listen_tcp),
    ("connect-unix", connect_unix),
    ("interfaces", interfaces),
    ("find-segment", find_segment),
    ("find-queue", find_queue),
    ("find-key", find_key),
];

fn socket(words: Words<'_>) -> Attempt {
    let at = |place| number(words, place).map(|value| value.cast_unsigned());
    call::named("socket", [at(0)?, at(1)?, at(2)?, 0, 0, 0])?;
    done()
}

fn port(words: Words<'_>) -> Result<u16, Errno> {
    u16::try_from(number(words, 0)?).map_err(|_| Errno::EBADMSG)
}

fn connect_tcp(words: Words<'_>) -> Attempt {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port(words)?)).map_err(|error| errno(&error))?;
    done()
}

fn listen_tcp(words: Words<'_>) -> Attempt {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port(words)?)).map_err(|error| errno(&error))?;
    done()
}

/// A name that starts with @ is abstract.
fn connect_unix(words: Words<'_>) -> Attempt {
    let name = word(words, 0)?;
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    };
    address.and_then(|address| UnixStream::connect_addr(&address)).map_err(|error| errno(&error))?;
    done()
}

/// Looks for an interface that is no loopback.
fn interfaces(_: Words<'_>) -> Attempt {
    let text = std::fs::read_to_string("/proc/self/net/dev").map_err(|error| errno(&error))?;
    let names = text.lines().skip(2).filter_map(|line| Some(line.split_once(':')?.0.trim()));
    match names.clone().any(|name| name != "lo") {
        true => done(),
        false => Ok(Outcome::Absent("there is a loopback alone".into())),
    }
}

/// A System V segment of this key.
fn find_segment(words: Words<'_>) -> Attempt {
    call::named("shmget", [number(words, 0)?.cast_unsigned(), 0, 0, 0, 0, 0])?;
    done()
}

/// A POSIX queue of this name, without its slash.
fn find_queue(words: Words<'_>) -> Attempt {
    let name = std::ffi::CString::new(word(words, 0)?).map_err(|_| Errno::EBADMSG)?;
    call::named("mq_open", [call::address(name.as_ptr()), 0, 0, 0, 0, 0])?;
    done()
}

/// A key of this name in the session keyring.
fn find_key(words: Words<'_>) -> Attempt {
    const SEARCH: u64 = 10;
    const SESSION: i64 = -3;
    let name = std::ffi::CString::new(word(words, 0)?).map_err(|_| Errno::EBADMSG)?;
    let kind = call::address(c"user".as_ptr());
    call::named("keyctl", [SEARCH, SESSION.cast_unsigned(), kind, call::address(name.as_ptr()), 0, 0])?;
    done()
}
