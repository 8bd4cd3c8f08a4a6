//! The client of the grader protocol inside a sandbox.
//!
//! A static binary without configuration: it works in any root file system. It is not trusted, and what it
//! checks is for its user's sake only.

mod args;
mod commands;
mod export;
mod mcp;
mod text;

use std::io::Write;
use std::process::ExitCode;

use airlock_grader::protocol::client::ClientError;

use args::Parsed;
use commands::Failure;

/// The grader refused, a validation came to nothing, or a tree cannot be exported.
const REFUSED: u8 = 1;
/// The command line is wrong.
const USAGE: u8 = 2;
/// The grader cannot be reached or understood.
const UNREACHABLE: u8 = 3;

fn main() -> ExitCode {
    let arguments: Result<Vec<String>, _> =
        std::env::args_os().skip(1).map(std::ffi::OsString::into_string).collect();
    let parsed = match arguments {
        Ok(arguments) => args::parse(arguments),
        Err(argument) => Err(format!("{argument:?} is not UTF-8")),
    };
    match parsed {
        Ok(Parsed::Text(text)) => finish(print(text)),
        Ok(Parsed::Command(options, command)) => finish(commands::perform(&options, command)),
        Err(message) => {
            eprintln!("airlock-harness: {message}\nSee airlock-harness --help.");
            ExitCode::from(USAGE)
        }
    }
}

fn print(text: &str) -> Result<(), Failure> {
    std::io::stdout().write_all(text.as_bytes()).map_err(Failure::Output)
}

fn finish(result: Result<(), Failure>) -> ExitCode {
    let Err(failure) = result else { return ExitCode::SUCCESS };
    eprintln!("airlock-harness: {failure}");
    ExitCode::from(match failure {
        Failure::Client(ClientError::Refused(_)) | Failure::Ended(..) | Failure::Export(_) => REFUSED,
        Failure::Client(_) | Failure::Output(_) | Failure::Input(_) => UNREACHABLE,
    })
}
