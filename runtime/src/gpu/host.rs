//! What this host has for its GPUs: plain data, read once before planning. It decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use super::cdi::{CdiError, DIRECTORIES, Library};
use super::guard::is_guarded;
use super::ldcache::{self, Entry};
use super::{Selection, nvidia, program};
use crate::spec::{Gpu, RootKind};

/// The loader's cache, on the host and in a root.
const LOADER_CACHE: &str = "/etc/ld.so.cache";
/// Where the kernel describes each render node.
pub(super) const DRM: &str = "/sys/class/drm";
/// Largest loader cache in bytes.
const LARGEST_CACHE: u64 = 16 << 20;
/// Largest file of /proc or /sys that is copied, in bytes.
const LARGEST_TEXT: u64 = 64 << 10;
/// More files than the driver shows of 16 GPUs with seven slices each.
const MOST_TEXTS: usize = 4096;

/// The program that loads NVIDIA's modules and makes their nodes (nvidia-modprobe(1)).
const MODPROBE: &str = "/usr/bin/nvidia-modprobe";
/// How long it may take; it loads a module of many megabytes.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a PCI device or bridge says of itself and of its place.
const PCI_FILES: [&str; 13] = [
    "class",
    "current_link_speed",
    "current_link_width",
    "device",
    "local_cpulist",
    "local_cpus",
    "max_link_speed",
    "max_link_width",
    "numa_node",
    "revision",
    "subsystem_device",
    "subsystem_vendor",
    "vendor",
];
/// What the driver's modules say of themselves.
const MODULE_FILES: [&str; 5] =
    ["nvidia/initstate", "nvidia/refcnt", "nvidia/version", "nvidia_uvm/initstate", "nvidia_uvm/version"];

/// Facts about the GPUs' side of a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuHost {
    /// Major numbers by driver, from `/proc/devices`.
    pub majors: BTreeMap<String, u32>,
    /// Character devices by path: major and minor number.
    pub nodes: BTreeMap<PathBuf, (u32, u32)>,
    /// Short files of the kernel by path: of the driver in `/proc/driver`, of the chosen GPUs in `/sys`.
    pub texts: BTreeMap<PathBuf, String>,
    /// Links of `/sys` and where they lead.
    pub links: BTreeMap<PathBuf, PathBuf>,
    /// The host's loader cache.
    pub cache: Vec<Entry>,
    /// The loader cache of the root, if that is a directory with one.
    pub root_cache: Vec<Entry>,
    /// Regular files that only root can change: a path by which they were looked for, and the path without links.
    pub files: BTreeMap<PathBuf, PathBuf>,
    /// Unix sockets of root or of the caller.
    pub sockets: BTreeSet<PathBuf>,
    /// The host's CDI documents, if the spec names a device of them.
    pub cdi: Library,
}

/// The facts could not be read.
#[derive(Debug, thiserror::Error)]
pub enum GpuHostError {
    /// A file is not readable or not as documented.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A CDI document.
    #[error(transparent)]
    Cdi(#[from] CdiError),
    /// The module of unified memory is not loaded, and the program that does so failed.
    #[error("{program}: {why}; run {remedy}, and see dmesg", program = MODPROBE, remedy = nvidia::UVM_REMEDY)]
    Modprobe {
        /// How it ended.
        why: String,
    },
}

impl GpuHost {
    /// Reads what `gpu` and the selection need to be known. Nothing is changed on the host.
    ///
    /// # Errors
    /// Something that is there cannot be read. What is not there is no error yet.
    pub fn read(gpu: &Gpu, root: &RootKind, selection: Option<&Selection>) -> Result<GpuHost, GpuHostError> {
        let mut host = GpuHost { majors: majors()?, ..GpuHost::default() };
        for directory in ["/dev", "/dev/nvidia-caps", "/dev/nvidia-caps-imex-channels", "/dev/dri"] {
            host.read_nodes(Path::new(directory));
        }
        for name in gpu.nodes.iter().filter_map(|path| path.file_name()) {
            host.read_text(&Path::new(DRM).join(name).join("device/vendor"));
        }
        if !gpu.cdi.is_empty() {
            host.cdi = Library::read(&DIRECTORIES)?;
            host.read_cdi();
            host.read_tree(Path::new("/proc/driver/nvidia"), 0);
        }
        if let Some(selection) = selection {
            host.read_driver(selection)?;
            if let RootKind::Dir(path) = root {
                host.root_cache = root_cache(path)?;
            }
        }
        Ok(host)
    }

    /// The nodes of a directory whose names are those of GPU drivers.
    fn read_nodes(&mut self, directory: &Path) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if directory != Path::new("/dev")
                || ["nvidia", "gdrdrv", "kfd"].iter().any(|of| name.starts_with(of))
            {
                self.read_node(&entry.path());
            }
        }
    }

    fn read_node(&mut self, path: &Path) {
        // A link is no node: what it leads to is under its own name.
        if let Some(metadata) = fs::symlink_metadata(path).ok().filter(|it| it.file_type().is_char_device()) {
            let device = metadata.rdev();
            self.nodes.insert(path.into(), (rustix::fs::major(device), rustix::fs::minor(device)));
        }
    }

    /// The nodes and sockets that the documents name.
    fn read_cdi(&mut self) {
        let documents = self.cdi.documents.iter().map(|found| &found.document);
        let edits: Vec<_> = documents
            .flat_map(|document| {
                document
                    .devices
                    .iter()
                    .map(|device| &device.container_edits)
                    .chain([&document.container_edits])
            })
            .collect();
        let nodes = edits.iter().flat_map(|edits| &edits.device_nodes);
        let nodes: Vec<PathBuf> =
            nodes.map(|node| node.host_path.clone().unwrap_or_else(|| node.path.clone())).collect();
        let mounts = edits.iter().flat_map(|edits| &edits.mounts);
        let mounts: Vec<PathBuf> = mounts.map(|mount| mount.host_path.clone()).collect();
        nodes.iter().for_each(|path| self.read_node(path));
        mounts.iter().for_each(|path| self.read_socket(path));
    }

    /// Anybody can listen below `/tmp`, so the owners count, of the directories as well.
    fn read_socket(&mut self, path: &Path) {
        let own = rustix::process::geteuid().as_raw();
        let metadata = fs::symlink_metadata(path).ok().filter(|_| is_guarded(path, own));
        if metadata.is_some_and(|it| it.file_type().is_socket() && (it.uid() == 0 || it.uid() == own)) {
            self.sockets.insert(path.into());
        }
    }

    fn read_driver(&mut self, selection: &Selection) -> Result<(), GpuHostError> {
        for (_, path) in nvidia::SOCKETS {
            self.read_socket(Path::new(path));
        }
        for directory in ["/proc/driver/nvidia", "/proc/driver/nvidia-caps"] {
            self.read_tree(Path::new(directory), 7);
        }
        selection.gpus.iter().for_each(|chosen| self.read_sysfs(&chosen.gpu.pci));
        for name in MODULE_FILES {
            self.read_text(&Path::new("/sys/module").join(name));
        }
        let failed = |source| GpuHostError::Read { path: LOADER_CACHE.into(), source };
        let cache = open(LOADER_CACHE).and_then(|file| read_up_to(file, LARGEST_CACHE)).map_err(failed)?;
        self.cache = ldcache::parse(&cache).map_err(|error| failed(io::Error::other(error)))?;
        let driver = |entry: &&Entry| nvidia::stems().any(|stem| entry.soname.starts_with(stem));
        let libraries: Vec<PathBuf> =
            self.cache.iter().filter(driver).map(|entry| PathBuf::from(&entry.path)).collect();
        let tools = nvidia::TOOLS.iter().map(|(_, tool)| PathBuf::from(tool));
        let firmware = Path::new("/lib/firmware/nvidia").join(&selection.driver.version);
        let firmware = fs::read_dir(firmware).into_iter().flatten().flatten().map(|entry| entry.path());
        for path in libraries.into_iter().chain(tools).chain(firmware) {
            if let Some(file) = roots_file(&path) {
                self.files.insert(path, file);
            }
        }
        Ok(())
    }

    /// Every short file below a directory of the driver.
    fn read_tree(&mut self, directory: &Path, depth: usize) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && depth > 0 => self.read_tree(&entry.path(), depth - 1),
                Ok(kind) if kind.is_file() && self.texts.len() < MOST_TEXTS => self.read_text(&entry.path()),
                _ => {}
            }
        }
    }

    /// A file that is not there, not readable for the caller, or not text, is passed over.
    fn read_text(&mut self, path: &Path) {
        let text = open(path).and_then(|file| read_up_to(file, LARGEST_TEXT)).map(String::from_utf8);
        if let Ok(Ok(text)) = text {
            self.texts.insert(path.into(), text);
        }
    }

    /// A GPU and the bridges above it, its bus, its NUMA node, and its render nodes.
    fn read_sysfs(&mut self, pci: &str) {
        let link = Path::new("/sys/bus/pci/devices").join(pci);
        let Ok(real) = fs::canonicalize(&link) else { return };
        let devices = Path::new("/sys/devices");
        for place in real.ancestors().take_while(|place| place.starts_with(devices) && *place != devices) {
            PCI_FILES.iter().for_each(|name| self.read_text(&place.join(name)));
        }
        if let Some(node) = self.texts.get(&real.join("numa_node")) {
            let node = Path::new("/sys/devices/system/node").join(format!("node{}", node.trim()));
            ["cpulist", "cpumap"].iter().for_each(|name| self.read_text(&node.join(name)));
        }
        if let Some((bus, _)) = pci.rsplit_once(':') {
            let link = Path::new("/sys/class/pci_bus").join(bus);
            if let Ok(bus) = fs::canonicalize(&link) {
                ["cpuaffinity", "cpulistaffinity"].iter().for_each(|name| self.read_text(&bus.join(name)));
                self.links.insert(link, bus);
            }
        }
        for entry in fs::read_dir(link.join("drm")).into_iter().flatten().flatten() {
            self.read_text(&entry.path().join("dev"));
        }
        self.links.insert(link, real);
    }
}

/// Sees to it that the module of unified memory is loaded and its nodes are there: root runs `nvidia-modprobe`, from a
/// fixed path, with no environment. An ordinary user has nothing loaded; the plan then names the remedy.
///
/// # Errors
/// The program is there and fails.
pub fn ensure_unified_memory() -> Result<(), GpuHostError> {
    let there = majors()?.contains_key("nvidia-uvm") && Path::new("/dev/nvidia-uvm").exists();
    if there || !crate::host::is_root() || roots_file(Path::new(MODPROBE)).is_none() {
        return Ok(());
    }
    let done = program::run(Path::new(MODPROBE), &["-u", "-c0"], PATIENCE, |_| Ok(()));
    done.map_err(|why| GpuHostError::Modprobe { why })
}

/// The character devices of `/proc/devices`.
fn majors() -> Result<BTreeMap<String, u32>, GpuHostError> {
    let path = Path::new("/proc/devices");
    let read = open(path).and_then(|file| read_up_to(file, LARGEST_TEXT));
    let bytes = read.map_err(|source| GpuHostError::Read { path: path.into(), source })?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let characters = text.lines().skip_while(|line| !line.starts_with("Character")).skip(1);
    let drivers = characters.take_while(|line| !line.starts_with("Block")).filter_map(|line| {
        let (major, driver) = line.trim().split_once(' ')?;
        Some((driver.to_owned(), major.parse().ok()?))
    });
    Ok(drivers.collect())
}

/// The loader cache of a root that anybody may have unpacked: no link on the way is followed, and what is no cache of
/// the known form counts for nothing.
fn root_cache(root: &Path) -> Result<Vec<Entry>, GpuHostError> {
    let failed = |source: io::Error| GpuHostError::Read { path: root.into(), source };
    let root = rustix::fs::openat(CWD, root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| failed(error.into()))?;
    let inner = LOADER_CACHE.trim_start_matches('/');
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let Ok(file) = rustix::fs::openat2(&root, inner, flags, Mode::empty(), resolve) else {
        return Ok(Vec::new());
    };
    let bytes = read_up_to(file.into(), LARGEST_CACHE).unwrap_or_default();
    Ok(ldcache::parse(&bytes).unwrap_or_default())
}

/// The path without links of a regular file that root owns and nobody else can change or replace. It is mapped into
/// programs.
pub(super) fn roots_file(path: &Path) -> Option<PathBuf> {
    let real = fs::canonicalize(path).ok()?;
    let metadata = fs::symlink_metadata(&real).ok()?;
    let roots = metadata.is_file() && metadata.uid() == 0 && metadata.mode() & 0o022 == 0;
    (roots && is_guarded(&real, 0)).then_some(real)
}

fn open(path: impl AsRef<Path>) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path.as_ref(), flags, Mode::empty())?.into())
}

fn read_up_to(file: File, most: u64) -> io::Result<Vec<u8>> {
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("is larger than {most} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_read() {
        let host = GpuHost::read(&Gpu::default(), &RootKind::Host, None).unwrap();
        assert_eq!(host.majors["mem"], 1);
        assert!(!host.majors.contains_key("loop"), "block devices have numbers of their own");
        assert_eq!(host.cdi, Library::default());
    }

    /// What is mounted later is what stands at the path then.
    #[test]
    fn a_library_in_a_directory_of_a_users_is_none() {
        if !crate::host::is_root() {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let library = place.path().join("libcuda.so.550.54.15");
        fs::write(&library, "").unwrap();
        assert_eq!(roots_file(&library), Some(library.clone()));
        std::os::unix::fs::chown(place.path(), Some(65_533), None).unwrap();
        assert_eq!(roots_file(&library), None);
    }

    /// CVE-2025-23267 and its like: a link in a root made the host read or write its own file.
    #[test]
    fn a_roots_cache_is_read_without_following_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        fs::create_dir_all(root.join("etc")).unwrap();
        assert_eq!(root_cache(&root).unwrap(), []);
        let entry = Entry { soname: "liba.so".into(), path: "/liba.so".into(), flags: 0x0303, hwcap: 0 };
        let place = root.join("etc/ld.so.cache");
        fs::write(&place, ldcache::write(std::slice::from_ref(&entry))).unwrap();
        assert_eq!(root_cache(&root).unwrap(), [entry]);
        fs::rename(&place, directory.path().join("outside")).unwrap();
        std::os::unix::fs::symlink("../../outside", &place).unwrap();
        assert_eq!(root_cache(&root).unwrap(), []);
        fs::remove_file(&place).unwrap();
        fs::write(&place, "no cache").unwrap();
        assert_eq!(root_cache(&root).unwrap(), []);
    }
}
