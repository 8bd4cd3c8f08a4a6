//! GPUs of other vendors, as the kernel's own drivers show them: by their render nodes in sysfs.

use std::fs;
use std::path::{Path, PathBuf};

use super::facts::{Node, RenderDevice, Vendor};

/// Render nodes of AMD and Intel below `root`, by PCI address. A node that tells nothing of itself is left out.
pub(super) fn devices(root: &Path) -> Vec<RenderDevice> {
    let drm = root.join("sys/class/drm");
    let Ok(entries) = fs::read_dir(&drm) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    let nodes = names.iter().filter(|name| name.starts_with("renderD"));
    let mut devices: Vec<RenderDevice> = nodes.filter_map(|name| device(root, &drm, name, &names)).collect();
    devices.sort_by(|one, other| one.pci.cmp(&other.pci));
    devices
}

fn device(root: &Path, drm: &Path, name: &str, names: &[String]) -> Option<RenderDevice> {
    let place = fs::canonicalize(drm.join(name).join("device")).ok()?;
    let vendor = match text(&place.join("vendor"))?.as_str() {
        "0x1002" => Vendor::Amd,
        "0x8086" => Vendor::Intel,
        _ => return None,
    };
    let mut nodes = vec![node(&drm.join(name), &format!("/dev/dri/{name}"))?];
    // The same device's other node: card0, not its connectors such as card0-DP-1.
    let cards = names.iter().filter(|name| name.starts_with("card") && !name.contains('-'));
    let same =
        |card: &&String| fs::canonicalize(drm.join(card.as_str()).join("device")).is_ok_and(|at| at == place);
    nodes.extend(cards.filter(same).filter_map(|card| node(&drm.join(card), &format!("/dev/dri/{card}"))));
    if vendor == Vendor::Amd {
        nodes.extend(node(&root.join("sys/class/kfd/kfd"), "/dev/kfd"));
    }
    let pci = place.file_name()?.to_str()?.to_lowercase();
    Some(RenderDevice { vendor, device: text(&place.join("device"))?, pci, nodes })
}

/// The device that sysfs describes at `place`.
fn node(place: &Path, path: &str) -> Option<Node> {
    let numbers = text(&place.join("dev"))?;
    let (major, minor) = numbers.split_once(':')?;
    Some(Node { path: PathBuf::from(path), major: major.parse().ok()?, minor: minor.parse().ok()? })
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// What sysfs shows of one device: its directory, and the two nodes that point to it.
    fn plant(root: &Path, pci: &str, vendor: &str, render: u32, card: u32) {
        let place = root.join("sys/devices").join(pci);
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("vendor"), format!("{vendor}\n")).unwrap();
        fs::write(place.join("device"), "0x740f\n").unwrap();
        for (name, minor) in [(format!("renderD{render}"), render), (format!("card{card}"), card)] {
            let node = root.join("sys/class/drm").join(&name);
            fs::create_dir_all(&node).unwrap();
            fs::write(node.join("dev"), format!("226:{minor}\n")).unwrap();
            symlink(&place, node.join("device")).unwrap();
        }
    }

    #[test]
    fn each_vendors_nodes_are_found_together() {
        let root = tempfile::tempdir().unwrap();
        plant(root.path(), "0000:c1:00.0", "0x1002", 129, 1);
        plant(root.path(), "0000:00:02.0", "0x8086", 128, 0);
        // NVIDIA's have a library of their own.
        plant(root.path(), "0000:65:00.0", "0x10de", 130, 2);
        fs::create_dir_all(root.path().join("sys/class/kfd/kfd")).unwrap();
        fs::write(root.path().join("sys/class/kfd/kfd/dev"), "510:0\n").unwrap();
        let shown: Vec<String> = devices(root.path())
            .iter()
            .map(|device| {
                let nodes = device
                    .nodes
                    .iter()
                    .map(|node| format!("{} {}:{}", node.path.display(), node.major, node.minor));
                format!("{:?} {} {}", device.vendor, device.pci, nodes.collect::<Vec<_>>().join(", "))
            })
            .collect();
        assert_eq!(
            shown,
            [
                "Intel 0000:00:02.0 /dev/dri/renderD128 226:128, /dev/dri/card0 226:0",
                "Amd 0000:c1:00.0 /dev/dri/renderD129 226:129, /dev/dri/card1 226:1, /dev/kfd 510:0",
            ]
        );
    }

    #[test]
    fn a_host_without_graphics_has_none() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(devices(root.path()), []);
    }
}
