//! Giving a filter to the kernel.

use oci_spec::runtime::{LinuxSeccomp, LinuxSeccompFilterFlag};

use super::SeccompError;
use super::program::Program;

/// How a filter is installed (`SECCOMP_FILTER_FLAG_*`, seccomp(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Log every answer but ALLOW, as far as `/proc/sys/kernel/seccomp/actions_logged` says so.
    pub log: bool,
    /// Leave the speculative store bypass mitigation off where seccomp would turn it on (before Linux 5.16).
    pub spec_allow: bool,
}

impl Flags {
    /// The flags of an OCI document.
    ///
    /// TSYNC says nothing to a process with one thread. WAIT_KILLABLE_RECV concerns a listener, which
    /// is refused where a program needs one.
    pub fn of(document: &LinuxSeccomp) -> Self {
        let has = |flag| document.flags().iter().flatten().any(|given| *given == flag);
        Self {
            log: has(LinuxSeccompFilterFlag::SeccompFilterFlagLog),
            spec_allow: has(LinuxSeccompFilterFlag::SeccompFilterFlagSpecAllow),
        }
    }

    fn bits(self) -> libc::c_ulong {
        let log = if self.log { libc::SECCOMP_FILTER_FLAG_LOG } else { 0 };
        let spec = if self.spec_allow { libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW } else { 0 };
        log | spec
    }
}

/// Confines the calling thread, for good. Filters add up: the strictest answer of all counts.
///
/// The kernel wants `no_new_privs` or CAP_SYS_ADMIN in the caller's user namespace (else EACCES).
/// Other threads stay as they are, so the caller should be the only one.
pub fn install(program: &Program, flags: Flags) -> Result<(), SeccompError> {
    if program.notifies() {
        return Err(SeccompError::Notify);
    }
    let length = program.instructions.len();
    let Ok(len) = libc::c_ushort::try_from(length) else {
        return Err(SeccompError::TooLong { length });
    };
    let mut filter: Vec<libc::sock_filter> = program
        .instructions
        .iter()
        .map(|step| libc::sock_filter { code: step.code, jt: step.jt, jf: step.jf, k: step.k })
        .collect();
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    // SAFETY: `program` points to `len` instructions that outlive the call; the kernel copies them.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags.bits(), &raw const program)
    };
    if result == 0 { Ok(()) } else { Err(SeccompError::Install(std::io::Error::last_os_error())) }
}
