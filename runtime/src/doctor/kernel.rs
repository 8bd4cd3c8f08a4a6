//! The kernel, the caller, Landlock and seccomp.

use std::fs;

use rustix::thread::{CapabilitySet, capabilities};

use super::{Check, Topic};
use crate::landlock::NEWEST_ABI;
use crate::sys;

const KERNEL: Topic = Topic::needed("kernel", "kernel");
const CALLER: Topic = Topic::new("caller", "caller");
const SYS_RESOURCE: Topic = Topic::new("cap-sys-resource", "CAP_SYS_RESOURCE");
const LANDLOCK: Topic = Topic::needed("landlock", "Landlock");
const LANDLOCK_NEWER: Topic = Topic::new("landlock-newer", "newer Landlock rights");
const SECCOMP: Topic = Topic::needed("seccomp", "seccomp filters");

/// Oldest kernel that Airlock builds on: cgroup.kill and Landlock's and mount_setattr's first releases.
const OLDEST: (u32, u32) = (5, 14);

/// What each Landlock ABI added (kernel, Documentation/userspace-api/landlock.rst).
const ADDED: [(u8, &str); 9] = [
    (2, "moving files between directories"),
    (3, "truncation"),
    (4, "TCP ports"),
    (5, "ioctl on devices"),
    (6, "abstract sockets and signals across the boundary"),
    (7, "quiet audit log"),
    (8, "restricting all threads at once"),
    (9, "connecting to pathname sockets"),
    (10, "UDP ports"),
];

pub(super) fn checks(root: bool) -> Vec<Check> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let euid = rustix::process::geteuid().as_raw();
    let resource = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_RESOURCE));
    let abi = sys::landlock_abi();
    let mut checks = vec![
        kernel(&read("/proc/sys/kernel/osrelease")),
        caller(root, euid),
        sys_resource(resource),
        landlock(abi, &read("/sys/kernel/security/lsm")),
    ];
    if abi > 0 {
        checks.push(landlock_newer(abi));
    }
    checks.push(seccomp(&read("/proc/sys/kernel/seccomp/actions_avail")));
    checks
}

fn kernel(release: &str) -> Check {
    let release = release.trim();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= OLDEST {
        KERNEL.ok(release)
    } else {
        KERNEL.lacking(release, format!("boot a kernel of {}.{} or newer", OLDEST.0, OLDEST.1))
    }
}

fn caller(root: bool, euid: u32) -> Check {
    match (root, euid) {
        (true, _) => CALLER.ok("root: a range of ids for each sandbox, idmapped mounts, device filter"),
        (false, 0) => CALLER.advice(
            "uid 0 without the powers of the host's root: treated as an ordinary user",
            "run outside the container, with CAP_SYS_ADMIN, SETUID, SETGID, CHOWN, DAC_OVERRIDE and MKNOD",
        ),
        (false, uid) => CALLER.ok(format!(
            "ordinary user {uid}: one mapped id, device nodes bound from the host, no device filter"
        )),
    }
}

fn sys_resource(held: bool) -> Check {
    if held {
        SYS_RESOURCE.ok("held")
    } else {
        SYS_RESOURCE.advice(
            "not held: hard limits cannot be raised",
            "nothing in Airlock needs it; give the session that starts Airlock the hard limits that policies ask for",
        )
    }
}

fn landlock(abi: u8, modules: &str) -> Check {
    if abi > 0 {
        return LANDLOCK.ok(format!("ABI {abi}"));
    }
    let modules = modules.trim();
    let active =
        if modules.is_empty() { String::new() } else { format!(" (active security modules: {modules})") };
    LANDLOCK.lacking(
        format!("absent, or off since boot{active}"),
        "boot with `lsm=landlock,` before the modules that are active now, or a kernel with CONFIG_SECURITY_LANDLOCK; \
         a policy may do without it by `landlock.min_abi = 0`",
    )
}

fn landlock_newer(abi: u8) -> Check {
    let missing: Vec<String> = ADDED
        .iter()
        .filter(|(since, _)| *since > abi)
        .map(|(since, what)| format!("{what} (ABI {since})"))
        .collect();
    if missing.is_empty() {
        return LANDLOCK_NEWER.ok(format!("all that Airlock knows, up to ABI {NEWEST_ABI}"));
    }
    LANDLOCK_NEWER.advice(
        format!("the kernel cannot restrict: {}", missing.join(", ")),
        "a newer kernel; until then namespaces and seccomp alone cover these",
    )
}

/// The kernel has filters if it lists actions (seccomp(2), /proc interfaces).
fn seccomp(actions: &str) -> Check {
    let has = |action: &str| actions.split_whitespace().any(|listed| listed == action);
    let missing: Vec<&str> =
        ["kill_process", "errno", "allow"].into_iter().filter(|action| !has(action)).collect();
    if missing.is_empty() {
        SECCOMP.ok(actions.trim())
    } else {
        SECCOMP.lacking(
            format!("actions {} are not available", missing.join(", ")),
            "boot a kernel with CONFIG_SECCOMP_FILTER",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn kernels_are_compared_by_number() {
        for (release, status) in [
            ("5.4.0-200-generic\n", Status::Lacking),
            ("5.13.19", Status::Lacking),
            ("5.14.0-503.el9.x86_64\n", Status::Ok),
            ("6.1.0-57-amd64", Status::Ok),
            ("10.0", Status::Ok),
            ("", Status::Lacking),
        ] {
            assert_eq!(kernel(release).status, status, "{release}");
        }
    }

    #[test]
    fn root_of_a_container_is_told_that_it_is_none() {
        assert_eq!(caller(false, 0).status, Status::Advice);
        assert_eq!(caller(true, 0).status, Status::Ok);
        assert_eq!(caller(false, 1000).status, Status::Ok);
    }

    #[test]
    fn each_missing_landlock_right_is_named() {
        assert_eq!(landlock(0, "lockdown,capability,yama\n").status, Status::Lacking);
        assert!(landlock(0, "lockdown,capability,yama\n").found.contains("yama"));
        let found = landlock_newer(6).found;
        assert!(found.contains("quiet audit log (ABI 7)") && !found.contains("ABI 6"), "{found}");
        assert_eq!(landlock_newer(NEWEST_ABI).status, Status::Ok);
        assert_eq!(ADDED.last().unwrap().0, NEWEST_ABI, "the table ends where Airlock's knowledge does");
    }

    #[test]
    fn seccomp_needs_its_actions() {
        assert_eq!(
            seccomp("kill_process kill_thread trap errno user_notif trace log allow\n").status,
            Status::Ok
        );
        assert_eq!(seccomp("").status, Status::Lacking);
        let old = seccomp("kill_thread trap errno trace allow");
        assert!(old.found.contains("kill_process"), "{}", old.found);
    }
}
