//! What there is of GPUs on this host, and what a sandbox gets of it: plain data.
//!
//! The discovery helper (`runtime/nvml`) is built from this file as well, so that both sides of its output are one
//! definition. Nothing else of this crate is used here.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// All GPUs of the host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inventory {
    /// NVIDIA's driver; `None`: there is none.
    pub driver: Option<Driver>,
    /// GPUs of that driver, by index.
    pub gpus: Vec<Gpu>,
    /// How each pair of them is connected; a pair that is not listed is not known.
    pub links: Vec<Link>,
    /// Render nodes of other vendors, by PCI address.
    #[serde(default)]
    pub others: Vec<RenderDevice>,
}

/// NVIDIA's driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Driver {
    /// Version of the kernel driver and of its libraries, such as `550.54.15`.
    pub version: String,
    /// Newest CUDA version that it serves, major and minor.
    pub cuda: (u32, u32),
    /// Version of the NVML library, such as `12.550.54.15`.
    pub nvml: String,
}

/// One GPU of NVIDIA's driver.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// Index in NVML's order, which is the order of PCI addresses. Not stable over a reboot.
    pub index: u32,
    /// `GPU-` and a UUID. Of a GPU that is lost: empty if the driver does not say it.
    pub uuid: String,
    /// Product name, such as `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// PCI address in lower case with a domain of four digits, such as `0000:65:00.0`; empty if unknown.
    pub pci: String,
    /// Minor number of `/dev/nvidiaN`; `u32::MAX` if it is unknown.
    pub minor: u32,
    /// Memory, in bytes.
    pub memory_total: u64,
    /// Memory in use, in bytes, without what the driver keeps for itself.
    pub memory_used: u64,
    /// MIG instances; `None`: MIG is off.
    pub mig: Option<Vec<Instance>>,
    /// Processes that have a context on it, of whatever user and namespace, by pid.
    pub processes: Vec<GpuProcess>,
    /// Errors.
    pub health: Health,
    /// Clocks.
    pub clocks: Clocks,
    /// The driver stays initialised while nobody uses the GPU.
    pub persistence: bool,
}

/// A slice of a GPU that is a GPU to its user: one compute instance of a GPU instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    /// `MIG-` and a UUID.
    pub uuid: String,
    /// GPU instance id.
    pub gi: u32,
    /// Compute instance id.
    pub ci: u32,
    /// Profile, such as `1g.10gb`.
    pub profile: String,
    /// Memory, in bytes.
    pub memory_total: u64,
    /// Memory in use, in bytes.
    pub memory_used: u64,
}

/// A process that uses a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuProcess {
    /// Process id in the namespace of the one who asks.
    pub pid: u32,
    /// Memory, in bytes; `None`: the driver does not say.
    pub memory: Option<u64>,
    /// What for.
    pub kind: ProcessKind,
    /// GPU instance id, if it uses a MIG slice.
    pub gi: Option<u32>,
}

/// What a process uses a GPU for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessKind {
    /// CUDA.
    Compute,
    /// OpenGL or Vulkan.
    Graphics,
}

/// Errors of a GPU; what it does not count is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Health {
    /// The GPU does not answer any more: it fell off the bus (`NVML_ERROR_GPU_IS_LOST`, XID 79).
    pub lost: bool,
    /// ECC is on.
    pub ecc: Option<bool>,
    /// Corrected ECC errors since the driver was loaded.
    pub ecc_corrected: Option<u64>,
    /// Uncorrected ECC errors since the driver was loaded.
    pub ecc_uncorrected: Option<u64>,
    /// Uncorrected ECC errors of the GPU's life.
    pub ecc_uncorrected_total: Option<u64>,
    /// Pages to be retired, or rows to be remapped, at the next reset.
    pub repair_pending: bool,
    /// Rows could not be remapped: the GPU is worn out.
    pub repair_failed: bool,
    /// The last XID error of the kernel log, if it was seen.
    pub xid: Option<u32>,
}

/// Clocks, temperature and power of a GPU; what it does not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clocks {
    /// Clock of the multiprocessors, in MHz.
    pub sm: Option<u32>,
    /// Its maximum, in MHz.
    pub sm_max: Option<u32>,
    /// Clock of the memory, in MHz.
    pub memory: Option<u32>,
    /// Temperature, in degrees Celsius.
    pub temperature: Option<u32>,
    /// Power, in milliwatts.
    pub power: Option<u32>,
    /// Power limit, in milliwatts.
    pub power_limit: Option<u32>,
}

/// How two GPUs are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Index of one GPU, the lower.
    pub a: u32,
    /// Index of the other.
    pub b: u32,
    /// Active NVLinks between them; through a switch, those that both have to switches.
    pub nvlinks: u32,
    /// Their nearest common place on the bus.
    pub path: PciPath,
}

/// The nearest common place of two GPUs, nearest first (`nvmlGpuTopologyLevel_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PciPath {
    /// One board.
    Board,
    /// One PCIe switch.
    Switch,
    /// Several switches, no host bridge.
    Switches,
    /// One host bridge.
    Bridge,
    /// One NUMA node.
    Node,
    /// The link between sockets.
    System,
}

/// A GPU of another vendor: a render node (`/dev/dri/renderDN`) and what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenderDevice {
    /// Vendor.
    pub vendor: Vendor,
    /// PCI device id, such as `0x740f`.
    pub device: String,
    /// PCI address, as [`Gpu::pci`].
    pub pci: String,
    /// Device nodes: the render node, the card node, and AMD's `/dev/kfd`.
    pub nodes: Vec<Node>,
}

/// Vendor of a render device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Vendor {
    /// 0x1002.
    Amd,
    /// 0x8086.
    Intel,
}

/// A character device, as sysfs says it; the node at `path` is another matter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Where it stands, such as `/dev/dri/renderD128`.
    pub path: PathBuf,
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// What a sandbox gets: whole GPUs and slices, all of one driver. Never empty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// The driver.
    pub driver: Driver,
    /// GPUs and slices, by index of the GPU, GPU instance and compute instance.
    pub gpus: Vec<Chosen>,
}

/// One chosen GPU or slice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chosen {
    /// The GPU, or the one that the slice is of.
    pub gpu: Gpu,
    /// The slice; `None`: the whole GPU.
    pub instance: Option<Instance>,
}

impl Health {
    /// Why nothing should run on it, in words; `None`: it is sound.
    pub fn fault(&self) -> Option<String> {
        let errors = self.ecc_uncorrected.filter(|count| *count > 0);
        if self.lost {
            Some("lost: it does not answer any more".into())
        } else if self.repair_failed {
            Some("worn out: rows of memory could not be replaced".into())
        } else if let Some(count) = errors {
            Some(format!("{count} uncorrected ECC errors since the driver was loaded"))
        } else if self.repair_pending {
            Some("memory waits to be repaired by a reset".into())
        } else {
            None
        }
    }
}

impl Chosen {
    /// The UUID that the user of it knows: that of the slice, or of the whole GPU.
    pub fn uuid(&self) -> &str {
        self.instance.as_ref().map_or(&self.gpu.uuid, |instance| &instance.uuid)
    }
}
