//! Rate limiting.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// What comes in this time may come at once.
const BURST: Duration = Duration::from_secs(1);

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

    /// Waits until an event that is there now may go on.
    ///
    /// Without need for it there is no sleep: tokio's timer counts milliseconds and rounds up.
    pub(super) async fn wait(&mut self) {
        let now = Instant::now();
        if let Some(time) = self.next(now) {
            sleep_until(time).await;
        }
    }

    /// When an event may go on, if not at once.
    fn next(&mut self, now: Instant) -> Option<Instant> {
        let due = self.due.map_or(now, |due| due.max(now));
        self.due = Some(due + self.interval);
        due.checked_sub(BURST).filter(|time| *time > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_on_at_once_and_the_rest_at_the_rate() {
        let start = Instant::now();
        let mut pace = Pace::new(10);
        let times: Vec<_> = (0..21).map(|_| pace.next(start)).collect();
        assert!(times[..11].iter().all(Option::is_none), "{times:?}");
        assert_eq!(times[20], Some(start + Duration::from_secs(1)));
        assert_eq!(pace.next(start + Duration::from_secs(60)), None);
    }
}
