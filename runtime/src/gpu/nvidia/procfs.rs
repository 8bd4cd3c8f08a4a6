//! What `/proc/driver` shows inside: the driver, and the chosen GPUs alone.

use std::path::{Path, PathBuf};

use super::nodes::mig_minor;
use crate::gpu::{Chosen, GpuError, GpuHost, Provision, Selection};

/// The directory that is covered. It is there in every procfs, whatever drivers are loaded, and what else is in it
/// (`nvidia-nvswitch`, `rtc`) is nothing for a sandbox.
pub(super) const DRIVER: &str = "/proc/driver";

/// Adds a copy of what the driver says of itself, if it is loaded.
///
/// `ModifyDeviceFiles` is 0 in it, so that the driver's libraries do not try to make or change nodes.
pub(super) fn driver(provision: &mut Provision, host: &GpuHost) -> Result<(), GpuError> {
    let driver = Path::new(DRIVER).join("nvidia");
    let path = driver.join("params");
    let params = host.texts.get(&path).ok_or_else(|| GpuError::NoText { path: path.clone() })?;
    provision.files.insert(path, unmodified(params, "ModifyDeviceFiles"));
    for path in [driver.join("version"), driver.join("registry")] {
        if let Some(said) = host.texts.get(&path) {
            provision.files.insert(path, said.clone());
        }
    }
    provision.covers.push(DRIVER.into());
    Ok(())
}

/// Adds a copy of what the driver says of itself and of the chosen GPUs.
pub(super) fn provide(
    provision: &mut Provision,
    selection: &Selection,
    host: &GpuHost,
) -> Result<(), GpuError> {
    driver(provision, host)?;
    let driver = Path::new(DRIVER).join("nvidia");
    let text = |path: &Path| host.texts.get(path);
    let missing = |path: PathBuf| GpuError::NoText { path };
    let mut minors = String::new();
    for Chosen { gpu, instance } in &selection.gpus {
        let place = driver.join("gpus").join(&gpu.pci);
        let information = place.join("information");
        let said = text(&information).ok_or_else(|| missing(information.clone()))?;
        let minor = field(said, "Device Minor");
        if minor != Some(gpu.minor.to_string().as_str()) {
            let found = minor.unwrap_or("none").into();
            return Err(GpuError::OtherMinor { path: information, found, expected: gpu.minor });
        }
        for name in ["information", "registry", "power"] {
            let path = place.join(name);
            if let Some(said) = text(&path) {
                provision.files.insert(path, said.clone());
            }
        }
        let Some(instance) = instance else { continue };
        let card = format!("gpu{}", gpu.minor);
        let gi = format!("gi{}", instance.gi);
        for capability in [format!("{gi}/access"), format!("{gi}/ci{}/access", instance.ci)] {
            let path = driver.join("capabilities").join(&card).join("mig").join(&capability);
            if let Some(said) = text(&path) {
                provision.files.insert(path, unmodified(said, "DeviceFileModify"));
            }
            let name = format!("{card}/{capability}");
            let line = mig_minor(host, &name).map(|minor| format!("{name} {minor}\n"));
            minors.extend(line.filter(|line| !minors.contains(line.as_str())));
        }
    }
    if !minors.is_empty() {
        provision.files.insert(Path::new(DRIVER).join("nvidia-caps/mig-minors"), minors);
    }
    Ok(())
}

/// `text` with `key: 0`, whatever it said of it.
fn unmodified(text: &str, key: &str) -> String {
    let is_key = |line: &&str| field(line, key).is_some();
    let rest = text.lines().filter(|line| !is_key(line));
    let mut said: String = rest.flat_map(|line| [line, "\n"]).collect();
    said += &format!("{key}: 0\n");
    said
}

/// The value of `key: value`, where the driver puts blanks around both.
fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })
}
