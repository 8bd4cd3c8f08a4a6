//! procfs, sysfs and other file systems of the kernel.

use super::super::document::{Document, below};
use super::super::rule::{Area, Check, Rule, Severity};

/// What engines mask: contents of the kernel's memory, other tenants' keys and timers.
const HIDDEN: [&str; 4] = ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/scsi"];
/// What engines make read-only: a write to any of them reaches the whole host.
const FIXED: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "AL120",
        area: Area::Kernel,
        severity: Severity::Medium,
        title: "parts of /proc that tell of the host are not masked",
        why: "they show the kernel's memory, other users' keys, timers and disks",
        reference: "CVE-2025-31133, proc(5)",
        remedy: "mask what runc and crun mask",
        check: Check::Sandbox(|subject, hits| {
            let document = subject.document();
            let open: Vec<&str> = HIDDEN
                .into_iter()
                .filter(|path| has_proc(document) && !listed(document, "maskedPaths", path))
                .collect();
            if !open.is_empty() {
                hits.member("/linux/maskedPaths", format!("{} not masked", open.join(", ")));
            }
        }),
    },
    Rule {
        id: "AL121",
        area: Area::Kernel,
        severity: Severity::High,
        title: "parts of /proc that steer the host can be written",
        why: "core_pattern, modprobe and sysrq-trigger make root's kernel run what the writer names",
        reference: "CVE-2025-52881, CVE-2025-31133",
        remedy: "make read-only what runc and crun make read-only",
        check: Check::Sandbox(|subject, hits| {
            let document = subject.document();
            let covered =
                |path: &str| listed(document, "readonlyPaths", path) || listed(document, "maskedPaths", path);
            let open: Vec<&str> =
                FIXED.into_iter().filter(|path| has_proc(document) && !covered(path)).collect();
            if !open.is_empty() {
                hits.member("/linux/readonlyPaths", format!("{} not read-only", open.join(", ")));
            }
        }),
    },
    Rule {
        id: "AL122",
        area: Area::Kernel,
        severity: Severity::High,
        title: "/sys can be written",
        why: "uevent_helper, device drivers and power states are files in it",
        reference: "sysfs(5)",
        remedy: "leave /sys out, or mount it `ro`",
        check: Check::Sandbox(|subject, hits| {
            for mount in subject.document().mounts().filter(|mount| is_sys(mount.kind, mount.source)) {
                if mount.is_writable() {
                    hits.member(mount.at.clone(), format!("{} is read-write", mount.target));
                }
            }
        }),
    },
    Rule {
        id: "AL123",
        area: Area::Kernel,
        severity: Severity::Low,
        title: "/sys is shown",
        why: "it tells of the host's devices, firmware and memory, and of what runs beside",
        reference: "sysfs(5), trueforge#466",
        remedy: "leave it out, or show the parts that a driver's library needs",
        check: Check::Sandbox(|subject, hits| {
            for mount in subject.document().mounts().filter(|mount| is_sys(mount.kind, mount.source)) {
                if !mount.is_writable() {
                    hits.member(mount.at.clone(), format!("{} is shown", mount.target));
                }
            }
        }),
    },
    Rule {
        id: "AL124",
        area: Area::Kernel,
        severity: Severity::High,
        title: "control groups can be written",
        why: "release_agent runs a program on the host, and limits can be lifted from inside",
        reference: "CVE-2022-0492, CVE-2023-25809",
        remedy: "mount it `ro`, or leave it out",
        check: Check::Sandbox(|subject, hits| {
            for mount in subject.document().mounts() {
                let cgroup =
                    matches!(mount.kind, "cgroup" | "cgroup2") || below(mount.source, "/sys/fs/cgroup");
                if cgroup && mount.is_writable() {
                    hits.member(mount.at.clone(), format!("{} is read-write", mount.target));
                }
            }
        }),
    },
    Rule {
        id: "AL125",
        area: Area::Kernel,
        severity: Severity::High,
        title: "a /proc that is not the sandbox's own",
        why: "a bind of the host's, or a directory in its place, shows other processes and redirects what the runtime \
              writes there",
        reference: "CVE-2019-16884, CVE-2019-19921, hakoniwa#164",
        remedy: "a mount of type `proc` at /proc, and no part of the host's",
        check: Check::Sandbox(|subject, hits| {
            for mount in subject.document().mounts() {
                let at_proc = mount.target == "/proc" && mount.kind != "proc";
                if at_proc || (mount.is_bind() && below(mount.source, "/proc")) {
                    hits.member(mount.at.clone(), format!("{} at {}", mount.source, mount.target));
                }
            }
        }),
    },
    Rule {
        id: "AL126",
        area: Area::Kernel,
        severity: Severity::High,
        title: "interfaces for tracing and debugging the kernel",
        why: "debugfs, tracefs, securityfs, configfs and bpf are for root of the host alone",
        reference: "Documentation/filesystems/debugfs.rst",
        remedy: "leave them out",
        check: Check::Sandbox(|subject, hits| {
            for mount in subject.document().mounts() {
                let kinds = ["debugfs", "tracefs", "securityfs", "configfs", "bpf", "efivarfs", "pstore"];
                let trees =
                    ["/sys/kernel/debug", "/sys/kernel/tracing", "/sys/kernel/security", "/sys/fs/bpf"];
                if kinds.contains(&mount.kind) || trees.iter().any(|tree| below(mount.source, tree)) {
                    hits.member(mount.at.clone(), format!("{} at {}", mount.kind, mount.target));
                }
            }
        }),
    },
];

fn has_proc(document: &Document) -> bool {
    document.mounts().any(|mount| mount.kind == "proc")
}

fn listed(document: &Document, list: &str, path: &str) -> bool {
    document.texts(&format!("/linux/{list}")).any(|(_, listed)| below(path, listed))
}

fn is_sys(kind: &str, source: &str) -> bool {
    // Parts of /sys have rules of their own, or are chosen one by one.
    kind == "sysfs" || source.trim_end_matches('/') == "/sys"
}
