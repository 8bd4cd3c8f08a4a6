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
/// report over its inherited descriptors, and its allocator. It opens, executes and forks nothing.
const INIT: &[&str] = &[
    "brk",
    "clock_gettime",
    "close",
    "exit",
    "exit_group",
    "fcntl",
    "futex",
    "getpid",
    "kill",
    "madvise",
    "mmap",
    "munmap",
    "poll",
    "ppoll",
    "read",
    "recvmsg",
    "restart_syscall",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sendmsg",
    "wait4",
    "waitid",
    "write",
];

/// Filter for Airlock's PID 1, installed after it has forked the payload; all else kills it, and with it
/// the sandbox.
///
/// seccompiler writes the chain of comparisons; the guard before it is ours, since seccompiler does not
/// look at the x32 bit (seccompiler#74).
pub fn init_filter() -> Result<Program, SeccompError> {
    let arch = Architecture::native()?;
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for number in INIT.iter().filter_map(|call| arch.number(call)) {
        rules.insert(number.into(), Vec::new());
    }
    if let Some(ioctl) = arch.number("ioctl") {
        let resize = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, libc::TIOCSWINSZ)?;
        rules.insert(ioctl.into(), vec![SeccompRule::new(vec![resize])?]);
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
