//! Options of OCI mounts and names of OCI resource limits.

use std::fmt;

use oci_spec::runtime::{Mount, PosixRlimitType};

use super::MountFlags;

/// A mount option that this version does not understand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownOption(pub String);

impl std::error::Error for UnknownOption {}

impl fmt::Display for UnknownOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mount option {:?} is not supported", self.0)
    }
}

/// The options of one mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) flags: MountFlags,
    /// `size=` in bytes.
    pub(super) size: Option<u64>,
    /// `mode=`.
    pub(super) mode: Option<u32>,
    /// `uid=`, inside.
    pub(super) uid: Option<u32>,
    /// `gid=`, inside.
    pub(super) gid: Option<u32>,
    /// The source may be absent.
    pub(super) optional: bool,
    /// The source is a Unix socket, and what listens on it is to be reachable from inside.
    pub(super) socket: bool,
}

impl Options {
    pub(super) fn parse(mount: &Mount) -> Result<Options, UnknownOption> {
        let mut options = Options::default();
        for option in mount.options().iter().flatten() {
            let unknown = || UnknownOption(option.clone());
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            // OCI's recursive forms: flags always cover the mounts below a bind mount.
            let key = match key {
                "rro" | "rrw" | "rexec" | "rnoexec" | "rdev" | "rnodev" | "rnosuid" => &key[1..],
                key => key,
            };
            match key {
                "ro" => options.flags.read_only = true,
                "rw" => options.flags.read_only = false,
                "noexec" => options.flags.no_exec = true,
                "exec" => options.flags.no_exec = false,
                "nodev" => options.flags.no_dev = true,
                "dev" => options.flags.no_dev = false,
                "optional" => options.optional = true,
                "socket" => options.socket = true,
                "size" => options.size = Some(value.parse().map_err(|_| unknown())?),
                "mode" => options.mode = Some(u32::from_str_radix(value, 8).map_err(|_| unknown())?),
                "uid" => options.uid = Some(value.parse().map_err(|_| unknown())?),
                "gid" => options.gid = Some(value.parse().map_err(|_| unknown())?),
                // Always so, whatever the document says; `suid` would not be.
                "nosuid" | "bind" | "rbind" | "private" | "rprivate" | "slave" | "rslave" | "newinstance"
                | "ptmxmode" | "hidepid" => {}
                // Times of access are locked on inherited mounts (launch order, kernel 5.14-6.18).
                "strictatime" | "relatime" | "noatime" | "nodiratime" => {}
                _ => return Err(unknown()),
            }
        }
        Ok(options)
    }
}

pub(super) fn is_read_write_bind(mount: &Mount) -> bool {
    mount.typ().as_deref() == Some("bind")
        && Options::parse(mount).is_ok_and(|options| !options.flags.read_only)
}

/// The `RLIMIT_*` number of getrlimit(2).
pub(crate) fn rlimit_number(limit: PosixRlimitType) -> u32 {
    match limit {
        PosixRlimitType::RlimitCpu => libc::RLIMIT_CPU,
        PosixRlimitType::RlimitFsize => libc::RLIMIT_FSIZE,
        PosixRlimitType::RlimitData => libc::RLIMIT_DATA,
        PosixRlimitType::RlimitStack => libc::RLIMIT_STACK,
        PosixRlimitType::RlimitCore => libc::RLIMIT_CORE,
        PosixRlimitType::RlimitRss => libc::RLIMIT_RSS,
        PosixRlimitType::RlimitNproc => libc::RLIMIT_NPROC,
        PosixRlimitType::RlimitNofile => libc::RLIMIT_NOFILE,
        PosixRlimitType::RlimitMemlock => libc::RLIMIT_MEMLOCK,
        PosixRlimitType::RlimitAs => libc::RLIMIT_AS,
        PosixRlimitType::RlimitLocks => libc::RLIMIT_LOCKS,
        PosixRlimitType::RlimitSigpending => libc::RLIMIT_SIGPENDING,
        PosixRlimitType::RlimitMsgqueue => libc::RLIMIT_MSGQUEUE,
        PosixRlimitType::RlimitNice => libc::RLIMIT_NICE,
        PosixRlimitType::RlimitRtprio => libc::RLIMIT_RTPRIO,
        PosixRlimitType::RlimitRttime => libc::RLIMIT_RTTIME,
    }
}

/// Names of proc_pid_limits(5).
pub(crate) fn limit_name(resource: u32) -> Option<&'static str> {
    Some(match resource {
        libc::RLIMIT_CPU => "Max cpu time",
        libc::RLIMIT_FSIZE => "Max file size",
        libc::RLIMIT_DATA => "Max data size",
        libc::RLIMIT_STACK => "Max stack size",
        libc::RLIMIT_CORE => "Max core file size",
        libc::RLIMIT_RSS => "Max resident set",
        libc::RLIMIT_NPROC => "Max processes",
        libc::RLIMIT_NOFILE => "Max open files",
        libc::RLIMIT_MEMLOCK => "Max locked memory",
        libc::RLIMIT_AS => "Max address space",
        libc::RLIMIT_LOCKS => "Max file locks",
        libc::RLIMIT_SIGPENDING => "Max pending signals",
        libc::RLIMIT_MSGQUEUE => "Max msgqueue size",
        libc::RLIMIT_NICE => "Max nice priority",
        libc::RLIMIT_RTPRIO => "Max realtime priority",
        libc::RLIMIT_RTTIME => "Max realtime timeout",
        _ => return None,
    })
}
