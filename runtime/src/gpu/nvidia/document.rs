//! A CDI document of this host's GPUs, for engines that read such documents.

use super::{Capability, libraries, nodes};
use crate::gpu::cdi::{ContainerEdits, Device, Document};
use crate::gpu::{Chosen, GpuError, GpuHost, Inventory, Selection};

/// The version of the interface that the document keeps to: the oldest that has all it says.
const CDI_VERSION: &str = "0.5.0";

/// All GPUs and slices of an inventory, as one choice; `None`: there is no driver, or nothing of it can be used.
pub fn whole(inventory: &Inventory) -> Option<Selection> {
    let driver = inventory.driver.clone()?;
    let sound = inventory.gpus.iter().filter(|gpu| !gpu.health.lost && !gpu.uuid.is_empty());
    let chosen = sound.flat_map(|gpu| match &gpu.mig {
        // A GPU that is cut into slices is used by them alone.
        Some(slices) => {
            let slice = |slice| Chosen { gpu: gpu.clone(), instance: Some(slice) };
            slices.iter().cloned().map(slice).collect::<Vec<_>>()
        }
        None => vec![Chosen { gpu: gpu.clone(), instance: None }],
    });
    let gpus: Vec<Chosen> = chosen.collect();
    (!gpus.is_empty()).then_some(Selection { driver, gpus })
}

/// The document: each GPU and slice under its index (`0`, `0:1` of a slice) and its UUID, and `all`.
///
/// An engine gets nodes, libraries, tools and firmware by it, at the host's own paths. What the interface has no words
/// for is missing: links and the loader's cache in an image, and a `/proc/driver/nvidia` without the other GPUs.
///
/// # Errors
/// A node or a library is not as the driver has it.
pub fn document(kind: &str, all: &Selection, host: &GpuHost) -> Result<Document, GpuError> {
    let mut devices = Vec::new();
    let mut slices = 0;
    for (at, chosen) in all.gpus.iter().enumerate() {
        let same_gpu = at > 0 && all.gpus[at - 1].gpu.index == chosen.gpu.index;
        slices = if same_gpu { slices + 1 } else { 0 };
        let index = match chosen.instance {
            Some(_) => format!("{}:{slices}", chosen.gpu.index),
            None => chosen.gpu.index.to_string(),
        };
        let one = Selection { driver: all.driver.clone(), gpus: vec![chosen.clone()] };
        let device_nodes = nodes::own(&one, host)?;
        for name in [index, chosen.uuid().into()] {
            devices.push(device(name, device_nodes.clone()));
        }
    }
    devices.push(device("all".into(), nodes::own(all, host)?));
    let capabilities = [Capability::Compute, Capability::Utility].into();
    let container_edits = ContainerEdits {
        env: vec!["NVIDIA_VISIBLE_DEVICES=void".into()],
        device_nodes: nodes::control(host)?,
        mounts: libraries::as_on_the_host(&capabilities, all, host)?,
        ..ContainerEdits::default()
    };
    let version = CDI_VERSION.into();
    Ok(Document { version, kind: kind.into(), devices, container_edits, ..Document::default() })
}

fn device(name: String, device_nodes: Vec<crate::gpu::cdi::DeviceNode>) -> Device {
    let container_edits = ContainerEdits { device_nodes, ..ContainerEdits::default() };
    Device { name, container_edits, ..Device::default() }
}
