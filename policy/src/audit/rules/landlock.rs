//! Landlock absent, or wider than the mounts.

use std::path::Path;

use super::super::rule::{Area, Check, Rule, Severity};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "AL080",
        area: Area::Landlock,
        severity: Severity::Medium,
        title: "Landlock is off",
        why: "the mounts alone decide what can be opened: a descriptor that came in, or a mistake in a mount, has \
              nothing behind it",
        reference: "Documentation/userspace-api/landlock.rst, landrun#43",
        remedy: "leave `enabled` out",
        check: Check::Sandbox(|subject, hits| {
            if subject.policy().is_some_and(|policy| !policy.landlock.enabled) {
                hits.clause("landlock.enabled", "`enabled = false`");
            }
        }),
    },
    Rule {
        id: "AL081",
        area: Area::Landlock,
        severity: Severity::Low,
        title: "Landlock only where the kernel has it",
        why: "on a kernel without it the sandbox starts all the same, with a line in the report",
        reference: "hakoniwa#164, OpenShell#584",
        remedy: "`min_abi = 1`, or what the policy builds on",
        check: Check::Sandbox(|subject, hits| {
            let policy = subject.policy().filter(|policy| policy.landlock.enabled);
            if policy.is_some_and(|policy| policy.landlock.min_abi == 0) {
                hits.clause("landlock.min_abi", "`min_abi = 0` is best effort");
            }
        }),
    },
    Rule {
        id: "AL082",
        area: Area::Landlock,
        severity: Severity::Low,
        title: "Landlock names more than the mounts give",
        why: "a path that no writable mount covers gives nothing today and says what the author did not mean: with \
              the next mount it is in force",
        reference: "OpenShell#664",
        remedy: "name the mounts, or what lies in them",
        check: Check::Sandbox(|subject, hits| {
            let Some(policy) = subject.policy() else { return };
            for (key, paths) in [("read", &policy.landlock.read), ("write", &policy.landlock.write)] {
                for path in paths.iter().flatten() {
                    let given = subject.document().mounts().any(|mount| {
                        (key == "read" || mount.is_writable()) && path.starts_with(mount.target)
                    });
                    let root = key == "write" && policy.root.writable == crate::merged::Writable::None;
                    let made = key == "read" && path.starts_with("/etc");
                    if path == Path::new("/") || !given && !made && (root || key == "read") {
                        hits.clause(format!("landlock.{key}"), format!("no mount gives {}", path.display()));
                    }
                }
            }
        }),
    },
    Rule {
        id: "AL083",
        area: Area::Landlock,
        severity: Severity::Info,
        title: "OCI has no Landlock",
        why: "the runtime specification has no words for it, so that the mounts alone decide what can be opened",
        reference: "runtime-spec#1111, runtime-spec#1241, youki#2842",
        remedy: "an Airlock policy has it",
        check: Check::Sandbox(|subject, hits| {
            if subject.is_bundle() {
                hits.member("/linux", "no Landlock ruleset can be asked for");
            }
        }),
    },
];
