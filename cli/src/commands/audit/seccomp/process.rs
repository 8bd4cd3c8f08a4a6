//! `airlock audit seccomp --pid`: the filters of a running process.

use std::fmt::Write as _;
use std::process::ExitCode;

use airlock_runtime::live;
use airlock_runtime::seccomp::{Answer, Decompiled, Program, Proof, X32_BIT};
use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::{Call, JsonCall, chosen, executed, lines};
use crate::audit_args::SeccompArgs;
use crate::output;

/// `AUDIT_ARCH_I386`: what int 0x80 uses on a 64-bit kernel.
const I386: u32 = 0x4000_0003;
/// `AUDIT_ARCH_X86_64`.
const NATIVE: u32 = 0xc000_003e;
/// A number that no table has: the first call of i386 and x32 stands for theirs.
const UNKNOWN: u32 = 0x3fff;

/// A filter that was read from the kernel and proven.
struct Read {
    program: Program,
    ways: Decompiled,
    proof: Proof,
}

#[derive(Serialize)]
struct Json {
    digest: String,
    instructions: usize,
    executed: u64,
    unknown: Option<String>,
    x32: Option<String>,
    i386: Option<String>,
    calls: Vec<JsonCall>,
}

pub(super) fn filters(pid: i32, args: &SeccompArgs) -> Result<ExitCode> {
    let programs = live::filters(pid)?;
    if programs.is_empty() {
        bail!("process {pid} has no filter");
    }
    let read = programs.into_iter().enumerate().map(|(index, program)| {
        Read::of(program).with_context(|| format!("filter {} of process {pid}", index + 1))
    });
    let read = read.collect::<Result<Vec<Read>>>()?;
    if args.json {
        output::json(&read.iter().map(|one| one.json(&args.calls)).collect::<Result<Vec<Json>>>()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    for (index, one) in read.iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "filter {} of {}{}",
            index + 1,
            read.len(),
            if index == 0 { ", the newest" } else { "" }
        );
        text += &one.text(&args.calls)?;
        if args.disassemble {
            let _ = writeln!(text, "\nthe program\n{}", one.program);
        }
    }
    if read.len() > 1 {
        text += "the strictest answer of all filters holds\n";
    }
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

impl Read {
    fn of(program: Program) -> Result<Read> {
        let ways = Decompiled::of(&program)?;
        let proof = ways.prove().context("what is told is not proven to be what the filter does")?;
        Ok(Read { program, ways, proof })
    }

    fn calls(&self, named: &[String]) -> Result<Vec<Call>> {
        chosen(self.ways.calls(), named)
    }

    fn others(&self) -> [(&'static str, Option<Answer>); 3] {
        [
            ("any other number", self.ways.answer(NATIVE, UNKNOWN)),
            ("x32, its first call", self.ways.answer(NATIVE, X32_BIT)),
            ("i386, its first call", self.ways.answer(I386, 1)),
        ]
    }

    fn json(&self, named: &[String]) -> Result<Json> {
        let [unknown, x32, i386] = self.others().map(|(_, answer)| answer.map(|answer| answer.to_string()));
        let calls = self.calls(named)?.into_iter().map(JsonCall::of).collect();
        let (digest, instructions) = (self.program.digest(), self.program.instructions.len());
        Ok(Json { digest, instructions, executed: self.proof.cases, unknown, x32, i386, calls })
    }

    fn text(&self, named: &[String]) -> Result<String> {
        let mut text = lines(&self.calls(named)?);
        if named.is_empty() {
            for (what, answer) in self.others() {
                let answer = answer.map_or("cannot be told".into(), |answer| answer.to_string());
                // Writing to a String cannot fail.
                let _ = writeln!(text, "   *  {what:<24} {answer}");
            }
        }
        let _ = writeln!(text, "{} instructions; {}", self.program.instructions.len(), executed(self.proof));
        Ok(text)
    }
}
