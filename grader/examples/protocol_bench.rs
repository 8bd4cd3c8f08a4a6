//! Round trips of the grader protocol against a bare echo of the same bytes on the same kind of socket.
//!
//! `cargo run --release -p airlock-grader --example protocol_bench [ROUND-TRIPS]`
//!
//! Each server is a thread with a runtime of its own, as the grader process has it. `link` has a supervisor
//! behind a socket pair on top, which costs two more wake-ups of a thread.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use airlock_grader::protocol::bind::{Access, bind_socket};
use airlock_grader::protocol::link::{Act, Acts, Done, Link, LinkLimits};
use airlock_grader::protocol::messages::{
    Cancel, NoCandidate, Outcome, Phase, Queued, ResultOf, RunFacts, Status, Submit, Validate,
};
use airlock_grader::protocol::refusal::{ErrorCode, Refusal};
use airlock_grader::protocol::server::{Backend, Limits, serve};

const REQUEST: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\"}\n";

type Failure = Box<dyn Error + Send + Sync>;

fn status() -> Status {
    Status { phase: Phase::Research, elapsed_ms: 1, remaining_ms: 2, validations: 3, open: Vec::new() }
}

/// Knows the time and nothing else.
struct Clock;

impl Backend for Clock {
    async fn hello(&self) -> Result<RunFacts, Refusal> {
        Err(ErrorCode::WrongPhase.into())
    }

    async fn status(&self) -> Result<Status, Refusal> {
        Ok(status())
    }

    async fn validate(&self, _: Validate) -> Result<Queued, Refusal> {
        Err(ErrorCode::WrongPhase.into())
    }

    async fn result(&self, _: ResultOf) -> Result<Outcome, Refusal> {
        Err(ErrorCode::WrongPhase.into())
    }

    async fn cancel(&self, _: Cancel) -> Result<(), Refusal> {
        Err(ErrorCode::WrongPhase.into())
    }

    async fn submit(&self, _: Submit) -> Result<(), Refusal> {
        Err(ErrorCode::WrongPhase.into())
    }

    async fn no_candidate(&self, _: NoCandidate) -> Result<(), Refusal> {
        Err(ErrorCode::WrongPhase.into())
    }
}

fn echo(listener: &UnixListener) -> Result<(), Failure> {
    for stream in listener.incoming() {
        let mut lines = BufReader::new(stream?);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line)? > 0 {
            lines.get_mut().write_all(&line)?;
            line.clear();
        }
    }
    Ok(())
}

fn run<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future)
}

fn limits() -> Limits {
    Limits { connections_per_second: u32::MAX, requests_per_second: 1_000_000_000, ..Limits::default() }
}

fn serve_clock(listener: UnixListener) -> Result<(), Failure> {
    run(async { Ok(serve(listener, Clock, limits(), std::future::pending()).await?) })
}

fn serve_link(listener: UnixListener) -> Result<(), Failure> {
    let (grader, supervisor) = UnixStream::pair()?;
    thread::spawn(move || {
        run(async {
            let mut acts = Acts::new(supervisor, LinkLimits::default())?;
            while let Some(ask) = acts.next().await? {
                let answer = match ask.act() {
                    Act::Status => Ok(Done::Status(status())),
                    _ => Err(ErrorCode::WrongPhase.into()),
                };
                ask.answer(answer).await?;
            }
            Ok(())
        })
    });
    run(async {
        let link = Link::start(grader, LinkLimits::default())?;
        Ok(serve(listener, link, limits(), std::future::pending()).await?)
    })
}

/// Times of single round trips, sorted.
fn measure(socket: &Path, number: usize, reconnect: bool) -> Result<Vec<Duration>, Failure> {
    let connect = || Ok::<_, Failure>(BufReader::new(UnixStream::connect(socket)?));
    let mut connection = connect()?;
    let mut reply = String::new();
    let mut times = Vec::with_capacity(number);
    for _ in 0..number {
        let start = Instant::now();
        if reconnect {
            connection = connect()?;
        }
        connection.get_mut().write_all(REQUEST)?;
        reply.clear();
        connection.read_line(&mut reply)?;
        times.push(start.elapsed());
        if !reply.contains("\"id\":1") || reply.contains("error") {
            return Err(format!("unexpected reply {reply}").into());
        }
    }
    times.sort_unstable();
    Ok(times)
}

fn main() -> Result<(), Failure> {
    let number = std::env::args().nth(1).map_or(Ok(20_000), |number| number.parse())?;
    let place = tempfile::tempdir()?;
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o700))?;
    let directory = std::fs::File::open(place.path())?;
    println!("{:<24} {:>12} {:>10} {:>10}", "", "round trips/s", "median us", "p99 us");
    for (name, server) in [
        ("echo", (|listener| echo(&listener)) as fn(UnixListener) -> Result<(), Failure>),
        ("server", serve_clock),
        ("server and link", serve_link),
    ] {
        let listener = bind_socket(&directory, Path::new(name), Access::Own)?;
        listener.set_nonblocking(false)?;
        thread::spawn(move || server(listener));
        for (how, reconnect) in [("one connection", false), ("one each", true)] {
            let socket = place.path().join(name);
            measure(&socket, number / 10, reconnect)?;
            let times = measure(&socket, number, reconnect)?;
            let total: Duration = times.iter().sum();
            let micros = |part: usize| times[(times.len() - 1) * part / 100].as_secs_f64() * 1e6;
            let rate = f64::from(u32::try_from(number)?) / total.as_secs_f64();
            println!(
                "{:<24} {rate:>12.0} {:>10.1} {:>10.1}",
                format!("{name}, {how}"),
                micros(50),
                micros(99)
            );
        }
    }
    Ok(())
}
