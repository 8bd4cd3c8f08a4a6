//! `airlock audit seccomp --pid`: the filters of a running process.

use std::fmt::Write as _;
use std::process::ExitCode;

use airlock_runtime::live;
use airlock_runtime::seccomp::{Decompiled, Program, Proof, STEPS, Told};
use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::{Call, JsonCall, all_decided, chosen, executed, lines};
use crate::audit_args::SeccompArgs;
use crate::output;

/// A filter that was read from the kernel and proven.
struct Read {
    /// `filter 1 of process 12`.
    name: String,
    program: Program,
    ways: Decompiled,
    proof: Proof,
}

#[derive(Serialize)]
struct Json {
    digest: String,
    instructions: usize,
    executed: u64,
    /// Calls of any architecture of which nothing is proven.
    undecided: usize,
    unknown: Option<String>,
    x32: Option<String>,
    i386: Option<String>,
    calls: Vec<JsonCall>,
}

pub(super) fn filters(pid: i32, args: &SeccompArgs) -> Result<ExitCode> {
    let programs = live::filters(pid)?;
    // They share the steps: a process may have thousands of filters.
    let steps = match u64::try_from(programs.len())? {
        0 => bail!("process {pid} has no filter"),
        several => STEPS / several,
    };
    let read = programs.into_iter().enumerate();
    let read = read
        .map(|(index, program)| Read::of(format!("filter {} of process {pid}", index + 1), program, steps));
    let read = read.collect::<Result<Vec<Read>>>()?;
    if args.json {
        output::json(&read.iter().map(|one| one.json(&args.calls)).collect::<Result<Vec<Json>>>()?)?;
    } else {
        output::print(&text(&read, args)?)?;
    }
    read.iter().try_for_each(|one| all_decided(&one.name, &one.proof))?;
    Ok(ExitCode::SUCCESS)
}

fn text(read: &[Read], args: &SeccompArgs) -> Result<String> {
    let mut text = String::new();
    for (index, one) in read.iter().enumerate() {
        let newest = if index == 0 { ", the newest" } else { "" };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "filter {} of {}{newest}", index + 1, read.len());
        text += &one.text(&args.calls)?;
        if args.disassemble {
            let _ = writeln!(text, "\nthe program\n{}", one.program);
        }
    }
    if read.len() > 1 {
        text += "the strictest answer of all filters holds\n";
    }
    Ok(text)
}

impl Read {
    fn of(name: String, program: Program, steps: u64) -> Result<Read> {
        let ways = Decompiled::of(&program, steps)?;
        let proof =
            ways.prove().with_context(|| format!("{name}: what is told is not what the filter does"))?;
        Ok(Read { name, program, ways, proof })
    }

    fn calls(&self, named: &[String]) -> Result<Vec<Call>> {
        let calls = self.ways.calls.iter().cloned();
        chosen(calls.map(|(name, number, told)| Call::of(name, number, told, &self.proof)), named)
    }

    fn json(&self, named: &[String]) -> Result<Json> {
        let word = |told: &Told| told.as_ref().ok().map(ToString::to_string);
        Ok(Json {
            digest: self.program.digest(),
            instructions: self.program.instructions.len(),
            executed: self.proof.cases,
            undecided: self.proof.undecided.len(),
            unknown: word(&self.ways.unknown),
            x32: word(&self.ways.x32),
            i386: word(&self.ways.i386),
            calls: self.calls(named)?.into_iter().map(JsonCall::of).collect(),
        })
    }

    fn text(&self, named: &[String]) -> Result<String> {
        let mut text = lines(&self.calls(named)?);
        if named.is_empty() {
            let Decompiled { unknown, x32, i386, .. } = &self.ways;
            let others =
                [("any other number", unknown), ("x32, its first call", x32), ("i386, its first call", i386)];
            for (what, told) in others {
                let told = told.as_ref().map_or_else(ToString::to_string, ToString::to_string);
                // Writing to a String cannot fail.
                let _ = writeln!(text, "   *  {what:<24} {told}");
            }
        }
        let _ = writeln!(text, "{} instructions; {}", self.program.instructions.len(), executed(&self.proof));
        Ok(text)
    }
}
