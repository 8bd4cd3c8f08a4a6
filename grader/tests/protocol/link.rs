//! The supervisor link, each side with a peer that does not keep to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use airlock_grader::protocol::link::{Act, Acts, Done, Link, LinkError, LinkLimits};
use airlock_grader::protocol::messages::{Submit, Validate};
use airlock_grader::protocol::refusal::ErrorCode;
use airlock_grader::protocol::server::Backend;
use proptest::prelude::*;

use crate::support::digest;

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn short() -> LinkLimits {
    let time = Duration::from_millis(200);
    LinkLimits { act: time, seal: time, line: time, write: time }
}

/// What the supervisor gets when the grader's end sends these bytes and closes: whether an act came, and the error.
fn acts_of(bytes: &[u8]) -> (usize, Option<LinkError>) {
    run(async {
        let (mut grader, supervisor) = UnixStream::pair().unwrap();
        let mut acts = Acts::new(supervisor, short()).unwrap();
        grader.write_all(bytes).unwrap();
        drop(grader);
        let mut number = 0;
        loop {
            match acts.next().await {
                Ok(Some(_)) => number += 1,
                Ok(None) => return (number, None),
                Err(error) => return (number, Some(error)),
            }
        }
    })
}

#[test]
fn a_supervisor_takes_acts_and_nothing_else() {
    let good = r#"{"id":1,"act":"status"}"#;
    assert!(matches!(acts_of(format!("{good}\n{good}\n").as_bytes()), (2, None)));
    for bad in [
        "",
        "status",
        r#"[1,"status"]"#,
        r#"{"id":1}"#,
        r#"{"id":-1,"act":"status"}"#,
        r#"{"id":1,"act":"status","x":1}"#,
        r#"{"id":1,"id":1,"act":"status"}"#,
        r#"{"id":1,"act":"sign"}"#,
        r#"{"id":1,"act":{"seal":{"candidate":"/etc"}}}"#,
        r#"{"id":1,"act":{"seal":{"candidate":"a/../.."}}}"#,
        r#"{"id":1,"act":{"seal":{"candidate":"a","into":"/"}}}"#,
        r#"{"id":1,"act":{"submit":{"candidate":"a"},"status":null}}"#,
        r#"{"id":1,"act":{"queue_validation":{"candidate":"sha256:00","items":null}}}"#,
    ] {
        let found = acts_of(format!("{good}\n{bad}\n").as_bytes());
        assert!(matches!(found, (1, Some(LinkError::Malformed(_)))), "{bad}: {found:?}");
    }
    let long = acts_of(&vec![b' '; 80_000]);
    assert!(matches!(long, (0, Some(LinkError::Io(_)))), "{long:?}");
}

#[test]
fn half_an_act_is_waited_for_in_bounds() {
    run(async {
        let (mut grader, supervisor) = UnixStream::pair().unwrap();
        let mut acts = Acts::new(supervisor, short()).unwrap();
        // Silence is no fault.
        assert!(tokio::time::timeout(Duration::from_millis(400), acts.next()).await.is_err());
        grader.write_all(br#"{"id":1,"#).unwrap();
        let start = Instant::now();
        let error = acts.next().await.err().unwrap();
        assert!(matches!(&error, LinkError::Io(error) if error.kind() == std::io::ErrorKind::TimedOut));
        assert!(start.elapsed() < Duration::from_secs(5));
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn no_bytes_bring_the_supervisor_down(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        acts_of(&bytes);
    }
}

#[test]
fn answers_come_in_any_order() {
    run(async {
        let (grader, supervisor) = UnixStream::pair().unwrap();
        let link = Link::start(grader, LinkLimits::default()).unwrap();
        let mut acts = Acts::new(supervisor, LinkLimits::default()).unwrap();
        let supervisor = async {
            let seal = acts.next().await.unwrap().unwrap();
            let cancel = acts.next().await.unwrap().unwrap();
            assert!(matches!(seal.act(), Act::Seal { .. }));
            cancel.answer(Ok(Done::Cancelled)).await.unwrap();
            seal.answer(Ok(Done::Sealed { candidate: digest() })).await.unwrap();
        };
        let seal = link.ask(Act::Seal { candidate: "m".parse().unwrap() });
        let cancel = link.ask(Act::CancelValidation { ticket: "v-1".parse().unwrap() });
        let (seal, cancel, ()) = tokio::join!(seal, cancel, supervisor);
        assert_eq!(seal, Ok(Done::Sealed { candidate: digest() }));
        assert_eq!(cancel, Ok(Done::Cancelled));
    });
}

#[test]
fn an_act_that_is_given_up_leaves_the_link_whole() {
    run(async {
        let (grader, supervisor) = UnixStream::pair().unwrap();
        let link = Link::start(grader, LinkLimits { seal: Duration::from_millis(50), ..short() }).unwrap();
        let mut acts = Acts::new(supervisor, LinkLimits::default()).unwrap();
        let candidate = || "m".parse().unwrap();
        let given_up = link.validate(Validate { candidate: candidate(), items: None }).await;
        assert_eq!(given_up, Err(ErrorCode::Deadline.into()));
        let supervisor = async {
            let seal = acts.next().await.unwrap().unwrap();
            seal.answer(Ok(Done::Sealed { candidate: digest() })).await.unwrap();
            let submit = acts.next().await.unwrap().unwrap();
            assert!(matches!(submit.act(), Act::Submit { .. }));
            submit.answer(Ok(Done::Accepted)).await.unwrap();
        };
        let submit = link.submit(Submit { candidate: candidate() });
        assert_eq!(tokio::join!(submit, supervisor).0, Ok(()));
    });
}

#[test]
fn an_answer_of_another_kind_is_no_answer() {
    run(async {
        let (grader, supervisor) = UnixStream::pair().unwrap();
        let link = Link::start(grader, short()).unwrap();
        let mut acts = Acts::new(supervisor, short()).unwrap();
        let supervisor = async {
            acts.next().await.unwrap().unwrap().answer(Ok(Done::Cancelled)).await.unwrap();
        };
        let submit = link.submit(Submit { candidate: ".".parse().unwrap() });
        assert_eq!(tokio::join!(submit, supervisor).0, Err(ErrorCode::Internal.into()));
    });
}

#[test]
fn without_a_supervisor_nobody_waits() {
    run(async {
        for last_words in ["", "{}\n", "{\"id\":1,\"answer\":{\"done\":\"accepted\",\"score\":1}}\n"] {
            let (grader, mut supervisor) = UnixStream::pair().unwrap();
            let link = Link::start(grader, LinkLimits::default()).unwrap();
            let start = Instant::now();
            let (answer, ()) = tokio::join!(link.ask(Act::Status), async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                supervisor.write_all(last_words.as_bytes()).unwrap();
                drop(supervisor);
            });
            assert_eq!(answer, Err(ErrorCode::Internal.into()), "{last_words}");
            link.broken().await;
            assert_eq!(link.ask(Act::Status).await, Err(ErrorCode::Internal.into()));
            assert!(start.elapsed() < Duration::from_secs(5));
        }
    });
}

#[test]
fn a_supervisor_that_does_not_read_breaks_the_link_in_time() {
    run(async {
        let (grader, _supervisor) = UnixStream::pair().unwrap();
        let link = Link::start(grader, LinkLimits { act: Duration::from_secs(60), ..short() }).unwrap();
        let reason: String = "x".repeat(1000);
        let acts = (0..2000).map(|_| link.ask(Act::NoCandidate { reason: reason.parse().unwrap() }));
        let asking = async {
            let mut asked: Vec<_> = acts.map(Box::pin).collect();
            std::future::poll_fn(|context| {
                asked.retain_mut(|ask| ask.as_mut().poll(context).is_pending());
                if asked.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            })
            .await;
        };
        tokio::time::timeout(Duration::from_secs(20), asking).await.unwrap();
        link.broken().await;
    });
}

#[test]
fn acts_beyond_the_bound_wait_for_answers() {
    run(async {
        let (grader, supervisor) = UnixStream::pair().unwrap();
        let mut acts = Acts::new(supervisor, LinkLimits::default()).unwrap();
        let mut lines = BufReader::new(grader.try_clone().unwrap());
        let mut grader = grader;
        for id in 0..80 {
            writeln!(grader, "{{\"id\":{id},\"act\":\"status\"}}").unwrap();
        }
        let mut asks = Vec::new();
        while let Ok(ask) = tokio::time::timeout(Duration::from_millis(300), acts.next()).await {
            asks.push(ask.unwrap().unwrap());
        }
        assert_eq!(asks.len(), 64);
        asks.pop().unwrap().answer(Err(ErrorCode::WrongPhase.into())).await.unwrap();
        assert!(acts.next().await.unwrap().is_some());
        tokio::task::yield_now().await;
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert_eq!(line, "{\"id\":63,\"answer\":{\"refused\":{\"code\":-32010}}}\n");
        drop((acts, asks));
        // The last one gone, the grader sees the end.
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(lines.read(&mut [0]).unwrap(), 0);
    });
}
