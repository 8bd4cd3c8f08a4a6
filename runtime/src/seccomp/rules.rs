//! From an OCI document to one decision per call number.

use oci_spec::runtime::{
    LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompOperator, LinuxSyscall,
};

use super::SeccompError;
use super::program::MAX_INSTRUCTIONS;
use super::table::Architecture;
use super::verdict::Verdict;

/// A condition on one 64-bit argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    /// Index of the argument, 0 to 5.
    pub(super) arg: u32,
    pub(super) test: Test,
    /// The condition holds if the test fails.
    pub(super) negated: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// `arg & mask == value`
    Masked { mask: u64, value: u64 },
    /// `arg > value`
    Above(u64),
    /// `arg >= value`
    AtLeast(u64),
}

/// All conditions must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) conditions: Vec<Condition>,
    pub(super) verdict: Verdict,
}

/// What happens to one call: the first rule that holds decides, else `otherwise`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) rules: Vec<Rule>,
    pub(super) otherwise: Verdict,
}

/// Every number's decision.
#[derive(Debug)]
pub(super) struct Decisions {
    /// Indexed by number.
    pub(super) known: Vec<Decision>,
    /// For numbers beyond.
    pub(super) unknown: Decision,
}

/// What the document says about one call.
#[derive(Clone, Debug, Default)]
struct Said {
    rules: Vec<Rule>,
    always: Option<Verdict>,
}

/// Reads an OCI document; names that the table lacks are skipped, as engines do.
pub(super) fn decide(arch: Architecture, document: &LinuxSeccomp) -> Result<Decisions, SeccompError> {
    let default = verdict("the default", document.default_action(), document.default_errno_ret())?;
    let unknown = if permissive(document.default_action()) { default } else { Verdict::NO_SUCH_CALL };
    let unknown = Decision { rules: Vec::new(), otherwise: unknown };

    let mut said: Vec<Option<Said>> = Vec::new();
    for (_, number) in arch.all() {
        let at = *number as usize;
        if said.len() <= at {
            said.resize(at + 1, None);
        }
        said[at] = Some(Said::default());
    }
    for entry in document.syscalls().iter().flatten() {
        let rules = rules(entry)?;
        for name in entry.names() {
            let number = arch.number(name).and_then(|number| usize::try_from(number).ok());
            let Some(Some(said)) = number.and_then(|number| said.get_mut(number)) else {
                continue;
            };
            match &rules {
                Rules::Always(verdict) => said.always = said.always.or(Some(*verdict)),
                // Each that can hold or fail takes an instruction at least, so no filter is refused that could be made.
                Rules::If(rules) if said.rules.len() + rules.len() > MAX_INSTRUCTIONS => {
                    return Err(SeccompError::Rules { call: name.clone() });
                }
                Rules::If(rules) => said.rules.extend_from_slice(rules),
            }
        }
    }
    let known = said
        .into_iter()
        .map(|said| match said {
            None => unknown.clone(),
            Some(Said { rules, always }) => Decision { rules, otherwise: always.unwrap_or(default) },
        })
        .collect();
    Ok(Decisions { known, unknown })
}

/// A default that lets programs use calls that nobody listed also lets them use those nobody knows.
/// TRACE and NOTIFY count: whoever decides there can say ENOSYS too.
const fn permissive(action: LinuxSeccompAction) -> bool {
    use LinuxSeccompAction::{ScmpActAllow, ScmpActLog, ScmpActNotify, ScmpActTrace};
    matches!(action, ScmpActAllow | ScmpActLog | ScmpActTrace | ScmpActNotify)
}

enum Rules {
    Always(Verdict),
    If(Vec<Rule>),
}

fn rules(entry: &LinuxSyscall) -> Result<Rules, SeccompError> {
    let name = || entry.names().first().map_or("(no name)", String::as_str);
    let verdict = verdict(name(), entry.action(), entry.errno_ret())?;
    let args = entry.args().as_deref().unwrap_or_default();
    if args.is_empty() {
        return Ok(Rules::Always(verdict));
    }
    let conditions = args.iter().map(|arg| condition(name(), arg)).collect::<Result<Vec<_>, _>>()?;
    let repeated =
        conditions.iter().enumerate().any(|(at, c)| conditions[..at].iter().any(|d| c.arg == d.arg));
    Ok(Rules::If(if repeated {
        // libseccomp takes an argument once per rule; runc and crun then make each condition its own rule.
        conditions.into_iter().map(|c| Rule { conditions: vec![c], verdict }).collect()
    } else {
        vec![Rule { conditions, verdict }]
    }))
}

fn verdict(call: &str, action: LinuxSeccompAction, errno: Option<u32>) -> Result<Verdict, SeccompError> {
    Verdict::from_oci(action, errno)
        .ok_or_else(|| SeccompError::Errno { call: call.to_owned(), value: errno.unwrap_or_default() })
}

fn condition(call: &str, arg: &LinuxSeccompArg) -> Result<Condition, SeccompError> {
    use LinuxSeccompOperator::{
        ScmpCmpEq, ScmpCmpGe, ScmpCmpGt, ScmpCmpLe, ScmpCmpLt, ScmpCmpMaskedEq, ScmpCmpNe,
    };
    let index = u32::try_from(arg.index()).ok().filter(|index| *index < 6);
    let index = index.ok_or_else(|| SeccompError::Argument { call: call.to_owned(), index: arg.index() })?;
    let value = arg.value();
    let (test, negated) = match arg.op() {
        ScmpCmpEq => (Test::Masked { mask: u64::MAX, value }, false),
        ScmpCmpNe => (Test::Masked { mask: u64::MAX, value }, true),
        // seccomp_rule_add(3): the masked argument equals the masked datum.
        ScmpCmpMaskedEq => (Test::Masked { mask: value, value: arg.value_two().unwrap_or(0) & value }, false),
        ScmpCmpGt => (Test::Above(value), false),
        ScmpCmpLe => (Test::Above(value), true),
        ScmpCmpGe => (Test::AtLeast(value), false),
        ScmpCmpLt => (Test::AtLeast(value), true),
    };
    Ok(Condition { arg: index, test, negated })
}
