//! What the end report says of GPUs: in which state a phase found them, what it used, and how it left them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::discover::Seen;
use super::facts::{Chosen, Gpu, Selection};
use super::wire::Excess;

/// Memory that may be in use after a phase and was not before it: the driver's own books.
const TOLERANCE: u64 = 64 << 20;

/// GPUs of one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GpuReport {
    /// Version of the driver.
    pub driver: String,
    /// Newest CUDA version that it serves, such as `12.4`.
    pub cuda: String,
    /// Each GPU and slice.
    pub devices: Vec<DeviceReport>,
    /// What the next tenant should know: processes and memory that stayed, new ECC errors. Empty: they were left as they
    /// were found.
    pub left: Vec<String>,
    /// Which limit was exceeded, if one was.
    pub exceeded: Option<String>,
    /// Whether the GPUs were reset afterwards; absent: nobody asked for it.
    pub reset: Option<bool>,
    /// There was a limit, and nobody can tell whether it was kept. Not written: the reason of the end report says it.
    #[serde(skip)]
    pub unwatched: bool,
}

/// One GPU or slice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceReport {
    /// UUID of the GPU or slice.
    pub uuid: String,
    /// UUID of the GPU that it is a slice of.
    pub slice_of: Option<String>,
    /// Product name.
    pub name: String,
    /// PCI address.
    pub pci: String,
    /// Before the phase.
    pub before: Counters,
    /// After it, if the driver still answered.
    pub after: Option<Counters>,
    /// Most memory in use during the phase, in bytes.
    pub memory_peak: Option<u64>,
    /// Mean share of time in which a kernel ran, in percent.
    pub utilisation: Option<f64>,
    /// Energy of the whole GPU, in millijoules.
    pub energy: Option<u64>,
    /// XID errors of the phase.
    pub xids: Vec<u64>,
}

/// State of a GPU at one moment; what it does not tell is absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    /// Memory in use, in bytes, of the GPU or slice.
    pub memory_used: u64,
    /// Corrected ECC errors since the driver was loaded.
    pub ecc_corrected: Option<u64>,
    /// Uncorrected ones.
    pub ecc_uncorrected: Option<u64>,
    /// Clock of the multiprocessors, in MHz.
    pub sm_clock: Option<u32>,
    /// Its maximum.
    pub sm_clock_max: Option<u32>,
    /// Clock of the memory, in MHz.
    pub memory_clock: Option<u32>,
    /// Degrees Celsius.
    pub temperature: Option<u32>,
    /// Power limit, in milliwatts.
    pub power_limit: Option<u32>,
}

impl Counters {
    fn of(chosen: &Chosen, gpu: &Gpu) -> Counters {
        Counters {
            memory_used: memory(chosen, gpu),
            ecc_corrected: gpu.health.ecc_corrected,
            ecc_uncorrected: gpu.health.ecc_uncorrected,
            sm_clock: gpu.clocks.sm,
            sm_clock_max: gpu.clocks.sm_max,
            memory_clock: gpu.clocks.memory,
            temperature: gpu.clocks.temperature,
            power_limit: gpu.clocks.power_limit,
        }
    }
}

/// Memory in use of what was chosen, in another state of its GPU.
fn memory(chosen: &Chosen, gpu: &Gpu) -> u64 {
    let Some(slice) = &chosen.instance else { return gpu.memory_used };
    let now = gpu.mig.iter().flatten().find(|other| other.uuid == slice.uuid);
    now.map_or(0, |slice| slice.memory_used)
}

impl GpuReport {
    /// The report of a phase that had `selection`; `shared`: others may use them still.
    pub(super) fn new(selection: &Selection, shared: bool, seen: &Seen) -> GpuReport {
        let (major, minor) = selection.driver.cuda;
        let mut report = GpuReport {
            driver: selection.driver.version.clone(),
            cuda: format!("{major}.{minor}"),
            devices: Vec::new(),
            left: Vec::new(),
            exceeded: seen.exceeded.as_ref().map(|it| format!("{} {}", it.uuid, words(it.excess))),
            reset: None,
            unwatched: false,
        };
        for chosen in &selection.gpus {
            let now = seen.after.iter().find(|gpu| gpu.index == chosen.gpu.index);
            let used = seen.usage.iter().find(|usage| usage.uuid == chosen.uuid());
            let used = used.cloned().unwrap_or_default();
            if let Some(now) = now {
                report.left.extend(left(chosen, now, shared));
            }
            report.devices.push(DeviceReport {
                uuid: chosen.uuid().into(),
                slice_of: chosen.instance.as_ref().map(|_| chosen.gpu.uuid.clone()),
                name: chosen.gpu.name.clone(),
                pci: chosen.gpu.pci.clone(),
                before: Counters::of(chosen, &chosen.gpu),
                after: now.filter(|gpu| !gpu.health.lost).map(|gpu| Counters::of(chosen, gpu)),
                memory_peak: used.memory_peak,
                utilisation: used.utilisation,
                energy: used.energy,
                xids: used.xids,
            });
        }
        report.left.extend(seen.failure.as_ref().map(|error| format!("not known: {error}")));
        report
    }
}

fn words(excess: Excess) -> String {
    match excess {
        Excess::Memory(bytes) => {
            format!("had {} MiB more in use than before, which gpu.memory forbids", bytes >> 20)
        }
        Excess::Energy(joules) => format!("had taken {joules} J, which gpu.energy forbids"),
        Excess::Utilisation(percent) => {
            format!("was busy for {percent}% of a minute, which gpu.utilisation forbids")
        }
    }
}

/// What a phase left on a GPU.
fn left(chosen: &Chosen, now: &Gpu, shared: bool) -> Vec<String> {
    let device = chosen.uuid();
    let mut left = Vec::new();
    if now.health.lost {
        return vec![format!("{device} is lost: it does not answer any more")];
    }
    let gi = chosen.instance.as_ref().map(|slice| slice.gi);
    let here =
        now.processes.iter().filter(|process| gi.is_none() || process.gi.is_none() || process.gi == gi);
    let pids: Vec<String> = here.map(|process| process.pid.to_string()).collect();
    if !shared && !pids.is_empty() {
        left.push(format!("{device} is in use by process {}", pids.join(", ")));
    }
    let (before, after) = (memory(chosen, &chosen.gpu), memory(chosen, now));
    if !shared && after > before + TOLERANCE {
        left.push(format!("{device} has {} MiB more in use than before", (after - before) >> 20));
    }
    let errors = |gpu: &Gpu| gpu.health.ecc_uncorrected.unwrap_or(0);
    if errors(now) > errors(&chosen.gpu) {
        left.push(format!("{device} has {} new uncorrected ECC errors", errors(now) - errors(&chosen.gpu)));
    }
    if now.health.repair_pending && !chosen.gpu.health.repair_pending {
        left.push(format!("{device}: memory waits to be repaired by a reset"));
    }
    left
}
