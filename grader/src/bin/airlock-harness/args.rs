//! The command line.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use airlock_grader::protocol::SOCKET;
use airlock_grader::protocol::messages::{Cancel, NoCandidate, Request, ResultOf, Submit, Subset, Validate};
use airlock_grader::protocol::names::NameError;

/// What `--help` prints.
const HELP: &str = "\
Talks to the grader of this run.

Usage: airlock-harness [OPTIONS] COMMAND

Commands:
  hello                   the run, its phase and its limits
  status                  the time and the open validations
  timer                   the time that is left
  validate NAME           seal the candidate NAME and queue its validation; prints a ticket
      --item ITEM         only this item; may be given several times
      --wait              wait for the result
  result TICKET           state and outcome of a validation
      --wait              wait until it has ended
  cancel TICKET           drop a validation that is still queued
  submit [NAME]           make NAME (default: the workspace) the final choice; ends research
  no-candidate REASON     end research without a candidate
  export SRC DST          copy a tree with every link replaced by what it leads to, as a candidate must be
  mcp                     serve the same as tools of the Model Context Protocol on stdin and stdout

Options:
  --socket PATH           the grader's socket [default: /run/airlock/grader.sock]
  --timeout SECONDS       longest wait for one reply [default: 1800]
  --json                  print replies as JSON
  -h, --help              print this
  -V, --version           print the version

NAME is a path relative to the workspace. Exit status: 0 done, 1 refused or failed, 2 wrong command line,
3 the grader cannot be reached.
";

/// Options of every command.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) socket: PathBuf,
    pub(crate) within: Duration,
    pub(crate) json: bool,
}

/// What to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// One request whose reply is printed.
    Ask(Request),
    /// The same, and then the wait for its outcome.
    Wait(Request),
    Timer,
    Export {
        source: PathBuf,
        destination: PathBuf,
    },
    Mcp,
}

/// A command line.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// To be printed, no more.
    Text(&'static str),
    Command(Options, Command),
}

pub(crate) fn parse(arguments: Vec<String>) -> Result<Parsed, String> {
    let mut options = Options { socket: SOCKET.into(), within: Duration::from_secs(1800), json: false };
    let (mut words, mut items, mut wait) = (Vec::new(), Vec::new(), false);
    let mut rest = arguments.into_iter();
    while let Some(argument) = rest.next() {
        let (name, attached) = match argument.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name.to_owned(), Some(value.to_owned())),
            _ => (argument, None),
        };
        let mut value = || attached.clone().or_else(|| rest.next()).ok_or(format!("{name} needs a value"));
        match name.as_str() {
            "--socket" => options.socket = value()?.into(),
            "--timeout" => {
                let seconds = value()?.parse().map_err(|_| "--timeout needs whole seconds")?;
                options.within = Duration::from_secs(seconds);
            }
            "--item" => items.push(checked("item", &value()?)?),
            "--json" | "--wait" | "-h" | "--help" | "-V" | "--version" if attached.is_some() => {
                return Err(format!("{name} takes no value"));
            }
            "--json" => options.json = true,
            "--wait" => wait = true,
            "-h" | "--help" => return Ok(Parsed::Text(HELP)),
            "-V" | "--version" => {
                return Ok(Parsed::Text(concat!("airlock-harness ", env!("CARGO_PKG_VERSION"), "\n")));
            }
            "--" => words.extend(rest.by_ref()),
            option if option.starts_with('-') && option != "-" => {
                return Err(format!("there is no option {option}"));
            }
            _ => words.push(name),
        }
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let command = match words[..] {
        [] => return Err("a command is needed".into()),
        ["hello"] => Command::Ask(Request::Hello),
        ["status"] => Command::Ask(Request::Status),
        ["timer"] => Command::Timer,
        ["validate", name] => {
            let items = std::mem::take(&mut items);
            let items = (!items.is_empty()).then(|| Subset::try_from(items)).transpose()?;
            let request = Request::Validate(Validate { candidate: checked("candidate", name)?, items });
            if std::mem::take(&mut wait) { Command::Wait(request) } else { Command::Ask(request) }
        }
        ["result", ticket] => {
            let request = Request::Result(ResultOf { ticket: checked("ticket", ticket)?, from: 0 });
            if std::mem::take(&mut wait) { Command::Wait(request) } else { Command::Ask(request) }
        }
        ["cancel", ticket] => Command::Ask(Request::Cancel(Cancel { ticket: checked("ticket", ticket)? })),
        ["submit"] => Command::Ask(Request::Submit(Submit { candidate: checked("candidate", ".")? })),
        ["submit", name] => Command::Ask(Request::Submit(Submit { candidate: checked("candidate", name)? })),
        ["no-candidate", reason] => {
            Command::Ask(Request::NoCandidate(NoCandidate { reason: checked("reason", reason)? }))
        }
        ["export", source, destination] => {
            Command::Export { source: source.into(), destination: destination.into() }
        }
        ["mcp"] => Command::Mcp,
        [
            command @ ("hello" | "status" | "timer" | "validate" | "result" | "cancel" | "submit"
            | "no-candidate" | "export" | "mcp"),
            ..,
        ] => return Err(format!("wrong number of arguments for {command}")),
        [command, ..] => return Err(format!("there is no command {command:?}")),
    };
    if !items.is_empty() {
        return Err("--item is for validate".into());
    }
    if wait {
        return Err("--wait is for validate and result".into());
    }
    Ok(Parsed::Command(options, command))
}

fn checked<T: FromStr<Err = NameError>>(what: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("{what} {text:?} {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &[&str]) -> Result<Parsed, String> {
        parse(words.iter().map(|word| (*word).to_owned()).collect())
    }

    #[test]
    fn options_stand_anywhere() {
        for words in [
            &["--socket", "/s", "--json", "validate", "m", "--item", "a"][..],
            &["validate", "--item=a", "--json", "m", "--socket=/s"],
        ] {
            let Ok(Parsed::Command(options, Command::Ask(Request::Validate(request)))) = line(words) else {
                panic!("{words:?}");
            };
            assert_eq!((options.socket, options.json), ("/s".into(), true));
            assert_eq!(request.candidate.as_str(), "m");
            assert_eq!(request.items.unwrap().items().len(), 1);
        }
        assert!(matches!(line(&["no-candidate", "--", "-x"]), Ok(Parsed::Command(_, Command::Ask(_)))));
        assert!(matches!(line(&["submit", "-h"]), Ok(Parsed::Text(HELP))));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (words, error) in [
            (&[][..], "a command is needed"),
            (&["score"], "there is no command \"score\""),
            (&["validate"], "wrong number of arguments for validate"),
            (&["submit", "a", "b"], "wrong number of arguments for submit"),
            (&["submit", "a", "--wait"], "--wait is for"),
            (&["status", "--item", "a"], "--item is for"),
            (&["validate", "a", "--item", "b", "--item", "b"], "named twice"),
            (&["validate", "../a"], "below the workspace"),
            (&["result", "1"], "is not a ticket"),
            (&["status", "--json=1"], "takes no value"),
            (&["status", "--socket"], "needs a value"),
            (&["status", "--quiet"], "there is no option --quiet"),
            (&["status", "--timeout", "1s"], "whole seconds"),
        ] {
            let found = line(words).unwrap_err();
            assert!(found.contains(error), "{words:?}: {found}");
        }
    }

    #[test]
    fn the_help_names_the_default_socket() {
        assert!(HELP.contains(SOCKET));
    }
}
