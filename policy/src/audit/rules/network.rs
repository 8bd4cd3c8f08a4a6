//! What the network namespace holds.

use super::super::rule::{Area, Check, Rule, Severity};
use crate::schema::NetworkMode;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "AL110",
        area: Area::Network,
        severity: Severity::Info,
        title: "a loopback, and netlink with it",
        why: "what waits in netlink sockets, and on cgroup v1 in those of TCP, may be memory beyond the limit",
        reference: "netlink(7)",
        remedy: "`mode = \"none\"` where the command's processes do not talk by TCP",
        check: Check::Sandbox(|subject, hits| {
            if subject.policy().is_some_and(|policy| policy.network.mode == NetworkMode::Loopback) {
                hits.clause("network.mode", "`loopback`");
            }
        }),
    },
    Rule {
        id: "AL111",
        area: Area::Network,
        severity: Severity::Low,
        title: "kernel settings of the sandbox are changed",
        why: "low ports for everyone, forwarding or looser sockets widen what one process inside can do to others",
        reference: "CVE-2022-0811, Documentation/networking/ip-sysctl.rst",
        remedy: "leave `sysctl` out",
        check: Check::Sandbox(|subject, hits| {
            let settings = subject.document().0.pointer("/linux/sysctl").and_then(|map| map.as_object());
            for name in settings.into_iter().flatten().map(|(name, _)| name) {
                hits.member(format!("/linux/sysctl/{}", name.replace('/', "~1")), name.clone());
            }
        }),
    },
];
