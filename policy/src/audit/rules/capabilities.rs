//! Capabilities that undo the rest.

use super::super::rule::{Area, Check, Hits, Rule, Severity};
use super::super::subject::Subject;

/// Each of them is as good as root, or reads what belongs to others.
const ROOT: [&str; 12] = [
    "CAP_SYS_ADMIN",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_PTRACE",
    "CAP_SYS_BOOT",
    "CAP_BPF",
    "CAP_PERFMON",
    "CAP_DAC_READ_SEARCH",
    "CAP_MAC_ADMIN",
    "CAP_MAC_OVERRIDE",
    "CAP_CHECKPOINT_RESTORE",
    "CAP_SYSLOG",
];
const NETWORK: [&str; 2] = ["CAP_NET_ADMIN", "CAP_NET_RAW"];
const NODES: [&str; 1] = ["CAP_MKNOD"];

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "AL020",
        area: Area::Capabilities,
        severity: Severity::High,
        title: "a capability as good as root",
        why: "it undoes mounts, reads other processes or files past their permissions, or loads code into the kernel",
        reference: "capabilities(7), CVE-2022-0492",
        remedy: "leave it out; what needs it belongs outside of the sandbox",
        check: Check::Sandbox(|subject, hits| kept(subject, hits, &ROOT)),
    },
    Rule {
        id: "AL021",
        area: Area::Capabilities,
        severity: Severity::Medium,
        title: "raw or administrative network access",
        why: "forged packets mislead neighbours on a shared bridge, and packet sockets and netfilter are kernel code \
              with a history",
        reference: "CVE-2020-14386, CVE-2020-13401",
        remedy: "leave it out; ping works without it (net.ipv4.ping_group_range)",
        check: Check::Sandbox(|subject, hits| kept(subject, hits, &NETWORK)),
    },
    Rule {
        id: "AL022",
        area: Area::Capabilities,
        severity: Severity::Medium,
        title: "device nodes can be made",
        why: "a node of another GPU, or of the host's disk, is one mknod away where the device filter does not stop it",
        reference: "nvidia-docker#1405, nvidia-docker#170",
        remedy: "leave CAP_MKNOD out; name the nodes that are needed",
        check: Check::Sandbox(|subject, hits| kept(subject, hits, &NODES)),
    },
    Rule {
        id: "AL023",
        area: Area::Capabilities,
        severity: Severity::Low,
        title: "other capabilities are kept",
        why: "each one is a permission check less: owners and modes of files, ids, signals, low ports",
        reference: "capabilities(7)",
        remedy: "keep what the command fails without, and nothing else",
        check: Check::Sandbox(|subject, hits| {
            let graver =
                |name: &str| ROOT.contains(&name) || NETWORK.contains(&name) || NODES.contains(&name);
            let others: Vec<_> =
                subject.document().capabilities().filter(|(_, name)| !graver(name)).collect();
            if let Some((at, _)) = others.first() {
                let names: Vec<&str> = others.iter().map(|(_, name)| *name).collect();
                hits.member(at.clone(), names.join(", "));
            }
        }),
    },
    Rule {
        id: "AL024",
        area: Area::Capabilities,
        severity: Severity::Low,
        title: "capabilities outlive an execve",
        why: "inheritable and ambient sets hand capabilities to programs of an ordinary user that no file grants",
        reference: "CVE-2022-29162, CVE-2022-27650",
        remedy: "leave `inheritable` and `ambient` empty",
        check: Check::Sandbox(|subject, hits| {
            // A policy's `keep` fills all five sets, which is what AL020 to AL023 judge.
            for set in ["inheritable", "ambient"].into_iter().filter(|_| subject.is_bundle()) {
                let pointer = format!("/process/capabilities/{set}");
                let count = subject.document().texts(&pointer).count();
                if count > 0 {
                    hits.member(pointer, format!("the {set} set holds {count}"));
                }
            }
        }),
    },
];

fn kept(subject: &Subject, hits: &mut Hits<'_>, wanted: &[&str]) {
    for (at, name) in subject.document().capabilities().filter(|(_, name)| wanted.contains(name)) {
        hits.member(at, format!("{name} is kept"));
    }
}
