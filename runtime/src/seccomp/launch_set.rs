//! What Airlock itself needs between installing a filter and the end of the sandbox.

use oci_spec::runtime::LinuxSeccomp;

use super::SeccompError;
use super::interpret::{SeccompData, run};
use super::program::Program;
use super::table::Architecture;

/// Calls, with arguments where a profile may look at them, that every profile must let through: the
/// filter is in force while the child waits for its release, starts the payload, and for as
/// long as PID 1 reaps.
#[rustfmt::skip]
pub const LAUNCH_SET: &[(&str, [u64; 6])] = &[
    ("brk", NONE),
    ("clock_gettime", NONE),
    ("clone", [VFORK, 0, 0, 0, 0, 0]),
    ("close", NONE),
    ("close_range", NONE),
    ("dup2", NONE),
    ("dup3", NONE),
    ("execve", NONE),
    ("execveat", NONE),
    ("exit", NONE),
    ("exit_group", NONE),
    ("fcntl", NONE),
    ("fstat", NONE),
    ("futex", NONE),
    ("getdents64", NONE),
    ("getpid", NONE),
    ("gettid", NONE),
    ("ioctl", [0, libc::TIOCSCTTY, 0, 0, 0, 0]),
    ("ioctl", [0, libc::TIOCSWINSZ, 0, 0, 0, 0]),
    ("kill", NONE),
    ("lseek", NONE),
    ("madvise", NONE),
    ("mmap", NONE),
    ("mprotect", NONE),
    ("mremap", NONE),
    ("munmap", NONE),
    ("newfstatat", NONE),
    ("openat", [0, 0, 0o2_000_000, 0, 0, 0]),
    ("poll", NONE),
    ("ppoll", NONE),
    ("prctl", NONE),
    ("read", NONE),
    ("recvmsg", NONE),
    ("restart_syscall", NONE),
    ("rt_sigaction", NONE),
    ("rt_sigprocmask", NONE),
    ("rt_sigreturn", NONE),
    ("rt_sigtimedwait", NONE),
    ("seccomp", NONE),
    ("sendmsg", NONE),
    ("set_robust_list", NONE),
    ("setpgid", NONE),
    ("setsid", NONE),
    ("sigaltstack", NONE),
    ("signalfd4", NONE),
    ("tgkill", NONE),
    ("wait4", NONE),
    ("waitid", NONE),
    ("write", NONE),
];

const NONE: [u64; 6] = [0; 6];

/// As [`crate::sys::vfork`] has it.
const VFORK: u64 = (libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD) as u64;

/// Names the first call of the launch set that the document does not let through.
pub fn check_launch_set(document: &LinuxSeccomp) -> Result<(), SeccompError> {
    super::compile(document)?.check_launch_set()
}

impl Program {
    /// Names the first call of the launch set that the program does not let through.
    pub fn check_launch_set(&self) -> Result<(), SeccompError> {
        let arch = Architecture::native()?;
        for (call, args) in LAUNCH_SET {
            let Some(number) = arch.number(call) else { continue };
            let data = SeccompData { number, arch: arch.audit(), instruction_pointer: 0, args: *args };
            let verdict = run(self, &data)?;
            if !verdict.lets_through() {
                return Err(SeccompError::LaunchSet { call, verdict });
            }
        }
        Ok(())
    }
}
