//! The seccomp filter: a profile, and the policy's lists as edits on it.
//!
//! Of netlink, profile `default` has route sockets where the network is `loopback`, and none elsewhere: programs that
//! use the loopback ask for the interfaces (getifaddrs(3), which PyTorch's gloo needs), but what waits in such a
//! socket is charged to no memory cgroup. A profile of a file's own is taken as it is.

use airlock_runtime::seccomp::{NESTING, allow_netlink_route, profile, set_action};
use oci_spec::runtime::{LinuxSeccomp, LinuxSeccompAction};

use crate::diagnostic::{Fault, PolicyError};
use crate::merged::{Policy, Profile};
use crate::schema::NetworkMode;

/// What a denied call returns (errno(3)).
const EPERM: u32 = 1;

/// The filter of a policy; `None` for profile `none`.
pub(crate) fn filter(policy: &Policy) -> Result<Option<LinuxSeccomp>, PolicyError> {
    let mut filter = match &policy.seccomp.profile {
        Profile::None => return Ok(None),
        Profile::File { content, .. } => content.as_ref().clone(),
        Profile::Default => builtin(policy, "default")?,
        Profile::Strict => builtin(policy, "strict")?,
    };
    if policy.seccomp.profile == Profile::Default && policy.network.mode == NetworkMode::Loopback {
        allow_netlink_route(&mut filter);
    }
    let nesting: &[&str] = if policy.nesting { NESTING } else { &[] };
    for call in nesting {
        set_action(&mut filter, call, LinuxSeccompAction::ScmpActAllow, None);
    }
    for call in &policy.seccomp.allow {
        set_action(&mut filter, call, LinuxSeccompAction::ScmpActAllow, None);
    }
    for call in &policy.seccomp.log {
        set_action(&mut filter, call, LinuxSeccompAction::ScmpActLog, None);
    }
    for call in &policy.seccomp.deny {
        set_action(&mut filter, call, LinuxSeccompAction::ScmpActErrno, Some(EPERM));
    }
    Ok(Some(filter))
}

fn builtin(policy: &Policy, name: &str) -> Result<LinuxSeccomp, PolicyError> {
    profile(name).ok_or_else(|| {
        let fault = Fault::new(format!("the runtime has no seccomp profile `{name}`"));
        policy.fault("seccomp.profile", fault)
    })
}
