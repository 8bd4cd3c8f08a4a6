//! Files, directories, mounts, and the kernel's interfaces in /proc and /sys.

use super::READ_ONLY;
use crate::probe::Clause::*;
use crate::probe::Probe;

/// A path of the host's that only root reads.
const fn secret(id: &'static str, title: &'static str, action: &'static [&'static str]) -> Probe {
    Probe::new(id, title, action, &[Root, UserNamespace]).needs_root().of_some_hosts()
}

/// A path of the host's that everybody reads.
const fn public(id: &'static str, title: &'static str, action: &'static [&'static str]) -> Probe {
    Probe::new(id, title, action, &[Root]).of_some_hosts().host_may_refuse()
}

/// What is covered in /proc.
const fn masked(id: &'static str, title: &'static str, action: &'static [&'static str]) -> Probe {
    Probe::new(id, title, action, &[Masked]).of_some_hosts().host_may_refuse()
}

/// What belongs to root in /proc, and is covered or read-only besides.
const fn closed(
    id: &'static str,
    title: &'static str,
    action: &'static [&'static str],
    clauses: &'static [crate::probe::Clause],
) -> Probe {
    Probe::new(id, title, action, clauses).also(READ_ONLY).needs_root().of_some_hosts()
}

#[rustfmt::skip]
pub(super) const PROBES: &[Probe] = &[
    // Witnesses of the audit's own, which lie beside what it mounts.
    Probe::new("file.hidden", "read a file of the host that no mount shows", &["read", "$HIDDEN/secret"], &[Root]),
    Probe::new("file.hidden-list", "list a directory of the host that no mount shows", &["list", "$HIDDEN"], &[Root]),
    Probe::new("file.hidden-socket", "connect to a service's socket in the host's files", &["connect-unix", "$HIDDEN/socket"], &[Root]),
    Probe::new("file.shared-memory", "read another process's file in /dev/shm", &["read", "/dev/shm/$NAME"], &[Root]),
    Probe::new("file.read-only", "write to a file of a read-only mount", &["open", "$DATA/file", "w"], &[MountReadOnly]).also(READ_ONLY),
    Probe::new("file.read-only-new", "make a file in a read-only mount", &["tmpfile", "$DATA"], &[MountReadOnly]).also(READ_ONLY),
    Probe::new("file.read-only-read", "read a file of a read-only mount", &["read", "$DATA/file"], &[]),
    Probe::new("file.foreign-owner", "read a file of the host's root in a mount", &["read", "$DATA/private"], &[UserNamespace]).needs_root(),
    Probe::new("file.noexec-data", "run a program of a mount without `exec`", &["run", "$DATA/program"], &[NoExecData]),
    Probe::new("file.noexec-shm", "run a program written to /dev/shm", &["script-run", "/dev/shm"], &[NoExecShm]),
    Probe::new("file.noexec-tmp", "run a program written to /tmp", &["script-run", "/tmp"], &[NoExecTmp]),
    Probe::new("file.set-id-mount", "have set-id programs of a mount run as their owner", &["set-id-mount", "$DATA"], &[NoSetId]).host_may_refuse(),
    Probe::new("file.set-id-bits", "make a file set-id", &["set-id-bits", "/tmp"], &[]).also(READ_ONLY),
    Probe::new("file.write-tmp", "write to /tmp", &["tmpfile", "/tmp"], &[Landlock]).also(READ_ONLY),
    Probe::new("file.write-root", "make a file in /", &["tmpfile", "/"], &[RootReadOnly]).also(READ_ONLY),
    Probe::new("file.write-usr", "make a file in /usr", &["tmpfile", "/usr"], &[RootReadOnly, UserNamespace]).also(READ_ONLY).needs_root().of_some_hosts(),
    Probe::new("file.write-bin", "make a file in /usr/bin", &["tmpfile", "/usr/bin"], &[RootReadOnly, UserNamespace]).also(READ_ONLY).needs_root().of_some_hosts(),
    Probe::new("file.write-etc", "make a file in /etc", &["tmpfile", "/etc"], &[RootReadOnly]).also(READ_ONLY),

    secret("host.shadow", "read /etc/shadow", &["read", "/etc/shadow"]),
    secret("host.gshadow", "read /etc/gshadow", &["read", "/etc/gshadow"]),
    secret("host.root-home", "list root's home", &["list", "/root"]),
    secret("host.ssh-key", "read the host's SSH key", &["read", "/etc/ssh/ssh_host_ed25519_key"]),
    secret("host.tls-keys", "list the host's TLS keys", &["list", "/etc/ssl/private"]),
    secret("host.sudoers", "read /etc/sudoers", &["read", "/etc/sudoers"]),
    secret("host.credentials", "list the credentials of systemd", &["list", "/run/credentials"]),
    public("host.fstab", "read /etc/fstab", &["read", "/etc/fstab"]),
    public("host.machine-id", "read the host's machine id", &["read", "/etc/machine-id"]),
    public("host.log", "list /var/log", &["list", "/var/log"]),
    public("host.lib", "list /var/lib", &["list", "/var/lib"]),
    public("host.boot", "list /boot", &["list", "/boot"]),
    public("host.systemd", "list /run/systemd", &["list", "/run/systemd"]),
    public("host.user-run", "list /run/user", &["list", "/run/user"]),
    public("host.docker", "connect to Docker", &["connect-unix", "/run/docker.sock"]),
    public("host.containerd", "connect to containerd", &["connect-unix", "/run/containerd/containerd.sock"]),
    public("host.dbus", "connect to the system bus", &["connect-unix", "/run/dbus/system_bus_socket"]),
    public("host.sys", "list /sys", &["list", "/sys"]),
    public("host.sys-devices", "list the host's devices in /sys", &["list", "/sys/devices"]),
    public("host.sys-net", "list the host's interfaces in /sys", &["list", "/sys/class/net"]),
    public("host.sys-firmware", "list the firmware's tables", &["list", "/sys/firmware"]),
    public("host.sys-modules", "list the kernel's modules", &["list", "/sys/module"]),
    public("host.cgroups", "list the host's control groups", &["list", "/sys/fs/cgroup"]),
    closed("host.cgroup-write", "move itself to another control group", &["open", "/sys/fs/cgroup/cgroup.procs", "w"], &[Root, UserNamespace]),
    closed("host.uevent-helper", "set the kernel's hotplug program", &["open", "/sys/kernel/uevent_helper", "w"], &[Root, UserNamespace]),
    closed("host.debugfs", "list debugfs", &["list", "/sys/kernel/debug"], &[Root, UserNamespace]),
    closed("host.tracefs", "list tracefs", &["list", "/sys/kernel/tracing"], &[Root, UserNamespace]),
    closed("host.power", "put the machine to sleep", &["open", "/sys/power/state", "w"], &[Root, UserNamespace]),

    masked("proc.kallsyms", "read the kernel's symbols", &["read", "/proc/kallsyms"]),
    masked("proc.interrupts", "read the host's interrupts", &["read", "/proc/interrupts"]),
    masked("proc.softirqs", "read the host's softirqs", &["read", "/proc/softirqs"]),
    masked("proc.config", "read the kernel's configuration", &["read", "/proc/config.gz"]),
    masked("proc.key-users", "read who has keys", &["read", "/proc/key-users"]),
    masked("proc.keys", "read the list of keys", &["read", "/proc/keys"]),
    masked("proc.pressure", "read the host's load by pressure", &["read", "/proc/pressure/cpu"]),
    masked("proc.acpi", "list /proc/acpi", &["list", "/proc/acpi"]),
    masked("proc.scsi", "list /proc/scsi", &["list", "/proc/scsi"]),
    closed("proc.kcore", "read the kernel's memory", &["open", "/proc/kcore", "r"], &[Masked, UserNamespace]),
    closed("proc.kmsg", "read the kernel's messages", &["open", "/proc/kmsg", "r"], &[Masked, UserNamespace]),
    closed("proc.kpageflags", "read flags of physical pages", &["open", "/proc/kpageflags", "r"], &[Masked, UserNamespace]),
    closed("proc.kpagecount", "read counts of physical pages", &["open", "/proc/kpagecount", "r"], &[Masked, UserNamespace]),
    closed("proc.timer-list", "read the host's timers", &["open", "/proc/timer_list", "r"], &[Masked, UserNamespace]),
    closed("proc.slabinfo", "read the kernel's allocations", &["open", "/proc/slabinfo", "r"], &[UserNamespace]),
    closed("proc.vmallocinfo", "read the kernel's mappings", &["open", "/proc/vmallocinfo", "r"], &[UserNamespace]),
    closed("proc.sysrq", "press SysRq", &["open", "/proc/sysrq-trigger", "w"], &[ReadOnlyPaths, UserNamespace]),
    closed("proc.core-pattern", "set the program that gets cores", &["open", "/proc/sys/kernel/core_pattern", "w"], &[ReadOnlyPaths, UserNamespace]),
    closed("proc.modprobe", "set the program that loads modules", &["open", "/proc/sys/kernel/modprobe", "w"], &[ReadOnlyPaths, UserNamespace]),
    closed("proc.drop-caches", "drop the host's caches", &["open", "/proc/sys/vm/drop_caches", "w"], &[ReadOnlyPaths, UserNamespace]),
    closed("proc.overcommit", "set the host's overcommit", &["open", "/proc/sys/vm/overcommit_memory", "w"], &[ReadOnlyPaths, UserNamespace]),
    closed("proc.ptrace-scope", "loosen the host's ptrace scope", &["open", "/proc/sys/kernel/yama/ptrace_scope", "w"], &[ReadOnlyPaths, UserNamespace]),
    closed("proc.irq", "route the host's interrupts", &["open", "/proc/irq/default_smp_affinity", "w"], &[ReadOnlyPaths, UserNamespace]),
    closed("proc.binfmt", "register an interpreter", &["open", "/proc/sys/fs/binfmt_misc/register", "w"], &[ReadOnlyPaths, UserNamespace]),
    // With CAP_SYS_RESOURCE these belong to root of the user namespace (kernel/ucount.c, `set_permissions`).
    Probe::new("proc.quota", "raise its own quota of namespaces", &["open", "/proc/sys/user/max_user_namespaces", "w"], &[ReadOnlyPaths, Capabilities]).also(READ_ONLY).capability(24),
    Probe::new("proc.self-memory", "write to its own memory by /proc", &["open", "/proc/self/mem", "w"], &[]),
    Probe::new("proc.self-environment", "read its own environment by /proc", &["open", "/proc/self/environ", "r"], &[]),
];
