//! What the discovery helper says: lines of JSON on its standard output.
//!
//! Without arguments it says one line, the inventory. As `watch LIMIT UUID...` it says a [`Answer::State`] at once, an
//! [`Answer::Exceeded`] when one of them has more than LIMIT bytes of memory in use beyond what it had at first
//! ([`NO_LIMIT`]: whatever it has), and an [`Answer::End`] when its standard input ends. Whatever goes wrong is one [`Answer::Failed`], the last
//! line. The helper is built from this file as well.

use serde::{Deserialize, Serialize};

use super::facts::{Gpu, Inventory};

/// In the place of a limit.
pub const NO_LIMIT: &str = "-";

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Answer {
    /// All that NVIDIA's library knows.
    Inventory(Inventory),
    /// The watched GPUs, before the phase.
    State(Vec<Gpu>),
    /// One of them uses more memory than it may; said once.
    Exceeded(Exceeded),
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

/// A GPU or slice that uses more memory than it may.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exceeded {
    /// Its UUID.
    pub uuid: String,
    /// What is in use beyond what was at first, in bytes.
    pub memory: u64,
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
    /// Anything else.
    Other,
}
