//! The last line of a terminal while a run is led: what runs, the time that is left, the validations so far.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use airlock_grader::journal::{Event, Record};
use rustix::time::{ClockId, clock_gettime};

/// Between two looks at the clock.
const TICK: Duration = Duration::from_millis(500);
/// The phase that runs beside research all the time.
const GRADER: &str = "grader";

/// Draws the line on stderr, where that is a terminal.
pub(super) struct Progress {
    on: bool,
    seen: RefCell<Seen>,
}

/// What the events tell.
#[derive(Default)]
struct Seen {
    /// Phases that run: what they are called, and when their time is over.
    running: BTreeMap<u32, (String, Option<u64>)>,
    validations: u64,
    open: u64,
}

impl Progress {
    /// A line where people look at a terminal, and none otherwise.
    pub(super) fn new(json: bool) -> Progress {
        Progress { on: !json && io::stderr().is_terminal(), seen: RefCell::default() }
    }

    /// Takes an event in.
    pub(super) fn event(&self, record: &Record) {
        self.seen.borrow_mut().event(&record.event);
    }

    /// Makes room for a line of another kind.
    pub(super) fn clear(&self) {
        self.write("");
    }

    /// Draws the line again and again.
    pub(super) async fn go_on(&self) -> ! {
        loop {
            let now = clock_gettime(ClockId::Boottime);
            let line = self.seen.borrow().line(u64::try_from(now.tv_sec).unwrap_or_default());
            self.write(&line);
            tokio::time::sleep(TICK).await;
        }
    }

    fn write(&self, line: &str) {
        if self.on {
            // ECMA-48: to the first column, and erase the line. Nobody to tell if the terminal is gone.
            let _ = io::stderr().write_all(format!("\r\x1b[2K{}", crate::output::escape(line)).as_bytes());
        }
    }
}

impl Seen {
    fn event(&mut self, event: &Event) {
        match event {
            Event::PhaseStarted { phase, name, deadline_ns, .. } if name != GRADER => {
                self.running.insert(*phase, (name.clone(), *deadline_ns));
            }
            Event::PhaseEnded { phase, .. } => drop(self.running.remove(phase)),
            Event::ValidationRequested { .. } => {
                self.validations += 1;
                self.open += 1;
            }
            Event::ValidationResult { .. }
            | Event::ValidationFailed { .. }
            | Event::ValidationCancelled { .. } => self.open = self.open.saturating_sub(1),
            _ => {}
        }
    }

    /// `now` in seconds of the boot-time clock.
    fn line(&self, now: u64) -> String {
        let names: Vec<&str> = self.running.values().map(|(name, _)| name.as_str()).collect();
        let mut line = names.join(", ");
        let due = self.running.values().find_map(|(_, due)| *due);
        if let Some(left) = due.map(|due| (due / 1_000_000_000).saturating_sub(now)) {
            line += &format!("   {}:{:02}:{:02} left", left / 3600, left / 60 % 60, left % 60);
        }
        if self.validations > 0 {
            line += &format!("   {} validations, {} open", self.validations, self.open);
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use airlock_grader::Digest;

    use super::*;

    #[test]
    fn the_line_says_what_runs_and_what_is_left() {
        let mut seen = Seen::default();
        assert_eq!(seen.line(5), "");
        let digest = Digest::of(b"");
        let start = |phase, name: &str, deadline_ns| Event::PhaseStarted {
            phase,
            name: name.into(),
            spec: digest,
            deadline_ns,
        };
        seen.event(&start(0, "grader", None));
        seen.event(&start(1, "explore", Some(3_700_000_000_000)));
        assert_eq!(seen.line(5), "explore   1:01:35 left");
        seen.event(&Event::ValidationRequested { ticket: 1, candidate: digest, items: None });
        seen.event(&start(2, "validate", None));
        assert_eq!(seen.line(3_800), "explore, validate   0:00:00 left   1 validations, 1 open");
        seen.event(&Event::ValidationCancelled { ticket: 1 });
        assert_eq!(seen.line(3_690), "explore, validate   0:00:10 left   1 validations, 0 open");
    }
}
