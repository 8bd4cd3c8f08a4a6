//! Settings of the host that a sandbox does not need, and that make it safer or its timings steadier.

use std::fs;
use std::path::Path;

use super::{Check, Topic, number};

const CORE: Topic = Topic::new("core-pattern", "core dumps");
const SMT: Topic = Topic::new("smt", "sibling threads of a core");
const ASLR: Topic = Topic::new("aslr", "address randomisation");
const LINKS: Topic = Topic::new("protected-links", "links in shared directories");
const PTRACE: Topic = Topic::new("ptrace-scope", "tracing of own processes");
const DMESG: Topic = Topic::new("dmesg-restrict", "kernel log");
const BPF: Topic = Topic::new("unprivileged-bpf", "bpf for everyone");
const KEYRINGS: Topic = Topic::new("keyrings", "session keyrings");
const NVIDIA: Topic = Topic::new("nvidia-driver", "NVIDIA driver");

/// Fewest keys a user should be allowed: each live sandbox of the user holds one session keyring.
const KEYS: u64 = 200;

pub(super) fn checks() -> Vec<Check> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let root = rustix::process::geteuid().is_root();
    let quota = if root { "/proc/sys/kernel/keys/root_maxkeys" } else { "/proc/sys/kernel/keys/maxkeys" };
    let mut checks = vec![
        core_pattern(&read("/proc/sys/kernel/core_pattern")),
        smt(&read("/sys/devices/system/cpu/smt/active"), &siblings()),
        aslr(number("/proc/sys/kernel/randomize_va_space")),
        links(number("/proc/sys/fs/protected_hardlinks"), number("/proc/sys/fs/protected_symlinks")),
        ptrace(number("/proc/sys/kernel/yama/ptrace_scope")),
        dmesg(number("/proc/sys/kernel/dmesg_restrict")),
        bpf(number("/proc/sys/kernel/unprivileged_bpf_disabled")),
        nvidia(&read("/proc/driver/nvidia/version"), Path::new("/dev/nvidiactl").exists()),
    ];
    checks.extend(number(quota).map(keyrings));
    checks
}

/// A program behind a pipe is started by the host for every crash, whatever RLIMIT_CORE says (core(5)).
fn core_pattern(pattern: &str) -> Check {
    match pattern.trim().strip_prefix('|') {
        Some(program) => CORE.advice(
            format!("piped to {program}: a crash in a sandbox starts it on the host, even with RLIMIT_CORE 0"),
            "as root: `sysctl kernel.core_pattern=core`, or make sure that the program trusts nothing of the crash",
        ),
        None => CORE.ok(format!("written to files ({}), so RLIMIT_CORE 0 stops them", pattern.trim())),
    }
}

/// `thread_siblings_list` of each CPU.
fn siblings() -> Vec<String> {
    let Ok(cpus) = fs::read_dir("/sys/devices/system/cpu") else {
        return Vec::new();
    };
    cpus.flatten()
        .filter_map(|cpu| fs::read_to_string(cpu.path().join("topology/thread_siblings_list")).ok())
        .collect()
}

fn smt(active: &str, siblings: &[String]) -> Check {
    let shared = siblings.iter().any(|list| list.trim().contains([',', '-']));
    if active.trim() == "1" || shared {
        SMT.advice(
            "two CPUs share a core: side channels between sandboxes, and timings that depend on the neighbour",
            "give each sandbox whole cores by `limits.cpuset`, or as root: `echo off > /sys/devices/system/cpu/smt/control`",
        )
    } else {
        SMT.ok("no core is shared by two CPUs")
    }
}

fn aslr(value: Option<u64>) -> Check {
    match value {
        Some(2) => ASLR.ok("full"),
        value => ASLR.advice(
            format!("kernel.randomize_va_space is {}", shown(value)),
            "as root: `sysctl kernel.randomize_va_space=2`",
        ),
    }
}

fn links(hard: Option<u64>, symbolic: Option<u64>) -> Check {
    let off: Vec<&str> = [("fs.protected_hardlinks", hard), ("fs.protected_symlinks", symbolic)]
        .into_iter()
        .filter_map(|(name, value)| (value != Some(1)).then_some(name))
        .collect();
    if off.is_empty() {
        return LINKS.ok("protected");
    }
    let remedy: Vec<String> = off.iter().map(|name| format!("`sysctl {name}=1`")).collect();
    LINKS.advice(
        format!(
            "{} off: links planted in shared directories can mislead programs of the host",
            off.join(", ")
        ),
        format!("as root: {}", remedy.join(", ")),
    )
}

fn ptrace(scope: Option<u64>) -> Check {
    match scope {
        Some(1..) => PTRACE.ok(format!("restricted by yama ({})", shown(scope))),
        _ => PTRACE.advice(
            format!("kernel.yama.ptrace_scope is {}: on the host, programs of one user may trace each other", shown(scope)),
            "as root: `sysctl kernel.yama.ptrace_scope=1`, on a kernel with yama; inside, seccomp and Landlock refuse it",
        ),
    }
}

fn dmesg(value: Option<u64>) -> Check {
    match value {
        Some(1) => DMESG.ok("for root only"),
        _ => DMESG.advice(
            "everyone may read it, with kernel addresses",
            "as root: `sysctl kernel.dmesg_restrict=1`",
        ),
    }
}

/// A kernel without bpf(2) has no such file, and nothing to switch off.
fn bpf(value: Option<u64>) -> Check {
    match value {
        Some(0) => BPF.advice(
            "allowed",
            "as root: `sysctl kernel.unprivileged_bpf_disabled=1`; inside, seccomp refuses it",
        ),
        _ => BPF.ok("refused"),
    }
}

fn keyrings(quota: u64) -> Check {
    if quota >= KEYS {
        KEYRINGS.ok(format!("{quota} keys for the caller; each live sandbox holds one"))
    } else {
        KEYRINGS.advice(
            format!("{quota} keys for the caller; each live sandbox holds one"),
            format!("as root: `sysctl kernel.keys.maxkeys={KEYS}` or more"),
        )
    }
}

fn nvidia(version: &str, node: bool) -> Check {
    let Some(first) = version.lines().next() else {
        return NVIDIA.advice("not loaded", "load it if sandboxes are to have GPUs");
    };
    let version =
        first.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit())).unwrap_or(first);
    if node {
        NVIDIA.ok(version)
    } else {
        NVIDIA.advice(format!("{version}, without /dev/nvidiactl"), "as root: `nvidia-modprobe -c 0 -u`")
    }
}

fn shown(value: Option<u64>) -> String {
    value.map_or_else(|| "absent".into(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn a_piped_core_pattern_is_told() {
        let check = core_pattern("|/usr/share/apport/apport -p%p -s%s\n");
        assert_eq!(check.status, Status::Advice);
        assert!(check.found.contains("apport"));
        assert_eq!(core_pattern("core\n").status, Status::Ok);
    }

    #[test]
    fn shared_cores_are_seen_in_either_notation() {
        assert_eq!(smt("1\n", &[]).status, Status::Advice);
        assert_eq!(smt("", &["0,32\n".into()]).status, Status::Advice);
        assert_eq!(smt("", &["0-1\n".into()]).status, Status::Advice);
        assert_eq!(smt("0\n", &["0\n".into(), "1\n".into()]).status, Status::Ok);
    }

    #[test]
    fn settings_that_are_off_come_with_the_switch() {
        for (check, switch) in [
            (aslr(Some(0)), "kernel.randomize_va_space=2"),
            (links(Some(1), Some(0)), "fs.protected_symlinks=1"),
            (ptrace(None), "kernel.yama.ptrace_scope=1"),
            (dmesg(Some(0)), "kernel.dmesg_restrict=1"),
            (bpf(Some(0)), "kernel.unprivileged_bpf_disabled=1"),
            (keyrings(50), "kernel.keys.maxkeys=200"),
        ] {
            assert_eq!(check.status, Status::Advice, "{}", check.id);
            assert!(check.remedy.unwrap().contains(switch), "{}", check.id);
        }
        for check in [
            aslr(Some(2)),
            links(Some(1), Some(1)),
            ptrace(Some(1)),
            dmesg(Some(1)),
            bpf(Some(2)),
            keyrings(200),
        ] {
            assert_eq!(check.status, Status::Ok, "{}", check.id);
        }
    }

    #[test]
    fn the_driver_version_is_found() {
        let text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version:\n";
        assert_eq!(nvidia(text, true).found, "550.54.15");
        assert_eq!(nvidia(text, false).status, Status::Advice);
        assert_eq!(nvidia("", false).found, "not loaded");
    }
}
