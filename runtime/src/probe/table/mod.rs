//! The table of probes: one row for each, one file for each area.
//!
//! Calls that would change the machine are made with arguments that the kernel refuses only after it has looked at the
//! caller's rights, so that a row is as harmless outside of a sandbox, tried by root, as inside.

mod devices;
mod files;
mod identity;
mod kernel;
mod network;
mod process;
mod resources;

use nix::errno::Errno;

use super::{Also, Probe};

/// All probes, those that use a resource up last.
pub fn table() -> impl Iterator<Item = &'static Probe> {
    let areas: [&[Probe]; 7] = [
        files::PROBES,
        devices::PROBES,
        process::PROBES,
        identity::PROBES,
        network::PROBES,
        kernel::PROBES,
        resources::PROBES,
    ];
    areas.into_iter().flatten()
}

const fn errno(errnos: &'static [Errno], why: &'static str) -> Also {
    Also { errnos, signals: &[], why }
}

const READ_ONLY: Also =
    errno(&[Errno::EROFS], "a read-only mount says EROFS before any permission is looked at");
const NO_PROCESS: Also =
    errno(&[Errno::ESRCH], "kill and pidfd_open have no other word for a process of another PID namespace");
const NO_ADDRESS: Also = errno(
    &[Errno::ENETUNREACH, Errno::ECONNREFUSED],
    "a network namespace of its own has no route to the host's address and no socket of the host's name",
);
const NO_FAMILY: Also =
    errno(&[Errno::EAFNOSUPPORT], "the filter answers as a kernel without the family does, which PAM needs");
const UNKNOWN_CALL: Also = errno(
    &[Errno::ENOSYS],
    "the filter answers clone3 so that libraries turn to clone, whose flags it can see",
);
const NO_ID: Also = errno(&[Errno::EINVAL], "an id that is not mapped into the namespace is none");
const QUOTA: Also = errno(&[Errno::ENOSPC], "user.max_user_namespaces is 0 in the sandbox's namespace");
const NO_KEY: Also = errno(&[Errno::ENOKEY], "a session keyring of its own does not hold the host's key");
const KILLED_BY_FILTER: Also = Also {
    errnos: &[],
    signals: &[libc::SIGSYS],
    why: "the filter kills who calls through a foreign entry table",
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_unique_and_named_after_their_area() {
        let ids: BTreeSet<&str> = table().map(|probe| probe.id).collect();
        assert_eq!(ids.len(), table().count());
        assert!(ids.iter().all(|id| id.contains('.')));
        assert!(ids.len() >= 150, "{}", ids.len());
    }

    #[test]
    fn whatever_else_counts_as_denied_has_a_reason() {
        for probe in table() {
            assert!(probe.also.is_none_or(|also| !also.why.is_empty()), "{}", probe.id);
        }
    }

    #[test]
    fn a_capability_is_asked_for_by_the_clause_of_capabilities() {
        for probe in table() {
            let listed = probe.clauses.contains(&crate::probe::Clause::Capabilities);
            assert_eq!(probe.capability.is_some(), listed, "{}", probe.id);
        }
    }
}
