//! The document, field by field. Unknown fields are refused.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Versions of the interface that are understood, oldest first.
pub(super) const VERSIONS: [&str; 8] =
    ["0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"];

/// A document: the devices of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Document {
    /// Version of the interface.
    #[serde(rename = "cdiVersion")]
    pub version: String,
    /// `vendor/class`.
    pub kind: String,
    /// Notes of whoever wrote it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The devices.
    pub devices: Vec<Device>,
    /// What each of them needs.
    #[serde(default, skip_serializing_if = "ContainerEdits::is_empty")]
    pub container_edits: ContainerEdits,
}

/// One device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Device {
    /// Its name within its kind.
    pub name: String,
    /// Notes of whoever wrote it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// What it needs.
    pub container_edits: ContainerEdits,
}

/// What is changed in a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ContainerEdits {
    /// Variables, as `NAME=VALUE`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Device nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub device_nodes: Vec<DeviceNode>,
    /// Network interfaces that are moved in. Refused by [`apply()`](super::apply).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub net_devices: Vec<serde_json::Value>,
    /// Files and directories of the host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// Programs of the host that an engine runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
    /// Supplementary groups.
    #[serde(rename = "additionalGids", skip_serializing_if = "Vec::is_empty")]
    pub additional_gids: Vec<u32>,
    /// Intel's cache allocation. Refused by [`apply()`](super::apply).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intel_rdt: Option<serde_json::Value>,
}

/// A device node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceNode {
    /// Path inside.
    pub path: PathBuf,
    /// Path on the host, if it is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_path: Option<PathBuf>,
    /// `c`, `u`, `b` or `p`; absent: as on the host.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Major number; absent: as on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub major: Option<u32>,
    /// Minor number; absent: as on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor: Option<u32>,
    /// Permission bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_mode: Option<u32>,
    /// What the device filter allows: of `rwm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permissions: Option<String>,
    /// Owner inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Group inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<u32>,
}

/// A file or directory of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Mount {
    /// Path on the host.
    pub host_path: PathBuf,
    /// Path inside.
    pub container_path: PathBuf,
    /// Mount options.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
    /// Type; absent: a bind mount.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

/// A program of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Hook {
    /// When it is run, as OCI names it.
    pub hook_name: String,
    /// The program.
    pub path: PathBuf,
    /// Its arguments, its name first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Its environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Seconds that it may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
}

impl ContainerEdits {
    /// Nothing is changed.
    pub fn is_empty(&self) -> bool {
        *self == ContainerEdits::default()
    }

    /// Adds what `other` changes.
    pub fn append(&mut self, other: ContainerEdits) {
        self.env.extend(other.env);
        self.device_nodes.extend(other.device_nodes);
        self.net_devices.extend(other.net_devices);
        self.mounts.extend(other.mounts);
        self.hooks.extend(other.hooks);
        self.additional_gids.extend(other.additional_gids);
        self.intel_rdt = other.intel_rdt.or(self.intel_rdt.take());
    }
}

/// The full name of a device: `vendor/class=name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// `vendor/class`.
    pub kind: String,
    /// Its name within that.
    pub device: String,
}

/// A name that no device can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the name of a CDI device: `vendor.com/class=name` is its form")]
pub struct NameError(pub String);

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Name, NameError> {
        let parts = text.split_once('=').filter(|(kind, device)| is_kind(kind) && is_device(device));
        let (kind, device) = parts.ok_or_else(|| NameError(text.into()))?;
        Ok(Name { kind: kind.into(), device: device.into() })
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.kind, self.device)
    }
}

/// `vendor/class`, each of letters, digits, `_`, `-` and `.`, starting with a letter and ending with a letter or digit.
pub(super) fn is_kind(text: &str) -> bool {
    let word =
        |word: &str| is_word(word, "_-.") && word.starts_with(|first: char| first.is_ascii_alphabetic());
    text.split_once('/').is_some_and(|(vendor, class)| word(vendor) && word(class))
}

/// Letters, digits, `_`, `-`, `.` and `:`, starting and ending with a letter or digit.
pub(super) fn is_device(text: &str) -> bool {
    is_word(text, "_-.:")
}

fn is_word(text: &str, more: &str) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric();
    text.starts_with(plain)
        && text.ends_with(plain)
        && text.len() <= 256
        && text.chars().all(|letter| plain(letter) || more.contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_vendor_a_class_and_a_name() {
        let name: Name = "nvidia.com/gpu=GPU-8a:1".parse().unwrap();
        assert_eq!((name.kind.as_str(), name.device.as_str()), ("nvidia.com/gpu", "GPU-8a:1"));
        assert_eq!(name.to_string(), "nvidia.com/gpu=GPU-8a:1");
        for wrong in
            ["", "nvidia.com/gpu", "gpu=0", "a/b/c=0", "9a/gpu=0", "a/=0", "a/b=", "a/b=-0", "a/b=../0"]
        {
            assert!(wrong.parse::<Name>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_empty_document_is_written_without_its_empty_parts() {
        let document = Document { version: "1.0.0".into(), kind: "a/b".into(), ..Document::default() };
        let json = serde_json::to_string(&document).unwrap();
        assert_eq!(json, r#"{"cdiVersion":"1.0.0","kind":"a/b","devices":[]}"#);
    }
}
