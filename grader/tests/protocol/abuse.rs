//! A peer that wants to bring the grader down, stall it or have its descriptors (herdr#3727, alien#390,
//! lens-sandbox#69).

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use airlock_grader::protocol::refusal::ErrorCode;
use airlock_grader::protocol::server::Limits;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg, sockopt};
use serde_json::json;

use crate::support::{Grader, HELLO, wide};

fn send_with(stream: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    send_flagged(stream, bytes, descriptors, SendFlags::empty());
}

fn send_flagged(stream: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>], flags: SendFlags) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    sendmsg(stream, &[IoSlice::new(bytes)], &mut control, flags).unwrap();
}

#[test]
fn descriptors_end_the_connection_and_are_not_kept() {
    let grader = Grader::start(wide());
    let line = format!("{HELLO}\n");
    for lead in ["", "{\"half\":"] {
        let mut peer = grader.connect();
        peer.send(lead.as_bytes());
        let (mut reader, writer) = std::io::pipe().unwrap();
        send_with(peer.0.get_ref(), line.as_bytes(), &[writer.as_fd()]);
        drop(writer);
        assert_eq!(peer.line(), None);
        // The last writer of the pipe is gone, so the grader holds none.
        assert_eq!(reader.read(&mut [0]).unwrap(), 0);
    }
    grader.assert_well();
}

/// A TCP socket whose last close takes `linger`, for it has data that its peer does not take (socket(7)).
fn lingering(linger: Duration) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    sockopt::set_socket_linger(&stream, Some(linger)).unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 65536]).is_ok() {}
    stream.set_nonblocking(false).unwrap();
    (stream, peer)
}

#[test]
fn a_descriptor_that_is_slow_to_close_stalls_nobody() {
    let linger = Duration::from_secs(3);
    let (stream, _unread) = lingering(linger);
    let start = Instant::now();
    drop(stream);
    assert!(start.elapsed() >= linger, "closing it is not slow here");

    let grader = Grader::start(Limits { seal: Duration::from_millis(500), ..wide() });
    let assert_well_for = |time| {
        let start = Instant::now();
        while start.elapsed() < time {
            let asked = Instant::now();
            grader.assert_well();
            assert!(asked.elapsed() < linger / 2, "stalled for {:?}", asked.elapsed());
        }
    };
    // It is looked at. Out-of-band data is not, unless it is asked for in line; what follows it is.
    for flags in [SendFlags::empty(), SendFlags::OOB] {
        let (stream, _unread) = lingering(linger);
        let mut peer = grader.connect();
        send_flagged(peer.0.get_ref(), b" ", &[stream.as_fd()], flags);
        drop(stream);
        let _ = peer.0.get_mut().write_all(HELLO.as_bytes());
        assert_well_for(Duration::from_millis(200));
    }
    // It is not: the connection ends when the reply to a call before it is not taken.
    let (stream, _unread) = lingering(linger);
    let mut peer = grader.connect();
    peer.send(
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"validate\",\"params\":{\"candidate\":\"slow\"}}\n",
    );
    assert_well_for(Duration::from_millis(200));
    send_with(peer.0.get_ref(), HELLO.as_bytes(), &[stream.as_fd()]);
    drop((stream, peer));
    assert_well_for(Duration::from_millis(800));
}

#[test]
fn one_connection_too_many_is_told_so() {
    let grader = Grader::start(Limits { connections: 4, ..wide() });
    let mut peers: Vec<_> = (0..4).map(|_| grader.connect()).collect();
    for peer in &mut peers {
        assert_eq!(peer.ask(HELLO)["id"], 1);
    }
    for _ in 0..20 {
        let mut late = grader.connect();
        let busy = late.line().unwrap();
        assert_eq!(busy["id"], json!(null));
        assert_eq!(busy["error"]["code"], ErrorCode::Busy.number());
        assert_eq!(late.line(), None);
    }
    // Those who were first are served on, and a place that is left is free.
    assert_eq!(peers[3].ask(HELLO)["id"], 1);
    peers.pop();
    let start = Instant::now();
    while grader.connect().ask(HELLO)["result"].is_null() {
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn ten_thousand_connections_leave_nothing() {
    let grader = Grader::start(wide());
    let name = grader.socket.file_name().unwrap().to_str().unwrap();
    // Sockets that bear the name: the listening one, and the grader's ends.
    let open = || {
        let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
        sockets.lines().filter(|line| line.ends_with(name)).count()
    };
    let mut held = grader.connect();
    assert_eq!(held.ask(HELLO)["id"], 1);
    assert!(open() >= 2);
    drop(held);
    for number in 0..10_000 {
        let mut stream = UnixStream::connect(&grader.socket).unwrap();
        if number % 3 == 0 {
            let _ = stream.write_all(b"{");
        }
    }
    let start = Instant::now();
    grader.assert_well();
    while open() > 1 {
        assert!(start.elapsed() < Duration::from_secs(10), "{} sockets", open());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn connections_come_at_a_rate() {
    let limits = Limits { connections_per_second: 50, ..wide() };
    let grader = Grader::start(limits);
    let start = Instant::now();
    for _ in 0..100 {
        grader.assert_well();
    }
    assert!(start.elapsed() >= Duration::from_millis(900), "{:?}", start.elapsed());
}

#[test]
fn a_flood_is_slowed_down_and_others_are_served() {
    let grader = Grader::start(Limits { requests_per_second: 50, ..wide() });
    let mut flood = grader.connect();
    let mut writer = flood.0.get_ref().try_clone().unwrap();
    let line = format!("{HELLO}\n");
    let writing = std::thread::spawn(move || while writer.write_all(line.as_bytes()).is_ok() {});
    let start = Instant::now();
    let mut answered = 0;
    let mut slowest = Duration::ZERO;
    while start.elapsed() < Duration::from_secs(2) {
        let asked = Instant::now();
        grader.assert_well();
        slowest = slowest.max(asked.elapsed());
        assert!(flood.line().is_some());
        answered += 1;
    }
    // A burst of one second's worth, then the rate.
    assert!((50..=160).contains(&answered), "{answered}");
    assert!(slowest < Duration::from_millis(500), "{slowest:?}");
    flood.0.get_ref().shutdown(std::net::Shutdown::Both).unwrap();
    writing.join().unwrap();
}

#[test]
fn one_who_does_not_read_is_dropped_and_others_are_served() {
    let grader = Grader::start(Limits { write: Duration::from_millis(400), ..wide() });
    let mut deaf = grader.connect();
    let line = r#"{"jsonrpc":"2.0","id":1,"method":"result","params":{"ticket":"v-1"}}"#;
    let mut writer = deaf.0.get_ref().try_clone().unwrap();
    let writing = std::thread::spawn(move || {
        let start = Instant::now();
        while writer.write_all(format!("{line}\n").as_bytes()).is_ok() {}
        start.elapsed()
    });
    let start = Instant::now();
    while !writing.is_finished() {
        let asked = Instant::now();
        grader.assert_well();
        assert!(asked.elapsed() < Duration::from_millis(300), "{:?}", asked.elapsed());
        assert!(start.elapsed() < Duration::from_secs(10));
    }
    assert!(writing.join().unwrap() >= Duration::from_millis(300));
    // The replies that were on their way, the last of them cut.
    let mut left = Vec::new();
    let _ = deaf.0.read_to_end(&mut left);
    assert!(left.len() < 4 * 1024 * 1024);
}
