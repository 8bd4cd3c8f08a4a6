//! What the discovery helper says: lines of JSON on its standard output.
//!
//! Without arguments it says one line, the inventory. As `watch LIMITS UUID...`, where LIMITS is the JSON of [`Limits`], it
//! says a [`Answer::State`] at once, an [`Answer::Exceeded`] when one of them is beyond a limit, or an [`Answer::Blind`]
//! when that cannot be seen any more, and an [`Answer::End`] when its standard input ends. Whatever goes wrong is one [`Answer::Failed`], the last line. The helper is built from
//! this file as well.

use serde::{Deserialize, Serialize};

use super::facts::{Gpu, Inventory};

/// What may be used of each watched GPU and slice; `None`: whatever it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Memory beyond what was in use at first, in bytes.
    pub memory: Option<u64>,
    /// Energy since then, in joules.
    pub energy: Option<u64>,
    /// Share of time in which a kernel runs, as a mean over a minute, in percent.
    pub utilisation: Option<u8>,
}

impl Limits {
    /// The policy's key of the first one that there is.
    pub fn first(&self) -> Option<&'static str> {
        let memory = self.memory.map(|_| "memory");
        memory.or(self.energy.map(|_| "energy")).or(self.utilisation.map(|_| "utilisation"))
    }
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Answer {
    /// All that NVIDIA's library knows.
    Inventory(Inventory),
    /// The watched GPUs, before the phase.
    State(Vec<Gpu>),
    /// One of them is beyond a limit; said once.
    Exceeded(Exceeded),
    /// What is limited cannot be seen any more.
    Blind(Failure),
    /// The watched GPUs after the phase, and what was seen of it.
    End {
        /// The GPUs.
        gpus: Vec<Gpu>,
        /// One for each UUID, in their order.
        usage: Vec<Usage>,
    },
    /// It could not be asked.
    Failed(Failure),
}

/// A GPU or slice that is beyond a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exceeded {
    /// Its UUID.
    pub uuid: String,
    /// Of which.
    pub excess: Excess,
}

/// What was used, in the units of [`Limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Excess {
    /// Memory.
    Memory(u64),
    /// Energy.
    Energy(u64),
    /// Share of time, rounded up.
    Utilisation(u32),
}

/// What was seen of one GPU or slice while it was watched; what it does not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// UUID of the GPU or slice.
    pub uuid: String,
    /// Times it was looked at.
    pub samples: u32,
    /// Most memory in use, in bytes.
    pub memory_peak: Option<u64>,
    /// Mean share of time in which a kernel ran, in percent; slices do not tell.
    pub utilisation: Option<f64>,
    /// Energy, in millijoules, of the whole GPU.
    pub energy: Option<u64>,
    /// XID errors, in the order in which they came.
    pub xids: Vec<u64>,
}

/// Why the library could not be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// Its kind.
    pub cause: Cause,
    /// What the library or the loader said.
    pub message: String,
}

/// Kinds of failure that have a remedy of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The loader does not find `libnvidia-ml.so.1`.
    NoLibrary,
    /// The library is there; the kernel driver is not loaded.
    NotLoaded,
    /// Library and kernel driver are of different versions.
    Mismatch,
    /// The caller may not ask.
    NoPermission,
    /// The library lacks a function: the driver is too old.
    TooOld,
    /// A GPU does not tell what is limited.
    Untold,
    /// Anything else.
    Other,
}
