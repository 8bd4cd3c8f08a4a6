//! Discovery: what GPUs this host has.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use super::facts::{Gpu, Inventory};
use super::helper::{Helper, HelperError};
use super::render;
use super::wire::{Answer, Cause, Exceeded, Failure, Limits, Usage};

/// Says the version of the loaded kernel driver.
const KERNEL_DRIVER: &str = "/proc/driver/nvidia/version";

/// GPUs cannot be found or watched.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// The helper failed.
    #[error(transparent)]
    Helper(#[from] HelperError),
    /// The driver failed.
    #[error("gpu: NVIDIA's driver: {message}; {remedy}")]
    Driver {
        /// What it said.
        message: String,
        /// What to do.
        remedy: &'static str,
    },
}

/// What there is, and what the helper that found it still holds.
#[derive(Debug)]
pub struct Discovery {
    /// What there is.
    pub inventory: Inventory,
    /// Why there is no driver, if there is none.
    pub remark: Option<String>,
    /// Ended but not waited for; see [`Helper`].
    _helper: Helper,
}

/// Looks for GPUs.
pub fn discover() -> Result<Discovery, DiscoverError> {
    let mut helper = Helper::start(&[])?;
    let (mut inventory, remark) = match helper.answer()? {
        Answer::Inventory(inventory) => (inventory, None),
        Answer::Failed(failure) if is_absent(&failure) => (Inventory::default(), Some(failure.message)),
        Answer::Failed(failure) => return Err(error(failure)),
        other => return Err(unexpected(&other).into()),
    };
    inventory.others = render::devices(Path::new("/"));
    Ok(Discovery { inventory, remark, _helper: helper })
}

/// A driver that is not installed, or not loaded, is no failure.
fn is_absent(failure: &Failure) -> bool {
    match failure.cause {
        Cause::NotLoaded => true,
        Cause::NoLibrary => !Path::new(KERNEL_DRIVER).exists(),
        _ => false,
    }
}

fn error(failure: Failure) -> DiscoverError {
    let remedy = match failure.cause {
        Cause::NoLibrary => {
            "the kernel driver is loaded, but its library is not installed: install the driver's \
             utilities of the same version"
        }
        Cause::NotLoaded => "load the module: `modprobe nvidia`",
        Cause::Mismatch => {
            "the driver was updated and the old one is still loaded: reboot, or unload and load its modules"
        }
        Cause::NoPermission => "the caller may not open /dev/nvidiactl",
        Cause::TooOld => "Airlock needs driver 510 or newer",
        Cause::Untold => "leave the limit of it out of [gpu], or ask for other GPUs",
        Cause::Other => "see the kernel log (`dmesg`)",
    };
    DiscoverError::Driver { message: failure.message, remedy }
}

fn unexpected(answer: &Answer) -> HelperError {
    let name = match answer {
        Answer::Inventory(_) => "an inventory",
        Answer::State(_) => "a state",
        Answer::Exceeded(_) => "an excess",
        Answer::Blind(_) => "a loss of sight",
        Answer::End { .. } => "an end",
        Answer::Failed(_) => "a failure",
    };
    HelperError::Answer(format!("{name}, which was not asked for"))
}

/// GPUs under observation. Dropping it ends the observation.
#[derive(Debug)]
pub(super) struct Watch {
    helper: Helper,
}

/// What came of an observation.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// How the GPUs are now.
    pub(super) after: Vec<Gpu>,
    /// What was seen of each GPU and slice.
    pub(super) usage: Vec<Usage>,
    /// The first that was beyond a limit.
    pub(super) exceeded: Option<Exceeded>,
    /// Why not all was seen.
    pub(super) failure: Option<DiscoverError>,
}

impl Watch {
    /// Begins to look at GPUs and slices, by UUID, and says how the GPUs are now.
    pub(super) fn begin(uuids: &[&str], limits: &Limits) -> Result<(Watch, Vec<Gpu>), DiscoverError> {
        let limits = serde_json::to_string(limits)
            .map_err(|error| HelperError::Io { step: "writing its limits", source: error.into() })?;
        let arguments: Vec<&str> =
            ["watch", limits.as_str()].into_iter().chain(uuids.iter().copied()).collect();
        let mut helper = Helper::start(&arguments)?;
        match helper.answer()? {
            Answer::State(gpus) => Ok((Watch { helper }, gpus)),
            Answer::Failed(failure) => Err(error(failure)),
            other => Err(unexpected(&other).into()),
        }
    }

    /// Readable when a limit is exceeded, or the observation has ended of itself.
    pub(super) fn alarm(&self) -> io::Result<OwnedFd> {
        self.helper.output()
    }

    /// Lets go of it without ending it: a fork of this process has it too, and goes on.
    pub(super) fn leave_to_fork(self) {
        self.helper.leave_to_fork();
    }

    /// Ends it. What was seen stays known when it fails in the end.
    pub(super) fn end(mut self) -> Seen {
        self.helper.end_watch();
        let mut seen = Seen::default();
        loop {
            let failure = match self.helper.answer() {
                Ok(Answer::Exceeded(first)) => {
                    seen.exceeded.get_or_insert(first);
                    continue;
                }
                Ok(Answer::Blind(failure)) => {
                    seen.failure.get_or_insert(error(failure));
                    continue;
                }
                Ok(Answer::End { gpus, usage }) => return Seen { after: gpus, usage, ..seen },
                Ok(Answer::Failed(failure)) => error(failure),
                Ok(other) => unexpected(&other).into(),
                Err(error) => error.into(),
            };
            seen.failure.get_or_insert(failure);
            return seen;
        }
    }
}
