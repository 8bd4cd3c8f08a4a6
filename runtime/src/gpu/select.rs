//! Selection: which GPUs a sandbox gets. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::{Chosen, Gpu, Instance, Inventory, PciPath, Selection};
use super::wire::Limits;
use crate::{Spec, spec};

/// More GPUs than this are not tried in all combinations: 12,870 of 16.
const MOST_TRIED: usize = 16;

/// A GPU that nobody uses has no more in use than this: the driver's own.
const IDLE: u64 = 1 << 30;

/// What gives a host its GPUs.
pub const DRIVER_REMEDY: &str = "install the driver and load its modules: `nvidia-smi` must work on the host, and the \
                                 loader must find libnvidia-ml.so.1";

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// So many whole GPUs of any kind, those that are connected best.
    pub count: Option<u32>,
    /// Or these, each of which is
    /// * `all`: every GPU that is whole, and every slice;
    /// * an index, or `GPU:SLICE` as `airlock gpu list` counts them;
    /// * the UUID of a GPU or a slice, or a PCI address;
    /// * a part of a name, such as `H100`, or a slice's profile, such as `1g.10gb`: one that is free.
    pub devices: Vec<String>,
    /// Others may use them at the same time.
    pub shared: bool,
    /// What the phase may use of each.
    pub limits: Limits,
    /// They are reset when the phase has ended.
    pub reset: bool,
}

impl Wish {
    /// The wish of a spec; `None`: it has none of NVIDIA's GPUs, only CDI devices or render nodes.
    pub fn of(spec: &Spec) -> Option<Wish> {
        let gpu = spec.airlock.gpu.as_ref()?;
        let asked = gpu.count.is_some() || !gpu.devices.is_empty();
        asked.then(|| Wish::from(gpu))
    }
}

impl From<&spec::Gpu> for Wish {
    fn from(gpu: &spec::Gpu) -> Wish {
        let spec::Gpu { count, devices, shared, memory, energy, utilisation, reset, .. } = gpu.clone();
        Wish { count, devices, shared, limits: Limits { memory, energy, utilisation }, reset }
    }
}

/// Who holds what: GPUs and slices by UUID, and the holders' words.
pub type Held = BTreeMap<String, String>;

/// Why a wish cannot be granted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// There is no driver.
    #[error("gpu: no NVIDIA driver on this host: {}", DRIVER_REMEDY)]
    NoDriver,
    /// Nothing is asked for, or two things at once.
    #[error("gpu: a count, or a list of devices, and not both")]
    Unclear,
    /// There is no such thing.
    #[error("gpu: there is no {asked:?} on this host{}; it has {has}", meant(.near))]
    Unknown {
        /// What was asked for.
        asked: String,
        /// What was probably meant.
        near: Option<String>,
        /// What there is.
        has: String,
    },
    /// The same device by two names.
    #[error("gpu: {0} is asked for twice")]
    Twice(String),
    /// It cannot be had now.
    #[error("gpu: {device} {why}")]
    Unusable {
        /// Which one.
        device: String,
        /// Why, in words.
        why: String,
    },
    /// It does not tell what is limited.
    #[error(
        "gpu: gpu.{key}: {slice} is a slice, and only whole GPUs tell their {key}; ask for those, or leave `{key}` out"
    )]
    Untold {
        /// The limit.
        key: &'static str,
        /// UUID of the slice.
        slice: String,
    },
    /// There are not so many that can be had now.
    #[error("gpu: {asked} {kind} asked for, at most {free} can be had{}", reasons(.why))]
    TooFew {
        /// How many were asked for.
        asked: usize,
        /// `GPUs`, or of which kind.
        kind: String,
        /// How many can be had.
        free: usize,
        /// Why the others cannot.
        why: Vec<String>,
    },
}

fn meant(near: &Option<String>) -> String {
    near.as_ref().map(|near| format!("; did you mean {near:?}?")).unwrap_or_default()
}

fn reasons(why: &[String]) -> String {
    why.iter().map(|why| format!("; {why}")).collect()
}

/// Grants a wish, or says why not. `held` is what others hold at this moment.
pub fn select(inventory: &Inventory, wish: &Wish, held: &Held) -> Result<Selection, SelectError> {
    let driver = inventory.driver.clone().ok_or(SelectError::NoDriver)?;
    let place = Place { inventory, shared: wish.shared, held };
    let mut gpus = match (wish.count, wish.devices.as_slice()) {
        (Some(count @ 1..), []) => {
            let wanted = usize::try_from(count).unwrap_or(usize::MAX);
            place.best(&place.whole(), wanted, "GPUs")?
        }
        (None, [all]) if all == "all" => place.all()?,
        (None, devices @ [_, ..]) => place.named(devices)?,
        _ => return Err(SelectError::Unclear),
    };
    gpus.sort_by_key(order);
    let of_wholes = Limits { memory: None, ..wish.limits }.first();
    let slice = gpus.iter().find(|chosen| chosen.instance.is_some());
    if let Some((key, slice)) = of_wholes.zip(slice) {
        return Err(SelectError::Untold { key, slice: slice.uuid().into() });
    }
    Ok(Selection { driver, gpus })
}

/// UUIDs of all that a wish might be granted with, whoever has them now and whatever their state is.
pub fn candidates(inventory: &Inventory, wish: &Wish) -> BTreeSet<String> {
    let place = Place { inventory, shared: true, held: &Held::new() };
    let whole = || place.whole().into_iter().filter(|chosen| chosen.gpu.mig.is_none());
    let any = |device: &String| match place.exact(device.trim()) {
        Some(chosen) => vec![chosen],
        None => {
            let all = device == "all";
            let kind = device.trim().to_lowercase();
            whole().chain(place.slices()).filter(|chosen| all || is_of(chosen, &kind)).collect()
        }
    };
    let found: Vec<Chosen> = match wish.count {
        Some(_) => whole().collect(),
        None => wish.devices.iter().flat_map(any).collect(),
    };
    found.iter().map(|chosen| chosen.uuid().to_owned()).collect()
}

fn order(chosen: &Chosen) -> (u32, Option<(u32, u32)>) {
    (chosen.gpu.index, chosen.instance.as_ref().map(|slice| (slice.gi, slice.ci)))
}

/// How a device is called in errors.
fn name(chosen: &Chosen) -> String {
    match &chosen.instance {
        Some(slice) => format!("slice {} of GPU {} ({})", slice.profile, chosen.gpu.index, slice.uuid),
        None => format!("GPU {} ({})", chosen.gpu.index, chosen.gpu.uuid),
    }
}

struct Place<'a> {
    inventory: &'a Inventory,
    shared: bool,
    held: &'a Held,
}

impl Place<'_> {
    /// All GPUs, whether they can be had or not.
    fn whole(&self) -> Vec<Chosen> {
        self.inventory.gpus.iter().map(|gpu| Chosen { gpu: gpu.clone(), instance: None }).collect()
    }

    /// All slices, likewise.
    fn slices(&self) -> Vec<Chosen> {
        let slices = |gpu: &Gpu| gpu.mig.clone().unwrap_or_default();
        let pairs =
            self.inventory.gpus.iter().flat_map(|gpu| slices(gpu).into_iter().map(move |slice| (gpu, slice)));
        pairs.map(|(gpu, slice)| Chosen { gpu: gpu.clone(), instance: Some(slice) }).collect()
    }

    /// Why it cannot be had; `None`: it can.
    fn obstacle(&self, chosen: &Chosen) -> Option<String> {
        let Chosen { gpu, instance } = chosen;
        if let Some(fault) = gpu.health.fault() {
            return Some(format!("is not sound: {fault}"));
        }
        if gpu.mig.is_some() && instance.is_none() {
            return Some("is divided into slices (MIG); ask for a slice".into());
        }
        if let Some(holder) = self.held.get(chosen.uuid()).or_else(|| self.held.get(&gpu.uuid)) {
            return Some(format!(
                "is held by {holder}; wait until it is given back, or choose another device"
            ));
        }
        let users: Vec<String> = users(gpu, instance.as_ref()).map(|pid| pid.to_string()).collect();
        match users.as_slice() {
            _ if self.shared => None,
            // What a driver in another PID namespace hides: memory is used, and nobody is named.
            [] if used(chosen) > IDLE => {
                Some(format!("has {} MiB in use, by no process that the driver names", used(chosen) >> 20))
            }
            [] => None,
            [pid] => Some(format!("is in use by process {pid}, which is not of this sandbox")),
            pids => {
                Some(format!("is in use by processes {}, which are not of this sandbox", pids.join(", ")))
            }
        }
    }

    fn usable(&self, chosen: Chosen) -> Result<Chosen, SelectError> {
        match self.obstacle(&chosen) {
            None => Ok(chosen),
            Some(why) => Err(SelectError::Unusable { device: name(&chosen), why }),
        }
    }

    /// Every one must be to be had: who asks for all must not get fewer without a word.
    fn all(&self) -> Result<Vec<Chosen>, SelectError> {
        let whole = self.whole().into_iter().filter(|chosen| chosen.gpu.mig.is_none());
        let all: Vec<Chosen> = whole.chain(self.slices()).collect();
        if all.is_empty() {
            return Err(self.unknown("all", "all"));
        }
        all.into_iter().map(|chosen| self.usable(chosen)).collect()
    }

    fn named(&self, devices: &[String]) -> Result<Vec<Chosen>, SelectError> {
        let mut found: Vec<Chosen> = Vec::new();
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        for device in devices {
            let device = device.trim();
            match self.exact(device) {
                Some(chosen) if found.iter().any(|other| other.uuid() == chosen.uuid()) => {
                    return Err(SelectError::Twice(name(&chosen)));
                }
                Some(chosen) => found.push(self.usable(chosen)?),
                None => *kinds.entry(device.to_lowercase()).or_insert(0) += 1,
            }
        }
        for (kind, count) in kinds {
            let of_kind: Vec<Chosen> =
                self.whole().into_iter().chain(self.slices()).filter(|one| is_of(one, &kind)).collect();
            if of_kind.is_empty() {
                let asked = devices.iter().find(|device| device.trim().to_lowercase() == kind);
                return Err(self.unknown(asked.map_or(&kind, |asked| asked), &kind));
            }
            let free: Vec<Chosen> = of_kind
                .into_iter()
                .filter(|one| found.iter().all(|other| other.uuid() != one.uuid()))
                .collect();
            found.extend(self.best(&free, count, &format!("of {kind:?}"))?);
        }
        Ok(found)
    }

    /// What names one device and no other.
    fn exact(&self, device: &str) -> Option<Chosen> {
        let is = |chosen: &Chosen| {
            let Chosen { gpu, instance } = chosen;
            match (instance, device.split_once(':')) {
                (None, _) => {
                    device == gpu.index.to_string()
                        || (!gpu.uuid.is_empty() && device.eq_ignore_ascii_case(&gpu.uuid))
                        || (!gpu.pci.is_empty() && address(device) == gpu.pci)
                }
                (Some(slice), pair) => {
                    let number = gpu.mig.iter().flatten().position(|other| other == slice);
                    device.eq_ignore_ascii_case(&slice.uuid)
                        || pair.is_some_and(|(index, slice)| {
                            index == gpu.index.to_string()
                                && number.is_some_and(|number| slice == number.to_string())
                        })
                }
            }
        };
        self.whole().into_iter().chain(self.slices()).find(is)
    }

    fn unknown(&self, asked: &str, kind: &str) -> SelectError {
        let names = |chosen: &Chosen| match &chosen.instance {
            Some(slice) => vec![slice.uuid.clone(), slice.profile.clone()],
            None => vec![chosen.gpu.uuid.clone(), chosen.gpu.pci.clone(), chosen.gpu.name.clone()],
        };
        let devices: Vec<Chosen> = self.whole().into_iter().chain(self.slices()).collect();
        let mut known = devices.iter().flat_map(names);
        // A UUID or an address that was not copied whole.
        let near = known.find(|name| kind.len() >= 4 && name.to_lowercase().starts_with(kind));
        let whole = self.inventory.gpus.iter().map(|gpu| format!("{} {} {}", gpu.index, gpu.name, gpu.uuid));
        let slices = self.slices().into_iter().map(|slice| name(&slice));
        let has: Vec<String> = whole.chain(slices).collect();
        let has = if has.is_empty() { "none".into() } else { has.join(", ") };
        SelectError::Unknown { asked: asked.into(), near, has }
    }

    /// So many of these that can be had, connected as well as possible; among equals, the lowest indices.
    fn best(&self, among: &[Chosen], wanted: usize, kind: &str) -> Result<Vec<Chosen>, SelectError> {
        let (usable, others): (Vec<&Chosen>, Vec<&Chosen>) =
            among.iter().partition(|chosen| self.obstacle(chosen).is_none());
        if usable.len() < wanted {
            let why = |chosen: &&Chosen| Some(format!("{} {}", name(chosen), self.obstacle(chosen)?));
            return Err(SelectError::TooFew {
                asked: wanted,
                kind: kind.into(),
                free: usable.len(),
                why: others.iter().filter_map(why).collect(),
            });
        }
        let indices: Vec<u32> = usable.iter().map(|chosen| chosen.gpu.index).collect();
        let set = if usable.len() <= MOST_TRIED {
            self.best_of_all(&indices, wanted)
        } else {
            self.grown(&indices, wanted)
        };
        Ok(set.into_iter().map(|at| usable[at].clone()).collect())
    }

    /// How well two GPUs are connected: NVLinks, then nearness on the bus. Slices of one GPU do not talk over either.
    fn tie(&self, one: u32, other: u32) -> (u32, u32) {
        let pair = (one.min(other), one.max(other));
        let Some(link) = self.inventory.links.iter().find(|link| (link.a, link.b) == pair) else {
            return (0, 0);
        };
        let near = match link.path {
            PciPath::Board => 5,
            PciPath::Switch => 4,
            PciPath::Switches => 3,
            PciPath::Bridge => 2,
            PciPath::Node => 1,
            PciPath::System => 0,
        };
        (link.nvlinks, near)
    }

    fn worth(&self, indices: &[u32], set: &[usize]) -> (u32, u32) {
        let mut sum = (0, 0);
        for (number, one) in set.iter().enumerate() {
            for other in &set[number + 1..] {
                let (links, near) = self.tie(indices[*one], indices[*other]);
                sum = (sum.0 + links, sum.1 + near);
            }
        }
        sum
    }

    /// Positions of the best set, by trying each in the order of indices.
    fn best_of_all(&self, indices: &[u32], wanted: usize) -> Vec<usize> {
        let mut set: Vec<usize> = (0..wanted).collect();
        let mut best = (self.worth(indices, &set), set.clone());
        // The next combination in lexicographic order: the last position that can still move.
        while let Some(at) = (0..wanted).rev().find(|at| set[*at] < indices.len() - wanted + at) {
            set[at] += 1;
            for next in at + 1..wanted {
                set[next] = set[next - 1] + 1;
            }
            let worth = self.worth(indices, &set);
            if worth > best.0 {
                best = (worth, set.clone());
            }
        }
        best.1
    }

    /// A good set of many: from the first GPU on, always the one that is connected best to those already in it.
    fn grown(&self, indices: &[u32], wanted: usize) -> Vec<usize> {
        let mut set: Vec<usize> = Vec::new();
        while set.len() < wanted {
            let left = (0..indices.len()).filter(|at| !set.contains(at));
            let with = |at: &usize| self.worth(indices, &[set.as_slice(), &[*at]].concat());
            // Of equals, `max_by_key` takes the last.
            let Some(next) = left.rev().max_by_key(with) else { break };
            set.push(next);
        }
        set
    }
}

fn users<'a>(gpu: &'a Gpu, slice: Option<&'a Instance>) -> impl Iterator<Item = u32> + 'a {
    let uses = move |gi: Option<u32>| slice.is_none_or(|slice| gi.is_none_or(|gi| gi == slice.gi));
    gpu.processes.iter().filter(move |process| uses(process.gi)).map(|process| process.pid)
}

fn used(chosen: &Chosen) -> u64 {
    chosen.instance.as_ref().map_or(chosen.gpu.memory_used, |slice| slice.memory_used)
}

fn is_of(chosen: &Chosen, kind: &str) -> bool {
    match &chosen.instance {
        Some(slice) => slice.profile.to_lowercase() == kind,
        // `80` is no kind of GPU, but a slip for an index.
        None => kind.contains(char::is_alphabetic) && chosen.gpu.name.to_lowercase().contains(kind),
    }
}

/// A PCI address as the kernel writes it: the domain may be left out, or have NVML's eight digits.
fn address(text: &str) -> String {
    let text = text.to_lowercase();
    match text.split(':').collect::<Vec<_>>().as_slice() {
        [_, _] => format!("0000:{text}"),
        [domain, bus, device] if domain.len() == 8 => {
            format!("{}:{bus}:{device}", domain.trim_start_matches("0000"))
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests;
