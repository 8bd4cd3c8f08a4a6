//! The kernel's own interfaces.

use super::KILLED_BY_FILTER;
use crate::probe::Clause::*;
use crate::probe::Probe;

/// A call that needs a capability in the host's own user namespace, which nobody inside has.
const fn hosts(id: &'static str, title: &'static str, action: &'static [&'static str]) -> Probe {
    Probe::new(id, title, action, &[UserNamespace]).needs_root().of_some_hosts()
}

/// A call that needs CAP_SYS_ADMIN over the sandbox's mounts.
const fn mounts(id: &'static str, title: &'static str, action: &'static [&'static str]) -> Probe {
    Probe::new(id, title, action, &[Capabilities]).capability(21).needs_root()
}

/// A call that the filter alone stops.
const fn call(id: &'static str, title: &'static str, action: &'static [&'static str]) -> Probe {
    Probe::new(id, title, action, &[]).of_some_hosts()
}

#[rustfmt::skip]
pub(super) const PROBES: &[Probe] = &[
    hosts("kernel.module", "load a module", &["call", "init_module", "nowhere", "0", "nowhere"]),
    hosts("kernel.module-file", "load a module from a file", &["call", "finit_module", "-1", "nowhere", "0"]),
    hosts("kernel.module-remove", "remove a module", &["call", "delete_module", "nowhere", "0"]),
    // More segments than there may be.
    hosts("kernel.kexec", "load another kernel", &["call", "kexec_load", "0", "32", "0", "0"]),
    hosts("kernel.kexec-file", "load another kernel from a file", &["call", "kexec_file_load", "-1", "-1", "0", "0", "0xffff"]),
    Probe::new("kernel.reboot", "restart the machine", &["call", "reboot", "0", "0", "0", "0"], &[Capabilities]).capability(22).needs_root(),
    // A directory is no swap.
    hosts("kernel.swapon", "add swap", &["call", "swapon", "=/proc/self", "0"]),
    hosts("kernel.swapoff", "remove swap", &["call", "swapoff", "=/proc/self"]),
    hosts("kernel.accounting", "have processes accounted", &["call", "acct", "nowhere"]),
    // Neither a time nor a time zone.
    hosts("kernel.set-time", "set the clock", &["call", "settimeofday", "0", "0"]),
    // ADJ_TICK with a tick that is out of range.
    hosts("kernel.adjust-time", "adjust the clock", &["call", "adjtimex", "page:0040"]),
    hosts("kernel.adjust-clock", "adjust a clock", &["call", "clock_adjtime", "0", "page:0040"]),
    hosts("kernel.iopl", "get at all I/O ports", &["call", "iopl", "3"]),
    hosts("kernel.ioperm", "get at an I/O port", &["call", "ioperm", "0x80", "1", "1"]),
    hosts("kernel.real-time", "become a real-time process", &["call", "sched_setscheduler", "0", "1", "page:01"]),
    hosts("kernel.real-time-io", "get real-time I/O", &["call", "ioprio_set", "1", "0", "0x2000"]),
    hosts("kernel.priority", "raise its priority", &["call", "setpriority", "0", "0", "-10"]),
    hosts("kernel.handle", "open a file by a handle", &["call", "open_by_handle_at", "-100", "page:0800000001", "0"]),
    mounts("kernel.mount", "mount a file system", &["call", "mount", "0", "=/proc/self", "0", "0", "0"]),
    mounts("kernel.unmount", "unmount a file system", &["call", "umount2", "=/proc/self", "0"]),
    mounts("kernel.pivot", "change the root", &["call", "pivot_root", "=/proc/self", "=/proc/self"]),
    mounts("kernel.new-filesystem", "open a file system", &["call", "fsopen", "=tmpfs", "0"]),
    mounts("kernel.pick-filesystem", "reconfigure a mount", &["call", "fspick", "-100", "=/proc/self", "0"]),
    mounts("kernel.new-mount", "make a mount", &["call", "fsmount", "-1", "0", "0"]),
    mounts("kernel.clone-mount", "clone a mount", &["call", "open_tree", "-100", "=/proc/self", "1"]),
    mounts("kernel.move-mount", "move a mount", &["call", "move_mount", "-1", "=", "-1", "=", "0x44"]),
    mounts("kernel.mount-attributes", "change a mount's attributes", &["call", "mount_setattr", "-1", "=", "0", "page:", "32"]),
    Probe::new("kernel.chroot", "change its root directory", &["call", "chroot", "=/proc/self"], &[Capabilities]).capability(18).needs_root(),
    // Longer than a name may be.
    mounts("kernel.hostname", "set the host name", &["call", "sethostname", "page:", "1000"]),
    mounts("kernel.domainname", "set the domain name", &["call", "setdomainname", "page:", "1000"]),
    call("kernel.log", "read the kernel's log", &["call", "syslog", "3", "page:", "4096"]).host_may_refuse(),
    call("kernel.bpf", "make a BPF map", &["call", "bpf", "0", "page:", "72"]).host_may_refuse(),
    call("kernel.perf", "count events of itself", &["call", "perf_event_open", "page:01000000700000000000000000000000000000000000000000000000000000000000000000000000600000", "0", "-1", "-1", "0"]).host_may_refuse(),
    call("kernel.userfaultfd", "handle its own page faults", &["call", "userfaultfd", "1"]).host_may_refuse(),
    call("kernel.io-uring", "make an io_uring", &["call", "io_uring_setup", "1", "page:"]).host_may_refuse(),
    call("kernel.io-uring-enter", "enter an io_uring", &["call", "io_uring_enter", "-1", "0", "0", "0", "0", "0"]).host_may_refuse(),
    call("kernel.io-uring-register", "register with an io_uring", &["call", "io_uring_register", "-1", "0", "0", "0"]).host_may_refuse(),
    call("kernel.aio", "make a context of asynchronous I/O", &["call", "io_setup", "1", "page:"]),
    call("kernel.fanotify", "watch files by fanotify", &["call", "fanotify_init", "0x200", "0"]).host_may_refuse(),
    call("kernel.inotify", "watch files by inotify", &["call", "inotify_init1", "0"]),
    call("kernel.quota", "ask for quotas", &["call", "quotactl", "0x80000400", "=/proc/self", "0", "page:"]),
    call("kernel.personality", "make all that is readable executable", &["call", "personality", "0x400000"]),
    call("kernel.segments", "change its segments", &["call", "modify_ldt", "0", "page:", "4096"]),
    call("kernel.secret-memory", "hide memory from the kernel", &["call", "memfd_secret", "0"]),
    call("kernel.memory-file", "make a file in memory", &["call", "memfd_create", "=airlock-probe", "1"]),
    call("kernel.map-into-pipe", "map memory into a pipe", &["call", "vmsplice", "-1", "nowhere", "0", "0"]),
    call("kernel.migrate", "migrate pages of another", &["call", "migrate_pages", "2147483647", "0", "0", "0"]),
    call("kernel.name-handle", "name a file by a handle", &["call", "name_to_handle_at", "-100", "=/proc/self", "page:", "page:", "0"]),
    call("kernel.enter-namespace", "enter a namespace by a bad descriptor", &["call", "setns", "-1", "0"]),
    call("kernel.file-systems", "count the kernel's file systems", &["call", "sysfs", "3"]),
    call("kernel.old-stat", "ask a device for its statistics", &["call", "ustat", "0", "page:"]),
    call("kernel.release-memory", "release a dying process's memory", &["call", "process_mrelease", "-1", "0"]),
    // CVE-2017-5226; the kernel reads the low 32 bits of the request alone.
    call("kernel.push-input", "push input into a terminal (TIOCSTI)", &["call", "ioctl", "-1", "0x5412", "0"]),
    call("kernel.push-input-high", "push input by a request with high bits", &["call", "ioctl", "-1", "0x100005412", "0"]),
    call("kernel.paste", "paste into a console (TIOCLINUX)", &["call", "ioctl", "-1", "0x541c", "0"]),
    call("kernel.line-discipline", "load a line discipline (TIOCSETD)", &["call", "ioctl", "-1", "0x5423", "0"]),
    Probe::new("kernel.x32", "call through the x32 table", &["x32"], &[]).also(KILLED_BY_FILTER),
    Probe::new("kernel.i386", "call through the i386 table", &["int80"], &[]).also(KILLED_BY_FILTER),
];
