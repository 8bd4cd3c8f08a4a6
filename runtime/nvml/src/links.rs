//! How GPUs are connected.

use std::collections::BTreeMap;

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::TopologyLevel;
use nvml_wrapper::error::NvmlError;

use crate::facts::{Link, PciPath};
use crate::read::address;

/// More than any GPU has.
const MOST_LINKS: u32 = 36;

/// One GPU's place among the others.
struct Place<'a, 'nvml> {
    index: u32,
    address: String,
    device: &'a Device<'nvml>,
    /// Active NVLinks by what is at their other end: another GPU or a switch.
    links: BTreeMap<String, u32>,
}

/// The connection of each pair. A GPU that does not tell is left out.
pub(crate) fn links(devices: &[(u32, Device<'_>)]) -> Result<Vec<Link>, NvmlError> {
    let mut places = Vec::new();
    for (index, device) in devices {
        if let Ok(info) = device.pci_info() {
            places.push(Place { index: *index, address: address(&info), device, links: nvlinks(device) });
        }
    }
    let mut found = Vec::new();
    for (number, one) in places.iter().enumerate() {
        for other in &places[number + 1..] {
            let Some(path) = path(one, other)? else { continue };
            found.push(Link { a: one.index, b: other.index, nvlinks: between(one, other, &places), path });
        }
    }
    Ok(found)
}

fn path(one: &Place<'_, '_>, other: &Place<'_, '_>) -> Result<Option<PciPath>, NvmlError> {
    let nvml = one.device.nvml();
    // The call takes its second device by value.
    let other = nvml.device_by_pci_bus_id(other.address.as_str())?;
    Ok(match one.device.topology_common_ancestor(other) {
        Ok(TopologyLevel::Internal) => Some(PciPath::Board),
        Ok(TopologyLevel::Single) => Some(PciPath::Switch),
        Ok(TopologyLevel::Multiple) => Some(PciPath::Switches),
        Ok(TopologyLevel::HostBridge) => Some(PciPath::Bridge),
        Ok(TopologyLevel::Node) => Some(PciPath::Node),
        Ok(TopologyLevel::System) => Some(PciPath::System),
        Err(_) => None,
    })
}

fn nvlinks(device: &Device<'_>) -> BTreeMap<String, u32> {
    let mut ends = BTreeMap::new();
    for number in 0..MOST_LINKS {
        let link = device.link_wrapper_for(number);
        match link.is_active() {
            Ok(true) => {}
            Ok(false) => continue,
            // No such link, or no NVLink at all.
            Err(_) => break,
        }
        if let Ok(info) = link.remote_pci_info() {
            *ends.entry(address(&info)).or_insert(0) += 1;
        }
    }
    ends
}

/// Direct links, and those that lead over switches which both reach.
fn between(one: &Place<'_, '_>, other: &Place<'_, '_>, all: &[Place<'_, '_>]) -> u32 {
    let direct = one.links.get(&other.address).copied().unwrap_or(0);
    let switched = one.links.iter().filter(|(end, _)| all.iter().all(|place| place.address != **end));
    direct + switched.filter_map(|(end, count)| Some(other.links.get(end)?.min(count))).sum::<u32>()
}
