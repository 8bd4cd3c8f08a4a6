//! Probes: what a sandbox really lets through, tried from inside.
//!
//! A [`Probe`] is a row of a [`table`]: an action, the clauses that should stop it, and what counts as stopped besides
//! ENOENT, EPERM and EACCES. What is expected of it follows from the spec alone ([`Setting::expects`]): it is denied if
//! one of its clauses, or the seccomp filter, is in force. A [`Clause`] can be taken out of a spec, which is how an
//! audit proves that it can fail.

mod clause;
mod expect;
mod host;
mod kit;
mod matrix;
mod reach;
mod run;
mod spec;
mod table;

use std::fmt;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

pub use self::clause::Clause;
pub use self::expect::Setting;
pub use self::kit::{Kit, KitError};
pub use self::matrix::{ClauseResult, Matrix, Proof, Tried};
pub use self::reach::reach;
pub use self::run::{ProbeError, Runner, answers, judged, unlimited};
pub use self::table::table;

/// Between the words of an order to the probe program: the ASCII unit separator.
pub const SEPARATOR: char = '\u{1f}';

/// One thing that code in a sandbox may try.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// Stable name: area and what.
    pub id: &'static str,
    /// What it tries, in words.
    pub title: &'static str,
    /// Verb of the probe program and its arguments; a word that starts with `$` stands for something of the [`Kit`].
    pub action: &'static [&'static str],
    /// Clauses that should stop it. The seccomp filter is asked for every probe.
    pub clauses: &'static [Clause],
    /// What else counts as denied, and why.
    pub also: Option<Also>,
    /// Number of the capability that it needs in the sandbox's own namespaces.
    pub capability: Option<u8>,
    /// Outside of any sandbox, root alone can do it.
    pub needs_root: bool,
    /// It is about something that not every host has.
    pub of_some_hosts: bool,
    /// A setting of the host may refuse it whatever the policy says, so a denial is never a surprise.
    pub host_may_refuse: bool,
}

/// What counts as denied besides ENOENT, EPERM and EACCES.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Also {
    /// Error numbers.
    pub errnos: &'static [Errno],
    /// Signals.
    pub signals: &'static [i32],
    /// Why they mean that it was denied.
    pub why: &'static str,
}

/// What became of one try.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was done; what there is to say of it.
    Done(String),
    /// What it looked for is not there; what is instead.
    Absent(String),
    /// The kernel answered with this error number.
    Refused(i32),
    /// This signal killed the process that tried.
    Killed(i32),
    /// It did not end in time.
    Hung,
    /// The try itself failed.
    Broken(String),
}

/// The probe program's line for one probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// [`Probe::id`].
    pub id: String,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// An outcome as an audit counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It was stopped.
    Denied,
    /// It was done, or the kernel looked into it: an error that is none of permission.
    Allowed,
    /// Nothing can be said.
    Broken,
}

impl Probe {
    const fn new(
        id: &'static str,
        title: &'static str,
        action: &'static [&'static str],
        clauses: &'static [Clause],
    ) -> Probe {
        Probe {
            id,
            title,
            action,
            clauses,
            also: None,
            capability: None,
            needs_root: false,
            of_some_hosts: false,
            host_may_refuse: false,
        }
    }

    const fn also(mut self, also: Also) -> Probe {
        self.also = Some(also);
        self
    }

    const fn capability(mut self, number: u8) -> Probe {
        self.capability = Some(number);
        self
    }

    const fn needs_root(mut self) -> Probe {
        self.needs_root = true;
        self
    }

    const fn of_some_hosts(mut self) -> Probe {
        self.of_some_hosts = true;
        self
    }

    const fn host_may_refuse(mut self) -> Probe {
        self.host_may_refuse = true;
        self
    }

    /// The part of its name before the point.
    pub fn area(&self) -> &'static str {
        self.id.split_once('.').map_or(self.id, |(area, _)| area)
    }

    /// What an outcome means.
    pub fn judge(&self, outcome: &Outcome) -> Verdict {
        let also = self.also.as_ref();
        match outcome {
            Outcome::Done(_) => Verdict::Allowed,
            Outcome::Absent(_) => Verdict::Denied,
            Outcome::Refused(number) => match Errno::from_raw(*number) {
                Errno::ENOENT | Errno::EPERM | Errno::EACCES => Verdict::Denied,
                errno if also.is_some_and(|also| also.errnos.contains(&errno)) => Verdict::Denied,
                // The program's word for an order that it does not understand.
                Errno::EBADMSG => Verdict::Broken,
                _ => Verdict::Allowed,
            },
            Outcome::Killed(signal) if also.is_some_and(|also| also.signals.contains(signal)) => {
                Verdict::Denied
            }
            Outcome::Killed(_) | Outcome::Hung | Outcome::Broken(_) => Verdict::Broken,
        }
    }

    /// Whether an outcome means that this host has nothing to try it on.
    pub fn is_missing(&self, outcome: &Outcome) -> bool {
        let Outcome::Refused(number) = outcome else {
            return self.of_some_hosts && matches!(outcome, Outcome::Absent(_));
        };
        self.of_some_hosts
            && matches!(
                Errno::from_raw(*number),
                Errno::ENOENT
                    | Errno::ENOTDIR
                    | Errno::ENXIO
                    | Errno::ENODEV
                    | Errno::ENOSYS
                    | Errno::EAFNOSUPPORT
                    | Errno::EPROTONOSUPPORT
                    | Errno::ESOCKTNOSUPPORT
                    | Errno::EOPNOTSUPP
            )
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Done(text) if text.is_empty() => f.write_str("done"),
            Outcome::Done(text) => write!(f, "done: {text}"),
            Outcome::Absent(text) => f.write_str(text),
            Outcome::Refused(number) => write!(f, "{:?}", Errno::from_raw(*number)),
            Outcome::Killed(signal) => match nix::sys::signal::Signal::try_from(*signal) {
                Ok(signal) => f.write_str(signal.as_str()),
                Err(_) => write!(f, "signal {signal}"),
            },
            Outcome::Hung => f.write_str("hung"),
            Outcome::Broken(text) => write!(f, "broken: {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Probe = Probe::new("area.what", "", &["read", "/x"], &[]);
    const SPECIAL: Probe =
        PLAIN.also(Also { errnos: &[Errno::ENOSPC], signals: &[libc::SIGKILL], why: "it is full" });

    /// An unfiltered node without a driver answers ENXIO: that is no denial.
    #[test]
    fn only_words_of_permission_count_as_denied() {
        for errno in [Errno::ENOENT, Errno::EPERM, Errno::EACCES] {
            assert_eq!(PLAIN.judge(&Outcome::Refused(errno as i32)), Verdict::Denied);
        }
        for errno in [Errno::ENXIO, Errno::ENODEV, Errno::EINVAL, Errno::EROFS, Errno::ENOSYS, Errno::ENOSPC]
        {
            assert_eq!(PLAIN.judge(&Outcome::Refused(errno as i32)), Verdict::Allowed, "{errno}");
        }
        assert_eq!(SPECIAL.judge(&Outcome::Refused(Errno::ENOSPC as i32)), Verdict::Denied);
        assert_eq!(SPECIAL.judge(&Outcome::Refused(Errno::ENXIO as i32)), Verdict::Allowed);
    }

    #[test]
    fn a_death_counts_only_where_the_table_says_so() {
        assert_eq!(PLAIN.judge(&Outcome::Killed(libc::SIGKILL)), Verdict::Broken);
        assert_eq!(SPECIAL.judge(&Outcome::Killed(libc::SIGKILL)), Verdict::Denied);
        assert_eq!(SPECIAL.judge(&Outcome::Hung), Verdict::Broken);
    }

    #[test]
    fn answers_are_flat_json() {
        let answer = Answer { id: "x.y".into(), outcome: Outcome::Refused(13) };
        let text = serde_json::to_string(&answer).unwrap();
        assert_eq!(text, r#"{"id":"x.y","refused":13}"#);
        assert_eq!(serde_json::from_str::<Answer>(&text).unwrap(), answer);
        let hung = Answer { id: "x".into(), outcome: Outcome::Hung };
        assert_eq!(serde_json::from_str::<Answer>(&serde_json::to_string(&hung).unwrap()).unwrap(), hung);
    }
}
