//! Resetting GPUs between two tenants.
//!
//! NVIDIA's library has no public call for it; the driver's own `nvidia-smi --gpu-reset` does it (nvidia-smi(1)). A reset
//! needs a GPU that nobody uses, and takes the GPUs along that are connected to it by NVLink.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::discover::{DiscoverError, discover};
use super::facts::{Inventory, Selection};
use super::holder::add_sandbox;
use super::host::roots_file;
use super::lease::{Lease, LeaseError, Leases, Mode};
use super::program;

/// The program.
const SMI: &str = "/usr/bin/nvidia-smi";
/// A reset of eight GPUs takes half a minute.
const PATIENCE: Duration = Duration::from_secs(120);

/// Why GPUs cannot be reset, or were not.
#[derive(Debug, thiserror::Error)]
pub enum ResetError {
    /// It would end others' work.
    #[error("{0} is a slice, and a reset takes the whole GPU; ask for whole GPUs, or leave `reset` out")]
    Slice(String),
    /// Nobody else may do so.
    #[error("only root can reset a GPU; run as root, or leave `reset` out")]
    NotRoot,
    /// The driver's tool is missing.
    #[error("{SMI} is not there, or not root's alone; install the driver's utilities, or leave `reset` out")]
    NoProgram,
    /// The peers cannot be looked at.
    #[error(transparent)]
    Discover(#[from] DiscoverError),
    /// Somebody holds a GPU that would be reset too.
    #[error("connected by NVLink: {0}")]
    Peer(#[from] LeaseError),
    /// Somebody uses a GPU that would be reset too.
    #[error("{device}, connected by NVLink, is in use by process {pid}")]
    PeerInUse {
        /// The GPU.
        device: String,
        /// One of those that use it.
        pid: u32,
    },
    /// The program failed.
    #[error("{SMI} --gpu-reset {0}")]
    Failed(String),
}

/// What is to be reset, and what goes with it.
#[derive(Debug)]
pub(super) struct Reset {
    devices: Vec<String>,
    /// GPUs of others, by UUID, that NVLinks lead to.
    peers: Vec<String>,
    leases: PathBuf,
}

/// Checks what needs no lease: that these GPUs can be reset at all, by this caller, on this host.
pub fn check_reset(selection: &Selection) -> Result<(), ResetError> {
    if let Some(slice) = selection.gpus.iter().find(|chosen| chosen.instance.is_some()) {
        return Err(ResetError::Slice(slice.uuid().into()));
    }
    if !crate::host::is_root() {
        return Err(ResetError::NotRoot);
    }
    roots_file(Path::new(SMI)).map(drop).ok_or(ResetError::NoProgram)
}

impl Reset {
    /// Checks all that can be checked before the GPUs are used.
    pub(super) fn of(
        selection: &Selection,
        inventory: &Inventory,
        leases: &Leases,
    ) -> Result<Reset, ResetError> {
        check_reset(selection)?;
        let devices = selection.gpus.iter().map(|chosen| chosen.uuid().to_owned()).collect();
        Ok(Reset { devices, peers: peers(selection, inventory), leases: leases.path().into() })
    }

    /// Resets them; nobody may use them any more, and nobody gets them while the program runs, whoever is killed.
    pub(super) fn perform(&self, own: &Lease) -> Result<(), ResetError> {
        let held = if self.peers.is_empty() {
            None
        } else {
            let peers: Vec<_> = self.peers.iter().map(|peer| (peer.as_str(), Mode::Exclusive)).collect();
            let held = Leases::open(&self.leases)?.take(&peers, "a reset")?;
            let found = discover()?;
            let of_peers = found.inventory.gpus.iter().filter(|gpu| self.peers.contains(&gpu.uuid));
            if let Some((gpu, process)) =
                of_peers.flat_map(|gpu| gpu.processes.iter().map(move |it| (gpu, it))).next()
            {
                return Err(ResetError::PeerInUse { device: gpu.uuid.clone(), pid: process.pid });
            }
            Some(held)
        };
        let devices = self.devices.join(",");
        let done = program::run(Path::new(SMI), &["--gpu-reset", "-i", &devices], PATIENCE, |program| {
            let locks = [Some(own), held.as_ref()].into_iter().flatten().map(Lease::share);
            locks.into_iter().try_for_each(|locks| add_sandbox(&locks?, program))
        });
        drop(held);
        done.map_err(ResetError::Failed)
    }
}

/// GPUs that were not chosen and have NVLinks to one that was; through a switch counts.
fn peers(selection: &Selection, inventory: &Inventory) -> Vec<String> {
    let chosen = |index: u32| selection.gpus.iter().any(|chosen| chosen.gpu.index == index);
    let linked = |index: u32| {
        let mut links = inventory.links.iter().filter(|link| link.nvlinks > 0);
        links.any(|link| (link.a == index && chosen(link.b)) || (link.b == index && chosen(link.a)))
    };
    let others = inventory.gpus.iter().filter(|gpu| !chosen(gpu.index) && linked(gpu.index));
    others.map(|gpu| gpu.uuid.clone()).collect()
}
