//! What this program does in a sandbox.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use airlock_grader::protocol::SOCKET;
use airlock_grader::protocol::process::{LINK, LISTENER};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType,
};
use serde_json::Value;

const HELLO: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"hello\"}\n";

/// In the grader's place, with its descriptors: tells over the link how each attempt ended.
pub(crate) fn try_the_graders_sandbox() {
    // SAFETY: the supervisor passed both descriptors for this use, and they stay open to the end.
    let [listener, link] = [LISTENER, LINK].map(|number| unsafe { BorrowedFd::borrow_raw(number) });
    let mut link = UnixStream::from(link.try_clone_to_owned().unwrap());
    let mut tell = |what: &str, result: io::Result<()>| {
        let end = result.map_or_else(|error| error.to_string(), |()| "done".into());
        writeln!(link, "{what}: {end}").unwrap();
    };
    let made =
        |result: rustix::io::Result<_>| result.map(|_: std::os::fd::OwnedFd| ()).map_err(io::Error::from);
    let done = |result: rustix::io::Result<()>| result.map_err(io::Error::from);
    tell("accept4", made(rustix::net::accept_with(listener, SocketFlags::CLOEXEC)));
    tell("socket unix", made(rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)));
    tell("socket inet", made(rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)));
    let address = SocketAddrUnix::new("/run/s").unwrap();
    tell("connect", done(rustix::net::connect(listener, &address)));
    tell("bind", done(rustix::net::bind(listener, &address)));
    tell("listen", done(rustix::net::listen(listener, 1)));
    for path in ["/tmp/x", "/run/x"] {
        tell(&format!("create {path}"), File::create(path).map(drop));
    }
    for path in ["/etc/shadow", "/usr/bin/env"] {
        tell(&format!("read {path}"), File::open(path).map(drop));
    }
    tell("list /usr", std::fs::read_dir("/usr").map(drop));
}

fn connect() -> UnixStream {
    let stream = UnixStream::connect(SOCKET).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

fn line(stream: &UnixStream) -> Value {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

/// Whether the other side has closed it; a reset is an end too.
fn closed(mut stream: &UnixStream) -> bool {
    loop {
        match stream.read(&mut [0; 4096]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == io::ErrorKind::ConnectionReset,
        }
    }
}

pub(crate) fn attack(what: &str) {
    match what {
        "half-frames" => half_frames(),
        "connections" => connections(),
        "descriptors" => descriptors(),
        "long-lines" => long_lines(),
        "flood" => flood(),
        "unread-replies" => unread_replies(),
        other => panic!("{other}"),
    }
}

/// As many as there are places, each with half a request and nothing after it.
fn half_frames() {
    let start = Instant::now();
    let peers: Vec<UnixStream> = (0..16).map(|_| connect()).collect();
    for mut peer in &peers {
        peer.write_all(&HELLO[..20]).unwrap();
    }
    for peer in &peers {
        assert_eq!(line(peer)["error"]["code"], -32002);
        assert!(closed(peer));
    }
    assert!(start.elapsed() < Duration::from_secs(15));
}

fn connections() {
    for number in 0..10_000 {
        let mut stream = UnixStream::connect(SOCKET).unwrap();
        if number % 3 == 0 {
            let _ = stream.write_all(b"{");
        }
    }
}

fn descriptors() {
    for _ in 0..200 {
        let stream = connect();
        let (mut reader, writer) = io::pipe().unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let passed = [writer.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&passed)));
        rustix::net::sendmsg(&stream, &[IoSlice::new(HELLO)], &mut control, SendFlags::empty()).unwrap();
        drop(writer);
        assert!(closed(&stream));
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "the grader keeps it");
    }
}

fn long_lines() {
    for _ in 0..20 {
        let mut stream = connect();
        let _ = stream.write_all(&vec![b'x'; 1 << 20]);
        assert!(closed(&stream));
    }
}

/// Requests without a pause on all connections, replies read; and what is no request.
fn flood() {
    let flooding: Vec<_> = (0..12)
        .map(|_| {
            let stream = connect();
            let mut writer = stream.try_clone().unwrap();
            std::thread::spawn(move || {
                let lines = [HELLO, b"[[[[[[[[[[[[[[[[[[[[\n", b"\0\xff\n"].concat();
                while writer.write_all(&lines).is_ok() {}
            });
            stream
        })
        .collect();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        for mut stream in &flooding {
            let _ = stream.read(&mut [0; 65536]).unwrap();
        }
    }
}

fn unread_replies() {
    let line = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"result\",\"params\":{\"ticket\":\"v-1\"}}\n";
    let peers: Vec<UnixStream> = (0..16).map(|_| connect()).collect();
    for mut peer in &peers {
        peer.set_nonblocking(true).unwrap();
        while peer.write(line).is_ok() {}
    }
    std::thread::sleep(Duration::from_secs(3));
}
