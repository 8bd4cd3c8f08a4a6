//! The grader process of a run: `airlock-grader`, in a sandbox of policy `grader`.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use airlock_policy::{
    BestEffort, HostTree, Mount, MountMode, Overrides, Policy, PolicyError, ResolveInput, resolve,
};
use airlock_runtime::Spec;
use thiserror::Error;

use super::bind::{Access, BindError, bind_socket};
use super::wire::close_apart;

/// Number under which the process has the listening socket.
pub const LISTENER: i32 = 3;

/// Number under which it has its end of the supervisor link, a pair of stream sockets.
pub const LINK: i32 = 4;

/// Its program, inside.
const PROGRAM: &str = "/opt/airlock/airlock-grader";

/// Why there is no grader process.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// The socket could not be made.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The policy does not hold on this host.
    #[error("policy of the grader process: {0}")]
    Policy(#[from] PolicyError),
    /// A socket could not be made or copied.
    #[error("preparing the sockets of the grader process: {0}")]
    Sockets(#[source] io::Error),
}

/// How grader processes of a run are started.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The program `airlock-grader` by an absolute path; a static binary that every user may execute.
    pub program: PathBuf,
    /// Clauses that may be lowered to what this host can do.
    pub best_effort: BTreeSet<BestEffort>,
}

/// The socket of a run, and the sandbox of the processes that serve it, one at a time.
///
/// A process ends with its link. The socket stays when one ends, and with it the connections that wait: the next
/// process serves them.
#[derive(Debug)]
pub struct Grader {
    /// There until the drop.
    listener: Option<UnixListener>,
    spec: Spec,
}

impl Grader {
    /// Binds the socket by `name` in a directory of the caller's own, and resolves the policy against this host.
    pub fn new(
        settings: Settings,
        directory: impl AsFd,
        name: &Path,
        access: Access,
    ) -> Result<Grader, ProcessError> {
        let spec = spec(settings)?;
        Ok(Grader { listener: Some(bind_socket(directory, name, access)?), spec })
    }

    /// The sandbox. Its stderr is the log.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// What a process gets under which numbers, and the supervisor's end of the link to it, for
    /// [`Acts::new`](super::link::Acts::new).
    pub fn hand_over(&self) -> Result<(Vec<(OwnedFd, i32)>, UnixStream), ProcessError> {
        let Some(listener) = &self.listener else {
            return Err(ProcessError::Sockets(io::ErrorKind::NotConnected.into()));
        };
        let listener = listener.try_clone().map_err(ProcessError::Sockets)?;
        let (ours, theirs) = UnixStream::pair().map_err(ProcessError::Sockets)?;
        Ok((vec![(listener.into(), LISTENER), (theirs.into(), LINK)], ours))
    }
}

impl Drop for Grader {
    fn drop(&mut self) {
        // With the connections that nobody accepted.
        if let Some(listener) = self.listener.take() {
            close_apart(listener.into(), None);
        }
    }
}

fn spec(Settings { program, best_effort }: Settings) -> Result<Spec, PolicyError> {
    let mut policy = Policy::load("grader", &Overrides::default(), Path::new("/"))?;
    policy.best_effort = best_effort;
    policy.mount.push(Mount {
        source: program,
        target: PROGRAM.into(),
        mode: MountMode::Ro,
        exec: true,
        optional: false,
        socket: false,
    });
    let host = HostTree::read().with_sources(&policy);
    resolve(&policy, &ResolveInput { args: vec![PROGRAM.into()], host, ..ResolveInput::default() })
}
