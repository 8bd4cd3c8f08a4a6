//! The driver's libraries, tools and firmware: those of exactly its version, found by the host's loader cache.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Capability, library_mount};
use crate::gpu::cdi::Mount;
use crate::gpu::ldcache::{Entry, NATIVE};
use crate::gpu::{GpuError, GpuHost, Provision, Selection};
use crate::spec::RootKind;

/// Where they lie in a root that is not the host's: what NVIDIA's images name in `PATH` and `LD_LIBRARY_PATH`.
const LIBRARIES_INSIDE: &str = "/usr/local/nvidia/lib64";
const TOOLS_INSIDE: &str = "/usr/local/nvidia/bin";

/// Libraries by what they are for, without `.so` and version. The first of `compute` and of `utility` must be there.
const LIBRARIES: [(Capability, &[&str]); 4] = [
    (
        Capability::Compute,
        &[
            "libcuda",
            "libcudadebugger",
            "libnvidia-allocator",
            "libnvidia-compiler",
            "libnvidia-gpucomp",
            "libnvidia-nvvm",
            "libnvidia-nvvm70",
            "libnvidia-opencl",
            "libnvidia-pkcs11",
            "libnvidia-pkcs11-openssl3",
            "libnvidia-ptxjitcompiler",
            "libnvidia-tileiras",
        ],
    ),
    (Capability::Utility, &["libnvidia-ml", "libnvidia-cfg"]),
    (
        Capability::Graphics,
        &[
            "libEGL_nvidia",
            "libGLESv1_CM_nvidia",
            "libGLESv2_nvidia",
            "libGLX_nvidia",
            "libnvidia-eglcore",
            "libnvidia-fbc",
            "libnvidia-glcore",
            "libnvidia-glsi",
            "libnvidia-glvkspirv",
            "libnvidia-rtcore",
            "libnvidia-tls",
            "libnvoptix",
        ],
    ),
    (Capability::Video, &["libnvcuvid", "libnvidia-encode", "libnvidia-opticalflow", "libvdpau_nvidia"]),
];

/// Programs of the driver.
pub(in crate::gpu) const TOOLS: [(Capability, &str); 3] = [
    (Capability::Utility, "/usr/bin/nvidia-smi"),
    (Capability::Utility, "/usr/bin/nvidia-debugdump"),
    (Capability::Compute, "/usr/bin/nvidia-cuda-mps-control"),
];

/// Every library that may be asked for.
pub(in crate::gpu) fn stems() -> impl Iterator<Item = &'static str> {
    LIBRARIES.into_iter().flat_map(|(_, stems)| stems.iter().copied())
}

/// A library of the driver's version.
struct Library<'a> {
    /// The names by which programs ask for it: its soname, and the one that `-l` looks for.
    sonames: Vec<&'a str>,
    /// The file, no link on the way.
    file: &'a Path,
}

/// Adds what a sandbox of this root lacks. A root that takes over the host's `/usr` has it all.
pub(super) fn provide(
    provision: &mut Provision,
    root: &RootKind,
    capabilities: &BTreeSet<Capability>,
    selection: &Selection,
    host: &GpuHost,
) -> Result<(), GpuError> {
    if *root == RootKind::Host {
        for mount in as_on_the_host(capabilities, selection, host)? {
            let shown = ["/usr", "/opt"].iter().any(|tree| mount.host_path.starts_with(tree));
            if !shown {
                provision.edits.mounts.push(mount);
            }
        }
        return Ok(());
    }
    let mut cache = Vec::new();
    for library in libraries(capabilities, selection, host)? {
        let name = library.file.file_name().unwrap_or_default();
        let target = Path::new(LIBRARIES_INSIDE).join(name);
        provision.edits.mounts.push(library_mount(library.file, target));
        for soname in library.sonames {
            let link = Path::new(LIBRARIES_INSIDE).join(soname);
            let path = link.display().to_string();
            provision.links.insert(link, name.into());
            cache.push(Entry { soname: soname.into(), path, flags: NATIVE, hwcap: 0 });
        }
    }
    for file in tools(capabilities, host) {
        let target = Path::new(TOOLS_INSIDE).join(file.file_name().unwrap_or_default());
        provision.edits.mounts.push(library_mount(file, target));
    }
    provision.edits.mounts.extend(firmware(selection, host));
    provision.path = Some(TOOLS_INSIDE);
    // Before the root's own: an image may bring stubs of the same names.
    cache.extend(host.root_cache.iter().cloned());
    provision.cache = cache;
    Ok(())
}

/// All of them at the host's own paths.
pub(super) fn as_on_the_host(
    capabilities: &BTreeSet<Capability>,
    selection: &Selection,
    host: &GpuHost,
) -> Result<Vec<Mount>, GpuError> {
    let libraries = libraries(capabilities, selection, host)?;
    let files = libraries.iter().map(|library| library.file).chain(tools(capabilities, host));
    let mut mounts: Vec<Mount> = files.map(|file| library_mount(file, file.into())).collect();
    mounts.extend(firmware(selection, host));
    Ok(mounts)
}

fn libraries<'a>(
    capabilities: &BTreeSet<Capability>,
    selection: &Selection,
    host: &'a GpuHost,
) -> Result<Vec<Library<'a>>, GpuError> {
    let mut found = Vec::new();
    for (capability, stems) in LIBRARIES.iter().filter(|(capability, _)| capabilities.contains(capability)) {
        let needed = matches!(capability, Capability::Compute | Capability::Utility).then(|| stems[0]);
        for stem in *stems {
            match library(stem, &selection.driver.version, host)? {
                Some(library) => found.push(library),
                None if needed == Some(*stem) => {
                    let version = selection.driver.version.clone();
                    return Err(GpuError::NoLibrary { library: format!("{stem}.so"), version });
                }
                None => {}
            }
        }
    }
    Ok(found)
}

/// The library of this name that the loader finds, which must be of the kernel driver's version.
fn library<'a>(stem: &str, version: &str, host: &'a GpuHost) -> Result<Option<Library<'a>>, GpuError> {
    let exact = format!("{stem}.so.{version}");
    let mut other = None;
    let mut library: Option<Library<'a>> = None;
    let named = |entry: &&Entry| {
        let rest = entry.soname.strip_prefix(stem).and_then(|rest| rest.strip_prefix(".so"));
        entry.flags == NATIVE
            && entry.hwcap == 0
            && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    for entry in host.cache.iter().filter(named) {
        let Some(file) = host.files.get(Path::new(&entry.path)) else { continue };
        if file.file_name().is_none_or(|name| name != exact.as_str()) {
            other = Some(file);
            continue;
        }
        let library = library.get_or_insert(Library { sonames: Vec::new(), file });
        if library.file == file && entry.soname != exact && !library.sonames.contains(&entry.soname.as_str())
        {
            library.sonames.push(&entry.soname);
        }
    }
    match (library, other) {
        (Some(mut library), _) => {
            library.sonames.sort_unstable();
            Ok(Some(library))
        }
        // After an update without a reboot the files are newer than the module that is loaded.
        (None, Some(file)) => Err(GpuError::OtherVersion { file: file.clone(), version: version.into() }),
        (None, None) => Ok(None),
    }
}

fn tools<'a>(capabilities: &BTreeSet<Capability>, host: &'a GpuHost) -> impl Iterator<Item = &'a Path> {
    let wanted = TOOLS.into_iter().filter(|(capability, _)| capabilities.contains(capability));
    wanted.filter_map(|(_, tool)| host.files.get(Path::new(tool)).map(PathBuf::as_path))
}

/// Firmware that the driver's libraries look at, at the host's own path.
fn firmware(selection: &Selection, host: &GpuHost) -> Vec<Mount> {
    let directory = format!("nvidia/{}", selection.driver.version);
    let files = host.files.iter().filter(|(path, _)| {
        path.parent().is_some_and(|parent| parent.ends_with(&directory)) && path.starts_with("/lib/firmware")
    });
    let options = ["ro", "nosuid", "nodev", "noexec"].map(String::from).to_vec();
    files.map(|(_, file)| super::bind(file.clone(), file.clone(), options.clone())).collect()
}
