//! Every known call of the built-in profiles in one of four lists: allowed, allowed under a condition
//! (see [`profile`](super::profile())), refused with a reason, or absent.
//!
//! A test holds the lists against the table, so a new kernel's call cannot be forgotten.

/// Calls that `default` allows, and whether `strict` does.
pub(super) struct Allowed {
    pub(super) strict: bool,
    pub(super) calls: &'static [&'static str],
}

/// Calls refused with EPERM, and why.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    /// The calls.
    pub calls: &'static [&'static str],
    /// What they would give a sandboxed program.
    pub why: &'static str,
}

#[rustfmt::skip]
pub(super) const ALLOWED: &[Allowed] = &[
    // Files that the mounts and Landlock let the program reach.
    Allowed { strict: true, calls: &[
        "access", "cachestat", "chdir", "close", "close_range", "copy_file_range", "dup", "dup2", "dup3",
        "faccessat", "faccessat2", "fadvise64", "fallocate", "fchdir", "fcntl", "fdatasync", "fgetxattr",
        "flistxattr", "flock", "fstat", "fstatfs", "fsync", "ftruncate", "futimesat", "getcwd", "getdents",
        "getdents64", "getxattr", "lgetxattr", "link", "linkat", "listxattr", "llistxattr", "lseek", "lstat",
        "newfstatat", "pipe", "pipe2", "pread64", "preadv", "preadv2", "pwrite64", "pwritev", "pwritev2",
        "read", "readahead", "readlink", "readlinkat", "readv", "rename", "renameat", "renameat2", "rmdir",
        "sendfile", "splice", "stat", "statfs", "statx", "symlink", "symlinkat", "sync", "sync_file_range",
        "syncfs", "tee", "truncate", "umask", "unlink", "unlinkat", "utime", "utimensat", "utimes", "write",
        "writev",
    ] },
    Allowed { strict: false, calls: &[
        "chown", "fchown", "fchownat", "file_getattr", "file_setattr", "fremovexattr", "fsetxattr",
        "getxattrat", "inotify_add_watch", "inotify_init", "inotify_init1", "inotify_rm_watch", "lchown",
        "listmount", "listxattrat", "lremovexattr", "lsetxattr", "removexattr", "removexattrat", "setxattr",
        "setxattrat", "statmount", "vmsplice",
    ] },
    // Memory. memfd_create: without it CUDA's start fails with error 304 (OpenShell#1696).
    Allowed { strict: true, calls: &[
        "brk", "get_mempolicy", "madvise", "map_shadow_stack", "membarrier", "memfd_create", "mincore",
        "mlock", "mlock2", "mlockall", "mmap", "mprotect", "mremap", "mseal", "msync", "munlock",
        "munlockall", "munmap", "pkey_alloc", "pkey_free", "pkey_mprotect", "remap_file_pages",
    ] },
    // NUMA placement, as numactl, NCCL and PyTorch do it.
    Allowed { strict: false, calls: &[
        "mbind", "memfd_secret", "migrate_pages", "move_pages", "set_mempolicy", "set_mempolicy_home_node",
    ] },
    // Processes and threads of the sandbox; clone has a condition.
    Allowed { strict: true, calls: &[
        "arch_prctl", "capget", "execve", "execveat", "exit", "exit_group", "fork", "futex", "futex_requeue",
        "futex_wait", "futex_waitv", "futex_wake", "get_robust_list", "getcpu", "getegid", "geteuid",
        "getgid", "getgroups", "getpgid", "getpgrp", "getpid", "getppid", "getpriority", "getresgid",
        "getresuid", "getrlimit", "getrusage", "getsid", "gettid", "getuid", "kill", "pidfd_open",
        "pidfd_send_signal", "prctl", "prlimit64", "restart_syscall", "rseq", "rt_sigaction",
        "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend",
        "rt_sigtimedwait", "rt_tgsigqueueinfo", "sched_get_priority_max", "sched_get_priority_min",
        "sched_getaffinity", "sched_getattr", "sched_getparam", "sched_getscheduler",
        "sched_rr_get_interval", "sched_setaffinity", "sched_yield", "set_robust_list", "set_tid_address",
        "setpgid", "setrlimit", "setsid", "sigaltstack", "sysinfo", "tgkill", "times", "tkill", "uname",
        "vfork", "wait4", "waitid",
    ] },
    // uprobe and uretprobe serve a tracer's trampoline in the program; others get SIGILL from the kernel.
    Allowed { strict: false, calls: &[
        "capset", "ioprio_get", "ioprio_set", "process_mrelease", "sched_setattr", "sched_setparam",
        "sched_setscheduler", "setfsgid", "setfsuid", "setgid", "setgroups", "setpriority", "setregid",
        "setresgid", "setresuid", "setreuid", "setuid", "uprobe", "uretprobe",
    ] },
    // A program may confine itself further.
    Allowed { strict: true, calls: &[
        "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self", "lsm_get_self_attr",
        "lsm_list_modules", "seccomp",
    ] },
    // Time and events.
    Allowed { strict: true, calls: &[
        "alarm", "clock_getres", "clock_gettime", "clock_nanosleep", "epoll_create", "epoll_create1",
        "epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait", "eventfd", "eventfd2", "getitimer",
        "getrandom", "gettimeofday", "nanosleep", "pause", "poll", "ppoll", "pselect6", "select",
        "setitimer", "signalfd", "signalfd4", "time", "timer_create", "timer_delete", "timer_getoverrun",
        "timer_gettime", "timer_settime", "timerfd_create", "timerfd_gettime", "timerfd_settime",
    ] },
    // Sockets that socket and socketpair, which have conditions, could make.
    Allowed { strict: true, calls: &[
        "getpeername", "getsockname", "getsockopt", "recvfrom", "recvmmsg", "recvmsg", "sendmmsg", "sendmsg",
        "sendto", "setsockopt", "shutdown",
    ] },
    Allowed { strict: false, calls: &["accept", "accept4", "bind", "connect", "listen"] },
    // Asynchronous I/O of files (libaio), and the IPC namespace's own objects.
    Allowed { strict: false, calls: &[
        "io_cancel", "io_destroy", "io_getevents", "io_pgetevents", "io_setup", "io_submit",
        "mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedsend", "mq_unlink", "msgctl",
        "msgget", "msgrcv", "msgsnd", "semctl", "semget", "semop", "semtimedop", "shmat", "shmctl", "shmdt",
        "shmget",
    ] },
];

/// Calls with a condition on their arguments; `strict` refuses some of them outright.
pub const CONDITIONAL: &[&str] = &[
    "chmod",
    "clone",
    "creat",
    "fchmod",
    "fchmodat",
    "ioctl",
    "mkdir",
    "mkdirat",
    "mknod",
    "mknodat",
    "open",
    "openat",
    "personality",
    "socket",
    "socketpair",
];

/// Calls that get ENOSYS, as if the kernel were older, because programs then fall back to a call whose
/// arguments a filter can see (theirs lie in memory), and calls that no current kernel has.
#[rustfmt::skip]
pub(super) const ABSENT: &[&str] = &[
    "clone3", "fchmodat2", "openat2",
    "afs_syscall", "create_module", "epoll_ctl_old", "epoll_wait_old", "get_kernel_syms", "get_thread_area",
    "getpmsg", "nfsservctl", "putpmsg", "query_module", "security", "set_thread_area", "tuxcall", "vserver",
];

/// Calls that both profiles refuse, and why.
#[rustfmt::skip]
pub const REFUSED: &[Refused] = &[
    Refused {
        why: "makes or enters namespaces, and with a user namespace gains capabilities over more of the kernel",
        calls: &["setns", "unshare"],
    },
    Refused {
        why: "changes mounts: masks and read-only parts could be lifted (Landlock does not cover mount_setattr)",
        calls: &[
            "chroot", "fsconfig", "fsmount", "fsopen", "fspick", "mount", "mount_setattr", "move_mount",
            "open_tree", "open_tree_attr", "pivot_root", "umount2",
        ],
    },
    Refused {
        why: "opens files by handle, past every path, mount and Landlock rule",
        calls: &["name_to_handle_at", "open_by_handle_at"],
    },
    Refused {
        why: "keyrings are kept per user, not per namespace, and were shared between boxes (isolate NEWS 2.4)",
        calls: &["add_key", "keyctl", "request_key"],
    },
    Refused {
        why: "does its work in the kernel where this filter does not see it (isolate NEWS 2.6)",
        calls: &["io_uring_enter", "io_uring_register", "io_uring_setup"],
    },
    Refused {
        why: "loads programs into the kernel or samples it",
        calls: &["bpf", "perf_event_open"],
    },
    Refused {
        why: "holds the kernel still in the middle of a copy, the usual help of kernel exploits",
        calls: &["userfaultfd"],
    },
    Refused {
        why: "reads or steers other processes; debuggers need `allow = [\"ptrace\"]`",
        calls: &[
            "kcmp", "pidfd_getfd", "process_madvise", "process_vm_readv", "process_vm_writev", "ptrace",
        ],
    },
    Refused {
        why: "watches file accesses of others",
        calls: &["fanotify_init", "fanotify_mark"],
    },
    Refused {
        why: "replaces or extends the running kernel, or stops it",
        calls: &[
            "delete_module", "finit_module", "init_module", "kexec_file_load", "kexec_load", "reboot",
        ],
    },
    Refused {
        why: "changes state of the whole host: clock, names, accounting, quotas, swap, security labels",
        calls: &[
            "acct", "adjtimex", "clock_adjtime", "clock_settime", "lsm_set_self_attr", "quotactl",
            "quotactl_fd", "setdomainname", "sethostname", "settimeofday", "swapoff", "swapon", "vhangup",
        ],
    },
    Refused {
        why: "reads the kernel's log",
        calls: &["syslog"],
    },
    Refused {
        why: "reaches I/O ports or rarely used segment code",
        calls: &["ioperm", "iopl", "modify_ldt"],
    },
    Refused {
        why: "obsolete, with no user but attacks on old code",
        calls: &["_sysctl", "lookup_dcookie", "sysfs", "uselib", "ustat"],
    },
];

/// Calls that a policy's `nesting = true` allows outright: what an inner sandbox is made with. They act on
/// namespaces of the inner user namespace only, which holds no capability over the outer ones. clone3
/// stays absent, since glibc and inner runtimes fall back to clone.
#[rustfmt::skip]
pub const NESTING: &[&str] = &[
    "chroot", "clone", "fsconfig", "fsmount", "fsopen", "fspick", "mount", "mount_setattr", "move_mount",
    "open_tree", "open_tree_attr", "pivot_root", "setdomainname", "sethostname", "setns", "umount2", "unshare",
];

/// Why both profiles refuse this call, or `None` if they do not.
pub fn refusal(call: &str) -> Option<&'static str> {
    REFUSED.iter().find(|group| group.calls.contains(&call)).map(|group| group.why)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_known_call_is_in_exactly_one_list() {
        let mut times: BTreeMap<&str, usize> =
            super::super::all().iter().map(|(name, _)| (*name, 0)).collect();
        let lists = ALLOWED.iter().map(|group| group.calls).chain(REFUSED.iter().map(|group| group.calls));
        for name in lists.chain([CONDITIONAL, ABSENT]).flatten() {
            *times.get_mut(name).unwrap_or_else(|| panic!("{name} is no call")) += 1;
        }
        times.retain(|_, times| *times != 1);
        assert_eq!(times, BTreeMap::new());
    }
}
