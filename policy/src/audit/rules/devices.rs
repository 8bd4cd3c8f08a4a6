//! Device nodes and GPUs.

use airlock_runtime::spec::GpuFeature;
use serde_json::Value;

use super::super::document::{Mount, below};
use super::super::rule::{Area, Check, Rule, Severity};
use crate::schema::BestEffort;

/// Nodes that every engine makes (major, minor): null, zero, full, random, urandom, tty, console, ptmx.
const USUAL: [(i64, i64); 8] = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 1), (5, 2)];
/// mem, kmem, port, kmsg: memory and log of the host.
const MEMORY: [(i64, i64); 4] = [(1, 1), (1, 2), (1, 4), (1, 11)];
/// Slaves of pseudo-terminals.
const TERMINALS: i64 = 136;
/// NVIDIA's GPUs.
const NVIDIA: i64 = 195;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "AL090",
        area: Area::Devices,
        severity: Severity::High,
        title: "every device is allowed",
        why: "a node that is mounted, made or inherited opens the host's disks, memory and GPUs",
        reference: "nvidia-docker#1405, Documentation/admin-guide/cgroup-v1/devices.rst",
        remedy: "deny all first: `{\"allow\": false, \"access\": \"rwm\"}`, then allow what is needed",
        check: Check::Sandbox(|subject, hits| {
            let document = subject.document();
            // No node can be made in a user namespace, and an ordinary user can have no filter there.
            let roots = |list| document.items(list).any(|(_, map)| map["hostID"] == 0);
            if document.namespace("user").is_some() && !roots("/linux/uidMappings") {
                return;
            }
            let rules: Vec<_> = document.items("/linux/resources/devices").collect();
            let denies = |rule: &Value| rule["allow"] == false && is_every(rule);
            let allows = rules.iter().rfind(|(_, rule)| rule["allow"] == true && is_every(rule));
            if let Some((at, _)) = allows {
                hits.member(at.clone(), "a rule allows every device");
            } else if !rules.iter().any(|(_, rule)| denies(rule)) {
                hits.member("/linux/resources/devices", "no rule denies the devices that nobody named");
            }
        }),
    },
    Rule {
        id: "AL091",
        area: Area::Devices,
        severity: Severity::High,
        title: "disks or memory of the host",
        why: "a block device holds every file of the host, and the memory devices its kernel",
        reference: "mem(4), Documentation/ABI/testing/dev-kmsg",
        remedy: "leave the node out",
        check: Check::Sandbox(|subject, hits| {
            for (at, device) in allowed(subject.document()) {
                let place = (device["major"].as_i64().unwrap_or(-1), device["minor"].as_i64().unwrap_or(-1));
                let block = device["type"] == "b" && !only_mknod(device);
                if (block || MEMORY.contains(&place)) && !is_every(device) {
                    hits.member(at, named(device));
                }
            }
        }),
    },
    Rule {
        id: "AL092",
        area: Area::Devices,
        severity: Severity::Medium,
        title: "devices beyond the usual ones",
        why: "each driver is kernel code that answers ioctls of the code inside; fuse, tun and kvm make more",
        reference: "Documentation/admin-guide/devices.txt",
        remedy: "name what the command fails without",
        check: Check::Sandbox(|subject, hits| {
            for (at, device) in allowed(subject.document()) {
                let (major, minor) =
                    (device["major"].as_i64().unwrap_or(-1), device["minor"].as_i64().unwrap_or(-1));
                let usual = USUAL.contains(&(major, minor)) || MEMORY.contains(&(major, minor));
                let other = device["type"] == "c" || device["type"] == "u";
                if other
                    && !usual
                    && major != TERMINALS
                    && major != NVIDIA
                    && !only_mknod(device)
                    && !is_every(device)
                {
                    hits.member(at, named(device));
                }
            }
        }),
    },
    Rule {
        id: "AL093",
        area: Area::Devices,
        severity: Severity::Medium,
        title: "every GPU",
        why: "another tenant's GPU can be used, watched and filled; CUDA_VISIBLE_DEVICES is advice to the library only",
        reference: "apptainer#2203, LeftoverLocals CVE-2023-4969",
        remedy: "name the GPUs that the command has a lease of",
        check: Check::Sandbox(|subject, hits| {
            let document = subject.document();
            for (at, device) in document.items("/linux/resources/devices") {
                if device["allow"] == true
                    && device["major"] == NVIDIA
                    && device["minor"].as_i64().is_none_or(|minor| minor < 0)
                {
                    hits.member(at, "every node of NVIDIA's driver is allowed");
                }
            }
            let gpu = subject.policy().and_then(|policy| policy.gpu.as_ref());
            if gpu.is_some_and(|gpu| gpu.devices.iter().any(|device| device == "all")) {
                hits.clause("gpu.devices", "`all`");
            }
            for name in gpu.iter().flat_map(|gpu| &gpu.cdi).filter(|name| name.ends_with("=all")) {
                hits.clause("gpu.cdi", format!("`{name}`"));
            }
            for (at, name, value) in document.env() {
                if name == "NVIDIA_VISIBLE_DEVICES" && value == "all" {
                    hits.member(at, "the container toolkit is asked for every GPU");
                }
            }
        }),
    },
    Rule {
        id: "AL094",
        area: Area::Devices,
        severity: Severity::Low,
        title: "more of the GPU driver than computing needs",
        why: "graphics, display and video are further libraries and ioctls of the driver",
        reference: "CVE-2024-0132, CVE-2025-23359",
        remedy: "`capabilities = [\"compute\", \"utility\"]`",
        check: Check::Sandbox(|subject, hits| {
            let wide = |name: &str| !matches!(name, "compute" | "utility");
            let gpu = subject.policy().and_then(|policy| policy.gpu.as_ref());
            for name in gpu.iter().flat_map(|gpu| &gpu.capabilities).filter(|name| wide(name)) {
                hits.clause("gpu.capabilities", format!("`{name}`"));
            }
            for (at, name, value) in subject.document().env() {
                if name == "NVIDIA_DRIVER_CAPABILITIES" && value.split(',').any(wide) {
                    hits.member(at, format!("{name}={value}"));
                }
            }
        }),
    },
    Rule {
        id: "AL095",
        area: Area::Devices,
        severity: Severity::High,
        title: "the host's /dev",
        why: "the nodes of all disks, terminals and GPUs are in the tree, and those that come later too",
        reference: "CVE-2026-41579",
        remedy: "a tmpfs at /dev with the nodes that are needed",
        check: Check::Sandbox(|subject, hits| {
            for mount in subject.document().mounts().filter(Mount::is_bind) {
                if mount.source.trim_end_matches('/') == "/dev" {
                    hits.member(format!("{}/source", mount.at), "the host's /dev is mounted");
                }
            }
        }),
    },
    Rule {
        id: "AL096",
        area: Area::Devices,
        severity: Severity::Low,
        title: "the device filter may be missing",
        why: "with `best_effort` a host that cannot filter devices starts the sandbox all the same",
        reference: "claude-code#49018",
        remedy: "leave `devices` out of `best_effort`",
        check: Check::Sandbox(|subject, hits| {
            if subject.policy().is_some_and(|policy| policy.best_effort.contains(&BestEffort::Devices)) {
                hits.clause("best_effort", "`devices` may be lowered");
            }
        }),
    },
    Rule {
        id: "AL097",
        area: Area::Devices,
        severity: Severity::Medium,
        title: "a device node of the host is mounted",
        why: "a bind of a node brings the driver inside, whatever the list of devices says",
        reference: "claude-code#64530",
        remedy: "name it in `linux.devices`, with a rule for it",
        check: Check::Sandbox(|subject, hits| {
            for mount in subject.document().mounts().filter(Mount::is_bind) {
                let inner = mount.source.trim_start_matches("/dev/");
                let usual =
                    ["null", "zero", "full", "random", "urandom", "tty", "console", "pts", "shm", "mqueue"];
                let own = inner.split('/').next().is_some_and(|name| usual.contains(&name));
                if below(mount.source, "/dev") && mount.source.len() > "/dev/".len() && !own {
                    hits.member(format!("{}/source", mount.at), format!("{} is mounted", mount.source));
                }
            }
        }),
    },
    Rule {
        id: "AL098",
        area: Area::Devices,
        severity: Severity::Medium,
        title: "a GPU that others hold too",
        why: "who runs on the same GPU can read what a kernel leaves in its local memory, and time its work",
        reference: "LeftoverLocals CVE-2023-4969",
        remedy: "leave `shared` out, or share by MIG slices, which have memory of their own",
        check: Check::Sandbox(|subject, hits| {
            if subject.policy().and_then(|policy| policy.gpu.as_ref()).is_some_and(|gpu| gpu.shared) {
                hits.clause("gpu.shared", "`shared`");
            }
        }),
    },
    Rule {
        id: "AL099",
        area: Area::Devices,
        severity: Severity::Medium,
        title: "a service of the GPU driver is reachable",
        why: "it runs as root on the host and serves every user of the GPUs",
        reference: "CVE-2024-0132, libnvidia-container nvc_mount.c",
        remedy: "leave it out of `features`",
        check: Check::Sandbox(|subject, hits| {
            let gpu = subject.policy().and_then(|policy| policy.gpu.as_ref());
            for feature in gpu.iter().flat_map(|gpu| &gpu.features) {
                if matches!(feature, GpuFeature::Persistenced | GpuFeature::Fabricmanager | GpuFeature::Mps) {
                    hits.clause("gpu.features", format!("`{}`", feature.word()));
                }
            }
        }),
    },
];

/// Device nodes to be made, and rules that allow some.
fn allowed(document: &super::super::document::Document) -> Vec<(String, &Value)> {
    let rules = document.items("/linux/resources/devices").filter(|(_, rule)| rule["allow"] == true);
    document.items("/linux/devices").chain(rules).collect()
}

/// A rule without type, or for all types, and without numbers.
fn is_every(rule: &Value) -> bool {
    let any = |key: &str| rule[key].as_i64().is_none_or(|number| number < 0);
    let kind = rule["type"].as_str().is_none_or(|kind| kind.is_empty() || kind == "a");
    rule["allow"].is_boolean() && kind && any("major") && any("minor")
}

/// Engines allow mknod of everything, which opens nothing.
fn only_mknod(rule: &Value) -> bool {
    rule["access"] == "m"
}

fn named(device: &Value) -> String {
    if let Some(path) = device["path"].as_str() {
        return path.to_owned();
    }
    let number = |key: &str| device[key].as_i64().filter(|number| *number >= 0);
    let text = |key: &str| number(key).map_or_else(|| "*".into(), |number| number.to_string());
    format!("{} {}:{}", device["type"].as_str().unwrap_or("?"), text("major"), text("minor"))
}
