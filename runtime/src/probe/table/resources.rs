//! More than the limits let a sandbox have. The audit lowers the limits to what these try: see
//! [`Setting`](crate::probe::Setting).

use nix::errno::Errno;

use super::errno;
use crate::probe::Clause::*;
use crate::probe::{Also, Probe};

const FULL: Also = errno(
    &[Errno::ENOSPC, Errno::EROFS],
    "the file system of a limited size is full, or takes no writes at all",
);
const TOO_MANY: Also = errno(&[Errno::EAGAIN], "fork and sigqueue say EAGAIN at a limit");
const TOO_MANY_FILES: Also = errno(&[Errno::EMFILE], "the limit of open files is reached");
const OUT_OF_MEMORY: Also = Also {
    errnos: &[Errno::ENOMEM],
    signals: &[libc::SIGKILL],
    why: "the kernel kills a process of a group whose memory is used up",
};
const OUT_OF_TIME: Also =
    Also { errnos: &[], signals: &[libc::SIGKILL], why: "the sandbox is ended at its wall-clock limit" };

#[rustfmt::skip]
pub(super) const PROBES: &[Probe] = &[
    Probe::new("limit.files", "open more files than the limit", &["open-many", "200"], &[OpenFiles]).also(TOO_MANY_FILES),
    Probe::new("limit.core", "leave a core file", &["limit", "4", "1"], &[CoreFiles]).host_may_refuse(),
    Probe::new("limit.signals", "leave more signals waiting than the limit", &["queue-signals", "1100"], &[PendingSignals]).also(TOO_MANY),
    Probe::new("limit.tmp", "write more to /tmp than the limit", &["fill", "/tmp", "12582912"], &[TmpSize]).also(FULL),
    Probe::new("limit.shm", "write more to /dev/shm than the limit", &["fill", "/dev/shm", "12582912"], &[ShmSize]).also(FULL),
    Probe::new("limit.processes", "have more processes than the limit", &["children", "80"], &[Processes]).also(TOO_MANY),
    Probe::new("limit.memory", "use more memory than the limit", &["eat", "134217728"], &[Memory]).also(OUT_OF_MEMORY),
    Probe::new("limit.cpus", "use more CPUs than the limit", &["compute", "400"], &[Cpus]).host_may_refuse(),
    Probe::new("limit.wall", "stay for longer than the limit", &["stay", "1500"], &[WallClock]).also(OUT_OF_TIME),
];
