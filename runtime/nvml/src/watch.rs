//! Looking at GPUs while a phase has them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::event::EventSet;
use nvml_wrapper::{Device, Nvml};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::facts::Gpu;
use crate::read::{gpu, told};
use crate::say;
use crate::wire::{Answer, Cause, Exceeded, Excess, Failure, Limits, Usage};

/// Between two looks. Utilisation is itself a mean over 1/6 s to 1 s.
const INTERVAL: Duration = Duration::from_millis(500);
/// Looks over which a mean is taken: a minute of them.
const WINDOW: u32 = 120;
/// What is limited may not be told for so many looks.
const BLIND: u32 = 10;
/// A driver that hangs does not come back from a look.
const PATIENCE: Duration = Duration::from_secs(10);
/// The driver gives a dead process's memory back a little after its end.
const SETTLING: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(50);
/// Most errors that are told of one GPU, and that are taken at one look: what runs on it can make as many as it likes.
const MOST_ERRORS: usize = 100;

/// One watched GPU or slice.
struct Watched<'nvml> {
    device: Device<'nvml>,
    /// The whole GPU of a slice.
    whole: Option<Device<'nvml>>,
    index: u32,
    /// The counter of energy before the phase, in millijoules.
    energy: Option<u64>,
    /// What it said last.
    counter: u64,
    errors: Option<EventSet<'nvml>>,
    busy: (f64, u32),
    /// Utilisation at each of the last looks, in percent; before the phase nothing ran.
    recent: [u32; WINDOW as usize],
    /// Looks since what is limited was last told.
    blind: u32,
    /// Memory in use before the phase.
    memory: u64,
    usage: Usage,
}

/// Says the state of these GPUs, looks at them until standard input ends, and returns how they are then. A limit that
/// cannot be watched is a failure.
pub(crate) fn watch(nvml: &Nvml, mut limits: Limits, uuids: &[String]) -> Result<Answer, Failure> {
    let mut all = uuids.iter().map(|uuid| Watched::new(nvml, uuid)).collect::<Result<Vec<_>, _>>()?;
    for watched in &mut all {
        if let Some(key) = watched.look(&limits) {
            return Err(watched.untold(Cause::Untold, key));
        }
        // What the tenant before did at that moment.
        watched.recent = [0; WINDOW as usize];
    }
    let before = states(&all)?;
    if say(&Answer::State(before.clone())).is_err() {
        return Ok(Answer::State(before));
    }
    let looks = Arc::new(AtomicU32::new(0));
    if limits != Limits::default() {
        let looks = Arc::clone(&looks);
        thread::spawn(move || guard(&looks));
    }
    loop {
        let ended = ended(INTERVAL);
        let mut blind = None;
        for watched in &mut all {
            if let Some(key) = watched.look(&limits).filter(|_| watched.blind >= BLIND) {
                blind = Some(Answer::Blind(watched.untold(Cause::Other, key)));
            }
        }
        looks.fetch_add(1, Ordering::Relaxed);
        let exceeded = all.iter().find_map(|watched| watched.exceeds(&limits)).map(Answer::Exceeded);
        if let Some(told) = exceeded.or(blind) {
            limits = Limits::default();
            // Nobody who listens is told by the end of standard input too.
            let _ = say(&told);
        }
        if ended {
            break;
        }
    }
    let end = Instant::now() + SETTLING;
    let after = loop {
        let now = states(&all)?;
        let settled = now
            .iter()
            .zip(&before)
            .all(|(now, before)| now.processes.is_empty() && now.memory_used <= before.memory_used);
        if settled || Instant::now() >= end {
            break now;
        }
        thread::sleep(AGAIN);
    };
    Ok(Answer::End { gpus: after, usage: all.into_iter().map(Watched::finish).collect() })
}

/// Says so when looks do not go on.
fn guard(looks: &AtomicU32) {
    let mut before = looks.load(Ordering::Relaxed);
    loop {
        thread::sleep(PATIENCE);
        let now = looks.load(Ordering::Relaxed);
        if now == before {
            let message = format!("it has not answered for {} s", PATIENCE.as_secs());
            let _ = say(&Answer::Blind(Failure { cause: Cause::Other, message }));
            return;
        }
        before = now;
    }
}

/// Waits; true if nobody holds the other end of standard input any more.
fn ended(patience: Duration) -> bool {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    let limit = Timespec { tv_sec: 0, tv_nsec: i64::from(patience.subsec_nanos()) };
    matches!(rustix::io::retry_on_intr(|| poll(&mut fds, Some(&limit))), Ok(1..) | Err(_))
}

/// The whole GPUs of all that is watched, each once.
fn states(all: &[Watched<'_>]) -> Result<Vec<Gpu>, NvmlError> {
    let mut states: Vec<Gpu> = Vec::new();
    for watched in all {
        if states.iter().all(|gpu| gpu.index != watched.index) {
            states.push(gpu(watched.whole(), watched.index)?);
        }
    }
    Ok(states)
}

impl<'nvml> Watched<'nvml> {
    fn new(nvml: &'nvml Nvml, uuid: &str) -> Result<Watched<'nvml>, NvmlError> {
        let device = nvml.device_by_uuid(uuid)?;
        let whole = if uuid.starts_with("MIG") { Some(device.mig_parent_device()?) } else { None };
        let errors = nvml.create_event_set().and_then(|set| {
            let device = whole.as_ref().unwrap_or(&device);
            device.register_events(EventTypes::CRITICAL_XID_ERROR, set).map_err(|error| error.error)
        });
        let mut watched = Watched {
            index: whole.as_ref().unwrap_or(&device).index()?,
            device,
            whole,
            energy: None,
            counter: 0,
            errors: told(errors)?,
            busy: (0.0, 0),
            recent: [0; WINDOW as usize],
            blind: 0,
            memory: 0,
            usage: Usage { uuid: uuid.into(), ..Usage::default() },
        };
        watched.energy = watched.whole().total_energy_consumption().ok();
        watched.counter = watched.energy.unwrap_or(0);
        watched.memory = watched.device.memory_info().map_or(0, |memory| memory.used);
        Ok(watched)
    }

    /// Which limit is exceeded by what was seen of it.
    fn exceeds(&self, limits: &Limits) -> Option<Exceeded> {
        let memory = self.usage.memory_peak.map_or(0, |peak| peak.saturating_sub(self.memory));
        let energy = self.usage.energy.unwrap_or(0) / 1000;
        let share = self.recent.iter().sum::<u32>().div_ceil(WINDOW);
        let excess = if limits.memory.is_some_and(|limit| memory > limit) {
            Excess::Memory(memory)
        } else if limits.energy.is_some_and(|limit| energy > limit) {
            Excess::Energy(energy)
        } else if limits.utilisation.is_some_and(|limit| share > u32::from(limit)) {
            Excess::Utilisation(share)
        } else {
            return None;
        };
        Some(Exceeded { uuid: self.usage.uuid.clone(), excess })
    }

    fn untold(&self, cause: Cause, key: &str) -> Failure {
        Failure { cause, message: format!("{} does not tell its {key}", self.usage.uuid) }
    }

    fn whole(&self) -> &Device<'nvml> {
        self.whole.as_ref().unwrap_or(&self.device)
    }

    /// What cannot be seen now may be seen the next time; that a GPU is lost is told by its state. Returns what is limited
    /// and was not told.
    fn look(&mut self, limits: &Limits) -> Option<&'static str> {
        self.usage.samples += 1;
        let memory = self.device.memory_info().map(|memory| memory.used).ok();
        self.usage.memory_peak = self.usage.memory_peak.max(memory);
        // A counter that goes back counts something else.
        let counter = self.whole().total_energy_consumption().ok().filter(|now| *now >= self.counter);
        self.counter = counter.unwrap_or(self.counter);
        let energy = counter.zip(self.energy).map(|(now, before)| now - before);
        self.usage.energy = self.usage.energy.max(energy);
        let share = self.device.utilization_rates().map(|rates| rates.gpu).ok();
        if let Some(share) = share {
            self.busy = (self.busy.0 + f64::from(share), self.busy.1 + 1);
            self.recent.rotate_left(1);
            self.recent[self.recent.len() - 1] = share;
        }
        self.look_for_errors();
        let untold = [
            ("memory", limits.memory.is_some() && memory.is_none()),
            ("energy", limits.energy.is_some() && energy.is_none()),
            ("utilisation", limits.utilisation.is_some() && share.is_none()),
        ];
        let untold = untold.into_iter().find_map(|(key, untold)| untold.then_some(key));
        self.blind = if untold.is_some() { self.blind + 1 } else { 0 };
        untold
    }

    fn look_for_errors(&mut self) {
        for _ in 0..MOST_ERRORS {
            let Some(Ok(event)) = self.errors.as_ref().map(|set| set.wait(1)) else { break };
            if self.usage.xids.len() < MOST_ERRORS {
                self.usage.xids.push(match event.event_data {
                    Some(XidError::Value(xid)) => xid,
                    _ => 0,
                });
            }
        }
    }

    fn finish(mut self) -> Usage {
        self.look_for_errors();
        self.usage.utilisation = (self.busy.1 > 0).then(|| self.busy.0 / f64::from(self.busy.1));
        self.usage
    }
}
