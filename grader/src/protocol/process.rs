//! Starting the grader process of a run, in a sandbox of policy `grader`.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use airlock_policy::{HostTree, MountArg, MountMode, Overrides, Policy, PolicyError, ResolveInput, resolve};
use airlock_runtime::Spec;
use airlock_runtime::launcher::{Launcher, LauncherError, Request, Running};
use airlock_runtime::report::EndReport;
use thiserror::Error;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::bind::{Access, BindError, bind_socket};
use super::wire::close_apart;

/// Number under which the process has the listening socket.
pub const LISTENER: i32 = 3;

/// Number under which it has its end of the supervisor link.
pub const LINK: i32 = 4;

/// Its program, inside.
const PROGRAM: &str = "/opt/airlock/airlock-grader";

/// Why there is no grader process.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// The socket could not be made.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The program's path is no text.
    #[error("grader program {0:?}: not UTF-8")]
    Program(PathBuf),
    /// The policy does not hold on this host.
    #[error("policy of the grader process: {0}")]
    Policy(#[from] PolicyError),
    /// A step failed.
    #[error("{step} the grader process: {source}")]
    Step {
        /// What was done.
        step: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// Its sandbox could not be built or verified, or its end not be learned.
    #[error("grader process: {0}")]
    Sandbox(#[from] LauncherError),
}

/// How grader processes of a run are started.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The program `airlock-grader` on the host; a static binary that all may execute.
    pub program: PathBuf,
    /// Clauses that may be lowered where this host cannot keep them, such as `limits`.
    pub best_effort: Vec<String>,
    /// Control group to work below; absent: the launcher's own.
    pub cgroup_parent: Option<PathBuf>,
}

/// The socket of a run, and how processes that serve it are started.
///
/// The socket stays when a process ends, and with it the connections that wait: the next process serves them.
#[derive(Debug)]
pub struct Grader {
    /// There until the drop.
    listener: Option<UnixListener>,
    spec: Spec,
    cgroup_parent: Option<PathBuf>,
}

impl Grader {
    /// Binds the socket by `name` in a directory of the caller's own, and resolves the policy against this host.
    pub fn new(
        settings: Settings,
        directory: impl AsFd,
        name: &Path,
        access: Access,
    ) -> Result<Grader, ProcessError> {
        let Settings { program, best_effort, cgroup_parent } = settings;
        let spec = spec(program, best_effort)?;
        let listener = Some(bind_socket(directory, name, access)?);
        Ok(Grader { listener, spec, cgroup_parent })
    }

    /// The sandbox that its processes run in.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Starts a process. It writes its log to `log`, a file.
    ///
    /// Waits until the sandbox is built and verified, a few milliseconds. The stream is the supervisor's end of the
    /// link, for [`Acts::new`](super::link::Acts::new). One process at a time: two would share the connections
    /// between them.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O.
    pub fn start(
        &self,
        launcher: &Launcher,
        log: OwnedFd,
    ) -> Result<(GraderProcess, UnixStream), ProcessError> {
        let failed = |step| move |source| ProcessError::Step { step, source };
        let (pass, ours) = self.hand_over()?;
        let null = || File::options().read(true).write(true).open("/dev/null").map(OwnedFd::from);
        let nulls = null().and_then(|input| Ok((input, null()?)));
        let (input, output) = nulls.map_err(failed("opening /dev/null for"))?;
        let request = Request {
            stdio: Some([input, output, log]),
            pass,
            cgroup_parent: self.cgroup_parent.clone(),
            report: None,
        };
        let running = launcher.launch(&self.spec, request)?;
        // SAFETY: `Running` owns its descriptor, keeps it open and never puts another one in its place.
        let running = unsafe { AsyncFd::register_with_interest(running, Interest::READABLE) };
        let running = running.map_err(|error| failed("watching")(error.into()))?;
        Ok((GraderProcess { running }, ours))
    }

    /// What a process gets, and the supervisor's end of the link to it.
    pub fn hand_over(&self) -> Result<(Vec<(OwnedFd, i32)>, UnixStream), ProcessError> {
        let failed = |step| move |source| ProcessError::Step { step, source };
        let (ours, theirs) = UnixStream::pair().map_err(failed("making the link of"))?;
        let listener = self.listener()?.try_clone_to_owned().map_err(failed("handing the socket to"))?;
        Ok((vec![(listener, LISTENER), (theirs.into(), LINK)], ours))
    }

    fn listener(&self) -> Result<BorrowedFd<'_>, ProcessError> {
        let gone = || ProcessError::Step {
            step: "handing the socket to",
            source: io::ErrorKind::NotConnected.into(),
        };
        self.listener.as_ref().map(AsFd::as_fd).ok_or_else(gone)
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

/// A grader process that runs. Dropping it ends it.
#[derive(Debug)]
pub struct GraderProcess {
    running: AsyncFd<Running>,
}

impl GraderProcess {
    /// The name of its sandbox.
    pub fn id(&self) -> &str {
        self.running.get_ref().id()
    }

    /// Process id of its sandbox's init, as the host sees it.
    pub fn pid(&self) -> i32 {
        self.running.get_ref().pid()
    }

    /// Kills it.
    pub fn kill(&self) -> Result<(), ProcessError> {
        Ok(self.running.get_ref().kill()?)
    }

    /// Waits until it has ended. Nothing is lost when the future is dropped.
    pub async fn ended(&self) -> Result<(), ProcessError> {
        let ready = self.running.readable().await;
        let mut ready = ready.map_err(|source| ProcessError::Step { step: "watching", source })?;
        ready.retain_ready();
        Ok(())
    }

    /// How it ended. Waits, and not only the task, unless [`GraderProcess::ended`] is done.
    pub fn report(self) -> Result<EndReport, ProcessError> {
        Ok(self.running.into_inner().wait()?)
    }
}

fn spec(program: PathBuf, best_effort: Vec<String>) -> Result<Spec, ProcessError> {
    let program = program.into_os_string().into_string();
    let mount = MountArg {
        source: program.map_err(|program| ProcessError::Program(program.into()))?,
        target: PROGRAM.into(),
        mode: MountMode::Ro,
        exec: true,
        optional: false,
        socket: false,
    };
    let overrides = Overrides { mounts: vec![mount], best_effort, ..Overrides::default() };
    let here = std::env::current_dir();
    let here = here.map_err(|source| ProcessError::Step { step: "finding the program of", source })?;
    let policy = Policy::load("grader", &overrides, &here)?;
    let host = HostTree::read().with_sources(&policy);
    let input = ResolveInput { args: vec![PROGRAM.into()], host, ..ResolveInput::default() };
    Ok(resolve(&policy, &input)?)
}
