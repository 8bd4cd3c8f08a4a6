//! Edits applied to an OCI document.

use std::path::PathBuf;

use oci_spec::OciSpecError;
use oci_spec::runtime::{
    HookBuilder, Hooks, LinuxDeviceBuilder, LinuxDeviceCgroupBuilder, LinuxDeviceType, MountBuilder, Spec,
};

use super::{ContainerEdits, DeviceNode, Hook};

/// Edits cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The document has no such part.
    #[error("the document has no `{0}`")]
    Missing(&'static str),
    /// The numbers of a node are not stated; see [`ContainerEdits::complete`].
    #[error("{0}: neither the edits nor the host say which device it is")]
    Numbers(PathBuf),
    /// A node that is not a device.
    #[error("{0}: is a FIFO or a block device; character devices alone are passed")]
    Kind(PathBuf),
    /// The document has the same path already, for something else.
    #[error("{0}: is used already")]
    Taken(PathBuf),
    /// Edits that no sandbox of Airlock carries out.
    #[error("`{0}` is not supported")]
    Unsupported(&'static str),
    /// A hook at a time that OCI does not know.
    #[error("hook {0:?}: there is no such time")]
    HookName(String),
    /// oci-spec refused a part.
    #[error(transparent)]
    Oci(#[from] OciSpecError),
}

impl ContainerEdits {
    /// Fills in the type and numbers of device nodes by what the host has at their paths, so that nothing is left to
    /// be looked up later.
    pub fn complete(&mut self, host: impl Fn(&std::path::Path) -> Option<(u32, u32)>) {
        for node in &mut self.device_nodes {
            let on_host = host(node.host_path.as_deref().unwrap_or(&node.path));
            if let (None, None, Some((major, minor))) = (node.major, node.minor, on_host) {
                node.kind.get_or_insert_with(|| "c".into());
                (node.major, node.minor) = (Some(major), Some(minor));
            }
        }
    }
}

/// Applies edits to an OCI document: variables, device nodes with the rules that allow them, mounts, groups, hooks.
///
/// A variable that is there is replaced. The filter never gets `m`: nobody inside makes nodes.
///
/// # Errors
/// The document lacks a part, or has something else at a path; a node whose numbers are not known.
pub fn apply(spec: &mut Spec, edits: &ContainerEdits) -> Result<(), ApplyError> {
    if !edits.net_devices.is_empty() {
        return Err(ApplyError::Unsupported("netDevices"));
    }
    if edits.intel_rdt.is_some() {
        return Err(ApplyError::Unsupported("intelRdt"));
    }
    environment(spec, edits)?;
    edits.device_nodes.iter().try_for_each(|node| device(spec, node))?;
    mounts(spec, edits)?;
    edits.hooks.iter().try_for_each(|hook| add_hook(spec, hook))
}

fn environment(spec: &mut Spec, edits: &ContainerEdits) -> Result<(), ApplyError> {
    if edits.env.is_empty() && edits.additional_gids.is_empty() {
        return Ok(());
    }
    let process = spec.process_mut().as_mut().ok_or(ApplyError::Missing("process"))?;
    let mut env = process.env().clone().unwrap_or_default();
    for variable in &edits.env {
        let name = &variable[..variable.find('=').map_or(variable.len(), |at| at + 1)];
        env.retain(|earlier| !earlier.starts_with(name));
        env.push(variable.clone());
    }
    process.set_env(Some(env));
    if !edits.additional_gids.is_empty() {
        let mut user = process.user().clone();
        let mut groups = user.additional_gids().clone().unwrap_or_default();
        // The specification leaves out 0: it would be root's group.
        for gid in edits.additional_gids.iter().filter(|gid| **gid != 0) {
            if !groups.contains(gid) {
                groups.push(*gid);
            }
        }
        user.set_additional_gids(Some(groups));
        process.set_user(user);
    }
    Ok(())
}

fn device(spec: &mut Spec, node: &DeviceNode) -> Result<(), ApplyError> {
    if !matches!(node.kind.as_deref(), None | Some("c" | "u")) {
        return Err(ApplyError::Kind(node.path.clone()));
    }
    let numbers = node.major.zip(node.minor).ok_or_else(|| ApplyError::Numbers(node.path.clone()))?;
    let (major, minor) = (i64::from(numbers.0), i64::from(numbers.1));
    let linux = spec.linux_mut().as_mut().ok_or(ApplyError::Missing("linux"))?;
    let mut devices = linux.devices().clone().unwrap_or_default();
    match devices.iter().find(|device| *device.path() == node.path) {
        Some(device) if (device.major(), device.minor()) == (major, minor) => {}
        Some(_) => return Err(ApplyError::Taken(node.path.clone())),
        None => {
            let mut device = LinuxDeviceBuilder::default()
                .path(&node.path)
                .typ(LinuxDeviceType::C)
                .major(major)
                .minor(minor)
                .file_mode(node.file_mode.unwrap_or(0o666));
            if let Some(uid) = node.uid {
                device = device.uid(uid);
            }
            if let Some(gid) = node.gid {
                device = device.gid(gid);
            }
            devices.push(device.build()?);
            linux.set_devices(Some(devices));
        }
    }
    let access = node.permissions.as_deref().unwrap_or("rw").replace('m', "");
    let mut resources = linux.resources().clone().unwrap_or_default();
    let mut rules = resources.devices().clone().unwrap_or_default();
    let rule = LinuxDeviceCgroupBuilder::default()
        .allow(true)
        .typ(LinuxDeviceType::C)
        .major(major)
        .minor(minor)
        .access(access)
        .build()?;
    if !rules.contains(&rule) {
        rules.push(rule);
    }
    resources.set_devices(Some(rules));
    linux.set_resources(Some(resources));
    Ok(())
}

fn mounts(spec: &mut Spec, edits: &ContainerEdits) -> Result<(), ApplyError> {
    let mut mounts = spec.mounts().clone().unwrap_or_default();
    for mount in &edits.mounts {
        let bind = mount.kind.as_deref().is_none_or(|kind| matches!(kind, "" | "bind" | "none"));
        let added = MountBuilder::default()
            .destination(&mount.container_path)
            .typ(if bind { "bind" } else { mount.kind.as_deref().unwrap_or_default() })
            .source(&mount.host_path)
            .options(mount.options.clone())
            .build()?;
        match mounts.iter().find(|earlier| *earlier.destination() == mount.container_path) {
            Some(earlier) if earlier.source() == added.source() => {}
            Some(_) => return Err(ApplyError::Taken(mount.container_path.clone())),
            None => mounts.push(added),
        }
    }
    spec.set_mounts(Some(mounts));
    Ok(())
}

fn add_hook(spec: &mut Spec, hook: &Hook) -> Result<(), ApplyError> {
    let mut built = HookBuilder::default().path(&hook.path).args(hook.args.clone()).env(hook.env.clone());
    if let Some(timeout) = hook.timeout {
        built = built.timeout(timeout);
    }
    let built = built.build()?;
    let mut hooks: Hooks = spec.hooks().clone().unwrap_or_default();
    macro_rules! add {
        ($get:ident, $set:ident) => {{
            let mut list = hooks.$get().clone().unwrap_or_default();
            list.push(built);
            hooks.$set(Some(list));
        }};
    }
    match hook.hook_name.as_str() {
        "createRuntime" => add!(create_runtime, set_create_runtime),
        "createContainer" => add!(create_container, set_create_container),
        "startContainer" => add!(start_container, set_start_container),
        "poststart" => add!(poststart, set_poststart),
        "poststop" => add!(poststop, set_poststop),
        other => return Err(ApplyError::HookName(other.into())),
    }
    spec.set_hooks(Some(hooks));
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn edits(value: serde_json::Value) -> ContainerEdits {
        serde_json::from_value(value).unwrap()
    }

    fn applied(value: serde_json::Value) -> Result<Spec, ApplyError> {
        let mut spec = Spec::default();
        apply(&mut spec, &edits(value)).map(|()| spec)
    }

    #[test]
    fn every_kind_of_edit_arrives() {
        let spec = applied(json!({
            "env": ["PATH=/x", "NEW=1"],
            "deviceNodes": [{ "path": "/dev/a", "major": 9, "minor": 1, "permissions": "rwm" }],
            "mounts": [{ "hostPath": "/x", "containerPath": "/y", "options": ["ro"] }],
            "hooks": [{ "hookName": "createContainer", "path": "/bin/hook", "args": ["hook"] }],
            "additionalGids": [44, 0],
        }))
        .unwrap();
        let process = spec.process().as_ref().unwrap();
        let paths = process.env().iter().flatten().filter(|variable| variable.starts_with("PATH="));
        assert_eq!(paths.collect::<Vec<_>>(), ["PATH=/x"]);
        assert_eq!(*process.user().additional_gids(), Some(vec![44]));
        let linux = spec.linux().as_ref().unwrap();
        assert_eq!(linux.devices().as_ref().unwrap().last().unwrap().major(), 9);
        let rules = linux.resources().as_ref().unwrap().devices().as_ref().unwrap();
        assert_eq!(rules.last().unwrap().access().as_deref(), Some("rw"), "nobody inside makes nodes");
        assert_eq!(spec.mounts().as_ref().unwrap().last().unwrap().destination().to_str(), Some("/y"));
        assert_eq!(spec.hooks().as_ref().unwrap().create_container().as_ref().unwrap().len(), 1);
    }

    #[test]
    fn numbers_come_from_the_edits_or_the_host_and_are_never_guessed() {
        let mut one = edits(json!({ "deviceNodes": [{ "path": "/dev/a", "hostPath": "/dev/b" }] }));
        assert!(matches!(apply(&mut Spec::default(), &one), Err(ApplyError::Numbers(_))));
        one.complete(|path| (path == std::path::Path::new("/dev/b")).then_some((9, 2)));
        assert_eq!((one.device_nodes[0].major, one.device_nodes[0].minor), (Some(9), Some(2)));
        assert!(apply(&mut Spec::default(), &one).is_ok());
    }

    #[test]
    fn what_is_not_carried_out_is_refused() {
        for (value, why) in [
            (json!({ "netDevices": [{}] }), "netDevices"),
            (json!({ "intelRdt": {} }), "intelRdt"),
            (
                json!({ "deviceNodes": [{ "path": "/dev/a", "type": "b", "major": 8, "minor": 0 }] }),
                "FIFO or a block",
            ),
            (json!({ "hooks": [{ "hookName": "later", "path": "/x" }] }), "no such time"),
            (json!({ "mounts": [{ "hostPath": "/x", "containerPath": "/proc" }] }), "used already"),
        ] {
            let error = applied(value).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
