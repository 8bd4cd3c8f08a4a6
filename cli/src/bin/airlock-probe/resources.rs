//! More than the limits let a sandbox have.

use std::fs::{self, File};
use std::io::Write;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use airlock_runtime::probe::Outcome;
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};

use crate::child::Idle;
use crate::files::errno;
use crate::{Attempt, Verb, Words, call, done, number, word};

pub(crate) const VERBS: &[Verb] = &[
    ("eat", eat),
    ("children", children),
    ("open-many", open_many),
    ("fill", fill),
    ("queue-signals", queue_signals),
    ("limit", limit),
    ("compute", compute),
    ("stay", stay),
];

fn count(words: Words<'_>, place: usize) -> Result<usize, Errno> {
    usize::try_from(number(words, place)?).map_err(|_| Errno::EBADMSG)
}

/// Writes to so many bytes of memory.
fn eat(words: Words<'_>) -> Attempt {
    let size = NonZeroUsize::new(count(words, 0)?).ok_or(Errno::EBADMSG)?;
    let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: an anonymous mapping at an address of the kernel's choice replaces nothing.
    let memory = unsafe { mmap_anonymous(None, size, protection, MapFlags::MAP_PRIVATE) }?;
    for at in (0..size.get()).step_by(4096) {
        // SAFETY: `at` lies within the mapping.
        let place = unsafe { memory.cast::<u8>().add(at) };
        // SAFETY: the mapping is writable and nobody else's.
        unsafe { place.write_volatile(1) };
    }
    done()
}

/// Has so many children at once.
fn children(words: Words<'_>) -> Attempt {
    let mut alive = Vec::new();
    for _ in 0..count(words, 0)? {
        alive.push(Idle::start()?);
    }
    done()
}

fn open_many(words: Words<'_>) -> Attempt {
    let mut files = Vec::new();
    for _ in 0..count(words, 0)? {
        files.push(File::open("/proc/self").map_err(|error| errno(&error))?);
    }
    done()
}

/// Writes so many bytes to a new file of a directory.
fn fill(words: Words<'_>) -> Attempt {
    let path = format!("{}/.airlock-probe-fill-{}", word(words, 0)?, std::process::id());
    let mut file = File::create_new(&path).map_err(|error| errno(&error))?;
    let block = vec![1_u8; 1 << 16];
    let blocks = count(words, 1)?.div_ceil(block.len());
    let written = (0..blocks).try_for_each(|_| file.write_all(&block));
    // The directory's other users come first.
    let _ = fs::remove_file(&path);
    written.map_err(|error| errno(&error))?;
    done()
}

/// Leaves so many signals waiting for itself.
fn queue_signals(words: Words<'_>) -> Attempt {
    const REAL_TIME: u64 = 40;
    let mask = [1_u64 << (REAL_TIME - 1)];
    let blocked = call::address(mask.as_ptr());
    call::named("rt_sigprocmask", [0, blocked, 0, 8, 0, 0])?;
    let own = call::named("getpid", [0; 6])?.cast_unsigned();
    // siginfo_t: signal, errno, and SI_QUEUE (-1) as its code.
    let mut info = [0_i32; 32];
    info[2] = -1;
    for _ in 0..count(words, 0)? {
        call::named("rt_sigqueueinfo", [own, REAL_TIME, call::address(info.as_ptr()), 0, 0, 0])?;
    }
    done()
}

/// Whether a resource limit is higher than a value.
fn limit(words: Words<'_>) -> Attempt {
    let mut both = [0_u64; 2];
    let old = call::address(both.as_mut_ptr());
    call::named("prlimit64", [0, number(words, 0)?.cast_unsigned(), 0, old, 0, 0])?;
    Ok(match both[1] > number(words, 1)?.unsigned_abs() {
        true => Outcome::Done(String::new()),
        false => Outcome::Absent(format!("the limit is {}", both[1])),
    })
}

/// Computes with two processes for so many milliseconds: done if they got more than a quarter of a CPU, which they
/// get on a busy machine too.
fn compute(words: Words<'_>) -> Attempt {
    let time = Duration::from_millis(number(words, 0)?.unsigned_abs());
    let start = Instant::now();
    let spin = || while start.elapsed() < time {};
    // SAFETY: this process has one thread.
    let other = match unsafe { fork() }? {
        ForkResult::Child => {
            spin();
            crate::child::exit(0)
        }
        ForkResult::Parent { child } => child,
    };
    spin();
    waitpid(other, None)?;
    let wall = start.elapsed().as_secs_f64();
    let used: f64 = [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN]
        .iter()
        .filter_map(|who| getrusage(*who).ok())
        .flat_map(|usage| [usage.user_time(), usage.system_time()])
        .map(|time| {
            Duration::from_micros(time.tv_sec().unsigned_abs() * 1_000_000 + time.tv_usec().unsigned_abs())
        })
        .map(|time| time.as_secs_f64())
        .sum();
    let cpus = used / wall;
    Ok(match cpus > 0.25 {
        true => Outcome::Done(format!("{cpus:.2} CPUs")),
        false => Outcome::Absent(format!("{cpus:.2} CPUs")),
    })
}

/// Is there for so many milliseconds.
fn stay(words: Words<'_>) -> Attempt {
    std::thread::sleep(Duration::from_millis(number(words, 0)?.unsigned_abs()));
    done()
}
