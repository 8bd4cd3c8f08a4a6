//! Seccomp: profiles, the filter compiler, and an interpreter that proves what a filter does.
//!
//! An OCI document ([`LinuxSeccomp`](oci_spec::runtime::LinuxSeccomp)) is compiled to a [`Program`],
//! which is installed last before the payload's exec. Built-in documents come from [`profile()`], whose
//! table gives the conditions; [`REFUSED`] gives, group by group, what is refused and why.
//!
//! Airlock compiles by itself because no crate has an errno per rule, a guard against the x32 numbers
//! (seccompiler#74) and ENOSYS for numbers newer than the table (runc#2750) together, and because a
//! linear chain of comparisons takes four times as long to load as a tree.

mod assemble;
mod cache;
mod calls;
mod compile;
mod inspect;
mod install;
mod interpret;
mod launch_set;
pub mod own;
mod profile;
mod program;
mod rules;
mod table;
#[cfg(test)]
mod tests;
mod verdict;

use thiserror::Error;

pub use cache::Cache;
pub use calls::{CONDITIONAL, NESTING, REFUSED, Refused, refusal};
pub use compile::{compile, unknown_names};
pub use inspect::{Answer, Decompiled, Disproof, Exhausted, FilterTable, Opaque, Proof, STEPS, Told};
pub use install::{Flags, install};
pub use interpret::{Fault, SeccompData, run};
pub use launch_set::{LAUNCH_SET, check_launch_set};
pub use profile::{PROFILES, allow_netlink_route, profile, set_action};
pub use program::{Instruction, MAX_INSTRUCTIONS, Program};
pub use table::{Architecture, X32_BIT, all, syscall_name, syscall_number};
pub use verdict::Verdict;

/// Why a filter cannot be made or installed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SeccompError {
    /// No table for this machine.
    #[error("seccomp: no filter can be made for {name}: Airlock knows x86_64 only")]
    Architecture {
        /// The architecture.
        name: &'static str,
    },
    /// An errno beyond what the kernel can return, or a trace message of more than 16 bits.
    #[error("seccomp: {call}: errnoRet {value} is out of range")]
    Errno {
        /// First name of the rule, or "the default".
        call: String,
        /// The document's value.
        value: u32,
    },
    /// Calls have six arguments.
    #[error("seccomp: {call}: argument index {index} is not 0 to 5")]
    Argument {
        /// First name of the rule.
        call: String,
        /// The document's value.
        index: usize,
    },
    /// More instructions than the kernel takes.
    #[error("seccomp: the filter has {length} instructions; the kernel takes {MAX_INSTRUCTIONS}")]
    TooLong {
        /// Its length.
        length: usize,
    },
    /// More conditional rules of one call than any program could hold.
    #[error(
        "seccomp: {call}: more than {MAX_INSTRUCTIONS} rules; the kernel takes as many instructions in all"
    )]
    Rules {
        /// The call.
        call: String,
    },
    /// A call without which no sandbox starts or ends.
    #[error("seccomp: the filter answers {verdict} to {call}, which Airlock itself needs; allow it")]
    LaunchSet {
        /// The call.
        call: &'static str,
        /// The filter's answer.
        verdict: Verdict,
    },
    /// The document hands calls to a listener.
    #[error("seccomp: SCMP_ACT_NOTIFY needs a listener, which Airlock does not offer")]
    Notify,
    /// A filter of Airlock's own processes does not compile.
    #[error("seccomp: Airlock's own filter")]
    Own(#[source] seccompiler::BackendError),
    /// The program would be refused by the kernel.
    #[error("seccomp: the program is malformed")]
    Malformed(#[from] Fault),
    /// seccomp(2) failed. EACCES: `no_new_privs` is not set; EINVAL: the kernel has no filters.
    #[error("seccomp: installing the filter")]
    Install(#[source] std::io::Error),
}
