//! Namespaces, ids, capabilities.

use super::{NO_ID, QUOTA, UNKNOWN_CALL};
use crate::probe::Clause::*;
use crate::probe::Probe;

/// A capability in the bounding set.
const fn bounding(
    id: &'static str,
    title: &'static str,
    number: u8,
    action: &'static [&'static str],
) -> Probe {
    Probe::new(id, title, action, &[Capabilities]).capability(number)
}

const SYS_ADMIN: u8 = 21;

#[rustfmt::skip]
pub(super) const PROBES: &[Probe] = &[
    Probe::new("namespace.user", "be in the host's user namespace", &["namespace", "user", "$user"], &[UserNamespace]),
    Probe::new("namespace.mount", "be in the host's mount namespace", &["namespace", "mnt", "$mnt"], &[MountNamespace]),
    Probe::new("namespace.pid", "be in the host's PID namespace", &["namespace", "pid", "$pid"], &[PidNamespace]),
    Probe::new("namespace.network", "be in the host's network namespace", &["namespace", "net", "$net"], &[NetworkNamespace]),
    Probe::new("namespace.ipc", "be in the host's IPC namespace", &["namespace", "ipc", "$ipc"], &[IpcNamespace]),
    Probe::new("namespace.uts", "be in the host's UTS namespace", &["namespace", "uts", "$uts"], &[UtsNamespace]),
    Probe::new("namespace.cgroup", "be in the host's cgroup namespace", &["namespace", "cgroup", "$cgroup"], &[CgroupNamespace]),
    Probe::new("namespace.new-user", "make a user namespace", &["call", "unshare", "0x10000000"], &[Nesting]).also(QUOTA),
    Probe::new("namespace.new-user-clone", "make a user namespace by clone", &["clone", "0x10000000"], &[Nesting]).also(QUOTA),
    Probe::new("namespace.new-user-clone3", "clone with flags that no filter sees", &["call", "clone3", "page:", "0"], &[]).also(UNKNOWN_CALL),
    Probe::new("namespace.map-ids", "become root of a namespace of its own", &["map-ids"], &[Nesting]).also(QUOTA).host_may_refuse(),
    Probe::new("namespace.new-mount", "make a mount namespace", &["call", "unshare", "0x20000"], &[Capabilities]).capability(SYS_ADMIN).needs_root(),
    Probe::new("namespace.new-mount-clone", "make a mount namespace by clone", &["clone", "0x20000"], &[Capabilities]).capability(SYS_ADMIN).needs_root(),
    Probe::new("namespace.new-network", "make a network namespace", &["call", "unshare", "0x40000000"], &[Capabilities]).capability(SYS_ADMIN).needs_root(),
    Probe::new("namespace.new-pid", "make a PID namespace", &["call", "unshare", "0x20000000"], &[Capabilities]).capability(SYS_ADMIN).needs_root(),
    Probe::new("namespace.enter", "enter a mount namespace", &["enter", "mnt"], &[Capabilities]).capability(SYS_ADMIN).needs_root(),
    Probe::new("identity.root", "run as uid 0", &["root-id"], &[UserId]),
    Probe::new("identity.set-uid", "become uid 0", &["set-uid", "0"], &[Capabilities]).capability(7).also(NO_ID).needs_root(),
    Probe::new("identity.set-gid", "become gid 0", &["set-gid", "0"], &[Capabilities]).capability(6).also(NO_ID).needs_root(),
    Probe::new("identity.set-groups", "drop groups", &["set-groups"], &[Capabilities]).capability(6).needs_root(),
    Probe::new("identity.new-privileges", "gain rights by executing a program", &["no-new-privileges"], &[NoNewPrivileges]).host_may_refuse(),
    bounding("capability.chown", "have CAP_CHOWN", 0, &["capability", "0"]),
    bounding("capability.dac-override", "have CAP_DAC_OVERRIDE", 1, &["capability", "1"]),
    bounding("capability.kill", "have CAP_KILL", 5, &["capability", "5"]),
    bounding("capability.setuid", "have CAP_SETUID", 7, &["capability", "7"]),
    bounding("capability.net-bind-service", "have CAP_NET_BIND_SERVICE", 10, &["capability", "10"]),
    bounding("capability.net-admin", "have CAP_NET_ADMIN", 12, &["capability", "12"]),
    bounding("capability.net-raw", "have CAP_NET_RAW", 13, &["capability", "13"]),
    bounding("capability.sys-module", "have CAP_SYS_MODULE", 16, &["capability", "16"]),
    bounding("capability.sys-rawio", "have CAP_SYS_RAWIO", 17, &["capability", "17"]),
    bounding("capability.sys-chroot", "have CAP_SYS_CHROOT", 18, &["capability", "18"]),
    bounding("capability.sys-ptrace", "have CAP_SYS_PTRACE", 19, &["capability", "19"]),
    bounding("capability.sys-admin", "have CAP_SYS_ADMIN", SYS_ADMIN, &["capability", "21"]),
    bounding("capability.mknod", "have CAP_MKNOD", 27, &["capability", "27"]),
    bounding("capability.bpf", "have CAP_BPF", 39, &["capability", "39"]),
];
