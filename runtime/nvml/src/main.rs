//! Asks NVIDIA's management library what there is, says it in JSON, and exits.
//!
//! `airlock` is a static program, which cannot load a library safely, and a driver that hangs hangs its caller: so
//! this is a program of its own, linked dynamically, which `airlock` carries inside and runs in a process that it can
//! give up. What it says is described in `wire.rs`.

#[path = "../../src/gpu/facts.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "a module of airlock-runtime, of which this program uses a part"
)]
mod facts;
mod links;
mod raw;
mod read;
mod watch;
#[path = "../../src/gpu/wire.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "a module of airlock-runtime, of which this program uses a part"
)]
mod wire;

use std::io::{self, Write};
use std::process::ExitCode;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use crate::wire::{Answer, Cause, Failure, Limits};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let result = match words.as_slice() {
        [] => inventory(),
        [verb, limits, uuids @ ..] if verb == "watch" => match serde_json::from_str(limits) {
            Ok(limits) => watch(limits, uuids),
            Err(_) => return ExitCode::from(2),
        },
        _ => return ExitCode::from(2),
    };
    let answer = result.unwrap_or_else(Answer::Failed);
    if say(&answer).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn inventory() -> Result<Answer, Failure> {
    Ok(Answer::Inventory(read::inventory(&Nvml::init()?)?))
}

fn watch(limits: Limits, uuids: &[String]) -> Result<Answer, Failure> {
    watch::watch(&Nvml::init()?, limits, uuids)
}

/// Says one line.
fn say(answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}

impl From<NvmlError> for Failure {
    fn from(error: NvmlError) -> Failure {
        let cause = match error {
            NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound => Cause::NoLibrary,
            NvmlError::DriverNotLoaded => Cause::NotLoaded,
            NvmlError::LibRmVersionMismatch => Cause::Mismatch,
            NvmlError::NoPermission => Cause::NoPermission,
            NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound => Cause::TooOld,
            _ => Cause::Other,
        };
        let message = match error {
            NvmlError::LibloadingError(error) => error.to_string(),
            error => error.to_string(),
        };
        Failure { cause, message }
    }
}
