//! The rules, a file for each mechanism.

mod capabilities;
mod devices;
mod grader;
mod identity;
mod kernel;
mod landlock;
mod limits;
mod mounts;
mod namespaces;
mod network;
mod seccomp;
mod secrets;
mod writable;

use super::rule::Rule;

/// Every rule, by mechanism and then by id.
pub(super) const AREAS: [&[Rule]; 13] = [
    namespaces::RULES,
    identity::RULES,
    capabilities::RULES,
    mounts::RULES,
    writable::RULES,
    secrets::RULES,
    seccomp::RULES,
    landlock::RULES,
    devices::RULES,
    limits::RULES,
    network::RULES,
    kernel::RULES,
    grader::RULES,
];
