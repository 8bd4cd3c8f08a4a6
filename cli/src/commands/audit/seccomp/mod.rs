//! `airlock audit seccomp`.

mod process;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;

use airlock_policy::audit::Subject;
use airlock_runtime::seccomp::{Answer, FilterTable, Program, Proof};
use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::audit_args::SeccompArgs;
use crate::output;

/// A filter whose table was proven.
struct Proven {
    table: FilterTable,
    program: Program,
    proof: Proof,
}

pub(crate) fn seccomp(args: &SeccompArgs) -> Result<ExitCode> {
    if let Some([before, after]) = args.diff.as_deref() {
        return diff(args, &proven(before)?, &proven(after)?);
    }
    if let Some(name) = &args.pid {
        return process::filters(super::live::pid(name)?, args);
    }
    let Some(name) = &args.name else { bail!("name a policy or a bundle") };
    let filter = proven(name)?;
    if args.json {
        output::json(&filter.json(&args.calls)?)?;
    } else {
        output::print(&filter.text(&args.calls)?)?;
        if args.disassemble {
            output::print(&format!("\nthe program\n{}", filter.program))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn proven(name: &str) -> Result<Proven> {
    let subject: Subject = super::subject(name).with_context(|| format!("audit seccomp {name}"))?;
    let Some((document, program)) = subject.seccomp() else {
        bail!("{name}: no system call is filtered");
    };
    let table = FilterTable::of(document)?;
    let proof = table
        .prove(program)
        .with_context(|| format!("{name}: the table is not proven to be what the filter does"))?;
    Ok(Proven { table, program: program.clone(), proof })
}

/// What `--json` says of one filter.
#[derive(Serialize)]
struct Json {
    digest: String,
    instructions: usize,
    executed: u64,
    other_architectures: &'static str,
    x32: &'static str,
    unknown: String,
    calls: Vec<JsonCall>,
}

#[derive(Serialize)]
struct JsonCall {
    name: &'static str,
    number: u32,
    rules: Vec<JsonRule>,
    otherwise: String,
}

#[derive(Serialize)]
struct JsonRule {
    when: String,
    verdict: String,
}

/// Name, number, answer.
type Call = (&'static str, u32, Answer);

/// The calls that are to be shown; all if none is named.
fn chosen(calls: impl Iterator<Item = Call>, named: &[String]) -> Result<Vec<Call>> {
    let calls: Vec<_> = calls.collect();
    if let Some(unknown) = named.iter().find(|name| !calls.iter().any(|(call, ..)| call == name)) {
        bail!("no system call is called `{unknown}`");
    }
    let shown = |name: &str| named.is_empty() || named.iter().any(|wanted| wanted == name);
    Ok(calls.into_iter().filter(|(name, ..)| shown(name)).collect())
}

/// Calls, a line each.
fn lines(calls: &[Call]) -> String {
    let line = |(name, number, answer): &Call| format!("{number:>4}  {name:<24} {answer}\n");
    calls.iter().map(line).collect()
}

/// What was executed, in words.
fn executed(proof: Proof) -> String {
    let Proof { numbers, cases, by_pairs } = proof;
    let pairs = match by_pairs {
        0 => String::new(),
        some => format!(" ({some} of them by pairs of arguments)"),
    };
    format!("executed {cases} times over {numbers} calls, each as above{pairs}")
}

impl JsonCall {
    fn of((name, number, answer): Call) -> JsonCall {
        let rule = |(when, verdict): (String, _)| JsonRule { when, verdict: format!("{verdict}") };
        let rules = answer.rules.into_iter().map(rule).collect();
        JsonCall { name, number, otherwise: answer.otherwise.to_string(), rules }
    }
}

const KILLED: &str = "kill process";

impl Proven {
    fn calls(&self, named: &[String]) -> Result<Vec<Call>> {
        chosen(self.table.calls(), named)
    }

    fn json(&self, named: &[String]) -> Result<Json> {
        let calls = self.calls(named)?.into_iter().map(JsonCall::of);
        Ok(Json {
            digest: self.program.digest(),
            instructions: self.program.instructions.len(),
            executed: self.proof.cases,
            other_architectures: KILLED,
            x32: KILLED,
            unknown: self.table.unknown().to_string(),
            calls: calls.collect(),
        })
    }

    fn text(&self, named: &[String]) -> Result<String> {
        let mut text = lines(&self.calls(named)?);
        if named.is_empty() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "   *  {:<24} {}", "any other number", self.table.unknown());
            let _ = writeln!(text, "   *  {:<24} {KILLED}", "x32, other architectures");
        }
        let _ = writeln!(text, "{} instructions; {}", self.program.instructions.len(), executed(self.proof));
        Ok(text)
    }
}

/// One call that two filters answer differently.
#[derive(Serialize)]
struct Change {
    number: u32,
    what: &'static str,
    before: String,
    after: String,
}

fn diff(args: &SeccompArgs, before: &Proven, after: &Proven) -> Result<ExitCode> {
    let old = before.calls(&args.calls)?;
    let mut changes: BTreeMap<&str, Change> = BTreeMap::new();
    for ((name, number, old), (_, _, new)) in old.into_iter().zip(after.calls(&args.calls)?) {
        if old != new {
            let what = kind(&old, &new);
            changes.insert(name, Change { number, what, before: old.to_string(), after: new.to_string() });
        }
    }
    let (old, new) = (before.table.unknown(), after.table.unknown());
    if old != new {
        let change =
            Change { number: u32::MAX, what: "other", before: old.to_string(), after: new.to_string() };
        changes.insert("any other number", change);
    }
    if args.json {
        output::json(&changes)?;
    } else {
        let mut text = String::new();
        for (name, Change { what, before, after, .. }) in &changes {
            let _ = writeln!(text, "{what:<10} {name}\n    before: {before}\n    after:  {after}");
        }
        output::print(&text)?;
    }
    Ok(ExitCode::from(u8::from(!changes.is_empty())))
}

fn kind(old: &Answer, new: &Answer) -> &'static str {
    match (old.may_run(), new.may_run()) {
        (false, true) => "possible",
        (true, false) => "impossible",
        (true, true) if new.always_runs() => "wider",
        (true, true) if old.always_runs() => "narrower",
        (true, true) => "condition",
        (false, false) => "refusal",
    }
}
