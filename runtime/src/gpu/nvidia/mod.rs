//! What the chosen GPUs of NVIDIA's driver need inside: pure functions of the host's facts.
//!
//! The lists follow what NVIDIA's own toolkit gives a container (nvidia-container-toolkit `pkg/nvcdi`,
//! libnvidia-container `src/nvc_mount.c`).

mod document;
mod libraries;
mod nodes;
mod procfs;
mod sysfs;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{GpuError, GpuHost, Provision, Selection};
use crate::gpu::cdi::Mount;
use crate::spec::{Gpu, GpuFeature, RootKind};

pub use document::{document, whole};
pub(super) use libraries::{TOOLS, stems};
pub use nodes::UVM_REMEDY;
pub(super) use nodes::checked;

/// What a driver library or node is for, as the vendor's `NVIDIA_DRIVER_CAPABILITIES` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capability {
    /// CUDA and OpenCL.
    Compute,
    /// `nvidia-smi` and NVML.
    Utility,
    /// OpenGL and Vulkan.
    Graphics,
    /// Encoding and decoding.
    Video,
}

impl Capability {
    /// All of them.
    pub const ALL: [Capability; 4] =
        [Capability::Compute, Capability::Utility, Capability::Graphics, Capability::Video];

    /// As policies write it.
    pub fn word(self) -> &'static str {
        match self {
            Capability::Compute => "compute",
            Capability::Utility => "utility",
            Capability::Graphics => "graphics",
            Capability::Video => "video",
        }
    }

    /// The one with this name.
    pub fn from_word(word: &str) -> Option<Capability> {
        Capability::ALL.into_iter().find(|capability| capability.word() == word)
    }

    /// Those that a spec asks for: computing and looking, if it says nothing.
    ///
    /// # Errors
    /// An unknown name.
    pub(super) fn of(gpu: &Gpu) -> Result<BTreeSet<Capability>, GpuError> {
        if gpu.capabilities.is_empty() {
            return Ok([Capability::Compute, Capability::Utility].into());
        }
        let known = |word: &String| {
            Capability::from_word(word).ok_or_else(|| GpuError::UnknownCapability(word.clone()))
        };
        gpu.capabilities.iter().map(known).collect()
    }
}

/// Everything that the selection needs in a sandbox of this root.
pub(super) fn provision(
    gpu: &Gpu,
    root: &RootKind,
    selection: &Selection,
    host: &GpuHost,
) -> Result<Provision, GpuError> {
    let capabilities = Capability::of(gpu)?;
    let mut provision = Provision::default();
    provision.edits.device_nodes = nodes::nodes(gpu, &capabilities, selection, host)?;
    provision.edits.env = environment(gpu, &capabilities, selection);
    libraries::provide(&mut provision, root, &capabilities, selection, host)?;
    provision.edits.mounts.extend(sockets(gpu, host)?);
    procfs::provide(&mut provision, selection, host)?;
    sysfs::provide(&mut provision, selection, host);
    Ok(provision)
}

/// What the driver says of itself, and of no GPU; nothing if it is not loaded.
pub(super) fn without_gpus(host: &GpuHost) -> Provision {
    let mut provision = Provision::default();
    // Its absence is no error: the devices may be of another vendor.
    let _ = procfs::driver(&mut provision, host);
    provision
}

/// Advice to the libraries; the nodes are what holds.
fn environment(gpu: &Gpu, capabilities: &BTreeSet<Capability>, selection: &Selection) -> Vec<String> {
    let uuids = selection.gpus.iter().map(|chosen| chosen.uuid()).collect::<Vec<_>>().join(",");
    let words = capabilities.iter().map(|capability| capability.word()).collect::<Vec<_>>().join(",");
    let mut variables = vec![
        "CUDA_DEVICE_ORDER=PCI_BUS_ID".into(),
        format!("CUDA_VISIBLE_DEVICES={uuids}"),
        format!("NVIDIA_DRIVER_CAPABILITIES={words}"),
        format!("NVIDIA_VISIBLE_DEVICES={uuids}"),
    ];
    let mps = gpu.features.contains(&GpuFeature::Mps);
    variables.extend(mps.then(|| format!("CUDA_MPS_PIPE_DIRECTORY={MPS}")));
    variables
}

/// Where the control daemon of the multi-process service has its pipes if nobody says otherwise.
const MPS: &str = "/tmp/nvidia-mps";

/// Services of the host that a policy may ask for, and where they listen.
pub(super) const SOCKETS: [(GpuFeature, &str); 3] = [
    (GpuFeature::Persistenced, "/run/nvidia-persistenced/socket"),
    (GpuFeature::Fabricmanager, "/run/nvidia-fabricmanager/socket"),
    (GpuFeature::Mps, "/tmp/nvidia-mps/control"),
];

fn sockets(gpu: &Gpu, host: &GpuHost) -> Result<Vec<Mount>, GpuError> {
    let asked = SOCKETS.into_iter().filter(|(feature, _)| gpu.features.contains(feature));
    asked
        .map(|(feature, path)| {
            if !host.sockets.contains(Path::new(path)) {
                return Err(GpuError::NoService { feature: feature.word(), path: path.into() });
            }
            let options = ["ro", "nosuid", "nodev", "noexec", "socket"].map(String::from).to_vec();
            Ok(bind(path.into(), path.into(), options))
        })
        .collect()
}

/// A read-only bind mount of a file that is executed or mapped.
fn library_mount(source: &Path, target: PathBuf) -> Mount {
    bind(source.into(), target, ["ro", "nosuid", "nodev"].map(String::from).to_vec())
}

fn bind(host_path: PathBuf, container_path: PathBuf, options: Vec<String>) -> Mount {
    Mount { host_path, container_path, options, kind: None }
}
