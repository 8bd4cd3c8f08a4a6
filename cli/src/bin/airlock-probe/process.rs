//! Other processes: seeing, signalling, tracing, reading them.

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::child::Idle;
use crate::files::errno;
use crate::{Attempt, Verb, Words, call, done, number, word};

pub(crate) const VERBS: &[Verb] = &[
    ("see", see),
    ("starter", starter),
    ("signal", signal),
    ("handle", handle),
    ("trace", trace),
    ("trace-me", trace_me),
    ("read-memory", read_memory),
    ("take-descriptor", take_descriptor),
    ("limit-other", limit_other),
    ("enter", enter),
];

fn pid(words: Words<'_>) -> Result<Pid, Errno> {
    number(words, 0)?.try_into().map(Pid::from_raw).map_err(|_| Errno::EBADMSG)
}

/// Looks a process up in /proc.
fn see(words: Words<'_>) -> Attempt {
    std::fs::metadata(format!("/proc/{}", pid(words)?)).map_err(|error| errno(&error))?;
    done()
}

/// Opens a file in /proc of the process that started this program: PID 1 inside, the audit outside.
fn starter(words: Words<'_>) -> Attempt {
    let io = |error: std::io::Error| errno(&error);
    let own = std::fs::read_to_string(format!("/proc/{}/status", nix::unistd::getppid())).map_err(io)?;
    let starter = own.lines().find_map(|line| line.strip_prefix("PPid:")).map_or("0", str::trim);
    std::fs::File::open(format!("/proc/{starter}/{}", word(words, 0)?)).map_err(io)?;
    done()
}

/// Asks whether a process could be signalled.
fn signal(words: Words<'_>) -> Attempt {
    kill(pid(words)?, None)?;
    done()
}

fn size(value: i64) -> u64 {
    value.cast_unsigned()
}

/// pidfd_open(2) of a process.
fn handle(words: Words<'_>) -> Attempt {
    call::named("pidfd_open", [size(number(words, 0)?), 0, 0, 0, 0, 0])?;
    done()
}

/// Attaches to a child of its own.
fn trace(_: Words<'_>) -> Attempt {
    const SEIZE: u64 = 0x4206;
    let child = Idle::start()?;
    call::named("ptrace", [SEIZE, size(child.0.as_raw().into()), 0, 0, 0, 0])?;
    done()
}

/// Has its parent trace it.
fn trace_me(_: Words<'_>) -> Attempt {
    call::named("ptrace", [0; 6])?;
    done()
}

/// Reads the memory of a child of its own: an empty list, which is checked as a full one is.
fn read_memory(_: Words<'_>) -> Attempt {
    let child = Idle::start()?;
    let mut byte = 0_u8;
    let vector = [call::address(&raw mut byte), 1_u64];
    let list = call::address(vector.as_ptr());
    call::named("process_vm_readv", [size(child.0.as_raw().into()), list, 1, list, 1, 0])?;
    done()
}

/// Takes a descriptor out of a child of its own.
fn take_descriptor(_: Words<'_>) -> Attempt {
    let child = Idle::start()?;
    let handle = call::named("pidfd_open", [size(child.0.as_raw().into()), 0, 0, 0, 0, 0])?;
    call::named("pidfd_getfd", [size(handle), 0, 0, 0, 0, 0])?;
    done()
}

/// Limits the open files of a child of its own, which is one of the same user as PID 1 might be.
fn limit_other(_: Words<'_>) -> Attempt {
    const OPEN_FILES: u64 = 7;
    let child = Idle::start()?;
    let limit = [64_u64, 64];
    let new = call::address(limit.as_ptr());
    call::named("prlimit64", [size(child.0.as_raw().into()), OPEN_FILES, new, 0, 0, 0])?;
    done()
}

/// setns(2) into a namespace that it is in already.
fn enter(words: Words<'_>) -> Attempt {
    let file =
        std::fs::File::open(format!("/proc/self/ns/{}", word(words, 0)?)).map_err(|error| errno(&error))?;
    nix::sched::setns(file, nix::sched::CloneFlags::empty())?;
    done()
}
