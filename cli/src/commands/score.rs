//! `airlock score`.

use std::fmt::Write as _;
use std::io::{self, Read};
use std::process::ExitCode;

use airlock_grader::score::{Decimal, Ladder, Sigma};
use anyhow::{Result, anyhow, bail};

use crate::args::ScoreArgs;
use crate::output;

/// As much is read from stdin, in bytes: some millions of values.
const STDIN: u64 = 256 << 20;

/// As much of a wrong value is quoted, in characters.
const QUOTED: usize = 60;

pub(crate) fn score(args: ScoreArgs) -> Result<ExitCode> {
    let mut places = String::new();
    if args.values == ["-"] {
        for (number, line) in (1..).zip(stdin()?.split_inclusive(|byte| *byte == b'\n')) {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let sigma = place(&args.ladder, line).map_err(|error| anyhow!("line {number}: {error}"))?;
            // Writing to a String cannot fail.
            let _ = writeln!(places, "{sigma}");
        }
    } else {
        for (number, value) in (1..).zip(&args.values) {
            let sigma =
                place(&args.ladder, value.as_bytes()).map_err(|error| anyhow!("value {number}: {error}"))?;
            let _ = writeln!(places, "{sigma}");
        }
    }
    output::print(&places)?;
    Ok(ExitCode::SUCCESS)
}

fn place(ladder: &Ladder, value: &[u8]) -> Result<Sigma> {
    let text = String::from_utf8_lossy(value);
    let score = text.parse::<Decimal>().map_err(|error| {
        let quoted: String = text.chars().take(QUOTED).collect();
        anyhow!("`{quoted}` is not a finite decimal: {error}")
    })?;
    Ok(ladder.sigma(Some(score.into()))?)
}

fn stdin() -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::stdin().lock().take(STDIN + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > STDIN {
        bail!("stdin is longer than {} MiB", STDIN >> 20);
    }
    Ok(bytes)
}
