//! Other processes: of the host, of the sandbox, and its first one.

use super::NO_PROCESS;
use crate::probe::Clause::*;
use crate::probe::Probe;

/// A file in /proc of PID 1: the sandbox's reaper inside, the host's init outside.
const fn first(id: &'static str, title: &'static str, action: &'static [&'static str]) -> Probe {
    Probe::new(id, title, action, &[FirstProcess]).needs_root().host_may_refuse()
}

#[rustfmt::skip]
pub(super) const PROBES: &[Probe] = &[
    Probe::new("process.see", "see a process of the host", &["see", "$PID"], &[PidNamespace]),
    Probe::new("process.signal", "signal a process of the host", &["signal", "$PID"], &[PidNamespace]).also(NO_PROCESS),
    Probe::new("process.handle", "take a handle of a process of the host", &["handle", "$PID"], &[PidNamespace]).also(NO_PROCESS),
    Probe::new("process.host-environment", "read the environment of a process of the host", &["open", "/proc/$PID/environ", "r"], &[PidNamespace]),
    Probe::new("process.host-memory", "write to the memory of a process of the host", &["open", "/proc/$PID/mem", "w"], &[PidNamespace]),
    Probe::new("process.host-root", "enter the files of a process of the host", &["link", "/proc/$PID/root"], &[PidNamespace]),
    Probe::new("process.starter-environment", "read the environment of the process that started it", &["starter", "environ"], &[FirstProcess]),
    Probe::new("process.starter-memory", "open the memory of the process that started it", &["starter", "mem"], &[FirstProcess]),
    first("process.first-environment", "read the environment of PID 1", &["open", "/proc/1/environ", "r"]),
    first("process.first-memory", "open the memory of PID 1", &["open", "/proc/1/mem", "r"]),
    first("process.first-maps", "read the mappings of PID 1", &["open", "/proc/1/maps", "r"]),
    first("process.first-root", "follow the root of PID 1", &["link", "/proc/1/root"]),
    first("process.first-descriptors", "list the descriptors of PID 1", &["list", "/proc/1/fd"]),
    Probe::new("process.first-name", "read the name of PID 1", &["read", "/proc/1/comm"], &[HiddenProcesses]),
    Probe::new("process.first-state", "read the state of PID 1", &["read", "/proc/1/status"], &[HiddenProcesses]),
    Probe::new("process.trace", "trace a child of its own", &["trace"], &[]),
    Probe::new("process.trace-me", "have itself traced", &["trace-me"], &[]),
    Probe::new("process.read-memory", "read the memory of a child of its own", &["read-memory"], &[]),
    Probe::new("process.take-descriptor", "take a descriptor out of a child of its own", &["take-descriptor"], &[]),
    Probe::new("process.limit-other", "limit the open files of a child of its own", &["limit-other"], &[]),
    Probe::new("process.compare", "compare kernel objects of processes", &["call", "kcmp", "0", "0", "99", "0", "0"], &[]),
    Probe::new("process.advise", "advise on another's memory", &["call", "process_madvise", "-1", "page:", "1", "0", "0"], &[]),
    Probe::new("process.move-pages", "move pages of another process", &["call", "move_pages", "2147483647", "0", "0", "0", "0", "0"], &[]).of_some_hosts(),
    Probe::new("process.inherited", "use a descriptor that the caller left open", &["descriptor", "$DESCRIPTOR"], &[Descriptors]),
    Probe::new("channel.socket", "connect to a grader's socket of the host", &["connect-unix", "/run/airlock/grader.sock"], &[Root]).of_some_hosts().host_may_refuse(),
    Probe::new("channel.state", "list the state of other sandboxes", &["list", "/run/airlock"], &[Root, UserNamespace]).needs_root().of_some_hosts(),
    Probe::new("channel.verdict", "find a verdict's descriptor (3)", &["descriptor", "3"], &[Descriptors]).of_some_hosts(),
    Probe::new("channel.candidate", "find a candidate's descriptor (4)", &["descriptor", "4"], &[Descriptors]).of_some_hosts(),
    Probe::new("channel.variable", "read a variable of the caller", &["variable", "$VARIABLE"], &[Environment]),
];
