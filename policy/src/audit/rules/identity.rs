//! Ids that mean something on the host.

use serde_json::Value;

use super::super::rule::{Area, Check, Rule, Severity};
use crate::schema::{Groups, Ids};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "AL010",
        area: Area::Ids,
        severity: Severity::High,
        title: "the host's root is mapped inside",
        why: "a user namespace that maps uid or gid 0 of the host gives files and processes of root away",
        reference: "user_namespaces(7)",
        remedy: "map to a range of ids that nothing on the host belongs to",
        check: Check::Sandbox(|subject, hits| {
            for list in ["/linux/uidMappings", "/linux/gidMappings"] {
                for (at, map) in subject.document().items(list) {
                    if map["hostID"].as_u64() == Some(0) && map["size"].as_u64() != Some(0) {
                        hits.member(
                            format!("{at}/hostID"),
                            format!("host id 0 is id {} inside", map["containerID"]),
                        );
                    }
                }
            }
        }),
    },
    Rule {
        id: "AL011",
        area: Area::Ids,
        severity: Severity::Medium,
        title: "runs as the host's root",
        why: "without a user namespace, every file that root owns and the mounts show can be read and changed",
        reference: "CVE-2019-5736",
        remedy: "set `process.user` to an ordinary user, or add a user namespace",
        check: Check::Sandbox(|subject, hits| {
            let document = subject.document();
            let shared = document.namespace("user").is_none();
            if shared && document.number("/process/user/uid").unwrap_or(0) == 0 {
                hits.member("/process/user/uid", "the command is uid 0 of the host");
            }
        }),
    },
    Rule {
        id: "AL012",
        area: Area::Ids,
        severity: Severity::Info,
        title: "the caller's groups may stay",
        why: "an ordinary user's kernel does not let supplementary groups go; files that they open stay open to the \
              sandbox where the mounts show them",
        reference: "CVE-2014-8989, user_namespaces(7)",
        remedy: "`groups = \"none\"` refuses to launch where they cannot be dropped",
        check: Check::Sandbox(|subject, hits| {
            if subject.policy().is_some_and(|policy| policy.identity.groups == Groups::Auto) {
                hits.clause(
                    "identity.groups",
                    "`auto` keeps what the kernel does not let go, and reports it",
                );
            }
        }),
    },
    Rule {
        id: "AL013",
        area: Area::Ids,
        severity: Severity::Low,
        title: "an id of the host",
        why: "with `direct` the command has the id of the mounts' owner, and so shares limits and, outside of the \
              user namespace, signals with that user's processes",
        reference: "credentials(7)",
        remedy: "`ids = \"auto\"`, where the file system of the mounts takes id maps",
        check: Check::Sandbox(|subject, hits| {
            if subject.policy().is_some_and(|policy| policy.identity.ids == Ids::Direct) {
                hits.clause("identity.ids", "the command's id is that of the writable mounts' owner");
            }
        }),
    },
    Rule {
        id: "AL014",
        area: Area::Ids,
        severity: Severity::Medium,
        title: "set-user-ID programs give privilege",
        why: "without no_new_privs an execve may raise ids and capabilities: one set-user-ID program in a mount, or a \
              mistake in one of the image, is enough",
        reference: "Documentation/userspace-api/no_new_privs.rst, CVE-2021-4034",
        remedy: "`\"noNewPrivileges\": true`",
        check: Check::Sandbox(|subject, hits| {
            if !subject.document().flag("/process/noNewPrivileges") {
                hits.member("/process/noNewPrivileges", "no_new_privs is not set");
            }
        }),
    },
    Rule {
        id: "AL015",
        area: Area::Ids,
        severity: Severity::Medium,
        title: "a group of the host that opens devices or files of root",
        why: "group 0 and the host's groups of disks, devices and engines open files that the user alone could not",
        reference: "CVE-2022-2995, CVE-2022-36109",
        remedy: "leave the group out of `additionalGids`, or add a user namespace",
        check: Check::Sandbox(|subject, hits| {
            if subject.document().namespace("user").is_some() {
                return;
            }
            for (at, gid) in subject.document().items("/process/user/additionalGids") {
                // 6 disk and 15 kmem of Debian, beside root.
                if matches!(gid.as_u64(), Some(0 | 6 | 15))
                    && subject.document().0.pointer("/process/user/uid") != Some(&Value::from(0))
                {
                    hits.member(at, format!("supplementary group {gid} of the host"));
                }
            }
        }),
    },
];
