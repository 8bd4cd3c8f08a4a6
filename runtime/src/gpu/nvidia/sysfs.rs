//! What `/sys` shows inside: the chosen GPUs, the bridges above them, and the driver's module.
//!
//! NCCL reads from it how GPUs, CPUs and network cards are connected. It is a copy of a few short files, made when the
//! sandbox is: nothing of the kernel's own `/sys` is mounted.

use std::path::{Path, PathBuf};

use crate::gpu::{GpuHost, Provision, Selection};

/// The directory that holds the copy.
pub(super) const SYS: &str = "/sys";

/// Adds what is known of the chosen GPUs; where the host says nothing, nothing is shown.
pub(super) fn provide(provision: &mut Provision, selection: &Selection, host: &GpuHost) {
    let sys = Path::new(SYS);
    let mut directories: Vec<&Path> = Vec::new();
    let mut nodes: Vec<PathBuf> = Vec::new();
    for chosen in &selection.gpus {
        let link = sys.join("bus/pci/devices").join(&chosen.gpu.pci);
        let Some(real) = host.links.get(&link) else { continue };
        directories.extend(real.ancestors().take_while(|place| *place != sys));
        provision.links.insert(link, up_and_down(3, real));
        if let Some(node) = host.texts.get(&real.join("numa_node")) {
            nodes.push(sys.join(format!("devices/system/node/node{}", node.trim())));
        }
        // The bus that it is on, whose link the same programs follow.
        if let Some((bus, _)) = chosen.gpu.pci.rsplit_once(':') {
            let link = sys.join("class/pci_bus").join(bus);
            if let Some(real) = host.links.get(&link) {
                provision.links.insert(link, up_and_down(2, real));
                provision.files.extend(below(host, real));
            }
        }
    }
    directories.extend(nodes.iter().map(PathBuf::as_path));
    let module = sys.join("module");
    for (path, text) in &host.texts {
        let place = path.parent().unwrap_or(path);
        if directories.contains(&place) || path.starts_with(&module) {
            provision.files.insert(path.clone(), text.clone());
        }
    }
    if provision.files.keys().any(|path| path.starts_with(sys)) {
        provision.covers.push(SYS.into());
    } else {
        provision.links.retain(|link, _| !link.starts_with(sys));
    }
}

fn below<'a>(host: &'a GpuHost, place: &'a Path) -> impl Iterator<Item = (PathBuf, String)> + 'a {
    let texts = host.texts.iter().filter(move |(path, _)| path.starts_with(place));
    texts.map(|(path, text)| (path.clone(), text.clone()))
}

/// A link's text from so many directories below `/sys`.
fn up_and_down(depth: usize, real: &Path) -> PathBuf {
    let inner = real.strip_prefix(SYS).unwrap_or(real);
    std::iter::repeat_n("..", depth).collect::<PathBuf>().join(inner)
}
