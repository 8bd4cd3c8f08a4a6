//! Whole-process start and exit of the shortest program: alone, under Airlock, and under its peers, side by
//! side in one run. See `README.md` here.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark that cannot go on stops")]

mod measure;
mod peers;

use std::path::PathBuf;
use std::time::Duration;

use measure::{Times, milliseconds};
use peers::{Bench, Peer};

const USAGE: &str =
    "usage: bench-start [--airlock PATH] [--rounds N] [--pause MS] [--parallel N] [--only NAME,NAME]";

struct Options {
    airlock: PathBuf,
    rounds: usize,
    pause: Duration,
    parallel: usize,
    only: Vec<String>,
}

impl Options {
    fn read() -> Options {
        let own = std::env::current_exe().expect("own path");
        let mut options = Options {
            airlock: own.with_file_name("airlock"),
            rounds: 100,
            pause: Duration::from_millis(50),
            parallel: 16,
            only: Vec::new(),
        };
        let mut words = std::env::args().skip(1);
        while let Some(flag) = words.next() {
            let value = words.next().unwrap_or_else(|| stop(USAGE));
            let number = || value.parse().unwrap_or_else(|_| stop(USAGE));
            match flag.as_str() {
                "--airlock" => options.airlock = value.into(),
                "--rounds" => options.rounds = number(),
                "--pause" => options.pause = Duration::from_millis(number() as u64),
                "--parallel" => options.parallel = number(),
                "--only" => options.only = value.split(',').map(str::to_owned).collect(),
                _ => stop(USAGE),
            }
        }
        options
    }
}

fn stop(message: &str) -> ! {
    eprintln!("{message}");
    std::process::exit(2)
}

fn main() {
    let options = Options::read();
    let bench = Bench::new(&options.airlock);
    let mut peers = Vec::new();
    let mut notes = Vec::new();
    for peer in bench.peers() {
        if !options.only.is_empty() && !options.only.iter().any(|name| name == peer.name) {
            continue;
        }
        match peer.trial() {
            Ok(()) => {
                notes.push(format!("{}: {}", peer.name, peer.note));
                peers.push(peer);
            }
            Err(reason) => notes.push(format!("{}: not measured: {reason}", peer.name)),
        }
    }
    if peers.is_empty() {
        stop("nothing to measure");
    }

    println!("{}", measure::machine());
    println!("{} rounds in random order; ratio is to `{}`\n", options.rounds, peers::BASE);
    let tight = measure::sequential(&peers, options.rounds, Duration::ZERO);
    table("in a tight loop", &peers, &tight);
    let paused = measure::sequential(&peers, options.rounds, options.pause);
    table(&format!("{} ms apart", options.pause.as_millis()), &peers, &paused);
    let (parallel, each) = measure::parallel(&peers, options.parallel, options.rounds);
    table(&format!("{} at once", options.parallel), &peers, &parallel);
    println!("{} at once, wall time per launch", options.parallel);
    for (peer, wall) in peers.iter().zip(each) {
        println!("  {:22} {} ms", peer.name, milliseconds(wall));
    }
    println!();
    if let Some(resident) = bench.monitor_memory() {
        println!("resident memory of a waiting monitor: {resident}\n");
    }
    notes.iter().for_each(|note| println!("{note}"));
}

fn table(title: &str, peers: &[Peer<'_>], times: &[Times]) {
    let base =
        peers.iter().position(|peer| peer.name == peers::BASE).map(|index| times[index].percentile(50));
    println!("{title:24} {:>8} {:>8} {:>7}", "p50 ms", "p95 ms", "ratio");
    for (peer, times) in peers.iter().zip(times) {
        let (half, most) = (times.percentile(50), times.percentile(95));
        let ratio = match base {
            Some(base) => format!("{:.2}", half.as_secs_f64() / base.as_secs_f64()),
            None => "-".into(),
        };
        let (half, most) = (milliseconds(half), milliseconds(most));
        let failed = if times.failed == 0 { String::new() } else { format!("  {} failed", times.failed) };
        println!("  {:22} {half:>8} {most:>8} {ratio:>7}{failed}", peer.name);
    }
    println!();
}
