//! When a run's time is over, on the host's boot-time clock.
//!
//! That clock counts while the machine sleeps and nobody can set it, so a restarted supervisor reads the
//! same remaining time. It begins anew with each boot: a moment of another boot says nothing.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::{Errno, read};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use crate::journal::Moment;

/// The moment at which a budget is spent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadline {
    boot_id: String,
    /// `CLOCK_BOOTTIME`, in nanoseconds.
    due_ns: u64,
}

/// A moment of another boot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the clock began in boot {began} and this is boot {now}: the machine was restarted, so the run is interrupted"
)]
pub struct AnotherBoot {
    /// The boot of the deadline.
    pub began: String,
    /// The other one.
    pub now: String,
}

/// Why a deadline cannot be waited for.
#[derive(Debug, thiserror::Error)]
pub enum ClockError {
    /// It is of another boot.
    #[error(transparent)]
    AnotherBoot(#[from] AnotherBoot),
    /// The clock or its timer failed.
    #[error("boot-time clock: {step}: {source}")]
    Io {
        /// What was done.
        step: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

impl Deadline {
    /// A budget's end, counted from `start`.
    pub fn new(start: &Moment, budget: Duration) -> Deadline {
        let due_ns = start.boot_ns.saturating_add(nanoseconds(budget));
        Deadline { boot_id: start.boot_id.clone(), due_ns }
    }

    /// Later by time that does not count, such as that of a validation.
    #[must_use]
    pub fn credit(&self, time: Duration) -> Deadline {
        Deadline { due_ns: self.due_ns.saturating_add(nanoseconds(time)), ..self.clone() }
    }

    /// On the boot-time clock, in nanoseconds.
    pub fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// How much time there is at `now`; zero once it is over.
    pub fn remaining(&self, now: &Moment) -> Result<Duration, AnotherBoot> {
        if now.boot_id != self.boot_id {
            return Err(AnotherBoot { began: self.boot_id.clone(), now: now.boot_id.clone() });
        }
        Ok(Duration::from_nanos(self.due_ns.saturating_sub(now.boot_ns)))
    }

    /// Waits until it is over, which it may be already. Time spent asleep counts, and setting the wall clock
    /// changes nothing.
    pub async fn wait(&self) -> Result<(), ClockError> {
        let failed = |step| move |source: io::Error| ClockError::Io { step, source };
        self.remaining(&Moment::now().map_err(failed("reading it"))?)?;
        let timer = self.timer().map_err(io::Error::from).map_err(failed("setting a timer"))?;
        // SAFETY: an OwnedFd keeps its one descriptor open for as long as the AsyncFd owns it.
        let timer = unsafe { AsyncFd::register(timer) };
        let timer = timer.map_err(|error| failed("watching a timer")(error.into_parts().1))?;
        loop {
            let mut ready = timer.readable().await.map_err(failed("watching a timer"))?;
            match ready.try_io(|timer| Ok(read(timer, &mut [0; 8])?)) {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(source)) => return Err(failed("reading a timer")(source)),
                // Not yet.
                Err(_) => {}
            }
        }
    }

    fn timer(&self) -> Result<OwnedFd, Errno> {
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        // An expiration at zero would disarm it.
        let due = Duration::from_nanos(self.due_ns.max(1));
        let it_value = Timespec {
            // At most 2^64 / 10^9.
            tv_sec: due.as_secs().cast_signed(),
            tv_nsec: due.subsec_nanos().into(),
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval, it_value })?;
        Ok(timer)
    }
}

/// At most the 584 years that the clock can tell.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn moment(boot_id: &str, seconds: u64, wall_ms: u64) -> Moment {
        Moment { boot_id: boot_id.into(), boot_ns: seconds * 1_000_000_000, wall_ms }
    }

    #[test]
    fn a_budget_is_spent_by_the_boot_time_clock_alone() {
        let deadline = Deadline::new(&moment("a", 100, 5_000_000), 30 * SECOND);
        // PostTrainBench's timer was a file; here neither a restart nor the wall clock gives time back.
        for (seconds, wall_ms, left) in [(100, 0, 30), (129, 9, 1), (130, 0, 0), (999, 5_000_000, 0)] {
            assert_eq!(deadline.remaining(&moment("a", seconds, wall_ms)), Ok(left * SECOND));
        }
    }

    #[test]
    fn time_that_does_not_count_is_credited() {
        let deadline = Deadline::new(&moment("a", 100, 0), 30 * SECOND);
        let later = deadline.credit(7 * SECOND).credit(3 * SECOND);
        assert_eq!(later.remaining(&moment("a", 130, 0)), Ok(10 * SECOND));
        assert_eq!(deadline.credit(Duration::MAX).due_ns(), u64::MAX);
        assert_eq!(Deadline::new(&moment("a", 1, 0), Duration::MAX).due_ns(), u64::MAX);
    }

    #[test]
    fn another_boot_says_nothing() {
        let deadline = Deadline::new(&moment("a", 100, 0), 30 * SECOND);
        let error = deadline.remaining(&moment("b", 101, 0)).unwrap_err();
        assert_eq!(error, AnotherBoot { began: "a".into(), now: "b".into() });
    }

    #[tokio::test]
    async fn the_wait_ends_at_the_deadline_and_not_before() {
        let deadline = Deadline::new(&Moment::now().unwrap(), Duration::from_millis(300));
        assert!(timeout(Duration::from_millis(20), deadline.wait()).await.is_err());
        timeout(20 * SECOND, deadline.wait()).await.unwrap().unwrap();
        assert_eq!(deadline.remaining(&Moment::now().unwrap()), Ok(Duration::ZERO));
        // What is over is over at once.
        timeout(20 * SECOND, deadline.wait()).await.unwrap().unwrap();
        let boot_id = Moment::now().unwrap().boot_id;
        timeout(20 * SECOND, Deadline { boot_id, due_ns: 0 }.wait()).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_far_deadline_can_be_waited_for_and_one_of_another_boot_cannot() {
        let far = Deadline::new(&Moment::now().unwrap(), Duration::MAX);
        assert!(timeout(Duration::from_millis(20), far.wait()).await.is_err());
        let error = Deadline::new(&moment("another", 0, 0), SECOND).wait().await.unwrap_err();
        assert!(matches!(error, ClockError::AnotherBoot(_)), "{error}");
    }
}
