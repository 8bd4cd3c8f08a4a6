//! The spec: a policy resolved against this host.
//!
//! An OCI runtime document says most of it; [`Extension`] says what that document has no words for.
//! An engine's bundle is a `Spec` with a default extension.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::gpu::ldcache::Entry;

/// What a sandbox is to be on this host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// The OCI runtime document: process, mounts, namespaces, resources, seccomp.
    pub oci: oci_spec::runtime::Spec,
    /// Airlock's additions.
    pub airlock: Extension,
}

/// The part of a spec that OCI cannot express.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Extension {
    /// Name of the policy, as the user asked for it.
    pub policy: String,
    /// `sha256:<hex>` of the policy after `extends`, command line and defaults were merged.
    pub policy_digest: String,
    /// Where `/` comes from.
    pub root: RootKind,
    /// Where writes to `/` go.
    pub writable: Writable,
    /// Files, links and directories of a root that Airlock assembles itself (`host` and `empty`),
    /// in the order in which they are made.
    pub skeleton: Vec<Node>,
    /// How ids inside relate to ids of the host.
    pub ids: IdMode,
    /// What becomes of the caller's supplementary groups.
    pub groups: Groups,
    /// What the network namespace contains.
    pub network: Network,
    /// Landlock's floor and what narrows the rights derived from the mounts; absent: no Landlock.
    pub landlock: Option<Landlock>,
    /// Wall-clock limit in milliseconds.
    pub wall_ms: Option<u64>,
    /// Namespaces may be made inside (a second user namespace, for nested sandboxes).
    pub nesting: bool,
    /// Clauses that may be lowered to what the host can do; the end report says which were.
    pub best_effort: BTreeSet<BestEffort>,
    /// GPUs asked for.
    pub gpu: Option<Gpu>,
    /// Policy clause that a mount, and what GPUs bring, comes from, by path inside.
    pub origins: BTreeMap<PathBuf, String>,
}

/// Where `/` comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "path")]
pub enum RootKind {
    /// A fresh tmpfs holding the skeleton, with parts of the host bound into it.
    Host,
    /// A directory of the host.
    Dir(PathBuf),
    /// A fresh tmpfs holding the skeleton alone.
    #[default]
    Empty,
}

/// Where writes to `/` go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "to")]
pub enum Writable {
    /// Nowhere: `/` is read-only.
    #[default]
    None,
    /// Into memory, gone with the sandbox.
    Tmpfs {
        /// Size in bytes.
        size: u64,
    },
    /// Into the upper directory of an overlay, kept after the sandbox.
    Dir {
        /// Existing directory of the host that receives `upper` and `work`.
        path: PathBuf,
    },
}

/// One entry of an assembled root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "node")]
pub enum Node {
    /// A directory.
    Dir {
        /// Absolute path inside.
        path: PathBuf,
        /// Permission bits.
        mode: u32,
        /// Owned by the payload's user instead of the sandbox's root.
        user_owned: bool,
    },
    /// A symbolic link.
    Link {
        /// Absolute path inside.
        path: PathBuf,
        /// Its text.
        target: PathBuf,
    },
    /// A regular file with this content.
    File {
        /// Absolute path inside.
        path: PathBuf,
        /// Permission bits.
        mode: u32,
        /// The bytes.
        content: String,
    },
    /// A copy of a small regular file of the host (1 MiB at most), left out if the host lacks it.
    Copy {
        /// Absolute path inside.
        path: PathBuf,
        /// The host's file.
        source: PathBuf,
    },
    /// A cache of the dynamic loader.
    LoaderCache {
        /// Absolute path inside.
        path: PathBuf,
        /// What it finds.
        entries: Vec<Entry>,
    },
}

/// How ids inside relate to ids of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdMode {
    /// `range` for root, `single` for an ordinary user.
    #[default]
    Auto,
    /// Root: 65,536 ids of the pool, no two live sandboxes share one; read-write binds are idmapped.
    Range,
    /// Root: a range, but the payload's id is the host owner of the read-write binds.
    /// For file systems that refuse idmapped mounts.
    Direct,
    /// Ordinary user: the payload's id is the caller's, and no other id exists.
    Single,
    /// Ordinary user: the caller's id and a subordinate range through `newuidmap`.
    Subids,
}

/// What becomes of the caller's supplementary groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Groups {
    /// Dropped where the kernel lets the caller drop them; else kept, and reported as kept.
    #[default]
    Auto,
    /// Dropped, or the launch is refused.
    None,
}

/// What the network namespace contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// A loopback interface that is down, nothing else.
    #[default]
    None,
    /// A loopback interface that is up, nothing else.
    Loopback,
}

/// Landlock's floor, and what narrows the rights that the mounts imply.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Landlock {
    /// Lowest ABI accepted; 0 means best effort.
    pub min_abi: u8,
    /// Paths inside that may be read and executed; absent: all mounts.
    pub read: Option<Vec<PathBuf>>,
    /// Paths inside that may be written; absent: all writable mounts.
    pub write: Option<Vec<PathBuf>>,
}

/// Clauses that a policy may allow to be lowered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BestEffort {
    /// Cgroup limits: memory, cpus, cpuset, pids.
    Limits,
    /// The device cgroup filter.
    Devices,
}

/// GPUs asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gpu {
    /// How many, of any kind.
    pub count: Option<u32>,
    /// Or exactly these: index, UUID, MIG UUID or PCI address.
    pub devices: Vec<String>,
    /// Driver capabilities, as the vendor names them; empty: `compute` and `utility`.
    pub capabilities: Vec<String>,
    /// Others may hold the same GPUs at the same time.
    pub shared: bool,
    /// Most memory that the sandbox may use of each, in bytes; it is ended when it has more.
    pub memory: Option<u64>,
    /// Most energy that each may take while the sandbox runs, in joules.
    pub energy: Option<u64>,
    /// Most that each may be busy, as a mean over a minute, in percent.
    pub utilisation: Option<u8>,
    /// They are reset when the sandbox has ended.
    pub reset: bool,
    /// What else of the driver is let in.
    pub features: BTreeSet<GpuFeature>,
    /// Devices of the host's CDI documents, as `vendor.com/class=name`.
    pub cdi: Vec<String>,
    /// Hooks of CDI documents are left out, instead of refused.
    pub skip_hooks: bool,
    /// Render nodes of other vendors' drivers.
    pub nodes: Vec<PathBuf>,
}

/// A part of NVIDIA's driver, or a service of it on the host, that is let in on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GpuFeature {
    /// Memory of the GPU mapped for the CPU: `/dev/gdrdrv`.
    Gdrcopy,
    /// GPUDirect Storage: `/dev/nvidia-fs0` and so on.
    Gds,
    /// Memory exchange between machines: IMEX channel 0.
    Imex,
    /// The socket of nvidia-persistenced.
    Persistenced,
    /// The socket of the fabric manager.
    Fabricmanager,
    /// The control socket of the multi-process service.
    Mps,
}

impl GpuFeature {
    /// As policies write it.
    pub fn word(self) -> &'static str {
        match self {
            GpuFeature::Gdrcopy => "gdrcopy",
            GpuFeature::Gds => "gds",
            GpuFeature::Imex => "imex",
            GpuFeature::Persistenced => "persistenced",
            GpuFeature::Fabricmanager => "fabricmanager",
            GpuFeature::Mps => "mps",
        }
    }
}

impl Spec {
    /// `sha256:<hex>` of the spec's canonical JSON (object keys sorted, no white space).
    ///
    /// OCI documents hold hash sets whose order changes from run to run, so lists of capabilities are
    /// sorted too.
    pub fn digest(&self) -> Result<String, serde_json::Error> {
        let mut value = serde_json::to_value(self)?;
        if let Some(capabilities) = value.pointer_mut("/oci/process/capabilities") {
            sort_lists(capabilities);
        }
        Ok(digest(serde_json::to_string(&value)?.as_bytes()))
    }
}

/// `sha256:<hex>` of some bytes.
pub fn digest(bytes: &[u8]) -> String {
    use std::fmt::Write;
    Sha256::digest(bytes).iter().fold(String::from("sha256:"), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn sort_lists(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Array(items) => items.sort_by_key(ToString::to_string),
        serde_json::Value::Object(fields) => fields.values_mut().for_each(sort_lists),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_does_not_depend_on_hash_set_order() {
        let spec = Spec { oci: oci_spec::runtime::Spec::default(), airlock: Extension::default() };
        let text = serde_json::to_string(&spec).unwrap();
        for _ in 0..20 {
            let again: Spec = serde_json::from_str(&text).unwrap();
            assert_eq!(again.digest().unwrap(), spec.digest().unwrap());
        }
    }
}
