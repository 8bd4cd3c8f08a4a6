//! Device nodes, each checked against what the driver has registered.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::Capability;
use crate::gpu::cdi::DeviceNode;
use crate::gpu::{Chosen, GpuError, GpuHost, Selection};
use crate::spec::{Gpu, GpuFeature};

/// What makes the nodes of unified memory (nvidia-modprobe(1)).
pub const UVM_REMEDY: &str = "`nvidia-modprobe -u -c0`, as root";
const CONTROL_REMEDY: &str = "`nvidia-modprobe -c 255`, as root";

/// Minor numbers of the driver's own major (nv-chardev-numbers.h).
const CONTROL: u32 = 255;
const MODESET: u32 = 254;

/// Names of the driver's major in `/proc/devices`, before and since its version 545.
const DRIVER: [&str; 2] = ["nvidia-frontend", "nvidia"];

/// All nodes that a selection gets, and no other.
pub(super) fn nodes(
    gpu: &Gpu,
    capabilities: &BTreeSet<Capability>,
    selection: &Selection,
    host: &GpuHost,
) -> Result<Vec<DeviceNode>, GpuError> {
    let mut nodes = control(host)?;
    nodes.extend(own(selection, host)?);
    if capabilities.contains(&Capability::Graphics) {
        nodes.push(node(host, "/dev/nvidia-modeset", &DRIVER, MODESET, "`nvidia-modprobe -m`, as root")?);
        for chosen in &selection.gpus {
            nodes.push(render(chosen, host)?);
        }
    }
    for feature in &gpu.features {
        match feature {
            GpuFeature::Gdrcopy => {
                nodes.push(node(host, "/dev/gdrdrv", &["gdrdrv"], 0, "load the module gdrdrv")?);
            }
            GpuFeature::Gds => nodes.extend(storage(host)?),
            GpuFeature::Imex => {
                let path = "/dev/nvidia-caps-imex-channels/channel0";
                let remedy = "load the module nvidia with NVreg_CreateImexChannel0=1";
                nodes.push(node(host, path, &["nvidia-caps-imex-channels"], 0, remedy)?);
            }
            GpuFeature::Persistenced | GpuFeature::Fabricmanager | GpuFeature::Mps => {}
        }
    }
    nodes.dedup();
    Ok(nodes)
}

/// Nodes that every user of the driver has.
pub(super) fn control(host: &GpuHost) -> Result<Vec<DeviceNode>, GpuError> {
    Ok(vec![
        node(host, "/dev/nvidiactl", &DRIVER, CONTROL, CONTROL_REMEDY)?,
        node(host, "/dev/nvidia-uvm", &["nvidia-uvm"], 0, UVM_REMEDY)?,
        node(host, "/dev/nvidia-uvm-tools", &["nvidia-uvm"], 1, UVM_REMEDY)?,
    ])
}

/// Nodes of the chosen GPUs, and the two capabilities of each chosen slice (dra-driver#787).
pub(super) fn own(selection: &Selection, host: &GpuHost) -> Result<Vec<DeviceNode>, GpuError> {
    let mut nodes: Vec<DeviceNode> = Vec::new();
    for Chosen { gpu, instance } in &selection.gpus {
        let path = format!("/dev/nvidia{}", gpu.minor);
        let gpu_node =
            node(host, &path, &DRIVER, gpu.minor, &format!("`nvidia-modprobe -c {}`, as root", gpu.minor))?;
        if !nodes.contains(&gpu_node) {
            nodes.push(gpu_node);
        }
        let Some(instance) = instance else { continue };
        let gi = format!("gpu{}/gi{}", gpu.minor, instance.gi);
        for capability in [format!("{gi}/access"), format!("{gi}/ci{}/access", instance.ci)] {
            let minor = mig_minor(host, &capability).ok_or_else(|| GpuError::NoSlice {
                uuid: instance.uuid.clone(),
                capability: capability.clone(),
            })?;
            let path = format!("/dev/nvidia-caps/nvidia-cap{minor}");
            let (card, rest) = capability.split_once('/').unwrap_or_default();
            let remedy =
                format!("`nvidia-modprobe -f /proc/driver/nvidia/capabilities/{card}/mig/{rest}`, as root");
            let capability = node(host, &path, &["nvidia-caps"], minor, &remedy)?;
            // Compute instances of one GPU instance share its capability.
            if !nodes.contains(&capability) {
                nodes.push(capability);
            }
        }
    }
    Ok(nodes)
}

/// The minor number that the driver gives a capability: a line of `mig-minors`.
pub(super) fn mig_minor(host: &GpuHost, capability: &str) -> Option<u32> {
    let text = host.texts.get(Path::new("/proc/driver/nvidia-caps/mig-minors"))?;
    text.lines().find_map(|line| line.strip_prefix(capability)?.strip_prefix(' ')?.trim().parse().ok())
}

/// The render node of a GPU, by its PCI address; the card node, which sets modes, stays outside.
fn render(chosen: &Chosen, host: &GpuHost) -> Result<DeviceNode, GpuError> {
    let pci = &chosen.gpu.pci;
    let place = PathBuf::from(format!("/sys/bus/pci/devices/{pci}/drm"));
    let missing = || GpuError::NoRenderNode { pci: pci.clone() };
    let (name, numbers) = host
        .texts
        .iter()
        .find_map(|(path, text)| {
            let name = path.strip_prefix(&place).ok()?.parent()?.to_str()?;
            (name.starts_with("renderD") && path.ends_with("dev")).then_some((name, text))
        })
        .ok_or_else(missing)?;
    let (major, minor) = numbers.trim().split_once(':').ok_or_else(missing)?;
    let expected = major.parse().ok().zip(minor.parse().ok()).ok_or_else(missing)?;
    checked(host, &PathBuf::from(format!("/dev/dri/{name}")), expected, "load the module nvidia-drm")
}

/// Nodes of GPUDirect Storage: one for each minor that there is.
fn storage(host: &GpuHost) -> Result<Vec<DeviceNode>, GpuError> {
    let remedy = "load the module nvidia-fs";
    let minors = host
        .nodes
        .keys()
        .filter_map(|path| path.to_str()?.strip_prefix("/dev/nvidia-fs")?.parse::<u32>().ok());
    let nodes: Vec<_> = minors
        .map(|minor| node(host, &format!("/dev/nvidia-fs{minor}"), &["nvidia-fs"], minor, remedy))
        .collect::<Result<_, _>>()?;
    if nodes.is_empty() {
        return Err(GpuError::NoNode { path: "/dev/nvidia-fs0".into(), remedy: remedy.into() });
    }
    Ok(nodes)
}

/// The node at `path`, which must be minor `minor` of the first of `drivers` that is registered.
fn node(
    host: &GpuHost,
    path: &str,
    drivers: &[&str],
    minor: u32,
    remedy: &str,
) -> Result<DeviceNode, GpuError> {
    let major = drivers.iter().find_map(|driver| host.majors.get(*driver));
    let major = major.ok_or_else(|| GpuError::NoDriver {
        driver: drivers.last().copied().unwrap_or_default().into(),
        remedy: remedy.into(),
    })?;
    checked(host, Path::new(path), (*major, minor), remedy)
}

/// A node of these numbers. What the host has at its path is checked now and again by handle when it is mounted.
pub(in crate::gpu) fn checked(
    host: &GpuHost,
    path: &Path,
    expected: (u32, u32),
    remedy: &str,
) -> Result<DeviceNode, GpuError> {
    match host.nodes.get(path) {
        None => Err(GpuError::NoNode { path: path.into(), remedy: remedy.into() }),
        Some(found) if *found != expected => {
            Err(GpuError::WrongNode { path: path.into(), found: *found, expected })
        }
        Some((major, minor)) => Ok(DeviceNode {
            path: path.into(),
            kind: Some("c".into()),
            major: Some(*major),
            minor: Some(*minor),
            permissions: Some("rw".into()),
            ..DeviceNode::default()
        }),
    }
}
