//! A grader process's inside: the server, its link, and at the other end of it a supervisor with fixed answers.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use airlock_grader::Digest;
use airlock_grader::protocol::bind::bind_socket;
use airlock_grader::protocol::link::{Act, Acts, Answer, Done, Link, LinkLimits};
use airlock_grader::protocol::messages::{
    Attempt, Counts, Failure, Feedback, Finite, Item, Method, OpenTicket, Outcome, Phase, Queued, RunFacts,
    Status, TicketState, page,
};
use airlock_grader::protocol::names::Ticket;
use airlock_grader::protocol::refusal::{ErrorCode, Fault, FaultKind, ShownPath};
use airlock_grader::protocol::server::{Limits, serve};
use airlock_grader::score;
use serde_json::Value;
use tokio::sync::oneshot;

/// A server on a socket of its own, until the drop.
pub(crate) struct Grader {
    _place: tempfile::TempDir,
    pub(crate) socket: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Limits that no test meets by chance.
pub(crate) fn wide() -> Limits {
    Limits { connections_per_second: 1_000_000, requests_per_second: 1_000_000, ..Limits::default() }
}

impl Grader {
    pub(crate) fn start(limits: Limits) -> Grader {
        let place = tempfile::tempdir().unwrap();
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let directory = std::fs::File::open(place.path()).unwrap();
        // A name of its own, by which its sockets are found in /proc/net/unix.
        let name = place.path().file_name().unwrap().to_owned();
        let listener = bind_socket(&directory, Path::new(&name), None).unwrap();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let (ours, theirs) = UnixStream::pair().unwrap();
                tokio::spawn(supervise(Acts::new(theirs, LinkLimits::default()).unwrap()));
                let link = Link::start(ours, LinkLimits::default()).unwrap();
                serve(listener, link, limits, async { drop(stopped.await) }).await.unwrap();
            });
        });
        let socket = place.path().join(name);
        Grader { _place: place, socket, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn connect(&self) -> Peer {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Peer(BufReader::new(stream))
    }

    /// Whether it answers a new connection.
    pub(crate) fn assert_well(&self) {
        let reply = self.connect().ask(HELLO);
        assert_eq!(reply["result"]["run"], "run-1", "{reply}");
    }

    /// Tells it to stop and waits until it has.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Grader {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

pub(crate) const HELLO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"hello"}"#;

/// One connection of a peer that may send anything.
pub(crate) struct Peer(pub(crate) BufReader<UnixStream>);

impl Peer {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    /// The next line, or `None` if the connection is closed.
    pub(crate) fn line(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.0.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => Some(serde_json::from_str(&line).unwrap()),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn ask(&mut self, line: &str) -> Value {
        self.send(line.as_bytes());
        self.send(b"\n");
        self.line().unwrap()
    }
}

/// How many items the validation `v-1` has: more than one page.
pub(crate) const ITEMS: u32 = 1500;

pub(crate) fn digest() -> Digest {
    format!("sha256:{}", "0123456789abcdef".repeat(4)).parse().unwrap()
}

async fn supervise(mut acts: Acts) {
    let mut ended = false;
    let mut asked = 0;
    while let Some(ask) = acts.next().await.unwrap() {
        // Never answered: the caller's deadline ends it.
        if matches!(ask.act(), Act::Seal { candidate } if candidate.as_str() == "slow") {
            continue;
        }
        let answer = perform(ask.act(), &mut ended, &mut asked);
        ask.answer(answer).await.unwrap();
    }
}

fn perform(act: &Act, ended: &mut bool, asked: &mut u32) -> Answer {
    match act {
        Act::Facts => Ok(Done::Facts(RunFacts {
            run: "run-1".parse().unwrap(),
            task: "digits".parse().unwrap(),
            phase: Phase::Research,
            methods: vec![Method::Status, Method::Validate, Method::Submit],
            budget_ms: 14_400_000,
            open_tickets: 8,
        })),
        Act::Status => Ok(Done::Status(Status {
            phase: if *ended { Phase::Ended } else { Phase::Research },
            elapsed_ms: 723_000,
            remaining_ms: 13_677_000,
            validations: *asked,
            open: vec![OpenTicket { ticket: Ticket(4), candidate: digest(), state: TicketState::Running }],
        })),
        Act::Seal { candidate } => match candidate.as_str() {
            "missing" => Err(Fault { fault: FaultKind::Missing, path: None }.into()),
            "linked" => {
                let path = Some(ShownPath::new(b"weights/\x1b[2J"));
                Err(Fault { fault: FaultKind::Link, path }.into())
            }
            "large" => Err(ErrorCode::NoSpace.into()),
            _ => Ok(Done::Sealed { candidate: digest() }),
        },
        Act::QueueValidation { candidate, items } => {
            assert!(items.as_ref().is_none_or(|items| items.items().len() == 2));
            *asked += 1;
            Ok(Done::Queued(Queued { ticket: Ticket(*asked), candidate: *candidate, ahead: 2 }))
        }
        Act::CancelValidation { ticket: Ticket(1) } => Err(ErrorCode::NotQueued.into()),
        Act::CancelValidation { .. } => Ok(Done::Cancelled),
        Act::Outcome { ticket, from } => outcome(*ticket, *from),
        Act::Submit { .. } | Act::NoCandidate { .. } if *ended => Err(ErrorCode::AlreadyEnded.into()),
        Act::Submit { .. } | Act::NoCandidate { .. } => {
            *ended = true;
            Ok(Done::Accepted)
        }
    }
}

fn outcome(ticket: Ticket, from: u32) -> Answer {
    let state = |state, failure, feedback| {
        Ok(Done::Outcome(Outcome { ticket, candidate: digest(), subset: false, state, failure, feedback }))
    };
    match ticket.0 {
        1 => {
            let attempt = |number| Attempt {
                status: if number % 2 == 0 { score::Status::Ok } else { score::Status::Timeout },
                score: Finite::try_from(f64::from((number + 1) % 2)).unwrap(),
                wall_ms: 1234,
            };
            let item = |number| Item {
                item: format!("item-{number}").parse().unwrap(),
                attempts: vec![attempt(number)],
            };
            let items: Vec<Item> = (0..ITEMS).map(item).collect();
            let (items, next) = page(&items, from);
            let counts = Counts { planned: ITEMS, graded: ITEMS / 2, errored: ITEMS / 2 };
            let score = Finite::try_from(0.5).unwrap();
            let trajectories = Some("v-1".parse().unwrap());
            state(TicketState::Done, None, Some(Feedback { score, counts, items, next, trajectories }))
        }
        2 => state(TicketState::Failed, Some(Failure::NoVerdict), None),
        3 => state(TicketState::Queued, None, None),
        _ => Err(ErrorCode::UnknownTicket.into()),
    }
}
