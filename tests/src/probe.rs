//! What became of one action of the probe.

use crate::Ended;

/// What became of one action of the probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done; what the action says.
    Done(String),
    /// The kernel refused it with this errno.
    Refused(String),
    /// It was killed by this signal.
    Killed(i32),
}

impl Outcome {
    /// Reads the probe's answer. A run that is no answer fails the test.
    pub fn of(ended: &Ended) -> Outcome {
        let answer = ended.stdout.trim_end_matches('\n');
        match (ended.code, answer.split_once(' ')) {
            (0, Some(("ok", value))) => Outcome::Done(value.to_owned()),
            (0, None) if answer == "ok" => Outcome::Done(String::new()),
            (1, Some(("refused", errno))) => Outcome::Refused(errno.to_owned()),
            (129..=192, _) => Outcome::Killed(ended.code - 128),
            _ => panic!("the probe did not answer: {ended}"),
        }
    }

    /// The value of an action that must have been done.
    #[track_caller]
    pub fn done(self) -> String {
        match self {
            Outcome::Done(value) => value,
            other => panic!("expected it to be done: {other:?}"),
        }
    }

    /// Checks that the kernel refused, with one of these errnos.
    #[track_caller]
    pub fn refused(self, errnos: &[&str]) {
        match &self {
            Outcome::Refused(errno) if errnos.contains(&errno.as_str()) => {}
            other => panic!("expected it to be refused with {errnos:?}: {other:?}"),
        }
    }

    /// Checks that a signal ended it.
    #[track_caller]
    pub fn killed(self, signal: i32) {
        assert_eq!(self, Outcome::Killed(signal));
    }
}
