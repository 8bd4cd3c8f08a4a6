//! Small edits of specs, and questions to them.

use std::path::Path;

use oci_spec::runtime::{
    Capability, Linux, LinuxCapabilities, LinuxDevice, LinuxDeviceCgroupBuilder, LinuxNamespaceType,
    LinuxResources, Mount, MountBuilder, PosixRlimitType,
};

use crate::spec::Spec;

/// Options of a read-only bind mount, as policies resolve to them.
const READ_ONLY: [&str; 6] = ["rbind", "rprivate", "rro", "rnosuid", "rnodev", "rnoexec"];
/// As good as no limit for what a probe tries.
const ROOMY: &str = "size=1073741824";

/// Which mounts are meant.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    Path(&'a Path),
    Shm,
    /// `/tmp`, and what shares its settings.
    Tmp,
}

impl Place<'_> {
    fn is(&self, mount: &Mount) -> bool {
        let tmpfs = mount.typ().as_deref() == Some("tmpfs");
        match self {
            Place::Path(path) => mount.destination() == path,
            Place::Shm => tmpfs && mount.destination() == Path::new("/dev/shm"),
            Place::Tmp => {
                tmpfs
                    && ["/tmp", "/home/user", "/root"]
                        .iter()
                        .any(|path| mount.destination() == Path::new(path))
            }
        }
    }
}

pub(super) fn linux(spec: &mut Spec, edit: impl FnOnce(&mut Linux)) {
    if let Some(linux) = spec.oci.linux_mut() {
        edit(linux);
    }
}

pub(super) fn resources(spec: &mut Spec, edit: impl FnOnce(&mut LinuxResources)) {
    linux(spec, |linux| {
        if let Some(resources) = linux.resources_mut() {
            edit(resources);
        }
    });
}

pub(super) fn share(spec: &mut Spec, kind: LinuxNamespaceType) {
    linux(spec, |linux| {
        if let Some(namespaces) = linux.namespaces_mut() {
            namespaces.retain(|namespace| namespace.typ() != kind);
        }
    });
}

pub(super) fn has_namespace(spec: &Spec, kind: LinuxNamespaceType) -> bool {
    let linux = spec.oci.linux().as_ref();
    linux.and_then(|linux| linux.namespaces().as_ref()).into_iter().flatten().any(|one| one.typ() == kind)
}

/// Replaces a mount option.
pub(super) fn option(spec: &mut Spec, place: Place<'_>, old: &str, new: &str) {
    for mount in spec.oci.mounts_mut().iter_mut().flatten().filter(|mount| place.is(mount)) {
        for option in mount.options_mut().iter_mut().flatten().filter(|option| *option == old) {
            new.clone_into(option);
        }
    }
}

pub(super) fn has_option(spec: &Spec, place: Place<'_>, wanted: &str) -> bool {
    let mut mounts = spec.oci.mounts().iter().flatten().filter(|mount| place.is(mount));
    mounts.any(|mount| mount.options().iter().flatten().any(|option| option == wanted))
}

/// The size of a tmpfs, if it has one.
pub(super) fn size(spec: &Spec, place: Place<'_>) -> Option<u64> {
    let mut mounts = spec.oci.mounts().iter().flatten().filter(|mount| place.is(mount));
    mounts.find_map(|mount| {
        mount.options().iter().flatten().find_map(|option| option.strip_prefix("size=")?.parse().ok())
    })
}

pub(super) fn set_size(spec: &mut Spec, place: Place<'_>, text: &str) {
    for mount in spec.oci.mounts_mut().iter_mut().flatten().filter(|mount| place.is(mount)) {
        for option in mount.options_mut().iter_mut().flatten().filter(|option| option.starts_with("size=")) {
            text.clone_into(option);
        }
    }
}

pub(super) fn resize(spec: &mut Spec, place: Place<'_>) {
    set_size(spec, place, ROOMY);
}

/// Mounts a directory of the host at its own path, read-only.
pub(super) fn show(spec: &mut Spec, path: &Path) {
    let options: Vec<String> = READ_ONLY.map(String::from).to_vec();
    let mount = MountBuilder::default().destination(path).source(path).typ("bind").options(options).build();
    let mut mounts = spec.oci.mounts().clone().unwrap_or_default();
    mounts.extend(mount);
    // What lies deeper comes later.
    mounts.sort_by(|a, b| a.destination().as_os_str().cmp(b.destination().as_os_str()));
    spec.oci.set_mounts(Some(mounts));
    spec.airlock.origins.insert(path.to_path_buf(), "audit".into());
}

/// Whether a mount shows this path of the host at the same place inside.
pub(super) fn shows(spec: &Spec, path: &Path) -> bool {
    spec.oci.mounts().iter().flatten().any(|mount| {
        mount.typ().as_deref() == Some("bind")
            && path.starts_with(mount.destination())
            && mount.source().as_deref() == Some(mount.destination().as_path())
    })
}

/// Every capability but CAP_SYS_ADMIN, with which the runtime builds no sandbox.
pub(super) fn keep_capabilities(spec: &mut Spec) {
    let kept = caps::all().into_iter().filter(|one| *one != caps::Capability::CAP_SYS_ADMIN);
    let kept: std::collections::HashSet<Capability> = kept
        .filter_map(|one| one.to_string().trim_start_matches("CAP_").parse::<Capability>().ok())
        .collect();
    let mut sets = LinuxCapabilities::default();
    sets.set_bounding(Some(kept.clone()));
    sets.set_effective(Some(kept.clone()));
    sets.set_inheritable(Some(kept.clone()));
    sets.set_permitted(Some(kept.clone()));
    sets.set_ambient(Some(kept));
    if let Some(process) = spec.oci.process_mut() {
        process.set_capabilities(Some(sets));
    }
}

pub(super) fn keeps_capability(spec: &Spec, number: u8) -> bool {
    let sets = spec.oci.process().as_ref().and_then(|process| process.capabilities().as_ref());
    let kept = sets.and_then(|sets| sets.permitted().as_ref());
    kept.into_iter().flatten().any(|one| crate::capabilities::number(*one) == number)
}

pub(super) fn become_root(spec: &mut Spec) {
    if let Some(process) = spec.oci.process_mut() {
        let mut user = process.user().clone();
        user.set_uid(0).set_gid(0);
        process.set_user(user);
    }
}

pub(super) fn add_device(spec: &mut Spec, device: Option<LinuxDevice>) {
    linux(spec, |linux| {
        let mut devices = linux.devices().clone().unwrap_or_default();
        devices.extend(device);
        linux.set_devices(Some(devices));
    });
}

/// The rules that GPUs add would be a filter of their own where there is none; where all is let through they are not.
pub(super) fn open_device_filter(spec: &mut Spec) {
    let all =
        spec.airlock.gpu.as_ref().and_then(|_| LinuxDeviceCgroupBuilder::default().allow(true).build().ok());
    resources(spec, |resources| {
        resources.set_devices(all.map(|all| vec![all]));
    });
}

/// There are rules, and not all is let through.
pub(super) fn has_device_filter(resources: &LinuxResources) -> bool {
    resources.devices().iter().flatten().any(|rule| !rule.allow())
}

pub(super) fn has_device(spec: &Spec, path: &Path) -> bool {
    let linux = spec.oci.linux().as_ref();
    linux.and_then(|linux| linux.devices().as_ref()).into_iter().flatten().any(|device| device.path() == path)
}

pub(super) fn set_variable(spec: &mut Spec, pair: &str) {
    if let Some(process) = spec.oci.process_mut() {
        let mut env = process.env().clone().unwrap_or_default();
        env.push(pair.to_owned());
        process.set_env(Some(env));
    }
}

pub(super) fn has_variable(spec: &Spec, name: &str) -> bool {
    let env = spec.oci.process().as_ref().and_then(|process| process.env().as_ref());
    env.into_iter().flatten().any(|pair| pair.split_once('=').is_some_and(|(key, _)| key == name))
}

pub(super) fn unlimit(spec: &mut Spec, kind: PosixRlimitType) {
    if let Some(process) = spec.oci.process_mut() {
        let mut limits = process.rlimits().clone().unwrap_or_default();
        limits.retain(|limit| limit.typ() != kind);
        process.set_rlimits(Some(limits));
    }
}

pub(super) fn limit(spec: &Spec, kind: PosixRlimitType) -> Option<u64> {
    let limits = spec.oci.process().as_ref().and_then(|process| process.rlimits().as_ref());
    limits.into_iter().flatten().find(|limit| limit.typ() == kind).map(|limit| limit.hard())
}
