//! Places that are written and later run.

use super::super::document::{Mount, below};
use super::super::rule::{Area, Check, Rule, Severity};
use crate::merged::Writable;

/// Where a host runs or loads what it finds.
const RUN_BY_HOST: [&str; 17] = [
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/usr",
    "/opt",
    "/boot",
    "/etc/cron.d",
    "/etc/systemd",
    "/etc/profile.d",
    "/etc/ld.so.conf.d",
    "/etc/udev",
    "/etc/init.d",
    "/var/spool/cron",
    "/root/.ssh",
    "/lib/modules",
    "/usr/local",
];

/// Names of files and directories in which programs look for what they then run.
const RUN_BY_NAME: [&str; 7] = [".git", ".ssh", ".bashrc", ".profile", ".venv", "site-packages", ".vscode"];

/// Variables that name places where code is looked for.
const SEARCHED: [&str; 7] =
    ["PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONSTARTUP", "BASH_ENV", "NODE_PATH"];

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "AL040",
        area: Area::Writable,
        severity: Severity::High,
        title: "written inside, run by the host",
        why: "what the code puts there runs outside: programs, libraries, timers, keys, hooks of a repository",
        reference: "codex#37081, CVE-2019-5736",
        remedy: "mount it read-only, or a directory that nobody runs anything from",
        check: Check::Sandbox(|subject, hits| {
            for mount in subject.document().mounts().filter(|mount| mount.is_bind() && mount.is_writable()) {
                let host = RUN_BY_HOST.iter().any(|tree| below(mount.source, tree));
                let named = mount.source.rsplit('/').next().is_some_and(|name| RUN_BY_NAME.contains(&name));
                if host || named {
                    hits.member(format!("{}/source", mount.at), format!("{} is read-write", mount.source));
                }
            }
        }),
    },
    Rule {
        id: "AL041",
        area: Area::Writable,
        severity: Severity::Low,
        title: "a mount that is written and run",
        why: "a program left there runs in the next sandbox, or for the user, who mounts or enters the directory",
        reference: "codex#37081",
        remedy: "drop `exec` or `rw` where one of them is not needed",
        check: Check::Sandbox(|subject, hits| {
            let mounts = subject.document().mounts();
            for mount in mounts.filter(|mount| mount.is_bind() && mount.is_writable() && mount.may_run()) {
                if !below(mount.source, "/dev") {
                    hits.member(
                        mount.at.clone(),
                        format!("{} is read-write and may run programs", mount.target),
                    );
                }
            }
        }),
    },
    Rule {
        id: "AL042",
        area: Area::Writable,
        severity: Severity::Medium,
        title: "a search path through a writable place",
        why: "what is put there runs instead of the program or library that was meant, in every process inside",
        reference: "benchflow#115, CVE-2025-23266",
        remedy: "name read-only directories only",
        check: Check::Sandbox(|subject, hits| {
            for (at, name, value) in subject.document().env() {
                for part in value.split([':', ' ']).filter(|_| SEARCHED.contains(&name)) {
                    let covering = subject.document().mounts().filter(|mount| mount.covers(part));
                    let inner = covering.max_by_key(|mount| mount.target.len());
                    if inner.is_some_and(|mount| mount.is_writable() && !part.is_empty()) {
                        hits.member(at.clone(), format!("{name} names {part}, which can be written"));
                    }
                }
            }
        }),
    },
    Rule {
        id: "AL043",
        area: Area::Writable,
        severity: Severity::Low,
        title: "the root file system can be written",
        why: "programs and settings of the image can be replaced while it runs, and later commands run what is left",
        reference: "CVE-2019-5736, BenchJack (Terminal-Bench)",
        remedy: "make the root read-only and mount a tmpfs where something is written",
        check: Check::Sandbox(|subject, hits| {
            if !subject.document().flag("/root/readonly") {
                hits.member("/root/readonly", "the root is read-write");
            }
        }),
    },
    Rule {
        id: "AL044",
        area: Area::Writable,
        severity: Severity::Low,
        title: "writes to the root are kept",
        why: "the next sandbox with this directory starts with what the last one left: programs and settings too",
        reference: "LambdaJudge#24",
        remedy: "`writable = \"tmpfs\"` forgets them",
        check: Check::Sandbox(|subject, hits| {
            if let Some(Writable::Dir(path)) = subject.policy().map(|policy| &policy.root.writable) {
                hits.clause("root.writable", format!("{} keeps what is written", path.display()));
            }
        }),
    },
    Rule {
        id: "AL045",
        area: Area::Writable,
        severity: Severity::Info,
        title: "programs can be run from temporary places",
        why: "what was written there can be executed by its path; interpreters and memory run code anyway, and \
              compilers, pip and JIT caches need it",
        reference: "memfd_create(2), tmpfs(5)",
        remedy: "`tmp_exec = false`, or `noexec` on the tmpfs",
        check: Check::Sandbox(|subject, hits| {
            if subject.policy().is_some_and(|policy| policy.root.tmp_exec) {
                hits.clause("root.tmp_exec", "/tmp and the home directory may run programs");
            }
            let tmpfs = |mount: &Mount<'_>| {
                let usual = mount.target == "/dev" && mount.has("nosuid");
                mount.kind == "tmpfs" && mount.is_writable() && mount.may_run() && !usual
            };
            for mount in subject.document().mounts().filter(|mount| subject.is_bundle() && tmpfs(mount)) {
                hits.member(mount.at.clone(), format!("the tmpfs {} may run programs", mount.target));
            }
        }),
    },
];
