//! Rate limiting.

use std::time::Duration;

use tokio::time::Instant;

/// How much may come at once, in units of what may come in a second.
const BURST: u32 = 1;

/// Spaces events evenly after a burst of as many as a second has: the generic cell rate algorithm, without
/// a counter to refill.
pub(super) struct Pace {
    interval: Duration,
    /// When the next event would come at an even pace.
    due: Option<Instant>,
}

impl Pace {
    pub(super) fn new(per_second: u32) -> Pace {
        Pace { interval: Duration::from_secs(1) / per_second.max(1), due: None }
    }

    /// When an event that is there now may go on.
    pub(super) fn next(&mut self, now: Instant) -> Instant {
        let due = self.due.map_or(now, |due| due.max(now));
        self.due = Some(due + self.interval);
        let slack = Duration::from_secs(BURST.into());
        due.checked_sub(slack).map_or(now, |time| time.max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_on_at_once_and_the_rest_at_the_rate() {
        let start = Instant::now();
        let mut pace = Pace::new(10);
        let times: Vec<Duration> = (0..21).map(|_| pace.next(start) - start).collect();
        assert!(times[..11].iter().all(Duration::is_zero), "{times:?}");
        assert_eq!(times[20], Duration::from_secs(1));
        let later = start + Duration::from_secs(60);
        assert_eq!(pace.next(later), later);
    }
}
