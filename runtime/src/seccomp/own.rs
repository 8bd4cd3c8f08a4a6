//! Fixed filters of Airlock's own processes.

use std::collections::BTreeMap;

use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use super::SeccompError;
use super::program::{Instruction, Program, offset, op};
use super::table::{Architecture, X32_BIT};
use super::verdict::Verdict;

/// What PID 1 of a sandbox needs once the payload runs: to wait, to pass signals and window sizes on, to
/// report over its inherited descriptors, its allocator, and Rust's way out (sigaltstack at exit, gettid
/// and tgkill in an abort). It opens, executes and forks nothing.
#[rustfmt::skip]
pub(super) const INIT: &[&str] = &[
    "brk", "clock_gettime", "close", "exit", "exit_group", "fcntl", "futex", "getpid", "gettid", "kill",
    "madvise", "mmap", "mremap", "munmap", "poll", "ppoll", "read", "recvmsg", "restart_syscall",
    "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigtimedwait", "sendmsg", "sigaltstack", "tgkill",
    "wait4", "waitid", "write",
];

/// What an argument has to be: its low 32 bits, as far as `mask` goes, are `value`.
#[derive(Clone, Copy, Debug)]
pub struct Condition {
    /// Index of the argument, 0 to 5.
    pub argument: u8,
    /// The bits that are looked at.
    pub mask: u64,
    /// What they have to be.
    pub value: u64,
}

impl Condition {
    /// The mask of an argument that the kernel takes as an `int`.
    pub const WHOLE: u64 = 0xffff_ffff;
}

/// Filter for Airlock's PID 1, installed after it has forked the payload; all else kills it, and with it
/// the sandbox.
pub fn init_filter() -> Result<Program, SeccompError> {
    let resize = Condition { argument: 1, mask: Condition::WHOLE, value: libc::TIOCSWINSZ };
    filter(INIT, &[("ioctl", resize)])
}

/// Lets a process make these calls, the last of them under a condition; all else kills it.
///
/// seccompiler writes the chain of comparisons; the guard before it is ours, since seccompiler does not
/// look at the x32 bit (seccompiler#74).
pub fn filter(calls: &[&str], conditional: &[(&str, Condition)]) -> Result<Program, SeccompError> {
    let arch = Architecture::native()?;
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for number in calls.iter().filter_map(|call| arch.number(call)) {
        rules.insert(number.into(), Vec::new());
    }
    for (call, Condition { argument, mask, value }) in conditional {
        let Some(number) = arch.number(call) else { continue };
        let (length, masked) = (SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(*mask));
        let condition = SeccompCondition::new(*argument, length, masked, *value)?;
        rules.entry(number.into()).or_default().push(SeccompRule::new(vec![condition])?);
    }
    let target = match arch {
        Architecture::X86_64 => TargetArch::x86_64,
    };
    let filter = SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, target)?;
    let chain = seccompiler::BpfProgram::try_from(filter)?;
    let step = |code, jt, jf, k| Instruction { code, jt, jf, k };
    let mut instructions = vec![
        step(op::LOAD, 0, 0, offset::NUMBER),
        step(op::JGE, 0, 1, X32_BIT),
        step(op::RETURN, 0, 0, Verdict::KillProcess.raw()),
    ];
    instructions.extend(chain.iter().map(|next| step(next.code, next.jt, next.jf, next.k)));
    Ok(Program { instructions })
}

impl From<seccompiler::BackendError> for SeccompError {
    fn from(error: seccompiler::BackendError) -> Self {
        Self::Own(error)
    }
}
