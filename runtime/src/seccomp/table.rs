//! System call names and numbers, by architecture.

use super::SeccompError;

#[rustfmt::skip]
mod x86_64;

/// An architecture that filters can be made for.
///
/// Another one needs its generated table, its audit value and its place in [`Architecture::native`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Architecture {
    /// 64-bit x86. Its x32 numbers (bit 30) share the audit value and are refused by the head guard.
    X86_64,
}

/// Numbers at and above this belong to the x32 ABI, which 64-bit x86 offers beside its own.
/// From `__X32_SYSCALL_BIT` in `asm/unistd.h`.
pub const X32_BIT: u32 = 0x4000_0000;

/// One more than the highest number of any table.
const END: usize = 512;

/// Names by number, built from the generated list, which is sorted by name.
const X86_64_NAMES: [Option<&str>; END] = by_number(x86_64::CALLS);

const fn by_number(calls: &[(&'static str, u32)]) -> [Option<&'static str>; END] {
    let mut names = [None; END];
    let mut at = 0;
    while at < calls.len() {
        names[calls[at].1 as usize] = Some(calls[at].0);
        at += 1;
    }
    names
}

impl Architecture {
    /// The architecture that this program runs on.
    pub const fn native() -> Result<Self, SeccompError> {
        if cfg!(target_arch = "x86_64") {
            Ok(Self::X86_64)
        } else {
            Err(SeccompError::Architecture { name: std::env::consts::ARCH })
        }
    }

    /// The value of `seccomp_data.arch` (`AUDIT_ARCH_*` in `linux/audit.h`).
    pub const fn audit(self) -> u32 {
        match self {
            Self::X86_64 => 0xc000_003e,
        }
    }

    /// The number of a call, if this table knows its name.
    pub fn number(self, name: &str) -> Option<u32> {
        let calls = self.all();
        calls.binary_search_by(|(known, _)| (*known).cmp(name)).ok().map(|at| calls[at].1)
    }

    /// The name of a number, if this table knows it.
    pub fn name(self, number: u32) -> Option<&'static str> {
        let names = match self {
            Self::X86_64 => &X86_64_NAMES,
        };
        names.get(usize::try_from(number).ok()?).copied().flatten()
    }

    /// Every known call as (name, number), sorted by name.
    pub const fn all(self) -> &'static [(&'static str, u32)] {
        match self {
            Self::X86_64 => x86_64::CALLS,
        }
    }
}

/// The number of a call on this machine's architecture.
pub fn syscall_number(name: &str) -> Option<u32> {
    Architecture::native().ok()?.number(name)
}

/// The name of a number on this machine's architecture.
pub fn syscall_name(number: u32) -> Option<&'static str> {
    Architecture::native().ok()?.name(number)
}

/// Every call of this machine's architecture as (name, number), sorted by name.
pub fn all() -> &'static [(&'static str, u32)] {
    Architecture::native().map_or(&[], Architecture::all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_maps_both_ways() {
        let calls = Architecture::X86_64.all();
        assert!(calls.is_sorted_by(|a, b| a.0 < b.0));
        assert!(calls.len() > 370);
        for (name, number) in calls {
            assert_eq!(syscall_number(name), Some(*number));
            assert_eq!(syscall_name(*number), Some(*name));
        }
        assert_eq!(syscall_number("no_such_call"), None);
        assert_eq!(syscall_name(337), None);
        assert_eq!(syscall_name(u32::MAX), None);
    }

    #[test]
    fn the_numbers_are_those_of_libc() {
        for (name, number) in [
            ("read", libc::SYS_read),
            ("execveat", libc::SYS_execveat),
            ("rseq", libc::SYS_rseq),
            ("pidfd_send_signal", libc::SYS_pidfd_send_signal),
            ("clone3", libc::SYS_clone3),
            ("openat2", libc::SYS_openat2),
            ("mount_setattr", libc::SYS_mount_setattr),
            ("fchmodat2", libc::SYS_fchmodat2),
            ("mseal", libc::SYS_mseal),
        ] {
            assert_eq!(syscall_number(name).map(i64::from), Some(number), "{name}");
        }
    }
}
