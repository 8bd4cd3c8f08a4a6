//! What is left to the process once it has started.
//!
//! The sandbox's filter has to let the program be executed and the event loop be made. This one does not: whoever
//! takes over the process can open, execute, fork and connect nothing, and map no code.

use airlock_runtime::seccomp::own::{Condition, filter};
use airlock_runtime::seccomp::{Flags, SeccompError, install};

/// Connections, events and memory; threads that close sockets; Rust's ways out. clone3 is here for the sandbox's own
/// filter to answer, so that glibc falls back to clone.
#[rustfmt::skip]
const CALLS: &[&str] = &[
    "accept4", "getsockopt", "recvfrom", "recvmsg", "sendto", "setsockopt", "shutdown",
    "close", "epoll_ctl", "epoll_pwait", "epoll_wait", "fcntl", "read", "write", "writev",
    "brk", "madvise", "mremap", "munmap",
    "clone3", "exit", "futex", "rseq", "sched_getaffinity", "sched_yield", "set_robust_list",
    "clock_gettime", "getrandom",
    "exit_group", "getpid", "gettid", "restart_syscall", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn",
    "sigaltstack", "tgkill",
];

const THREAD: u64 = libc::CLONE_THREAD.unsigned_abs() as u64;
const EXEC: u64 = libc::PROT_EXEC.unsigned_abs() as u64;

/// Threads and no processes, memory that is not code, a thread's name, and std's way to make a socket non-blocking.
const CONDITIONAL: &[(&str, Condition)] = &[
    ("clone", Condition { argument: 0, mask: THREAD, value: THREAD }),
    ("mmap", Condition { argument: 2, mask: EXEC, value: 0 }),
    ("mprotect", Condition { argument: 2, mask: EXEC, value: 0 }),
    (
        "prctl",
        Condition { argument: 0, mask: Condition::WHOLE, value: libc::PR_SET_NAME.unsigned_abs() as u64 },
    ),
    ("ioctl", Condition { argument: 1, mask: Condition::WHOLE, value: libc::FIONBIO }),
];

/// Keeps to the one arena of memory that grows by brk.
///
/// glibc gives each new thread an arena of its own, and opens /proc/sys/vm/overcommit_memory before it gives back a
/// part of one (2.36, `check_may_shrink_heap`), which [`confine`] answers by killing the process.
pub(crate) fn keep_one_arena() {
    // SAFETY: sets a number of the allocator, while there is one thread.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Confines this thread and all that it starts, for good: any other call kills the process.
///
/// Needs `no_new_privs`, which the sandbox has.
pub(crate) fn confine() -> Result<(), SeccompError> {
    install(&filter(CALLS, CONDITIONAL)?, Flags::default())
}

#[cfg(test)]
mod tests {
    use airlock_runtime::seccomp::{Architecture, SeccompData, Verdict, run, syscall_number};

    use super::*;

    #[test]
    fn what_would_open_run_or_connect_anything_kills() {
        let program = filter(CALLS, CONDITIONAL).unwrap();
        let verdict = |call: &str, args| {
            let (number, arch) = (syscall_number(call).unwrap(), Architecture::native().unwrap().audit());
            run(&program, &SeccompData { number, arch, instruction_pointer: 0, args }).unwrap()
        };
        for call in CALLS {
            assert_eq!(verdict(call, [0; 6]), Verdict::Allow, "{call}");
        }
        for call in [
            "open",
            "openat",
            "openat2",
            "creat",
            "execve",
            "execveat",
            "fork",
            "vfork",
            "socket",
            "socketpair",
            "connect",
            "bind",
            "listen",
            "sendmsg",
            "memfd_create",
            "ptrace",
            "kill",
            "unshare",
            "io_uring_setup",
            "pidfd_open",
            "seccomp",
            "bpf",
            "mount",
            "unlinkat",
            "dup2",
            "getdents64",
            "readlinkat",
        ] {
            assert_eq!(verdict(call, [0; 6]), Verdict::KillProcess, "{call}");
        }
        let (thread, exec, read) = (THREAD, EXEC, 1);
        for (call, good, bad) in [
            ("clone", [thread | 0x100, 0, 0, 0, 0, 0], [0x100, 0, 0, 0, 0, 0]),
            ("mmap", [0, 0, read, 0, 0, 0], [0, 0, read | exec, 0, 0, 0]),
            ("mprotect", [0, 0, read, 0, 0, 0], [0, 0, exec, 0, 0, 0]),
            ("prctl", [15, 0, 0, 0, 0, 0], [22, 0, 0, 0, 0, 0]),
            ("ioctl", [0, 0x5421, 0, 0, 0, 0], [0, 0x5412, 0, 0, 0, 0]),
        ] {
            assert_eq!(
                (verdict(call, good), verdict(call, bad)),
                (Verdict::Allow, Verdict::KillProcess),
                "{call}"
            );
        }
    }
}
