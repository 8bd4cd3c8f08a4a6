//! A place for files, the sandboxes of the tests, and what /proc tells of processes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use airlock_grader::protocol::SOCKET;
use airlock_grader::protocol::bind::Access;
use airlock_grader::protocol::process::{Grader, ProcessError, Settings};
use airlock_policy::{BestEffort, HostTree, Mount, MountMode, Overrides, Policy, ResolveInput, resolve};
use airlock_runtime::host::is_root;
use airlock_runtime::launcher::{Launcher, LauncherError, Request, Running};
use airlock_runtime::report::EndReport;
use airlock_runtime::state::Sandboxes;
use rustix::process::{Pid, Signal};

use crate::child::{PATIENCE, until};

pub(crate) const GRADER: &str = env!("CARGO_BIN_EXE_airlock-grader");
const HARNESS: &str = env!("CARGO_BIN_EXE_airlock-harness");
/// An id that no account of a usual host has.
const USER: u32 = 54_322;
const DIRECTORY: &str = "AIRLOCK_TEST_DIRECTORY";

/// One run of the tests as one user.
#[derive(Clone)]
pub(crate) struct Fixture {
    pub(crate) root: bool,
    /// Holds copies of the programs, which any user can reach.
    directory: PathBuf,
    parent: PathBuf,
}

/// How a sandbox ended.
pub(crate) async fn ended(running: Running) -> Result<EndReport, LauncherError> {
    let waiting = tokio::task::spawn_blocking(move || running.wait());
    tokio::time::timeout(PATIENCE, waiting).await.unwrap().unwrap()
}

impl Fixture {
    /// Starts this program again from a place for files, unless it has one.
    pub(crate) fn new() -> Fixture {
        if std::env::var_os(DIRECTORY).is_none() {
            let directory = tempfile::tempdir().unwrap().keep();
            let harness = directory.join("harness");
            fs::create_dir(&harness).unwrap();
            for path in [&directory, &harness] {
                fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
            }
            fs::copy("/proc/self/exe", harness.join("probe")).unwrap();
            fs::copy(HARNESS, harness.join("airlock-harness")).unwrap();
            for script in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/harness")).unwrap() {
                let script = script.unwrap();
                fs::copy(script.path(), harness.join(script.file_name())).unwrap();
            }
            let error = Command::new(harness.join("probe"))
                .args(std::env::args_os().skip(1))
                .env(DIRECTORY, directory)
                .exec();
            panic!("{error}");
        }
        let directory = PathBuf::from(std::env::var_os(DIRECTORY).unwrap());
        let name = directory.file_name().unwrap().to_string_lossy().replace('.', "");
        Fixture { root: is_root(), parent: format!("/airlock-test-{name}").into(), directory }
    }

    /// Removes what a launch leaves to its caller.
    pub(crate) fn finish(&self) {
        if self.root {
            let _ = Sandboxes::open().unwrap().sweep(Duration::from_secs(10));
            for tree in fs::read_dir("/sys/fs/cgroup").unwrap() {
                let parent = tree.unwrap().path().join(self.parent.strip_prefix("/").unwrap());
                until("the cgroup is empty", || !parent.exists() || fs::remove_dir(&parent).is_ok());
            }
        }
    }

    /// A directory of this user's own.
    fn own(&self) -> PathBuf {
        let directory = self.directory.join(if self.root { "root" } else { "user" });
        fs::create_dir_all(&directory).unwrap();
        fs::set_permissions(&directory, PermissionsExt::from_mode(0o700)).unwrap();
        directory
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.own().join("grader.sock")
    }

    pub(crate) fn log_file(&self) -> PathBuf {
        self.own().join("grader.log")
    }

    pub(crate) fn log(&self) -> File {
        File::create(self.log_file()).unwrap()
    }

    /// This program, where all can read it.
    pub(crate) fn probe(&self) -> PathBuf {
        self.directory.join("harness/probe")
    }

    fn cgroup_parent(&self) -> Option<PathBuf> {
        self.root.then(|| self.parent.clone())
    }

    fn best_effort(&self) -> BTreeSet<BestEffort> {
        if self.root { BTreeSet::new() } else { [BestEffort::Limits, BestEffort::Devices].into() }
    }

    /// Binds the socket.
    pub(crate) fn grader(&self, program: &Path) -> Result<Grader, ProcessError> {
        let directory = File::open(self.own()).unwrap();
        let _ = fs::remove_file(self.socket());
        let access = if self.root { Access::AnyoneInside } else { Access::Own };
        let settings = Settings { program: program.to_owned(), best_effort: self.best_effort() };
        Grader::new(settings, directory, Path::new("grader.sock"), access)
    }

    /// Starts a process: its sandbox, and the supervisor's end of the link.
    pub(crate) fn start(
        &self,
        launcher: &Launcher,
        grader: &Grader,
        log: OwnedFd,
    ) -> Result<(Running, UnixStream), LauncherError> {
        let null = || File::options().read(true).write(true).open("/dev/null").unwrap().into();
        let (pass, link) = grader.hand_over().unwrap();
        let stdio = Some([null(), null(), log]);
        let request = Request { stdio, pass, cgroup_parent: self.cgroup_parent(), ..Request::default() };
        Ok((launcher.launch(grader.spec(), request)?, link))
    }

    /// Runs a command in a research sandbox, with the socket or without: its status, and what it printed.
    pub(crate) async fn research(
        &self,
        launcher: &Arc<Launcher>,
        words: &[&str],
        socket: bool,
    ) -> (i32, String) {
        let words = words.iter().map(ToString::to_string).collect();
        let (fixture, launcher) = (self.clone(), Arc::clone(launcher));
        tokio::task::spawn_blocking(move || fixture.run(&launcher, words, socket)).await.unwrap()
    }

    fn run(&self, launcher: &Launcher, args: Vec<String>, socket: bool) -> (i32, String) {
        let mut policy = Policy::load("research", &Overrides::default(), Path::new("/")).unwrap();
        policy.best_effort = self.best_effort();
        let mount = |source, target: &str, exec, socket| {
            let (target, mode, optional) = (target.into(), MountMode::Ro, false);
            Mount { source, target, mode, exec, optional, socket }
        };
        policy.mount.push(mount(self.directory.join("harness"), "/opt/harness", true, false));
        policy.mount.extend(socket.then(|| mount(self.socket(), SOCKET, false, true)));
        let host = HostTree::read().with_sources(&policy);
        let spec = resolve(&policy, &ResolveInput { args, host, ..ResolveInput::default() }).unwrap();
        let (mut output, writer) = std::io::pipe().unwrap();
        let null = File::open("/dev/null").unwrap();
        let (stdout, stderr) = (writer.try_clone().unwrap(), writer);
        let request = Request {
            stdio: Some([null.into(), OwnedFd::from(stdout), OwnedFd::from(stderr)]),
            cgroup_parent: self.cgroup_parent(),
            ..Request::default()
        };
        let running = launcher.launch(&spec, request).unwrap();
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        let report = running.wait().unwrap();
        (report.exit_code.unwrap_or(-1), text)
    }
}

/// Runs everything once more as an ordinary user, where this is root; true: all passed.
pub(crate) fn run_as_user(filter: &str) -> bool {
    if !is_root() {
        return true;
    }
    let directory = PathBuf::from(std::env::var_os(DIRECTORY).unwrap());
    for name in ["runtime", "user"] {
        let path = directory.join(name);
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(&path, Some(USER), Some(USER)).unwrap();
    }
    let status = Command::new(directory.join("harness/probe"))
        .arg(filter)
        .env("XDG_RUNTIME_DIR", directory.join("runtime"))
        .uid(USER)
        .gid(USER)
        .status()
        .unwrap();
    fs::remove_dir_all(&directory).unwrap();
    status.success()
}

pub(crate) fn children_of(pid: i32) -> Vec<i32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    until("a payload is there", || fs::read_to_string(&path).is_ok_and(|children| !children.is_empty()));
    let children = fs::read_to_string(&path).unwrap();
    children.split_whitespace().map(|child| child.parse().unwrap()).collect()
}

/// A field of /proc/PID/status.
pub(crate) fn status_of(pid: i32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap().trim().to_owned()
}

pub(crate) fn kill(pid: i32, signal: Signal) {
    rustix::process::kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}
