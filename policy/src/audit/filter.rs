//! What a subject's seccomp filter answers, found by running it.

use airlock_runtime::seccomp::{Program, SeccompData, run, syscall_number};

use oci_spec::runtime::LinuxSeccomp;

use super::rule::Spot;
use super::subject::Subject;

/// `CLONE_NEWUSER` of sched.h.
pub(super) const NEW_USER: u64 = 0x1000_0000;
/// `S_ISUID | S_ISGID`.
pub(super) const SET_ID: u64 = 0o6000;
/// `O_CREAT`.
pub(super) const CREATE: u64 = 0o100;

/// A filter as it was written, and compiled.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    pub(super) document: LinuxSeccomp,
    pub(super) program: Program,
}

impl Filter {
    /// The call runs with these arguments. A tracer's or a listener's decision counts as a refusal.
    pub(super) fn lets(&self, call: &str, args: &[u64]) -> bool {
        let mut all = [0; 6];
        all.iter_mut().zip(args).for_each(|(slot, arg)| *slot = *arg);
        let data = syscall_number(call).and_then(|number| SeccompData::native(number, all).ok());
        data.and_then(|data| run(&self.program, &data).ok()).is_some_and(|verdict| verdict.lets_through())
    }

    /// A user namespace can be made.
    pub(super) fn lets_namespaces(&self) -> bool {
        self.lets("unshare", &[NEW_USER]) || self.lets("clone", &[NEW_USER])
    }
}

impl Subject {
    /// What lets `call` through: the entry that names it, the policy's list, or the default.
    pub(super) fn allows(&self, call: &str) -> Spot {
        if let Some(policy) = self.policy() {
            let named = |list: &[String]| list.iter().any(|name| name == call);
            let clause = match &policy.seccomp {
                seccomp if named(&seccomp.allow) => "seccomp.allow",
                seccomp if named(&seccomp.log) => "seccomp.log",
                _ => "seccomp.profile",
            };
            return Spot::Clause(clause.into());
        }
        let entries = self.document().items("/linux/seccomp/syscalls");
        let named = entries
            .filter(|(_, entry)| matches!(entry["action"].as_str(), Some("SCMP_ACT_ALLOW" | "SCMP_ACT_LOG")))
            .flat_map(|(at, _)| self.document().texts(&format!("{at}/names")).collect::<Vec<_>>())
            .find(|(_, name)| *name == call);
        Spot::Member(named.map_or_else(|| "/linux/seccomp/defaultAction".into(), |(at, _)| at))
    }
}
