//! What a filter answers.

use std::fmt;

use oci_spec::runtime::LinuxSeccompAction;

/// The answer of a filter to one call: `SECCOMP_RET_*` of `linux/seccomp.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The call runs.
    Allow,
    /// The call runs and is logged.
    Log,
    /// The call does not run and fails with this errno.
    Errno(u16),
    /// A tracer decides; this value is its message.
    Trace(u16),
    /// A listener decides.
    Notify,
    /// The thread gets SIGSYS; this value is its `si_errno`.
    Trap(u16),
    /// The thread dies.
    KillThread,
    /// The process dies.
    KillProcess,
}

/// Highest errno that the kernel can return (`MAX_ERRNO`).
pub(super) const MAX_ERRNO: u32 = 4095;

impl Verdict {
    /// The kernel's answer to a number without a call, ENOSYS: programs fall back to older calls.
    pub const NO_SUCH_CALL: Self = Self::Errno(38);

    /// The 32 bits that the filter returns.
    pub const fn raw(self) -> u32 {
        match self {
            Self::Allow => 0x7fff_0000,
            Self::Log => 0x7ffc_0000,
            Self::Trace(message) => 0x7ff0_0000 | message as u32,
            Self::Notify => 0x7fc0_0000,
            Self::Errno(errno) => 0x0005_0000 | errno as u32,
            Self::Trap(data) => 0x0003_0000 | data as u32,
            Self::KillThread => 0,
            Self::KillProcess => 0x8000_0000,
        }
    }

    /// What the kernel makes of 32 returned bits: an action that it does not know kills the process.
    pub const fn from_raw(raw: u32) -> Self {
        let data = (raw & 0xffff) as u16;
        match raw & 0xffff_0000 {
            0x7fff_0000 => Self::Allow,
            0x7ffc_0000 => Self::Log,
            0x7ff0_0000 => Self::Trace(data),
            0x7fc0_0000 => Self::Notify,
            0x0005_0000 => Self::Errno(data),
            0x0003_0000 => Self::Trap(data),
            0 => Self::KillThread,
            _ => Self::KillProcess,
        }
    }

    /// The call takes place.
    pub const fn lets_through(self) -> bool {
        matches!(self, Self::Allow | Self::Log)
    }

    /// An OCI action with its errno field, which may be 4095 at most for ERRNO and 65535 for TRACE.
    /// `None` if it is larger. Absent means EPERM, as the runtime specification says.
    pub(super) fn from_oci(action: LinuxSeccompAction, errno: Option<u32>) -> Option<Self> {
        let data = u16::try_from(errno.unwrap_or(libc::EPERM.unsigned_abs())).ok();
        Some(match action {
            LinuxSeccompAction::ScmpActAllow => Self::Allow,
            LinuxSeccompAction::ScmpActLog => Self::Log,
            LinuxSeccompAction::ScmpActErrno => {
                Self::Errno(data.filter(|data| u32::from(*data) <= MAX_ERRNO)?)
            }
            LinuxSeccompAction::ScmpActTrace => Self::Trace(data?),
            LinuxSeccompAction::ScmpActNotify => Self::Notify,
            LinuxSeccompAction::ScmpActTrap => Self::Trap(0),
            LinuxSeccompAction::ScmpActKill | LinuxSeccompAction::ScmpActKillThread => Self::KillThread,
            LinuxSeccompAction::ScmpActKillProcess => Self::KillProcess,
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allow => f.write_str("allow"),
            Self::Log => f.write_str("log"),
            Self::Errno(errno) => write!(f, "errno {errno}"),
            Self::Trace(message) => write!(f, "trace {message}"),
            Self::Notify => f.write_str("notify"),
            Self::Trap(data) => write!(f, "trap {data}"),
            Self::KillThread => f.write_str("kill thread"),
            Self::KillProcess => f.write_str("kill process"),
        }
    }
}
