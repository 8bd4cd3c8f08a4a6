//! The grader process of a run: `airlock-grader`, in a sandbox of policy `grader`.

use std::path::Path;

use airlock_policy::{
    BestEffort, HostTree, Mount, MountMode, Overrides, Policy, PolicyError, ResolveInput, resolve,
};
use airlock_runtime::Spec;

/// Number under which the process has the listening socket.
pub const LISTENER: i32 = 3;

/// Number under which it has its end of the supervisor link, a pair of stream sockets.
pub const LINK: i32 = 4;

/// Its program, inside.
const PROGRAM: &str = "/opt/airlock/airlock-grader";

/// The sandbox of a grader process on this host.
///
/// `program` is the static binary `airlock-grader`, by an absolute path; every user must be able to execute it. Clauses
/// of `best_effort` may be lowered to what this host can do.
///
/// The process gets the sockets [`LISTENER`] and [`LINK`] and nothing else, writes its log to stderr, and ends with the
/// link. One that is killed leaves the listening socket and the connections that wait there to the next; two at a time
/// would share the connections between them.
pub fn grader_spec(program: &Path, best_effort: &[BestEffort]) -> Result<Spec, PolicyError> {
    let mut policy = Policy::load("grader", &Overrides::default(), Path::new("/"))?;
    policy.best_effort = best_effort.iter().copied().collect();
    policy.mount.push(Mount {
        source: program.to_owned(),
        target: PROGRAM.into(),
        mode: MountMode::Ro,
        exec: true,
        optional: false,
        socket: false,
    });
    let host = HostTree::read().with_sources(&policy);
    resolve(&policy, &ResolveInput { args: vec![PROGRAM.into()], host, ..ResolveInput::default() })
}
