//! Namespaces missing or shared.

use super::super::rule::{Area, Check, Hits, Rule, Severity};
use super::super::subject::Subject;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "AL001",
        area: Area::Namespaces,
        severity: Severity::Medium,
        title: "no user namespace",
        why: "uid 0 inside is uid 0 of the host: whatever gets out of the mounts is root at once",
        reference: "CVE-2019-5736, CVE-2022-0492",
        remedy: "add a namespace of type `user` with mappings to ids that nobody else has",
        check: Check::Sandbox(|subject, hits| missing(subject, hits, "user")),
    },
    Rule {
        id: "AL002",
        area: Area::Namespaces,
        severity: Severity::High,
        title: "the host's network",
        why: "every address, the loopback services and the abstract sockets of the host are in reach",
        reference: "CVE-2020-15257",
        remedy: "add a namespace of type `network`",
        check: Check::Sandbox(|subject, hits| missing(subject, hits, "network")),
    },
    Rule {
        id: "AL003",
        area: Area::Namespaces,
        severity: Severity::High,
        title: "the host's processes",
        why: "processes of the same user can be seen, signalled and read; nothing ends with the first process",
        reference: "pid_namespaces(7), inflexa#88",
        remedy: "add a namespace of type `pid`",
        check: Check::Sandbox(|subject, hits| missing(subject, hits, "pid")),
    },
    Rule {
        id: "AL004",
        area: Area::Namespaces,
        severity: Severity::High,
        title: "the host's mounts",
        why: "without mounts of its own the sandbox has the host's whole tree",
        reference: "mount_namespaces(7)",
        remedy: "add a namespace of type `mount`",
        check: Check::Sandbox(|subject, hits| missing(subject, hits, "mount")),
    },
    Rule {
        id: "AL005",
        area: Area::Namespaces,
        severity: Severity::Medium,
        title: "the host's IPC objects",
        why: "System V shared memory and POSIX queues of other processes with the same ids are in reach",
        reference: "ipc_namespaces(7), isolate NEWS 2.6",
        remedy: "add a namespace of type `ipc`",
        check: Check::Sandbox(|subject, hits| missing(subject, hits, "ipc")),
    },
    Rule {
        id: "AL006",
        area: Area::Namespaces,
        severity: Severity::Low,
        title: "the host's name",
        why: "the host's name is seen, and changed by whoever has CAP_SYS_ADMIN",
        reference: "uts_namespaces(7)",
        remedy: "add a namespace of type `uts`",
        check: Check::Sandbox(|subject, hits| missing(subject, hits, "uts")),
    },
    Rule {
        id: "AL007",
        area: Area::Namespaces,
        severity: Severity::Low,
        title: "the host's cgroup paths",
        why: "/proc/self/cgroup tells where in the host's tree the sandbox lies, and a cgroup mount shows the rest",
        reference: "cgroup_namespaces(7), CVE-2023-25809",
        remedy: "add a namespace of type `cgroup`",
        check: Check::Sandbox(|subject, hits| missing(subject, hits, "cgroup")),
    },
    Rule {
        id: "AL008",
        area: Area::Namespaces,
        severity: Severity::Medium,
        title: "a namespace that others are in",
        why: "whoever else is in it shares what it separates; with /proc/1/ns that is the host",
        reference: "namespaces(7), CVE-2020-15257",
        remedy: "leave `path` out, so that the namespace is a new one",
        check: Check::Sandbox(|subject, hits| {
            for (at, namespace) in subject.document().items("/linux/namespaces") {
                if let Some(path) = namespace["path"].as_str().filter(|path| !path.is_empty()) {
                    let kind = namespace["type"].as_str().unwrap_or_default();
                    hits.member(format!("{at}/path"), format!("the {kind} namespace of {path} is joined"));
                }
            }
        }),
    },
    Rule {
        id: "AL009",
        area: Area::Namespaces,
        severity: Severity::Medium,
        title: "namespaces can be made inside",
        why: "in a user namespace of its own the code has every capability over kernel code that it cannot reach \
              otherwise, the ground of many kernel exploits",
        reference: "CVE-2022-0185, CVE-2023-0386",
        remedy: "leave `nesting` out where no sandbox is made inside",
        check: Check::Sandbox(|subject, hits| {
            if subject.policy().is_some_and(|policy| policy.nesting) {
                hits.clause(
                    "nesting",
                    "`nesting = true` allows unshare, clone with namespaces, and mounts in them",
                );
            }
        }),
    },
];

fn missing(subject: &Subject, hits: &mut Hits<'_>, kind: &str) {
    if subject.document().namespace(kind).is_none() {
        hits.member("/linux/namespaces", format!("no namespace of type `{kind}`"));
    }
}
