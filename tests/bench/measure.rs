//! Running the peers by turns and keeping the times.

use std::time::{Duration, Instant};

use crate::peers::Peer;

/// Times of one peer, and how many of its launches failed.
#[derive(Default)]
pub(crate) struct Times {
    good: Vec<Duration>,
    pub(crate) failed: usize,
}

impl Times {
    /// The time that so many percent do not exceed (nearest rank).
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.good.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).copied().unwrap_or_default()
    }

    fn add(&mut self, time: Option<Duration>) {
        match time {
            Some(time) => self.good.push(time),
            None => self.failed += 1,
        }
    }
}

pub(crate) fn milliseconds(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1e3)
}

/// The machine in one line.
pub(crate) fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let mounts = read("/proc/self/mountinfo");
    let (one, two) = (mounts.matches(" - cgroup ").count(), mounts.matches(" - cgroup2 ").count());
    format!(
        "Linux {}, {cpus} CPUs, {one} version 1 cgroup trees, {two} version 2 trees, {} mounts",
        read("/proc/sys/kernel/osrelease"),
        mounts.lines().count(),
    )
}

/// All peers once a round, in an order of its own each round, with a pause before each.
pub(crate) fn sequential(peers: &[Peer<'_>], rounds: usize, pause: Duration) -> Vec<Times> {
    let mut times: Vec<Times> = peers.iter().map(|_| Times::default()).collect();
    let mut order: Vec<usize> = (0..peers.len()).collect();
    for _ in 0..rounds {
        shuffle(&mut order);
        for &index in &order {
            std::thread::sleep(pause);
            times[index].add(timed(&peers[index]));
        }
    }
    times
}

/// So many of one peer at a time; times of each, and the wall time per launch.
pub(crate) fn parallel(peers: &[Peer<'_>], width: usize, rounds: usize) -> (Vec<Times>, Vec<Duration>) {
    const TURNS: usize = 5;
    let each = (rounds / TURNS).clamp(1, 20);
    let mut times: Vec<Times> = peers.iter().map(|_| Times::default()).collect();
    let mut wall = vec![Duration::ZERO; peers.len()];
    let mut order: Vec<usize> = (0..peers.len()).collect();
    for _ in 0..TURNS {
        shuffle(&mut order);
        for &index in &order {
            let peer = &peers[index];
            let started = Instant::now();
            let found: Vec<Option<Duration>> = std::thread::scope(|scope| {
                let work = || (0..each).map(|_| timed(peer)).collect::<Vec<_>>();
                let threads: Vec<_> = (0..width).map(|_| scope.spawn(work)).collect();
                threads.into_iter().flat_map(|thread| thread.join().expect("it does not panic")).collect()
            });
            wall[index] += started.elapsed();
            found.into_iter().for_each(|time| times[index].add(time));
        }
    }
    let launches = u32::try_from(TURNS * width * each).expect("few");
    (times, wall.into_iter().map(|wall| wall / launches).collect())
}

/// The time of one launch; none if it failed.
fn timed(peer: &Peer<'_>) -> Option<Duration> {
    let mut command = peer.command();
    let started = Instant::now();
    let status = command.status().unwrap_or_else(|error| panic!("{}: {error}", peer.name));
    status.success().then(|| started.elapsed())
}

fn shuffle(order: &mut [usize]) {
    for last in (1..order.len()).rev() {
        let mut bytes = [0; 8];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).expect("random bytes");
        let bound = u64::try_from(last + 1).expect("few");
        let other = usize::try_from(u64::from_ne_bytes(bytes) % bound).expect("below the bound");
        order.swap(last, other);
    }
}
