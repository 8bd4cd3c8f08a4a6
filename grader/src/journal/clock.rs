//! The run's one clock.

use std::fs;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Where Linux names the boot (random(4)).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// A moment on the host's boot-time clock, which counts while the machine sleeps and which nobody can set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The boot; moments of different boots cannot be compared.
    pub boot_id: String,
    /// `CLOCK_BOOTTIME`, in nanoseconds.
    pub boot_ns: u64,
    /// Wall-clock time in milliseconds since 1970, for people: nothing is decided by it.
    pub wall_ms: u64,
}

impl Moment {
    /// Now.
    pub fn now() -> io::Result<Moment> {
        let boot = clock_gettime(ClockId::Boottime);
        let negative = |_| io::Error::other("the boot-time clock is negative");
        let seconds = u64::try_from(boot.tv_sec).map_err(negative)?;
        let nanoseconds = u64::try_from(boot.tv_nsec).map_err(negative)?;
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Moment {
            boot_id: fs::read_to_string(BOOT_ID)?.trim_end().to_owned(),
            // Enough for 584 years of uptime.
            boot_ns: seconds * 1_000_000_000 + nanoseconds,
            wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
        })
    }
}
