//! `airlock audit seccomp`.

mod process;

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::process::ExitCode;

use airlock_policy::audit::Subject;
use airlock_runtime::seccomp::{Answer, Exhausted, FilterTable, Program, Proof, STEPS, Told};
use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::audit_args::SeccompArgs;
use crate::output;

/// A filter whose table was proven.
struct Proven {
    /// As the command line has it.
    name: String,
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
    all_decided(name, &filter.proof)?;
    Ok(ExitCode::SUCCESS)
}

fn proven(name: &str) -> Result<Proven> {
    let subject: Subject = super::subject(name).with_context(|| format!("audit seccomp {name}"))?;
    let Some((document, program)) = subject.seccomp() else {
        bail!("{name}: no system call is filtered");
    };
    let table = FilterTable::of(document)?;
    let proof = table
        .prove(program, STEPS)
        .with_context(|| format!("{name}: the table is not what the filter does"))?;
    Ok(Proven { name: name.to_owned(), table, program: program.clone(), proof })
}

/// What `--json` says of one filter.
#[derive(Serialize)]
struct Json {
    digest: String,
    instructions: usize,
    executed: u64,
    /// Calls of any architecture of which nothing is proven.
    undecided: usize,
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
    /// Absent if the answer cannot be told.
    otherwise: Option<String>,
    /// Why it cannot be told, or is not proven.
    #[serde(skip_serializing_if = "Option::is_none")]
    undecided: Option<String>,
}

#[derive(Serialize)]
struct JsonRule {
    when: String,
    verdict: String,
}

/// One call and what is known of it.
struct Call {
    name: &'static str,
    number: u32,
    answer: Option<Answer>,
    /// Why there is no answer, or none that is proven.
    undecided: Option<String>,
}

impl Call {
    fn of(name: &'static str, number: u32, told: Told, proof: &Proof) -> Call {
        let (answer, undecided) = match told {
            Err(why) => (None, Some(why.to_string())),
            Ok(answer) if proof.covers(number) => (Some(answer), None),
            Ok(answer) => {
                let exhausted = Exhausted { steps: proof.steps };
                (Some(answer), Some(format!("not proven: {exhausted}")))
            }
        };
        Call { name, number, answer, undecided }
    }
}

/// The calls that are to be shown; all if none is named.
fn chosen(calls: impl Iterator<Item = Call>, named: &[String]) -> Result<Vec<Call>> {
    let calls: Vec<_> = calls.collect();
    if let Some(unknown) = named.iter().find(|name| !calls.iter().any(|call| call.name == **name)) {
        bail!("no system call is called `{unknown}`");
    }
    let shown = |name: &str| named.is_empty() || named.iter().any(|wanted| wanted == name);
    Ok(calls.into_iter().filter(|call| shown(call.name)).collect())
}

/// Calls, a line each.
fn lines(calls: &[Call]) -> String {
    calls.iter().map(|call| format!("{:>4}  {:<24} {call}\n", call.number, call.name)).collect()
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.answer, &self.undecided) {
            (Some(answer), None) => write!(f, "{answer}"),
            (Some(answer), Some(why)) => write!(f, "{answer} ({why})"),
            (None, why) => f.write_str(why.as_deref().unwrap_or("cannot be told")),
        }
    }
}

/// What was executed, in words.
fn executed(proof: &Proof) -> String {
    let Proof { numbers, cases, by_pairs, undecided, .. } = proof;
    let pairs = match by_pairs {
        0 => String::new(),
        some => format!(" ({some} of them by pairs of arguments)"),
    };
    let others = match undecided.len() {
        0 => String::new(),
        some => format!("; of {some} more nothing is proven"),
    };
    format!("executed {cases} times over {numbers} calls, each as above{pairs}{others}")
}

/// An audit that leaves something open is none, whatever else it says.
fn all_decided(name: &str, proof: &Proof) -> Result<()> {
    match proof.undecided.len() {
        0 => Ok(()),
        some => bail!("{name}: {some} calls, of all architectures, are not decided"),
    }
}

impl JsonCall {
    fn of(Call { name, number, answer, undecided }: Call) -> JsonCall {
        let rule = |(when, verdict): (String, _)| JsonRule { when, verdict: format!("{verdict}") };
        let (rules, otherwise) = answer.map(|answer| (answer.rules, answer.otherwise.to_string())).unzip();
        let rules = rules.into_iter().flatten().map(rule).collect();
        JsonCall { name, number, rules, otherwise, undecided }
    }
}

const KILLED: &str = "kill process";

impl Proven {
    fn calls(&self, named: &[String]) -> Result<Vec<Call>> {
        let calls = self.table.calls();
        chosen(calls.map(|(name, number, answer)| Call::of(name, number, Ok(answer), &self.proof)), named)
    }

    fn json(&self, named: &[String]) -> Result<Json> {
        let calls = self.calls(named)?.into_iter().map(JsonCall::of);
        Ok(Json {
            digest: self.program.digest(),
            instructions: self.program.instructions.len(),
            executed: self.proof.cases,
            undecided: self.proof.undecided.len(),
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
        let _ = writeln!(text, "{} instructions; {}", self.program.instructions.len(), executed(&self.proof));
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
    for (call, new) in old.into_iter().zip(after.calls(&args.calls)?) {
        let Call { name, number, answer, .. } = call;
        let (Some(old), Some(new)) = (answer, new.answer) else { continue };
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
    [before, after].into_iter().try_for_each(|one| all_decided(&one.name, &one.proof))?;
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
