//! The program that an audit runs in a sandbox: it tries what its arguments say, one after the other, each in a
//! process of its own, and prints what became of each as a line of JSON ([`airlock_runtime::probe::Answer`]).
//!
//! Every try asks for a permission and makes no use of it: files are opened and not written, calls that would change
//! the machine get arguments that the kernel refuses once it has looked at the caller's rights. So the same tries can
//! be made outside of any sandbox, by root, and do no harm.
//!
//! ```text
//! airlock-probe ID<US>VERB<US>ARGUMENT... ...      <US> is the unit separator, 0x1f
//! ```

mod call;
mod child;
mod files;
mod identity;
mod kernel;
mod network;
mod process;
mod resources;

use std::io::Write;
use std::process::ExitCode;

use airlock_runtime::probe::{Answer, Outcome, SEPARATOR};
use nix::errno::Errno;

/// What this program is started with to show that it could be executed.
const EXECUTED: &str = "--executed";

/// What became of a try; an error is a refusal.
type Attempt = Result<Outcome, Errno>;
/// The words after a verb.
type Words<'a> = &'a [&'a str];

/// A verb and what it does.
type Verb = (&'static str, fn(Words<'_>) -> Attempt);

const VERBS: [&[Verb]; 6] =
    [files::VERBS, identity::VERBS, kernel::VERBS, network::VERBS, process::VERBS, resources::VERBS];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    if words.get(1).is_some_and(|word| word == EXECUTED) {
        return say(&Outcome::Done(String::new()));
    }
    for order in &words[1..] {
        let words: Vec<&str> = order.split(SEPARATOR).collect();
        let [id, verb, rest @ ..] = &words[..] else {
            eprintln!("airlock-probe: {order:?} is no order");
            return ExitCode::from(2);
        };
        let Some((_, act)) = VERBS.iter().flat_map(|verbs| verbs.iter()).find(|(name, _)| name == verb)
        else {
            eprintln!("airlock-probe: there is no verb {verb:?}");
            return ExitCode::from(2);
        };
        let outcome = child::outcome(|| act(rest).unwrap_or_else(|errno| Outcome::Refused(errno as i32)));
        if say(&Answer { id: (*id).into(), outcome }) != ExitCode::SUCCESS {
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn say(value: &impl serde::Serialize) -> ExitCode {
    let written = serde_json::to_string(value)
        .map_err(std::io::Error::from)
        .and_then(|text| writeln!(std::io::stdout(), "{text}"));
    written.map_or(ExitCode::from(2), |()| ExitCode::SUCCESS)
}

fn done() -> Attempt {
    Ok(Outcome::Done(String::new()))
}

/// A word by its place; a missing one is an order that makes no sense.
fn word<'a>(words: Words<'a>, place: usize) -> Result<&'a str, Errno> {
    words.get(place).copied().ok_or(Errno::EBADMSG)
}

/// A number by its place: decimal, `0x` or `0o`, with a sign.
fn number(words: Words<'_>, place: usize) -> Result<i64, Errno> {
    parse(word(words, place)?).ok_or(Errno::EBADMSG)
}

fn parse(text: &str) -> Option<i64> {
    let (radix, digits) = match (text.strip_prefix("0x"), text.strip_prefix("0o")) {
        (Some(digits), _) => (16, digits),
        (_, Some(digits)) => (8, digits),
        _ => (10, text),
    };
    i64::from_str_radix(digits, radix).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_c_writes_them() {
        assert_eq!(
            ["12", "-1", "0x10", "0o17", "x"].map(parse),
            [Some(12), Some(-1), Some(16), Some(15), None]
        );
    }

    #[test]
    fn every_verb_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<&str> =
            VERBS.iter().flat_map(|verbs| verbs.iter()).map(|(name, _)| *name).collect();
        assert_eq!(names.len(), VERBS.iter().map(|verbs| verbs.len()).sum::<usize>());
    }

    /// The table of probes lies in the runtime, the verbs here.
    #[test]
    fn every_probe_has_a_verb() {
        let known = |verb: &str| VERBS.iter().flat_map(|verbs| verbs.iter()).any(|(name, _)| *name == verb);
        for probe in airlock_runtime::probe::table() {
            assert!(known(probe.action[0]), "{}: {}", probe.id, probe.action[0]);
        }
    }
}
