//! The command: arguments, environment, identity, capabilities, resource limits of the process.

use std::collections::BTreeMap;
use std::path::Path;

use oci_spec::OciSpecError;
use oci_spec::runtime::{
    Capabilities, LinuxCapabilities, LinuxCapabilitiesBuilder, PosixRlimit, PosixRlimitBuilder,
    PosixRlimitType, Process, ProcessBuilder, UserBuilder,
};

use super::oci;
use super::root::user_name;
use crate::diagnostic::PolicyError;
use crate::merged::Policy;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub(super) fn process(
    policy: &Policy,
    args: &[String],
    caller_env: &BTreeMap<String, String>,
    home: &Path,
) -> Result<Process, PolicyError> {
    if args.is_empty() {
        return Err(PolicyError::Argument {
            option: "COMMAND",
            value: String::new(),
            message: "there is no command to run".into(),
        });
    }
    if let Some(nul) = args.iter().find(|arg| arg.contains('\0')) {
        return Err(PolicyError::Argument {
            option: "COMMAND",
            value: nul.escape_default().to_string(),
            message: "an argument holds a NUL character".into(),
        });
    }
    let user = policy.identity.user;
    let user = UserBuilder::default().uid(user.uid).gid(user.gid).umask(0o022u32).build();
    ProcessBuilder::default()
        .terminal(false)
        .user(user.map_err(oci("identity.user"))?)
        .args(args.to_vec())
        .env(environment(policy, caller_env, home))
        .cwd(policy.process.cwd.as_deref().unwrap_or(home))
        .capabilities(capabilities(policy).map_err(oci("capabilities.keep"))?)
        .rlimits(rlimits(policy).map_err(oci("limits.nofile"))?)
        .no_new_privileges(true)
        .build()
        .map_err(oci("process"))
}

/// Defaults, then what is passed on from the caller, then what is set.
fn environment(policy: &Policy, caller_env: &BTreeMap<String, String>, home: &Path) -> Vec<String> {
    let name = user_name(policy.identity.user.uid);
    let mut env: BTreeMap<&str, String> = BTreeMap::from([
        ("HOME", home.display().to_string()),
        ("LOGNAME", name.to_owned()),
        ("PATH", PATH.to_owned()),
        ("USER", name.to_owned()),
    ]);
    for name in &policy.env.pass {
        if let Some(value) = caller_env.get(name) {
            env.insert(name, value.clone());
        }
    }
    env.extend(policy.env.set.iter().map(|(name, value)| (name.as_str(), value.clone())));
    env.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

fn capabilities(policy: &Policy) -> Result<LinuxCapabilities, OciSpecError> {
    let kept: Capabilities = policy.capabilities.keep.iter().copied().collect();
    LinuxCapabilitiesBuilder::default()
        .bounding(kept.clone())
        .effective(kept.clone())
        .inheritable(kept.clone())
        .permitted(kept.clone())
        .ambient(kept)
        .build()
}

/// Smallest `RLIMIT_CORE`. A core pattern that pipes to a program of the host takes no notice of the limit, 0
/// included, but for the value 1, at which the kernel gives up (fs/coredump.c, Linux 2.6.33); no core file has
/// as little as a byte.
const NO_CORE: u64 = 1;

/// Signals that wait and timers of POSIX, in number. Their memory is charged to no cgroup, and the kernel counts them
/// for the owner of the user namespace, who may be root; the limit that counts for the payload is then its own
/// (kernel/signal.c, `__sigqueue_alloc`).
const PENDING_SIGNALS: u64 = 1024;

fn rlimits(policy: &Policy) -> Result<Vec<PosixRlimit>, OciSpecError> {
    let limits = [
        (PosixRlimitType::RlimitCore, policy.limits.core.0.max(NO_CORE)),
        (PosixRlimitType::RlimitNofile, policy.limits.nofile),
        (PosixRlimitType::RlimitSigpending, PENDING_SIGNALS),
    ];
    limits
        .into_iter()
        .map(|(kind, limit)| PosixRlimitBuilder::default().typ(kind).soft(limit).hard(limit).build())
        .collect()
}
