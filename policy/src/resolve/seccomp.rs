//! The seccomp filter: a profile, and the policy's lists as edits on it.

use oci_spec::runtime::{LinuxSeccomp, LinuxSeccompAction, LinuxSyscall, LinuxSyscallBuilder};

use super::oci;
use crate::diagnostic::{Fault, PolicyError};
use crate::merged::{Policy, Profile};

/// What `nesting = true` lets through: what a sandbox inside needs to make namespaces and a root of its own.
/// `clone3` stays refused; libraries fall back to `clone`.
const NESTING: [&str; 14] = [
    "clone",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "mount",
    "mount_setattr",
    "move_mount",
    "open_tree",
    "pivot_root",
    "setns",
    "sethostname",
    "umount2",
    "unshare",
];

/// The filter of a policy; `None` for profile `none`.
pub(super) fn filter(policy: &Policy) -> Result<Option<LinuxSeccomp>, PolicyError> {
    let mut filter = match &policy.seccomp.profile {
        Profile::None => return Ok(None),
        Profile::File { content, .. } => content.as_ref().clone(),
        Profile::Default => builtin(policy, "default")?,
        Profile::Strict => builtin(policy, "strict")?,
    };
    let seccomp = &policy.seccomp;
    if policy.nesting {
        put(
            &mut filter,
            &NESTING.map(String::from),
            LinuxSeccompAction::ScmpActAllow,
        )?;
    }
    put(&mut filter, &seccomp.allow, LinuxSeccompAction::ScmpActAllow)?;
    put(&mut filter, &seccomp.log, LinuxSeccompAction::ScmpActLog)?;
    put(&mut filter, &seccomp.deny, LinuxSeccompAction::ScmpActErrno)?;
    Ok(Some(filter))
}

fn builtin(policy: &Policy, name: &str) -> Result<LinuxSeccomp, PolicyError> {
    profile(name).ok_or_else(|| {
        policy.fault(
            "seccomp.profile",
            Fault::new(format!("the runtime has no seccomp profile `{name}`")),
        )
    })
}

/// Gives each of `names` one unconditional action, in place of whatever the filter says of it.
fn put(filter: &mut LinuxSeccomp, names: &[String], action: LinuxSeccompAction) -> Result<(), PolicyError> {
    if names.is_empty() {
        return Ok(());
    }
    let mut rules: Vec<LinuxSyscall> = filter.syscalls().clone().unwrap_or_default();
    for rule in &mut rules {
        let left = rule
            .names()
            .iter()
            .filter(|name| !names.contains(name))
            .cloned()
            .collect();
        rule.set_names(left);
    }
    rules.retain(|rule| !rule.names().is_empty());
    let rule = LinuxSyscallBuilder::default().names(names).action(action).build();
    rules.push(rule.map_err(oci("seccomp"))?);
    filter.set_syscalls(Some(rules));
    Ok(())
}

fn profile(_name: &str) -> Option<LinuxSeccomp> {
    oci_spec::runtime::LinuxSeccompBuilder::default()
        .default_action(LinuxSeccompAction::ScmpActAllow)
        .build()
        .ok()
}
