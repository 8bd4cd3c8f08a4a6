//! From what was chosen to a spec that gives it: pure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use oci_spec::runtime::MountBuilder;

use super::cdi::{self, ApplyError, CdiError, ContainerEdits, Name, NameError};
use super::host::GpuHostError;
use super::ldcache::Entry;
use super::{GpuHost, host, nvidia};
use crate::host::HostFacts;
use crate::spec::{Extension, Gpu, Node, RootKind, Spec};

/// The clause that GPUs come from.
const CLAUSE: &str = "gpu";
/// The PCI vendor whose GPUs are leased.
const NVIDIA: &str = "0x10de";

/// What GPUs need inside, beyond what the spec says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Provision {
    /// Nodes, files of the host, variables.
    pub edits: ContainerEdits,
    /// Directories that are covered by a read-only file system of the sandbox's own.
    pub covers: Vec<PathBuf>,
    /// Short files in them.
    pub files: BTreeMap<PathBuf, String>,
    /// Links, by path.
    pub links: BTreeMap<PathBuf, PathBuf>,
    /// What the loader finds inside; empty: what the root says.
    pub cache: Vec<Entry>,
    /// A directory of programs that goes to the end of `PATH`.
    pub path: Option<&'static str>,
}

/// GPUs cannot be given.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    /// Nothing was chosen.
    #[error("GPUs are asked for, and none was chosen: `airlock gpu list` shows what there is")]
    NotSelected,
    /// Whoever made the plan did not look at the host's GPUs.
    #[error("the host was not looked at for GPUs")]
    NotRead,
    /// A word that is no capability of the driver.
    #[error("capability {0:?} is not known; compute, utility, graphics and video are")]
    UnknownCapability(String),
    /// A driver that is not loaded.
    #[error("the kernel has no driver {driver}: {remedy}")]
    NoDriver {
        /// Its name in `/proc/devices`.
        driver: String,
        /// What to do.
        remedy: String,
    },
    /// A node that is not there.
    #[error("{path} is not there, or no character device: {remedy}")]
    NoNode {
        /// Its path on the host.
        path: PathBuf,
        /// What to do.
        remedy: String,
    },
    /// A node of another device.
    #[error(
        "{path} is device {}:{}, and should be {}:{}: somebody else made it; remove it and see what makes nodes there",
        found.0, found.1, expected.0, expected.1
    )]
    WrongNode {
        /// Its path on the host.
        path: PathBuf,
        /// What it is.
        found: (u32, u32),
        /// What the driver has registered.
        expected: (u32, u32),
    },
    /// A slice without a capability.
    #[error(
        "{uuid}: the driver lists no capability {capability}; it was removed, or the GPU was reset: choose again"
    )]
    NoSlice {
        /// The slice.
        uuid: String,
        /// As `/proc/driver/nvidia-caps/mig-minors` names it.
        capability: String,
    },
    /// No render node for graphics.
    #[error("the GPU {pci} has no render node: load the module nvidia-drm, or leave `graphics` out")]
    NoRenderNode {
        /// PCI address.
        pci: String,
    },
    /// A node that is named and is no render node.
    #[error("nodes: {0} is not a render node (/dev/dri/renderD128 and so on, /dev/kfd)")]
    NotARenderNode(PathBuf),
    /// A library that is not there.
    #[error(
        "the loader's cache has no {library} of version {version} that root alone can change: install the driver's \
         libraries (and run ldconfig)"
    )]
    NoLibrary {
        /// Its name without version.
        library: String,
        /// The driver's version.
        version: String,
    },
    /// A library of another version than the driver in the kernel.
    #[error(
        "{file} is not of version {version}, which the kernel's driver has: after an update, reboot or reload it"
    )]
    OtherVersion {
        /// The file.
        file: PathBuf,
        /// The driver's version.
        version: String,
    },
    /// The driver does not show what it always shows.
    #[error("{path} is not there: the driver is gone, or something covers /proc/driver")]
    NoText {
        /// The file.
        path: PathBuf,
    },
    /// The driver calls a GPU otherwise than it was chosen.
    #[error("{path} says minor number {found} of a GPU that was chosen as {expected}: choose again")]
    OtherMinor {
        /// The driver's word.
        path: PathBuf,
        /// It.
        found: String,
        /// What was chosen.
        expected: u32,
    },
    /// A node of NVIDIA's, of which others may have a lease.
    #[error(
        "nodes: {0} is of an NVIDIA GPU; `count` or `devices` with the capability `graphics` give its node, and a lease"
    )]
    LeasedNode(PathBuf),
    /// A service that does not listen.
    #[error(
        "features: {feature} is asked for, and {path} is not a socket of root's or yours: start the service"
    )]
    NoService {
        /// The feature.
        feature: &'static str,
        /// Where it should listen.
        path: PathBuf,
    },
    /// A CDI name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A CDI device.
    #[error(transparent)]
    Cdi(#[from] CdiError),
    /// A hook that is not run.
    #[error(
        "cdi: {name} wants {hook} of the host to be run ({count} hooks in all), which Airlock does not do: \
         `cdi_hooks = \"skip\"` leaves them out"
    )]
    Hooks {
        /// The devices asked for.
        name: String,
        /// The first program.
        hook: PathBuf,
        /// How many there are.
        count: usize,
    },
    /// A node that is another one on the host.
    #[error("cdi: {path} is {host} on the host; an ordinary user can only have nodes under their own names")]
    Renamed {
        /// Path inside.
        path: PathBuf,
        /// Path on the host.
        host: PathBuf,
    },
    /// The spec cannot be changed so.
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

/// The spec with its GPUs' needs in it; `None` if it asks for none.
///
/// # Errors
/// Whatever of it the host does not have exactly as it should be.
pub fn provided(spec: &Spec, facts: &HostFacts) -> Result<Option<Spec>, GpuError> {
    let Some(gpu) = &spec.airlock.gpu else { return Ok(None) };
    let host = facts.gpu_host.as_ref().ok_or(GpuError::NotRead)?;
    let mut provision = match &facts.gpu {
        Some(selection) => nvidia::provision(gpu, &spec.airlock.root, selection, host)?,
        None if gpu.count.is_some() || !gpu.devices.is_empty() => return Err(GpuError::NotSelected),
        // Devices of a document may be of the same driver.
        None if !gpu.cdi.is_empty() => nvidia::without_gpus(host),
        None => Provision::default(),
    };
    provision.edits.append(named_nodes(gpu, host)?);
    provision.edits.append(named_devices(gpu, spec, facts.root, host)?);
    let mut spec = spec.clone();
    provision.apply(&mut spec)?;
    Ok(Some(spec))
}

/// Checks that the host has the render nodes and the CDI devices that are asked for.
///
/// # Errors
/// As a launch would fail.
pub fn check_named(gpu: &Gpu) -> Result<(), NamedError> {
    let host = GpuHost::read(gpu, &RootKind::Empty, None)?;
    let spec = Spec { oci: oci_spec::runtime::Spec::default(), airlock: Extension::default() };
    let root = crate::host::is_root();
    let named = named_nodes(gpu, &host).and_then(|_| named_devices(gpu, &spec, root, &host));
    Ok(named.map(drop)?)
}

/// Why named devices cannot be given.
#[derive(Debug, thiserror::Error)]
pub enum NamedError {
    /// The host could not be read.
    #[error(transparent)]
    Host(#[from] GpuHostError),
    /// It does not have them so.
    #[error(transparent)]
    Gpu(#[from] GpuError),
}

impl Provision {
    fn apply(self, spec: &mut Spec) -> Result<(), GpuError> {
        let before = spec.oci.mounts().as_ref().map_or(0, Vec::len);
        cdi::apply(&mut spec.oci, &self.edits)?;
        let mut mounts = spec.oci.mounts().clone().unwrap_or_default();
        for cover in &self.covers {
            let options = ["ro", "nosuid", "nodev", "noexec", "mode=555", "size=4194304"].map(String::from);
            let mount = MountBuilder::default()
                .destination(cover)
                .typ("tmpfs")
                .source("tmpfs")
                .options(options.to_vec())
                .build();
            mounts.push(mount.map_err(ApplyError::from)?);
        }
        let nodes = self.edits.device_nodes.iter().map(|node| &node.path);
        let entries = self.files.keys().chain(self.links.keys()).chain(nodes);
        let paths = mounts[before..].iter().map(|mount| mount.destination()).chain(entries);
        spec.airlock.origins.extend(paths.map(|path| (path.clone(), CLAUSE.into())));
        spec.oci.set_mounts(Some(mounts));
        if let Some(linux) = spec.oci.linux_mut() {
            // What covers a directory shows more than nothing.
            let masked = linux.masked_paths().iter().flatten();
            let masked =
                masked.filter(|path| !self.covers.iter().any(|cover| cover.as_path() == Path::new(path)));
            let masked = masked.cloned().collect();
            linux.set_masked_paths(Some(masked));
        }
        let skeleton = &mut spec.airlock.skeleton;
        if !self.cache.is_empty() {
            // The first at a path counts, so that it goes before the host's own.
            let path = PathBuf::from("/etc/ld.so.cache");
            spec.airlock.origins.insert(path.clone(), CLAUSE.into());
            skeleton.insert(0, Node::LoaderCache { path, entries: self.cache });
        }
        let files = self.files.into_iter();
        skeleton.extend(files.map(|(path, content)| Node::File { path, mode: 0o444, content }));
        skeleton.extend(self.links.into_iter().map(|(path, target)| Node::Link { path, target }));
        if let (Some(directory), Some(process)) = (self.path, spec.oci.process_mut()) {
            let mut env = process.env().clone().unwrap_or_default();
            for variable in env.iter_mut().filter(|variable| variable.starts_with("PATH=")) {
                *variable += &format!(":{directory}");
            }
            process.set_env(Some(env));
        }
        Ok(())
    }
}

/// Render nodes of other vendors' drivers, named one by one.
fn named_nodes(gpu: &Gpu, host: &GpuHost) -> Result<ContainerEdits, GpuError> {
    let mut edits = ContainerEdits::default();
    for path in &gpu.nodes {
        let expected = render_node(path, host).ok_or_else(|| GpuError::NotARenderNode(path.clone()))?;
        let vendor = path.file_name().map(|name| Path::new(host::DRM).join(name).join("device/vendor"));
        if vendor.and_then(|vendor| host.texts.get(&vendor)).is_some_and(|text| text.trim() == NVIDIA) {
            return Err(GpuError::LeasedNode(path.clone()));
        }
        edits.device_nodes.push(nvidia::checked(host, path, expected, "load the driver")?);
    }
    Ok(edits)
}

/// The numbers of a render node by its name (Documentation/gpu/drm-uapi.rst); of `/dev/kfd` by its driver's.
fn render_node(path: &Path, host: &GpuHost) -> Option<(u32, u32)> {
    const DRM: u32 = 226;
    match path.to_str()? {
        "/dev/kfd" => Some((*host.majors.get("kfd")?, 0)),
        other => {
            let minor: u32 = other.strip_prefix("/dev/dri/renderD")?.parse().ok()?;
            (128..192).contains(&minor).then_some((DRM, minor))
        }
    }
}

/// What the CDI devices need that the spec names.
fn named_devices(gpu: &Gpu, spec: &Spec, root: bool, host: &GpuHost) -> Result<ContainerEdits, GpuError> {
    if gpu.cdi.is_empty() {
        return Ok(ContainerEdits::default());
    }
    let names: Vec<Name> = gpu.cdi.iter().map(|name| name.parse()).collect::<Result<_, _>>()?;
    let mut edits = host.cdi.edits(&names)?;
    if let Some(hook) = edits.hooks.first().filter(|_| !gpu.skip_hooks) {
        let (name, hook, count) = (gpu.cdi.join(", "), hook.path.clone(), edits.hooks.len());
        return Err(GpuError::Hooks { name, hook, count });
    }
    edits.hooks.clear();
    edits.complete(|path| host.nodes.get(path).copied());
    for node in &edits.device_nodes {
        let on_host = node.host_path.as_ref().unwrap_or(&node.path);
        if on_host != &node.path && !root {
            return Err(GpuError::Renamed { path: node.path.clone(), host: on_host.clone() });
        }
        let found = host.nodes.get(on_host).ok_or_else(|| GpuError::NoNode {
            path: on_host.clone(),
            remedy: "load the driver, or write the document anew".into(),
        })?;
        let expected = node.major.zip(node.minor).unwrap_or(*found);
        if *found != expected {
            return Err(GpuError::WrongNode { path: on_host.clone(), found: *found, expected });
        }
    }
    let asked: Vec<&Path> = nvidia::SOCKETS
        .iter()
        .filter(|(feature, _)| gpu.features.contains(feature))
        .map(|(_, path)| Path::new(path))
        .collect();
    edits.mounts.retain_mut(|mount| {
        mount.options.push("nodev".into());
        if host.sockets.contains(&mount.host_path) {
            // A service of the host is reached on request alone.
            mount.options.push("socket".into());
            return asked.contains(&mount.host_path.as_path());
        }
        !is_shown(spec, &mount.host_path, &mount.container_path)
    });
    Ok(edits)
}

/// A root that takes over the host's `/usr` has what lies there already.
fn is_shown(spec: &Spec, host: &Path, inside: &Path) -> bool {
    let takes_over = |mount: &oci_spec::runtime::Mount| {
        mount.source().as_deref() == Some(mount.destination().as_path())
            && inside.starts_with(mount.destination())
    };
    spec.airlock.root == RootKind::Host
        && host == inside
        && spec.oci.mounts().iter().flatten().any(takes_over)
}
