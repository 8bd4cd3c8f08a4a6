//! Limits that are missing.

use super::super::rule::{Area, Check, Rule, Severity};
use crate::schema::BestEffort;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "AL100",
        area: Area::Limits,
        severity: Severity::Medium,
        title: "memory is unlimited",
        why: "one sandbox drives the host into its OOM killer, which chooses among everyone's processes",
        reference: "benchexec#1098, ScienceIDE_Env#28",
        remedy: "a memory limit",
        check: Check::Sandbox(|subject, hits| {
            let limit = subject.document().number("/linux/resources/memory/limit");
            if limit.is_none_or(|limit| limit <= 0) {
                hits.member("/linux/resources/memory/limit", "there is no limit of memory");
            }
        }),
    },
    Rule {
        id: "AL101",
        area: Area::Limits,
        severity: Severity::Medium,
        title: "processes are unlimited",
        why: "a fork bomb takes the host's process ids",
        reference: "youki#3634, ScienceIDE_Env#28",
        remedy: "a limit of processes and threads",
        check: Check::Sandbox(|subject, hits| {
            let limit = subject.document().number("/linux/resources/pids/limit");
            if limit.is_none_or(|limit| limit <= 0) {
                hits.member("/linux/resources/pids/limit", "there is no limit of processes");
            }
        }),
    },
    Rule {
        id: "AL102",
        area: Area::Limits,
        severity: Severity::Info,
        title: "no end of time",
        why: "what does not end by itself runs until somebody looks",
        reference: "timeout(1)",
        remedy: "`wall` in `[limits]`, or `--wall`",
        check: Check::Sandbox(|subject, hits| {
            if subject.policy().is_some_and(|policy| policy.limits.wall.is_none()) {
                hits.clause("limits.wall", "whoever starts it says how long it may take");
            }
        }),
    },
    Rule {
        id: "AL103",
        area: Area::Limits,
        severity: Severity::Info,
        title: "CPU time is unlimited",
        why: "it slows its neighbours down; it reaches nothing by that",
        reference: "Documentation/admin-guide/cgroup-v2.rst",
        remedy: "a quota, or a set of CPUs of its own",
        check: Check::Sandbox(|subject, hits| {
            let document = subject.document();
            let quota = document.number("/linux/resources/cpu/quota").is_some_and(|quota| quota > 0);
            if !quota && document.text("/linux/resources/cpu/cpus").is_empty() {
                hits.member("/linux/resources/cpu", "there is no quota and no set of CPUs");
            }
        }),
    },
    Rule {
        id: "AL104",
        area: Area::Limits,
        severity: Severity::Low,
        title: "swap is unlimited",
        why: "the memory limit holds in RAM only; the rest of the host waits for the disk",
        reference: "isolate-check-environment, Documentation/admin-guide/cgroup-v2.rst",
        remedy: "limit swap together with memory",
        check: Check::Sandbox(|subject, hits| {
            let number = |key: &str| subject.document().number(&format!("/linux/resources/memory/{key}"));
            let limited = number("limit").is_some_and(|limit| limit > 0);
            if limited && number("swap").is_none_or(|swap| swap < 0) {
                hits.member("/linux/resources/memory/swap", "memory is limited and swap is not");
            }
        }),
    },
    Rule {
        id: "AL105",
        area: Area::Limits,
        severity: Severity::Low,
        title: "a tmpfs without a size",
        why: "it takes half of the host's memory, as far as no memory limit stops it",
        reference: "tmpfs(5)",
        remedy: "`size=`",
        check: Check::Sandbox(|subject, hits| {
            for mount in subject.document().mounts() {
                let sized = mount.value("size").is_some() || mount.value("nr_blocks").is_some();
                if mount.kind == "tmpfs" && mount.is_writable() && !sized {
                    hits.member(mount.at, format!("the tmpfs {} may grow", mount.target));
                }
            }
        }),
    },
    Rule {
        id: "AL106",
        area: Area::Limits,
        severity: Severity::Info,
        title: "/tmp and /dev/shm hold more than the memory limit",
        why: "what lies in them counts as memory: the command is killed where it would get ENOSPC",
        reference: "Documentation/filesystems/tmpfs.rst",
        remedy: "make `tmp` and `shm` smaller than `memory`",
        check: Check::Sandbox(|subject, hits| {
            let limits = subject.policy().map(|policy| &policy.limits);
            for limits in limits.into_iter() {
                for (clause, size) in [("limits.tmp", limits.tmp), ("limits.shm", limits.shm)] {
                    if limits.memory.is_some_and(|memory| size > memory) {
                        hits.clause(clause, format!("{size} is more than the memory limit"));
                    }
                }
            }
        }),
    },
    Rule {
        id: "AL107",
        area: Area::Limits,
        severity: Severity::Low,
        title: "a crash may start a program of the host",
        why: "a piped core pattern runs its program outside, as root, over what the crashed process left",
        reference: "core(5), CVE-2025-4598",
        remedy: "`core = \"0B\"`; in a bundle RLIMIT_CORE with 1, which a pipe obeys",
        check: Check::Sandbox(|subject, hits| {
            let rlimits = subject.document().items("/process/rlimits");
            for (at, limit) in rlimits.filter(|(_, limit)| limit["type"] == "RLIMIT_CORE") {
                if limit["hard"].as_u64().is_some_and(|hard| hard > 1) {
                    hits.member(at, "core files may be made");
                }
            }
        }),
    },
    Rule {
        id: "AL108",
        area: Area::Limits,
        severity: Severity::Low,
        title: "limits may be missing",
        why: "with `best_effort` a host without cgroups starts the sandbox all the same",
        reference: "claude-code#49018, youki#3597",
        remedy: "leave `limits` out of `best_effort`",
        check: Check::Sandbox(|subject, hits| {
            if subject.policy().is_some_and(|policy| policy.best_effort.contains(&BestEffort::Limits)) {
                hits.clause("best_effort", "`limits` may be lowered");
            }
        }),
    },
    Rule {
        id: "AL109",
        area: Area::Limits,
        severity: Severity::Medium,
        title: "spared by the OOM killer",
        why: "with a negative score the host's own processes are killed before the code inside",
        reference: "benchexec#1099, proc_pid_oom_score_adj(5)",
        remedy: "leave `oomScoreAdj` out, or above 0",
        check: Check::Sandbox(|subject, hits| {
            if let Some(score) = subject.document().number("/process/oomScoreAdj").filter(|score| *score < 0)
            {
                hits.member("/process/oomScoreAdj", format!("the score is lowered by {}", -score));
            }
        }),
    },
];
