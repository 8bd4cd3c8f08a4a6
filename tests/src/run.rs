//! Running `airlock run` and other commands to their end, under a time limit.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::{Caller, Outcome, Report, Site};

/// As much of each stream is kept; the rest is counted.
const KEPT: usize = 4 << 20;

/// An `airlock run` to be.
#[derive(Debug)]
pub struct Run<'a> {
    site: &'a Site,
    command: Command,
    report: PathBuf,
    limit: Duration,
    piped: bool,
}

impl<'a> Run<'a> {
    pub(crate) fn new(site: &'a Site, report: PathBuf, parent: Option<&str>) -> Run<'a> {
        let mut command = site.command(&site.airlock());
        command.arg("run").arg("--report").arg(&report);
        if let Some(parent) = parent {
            command.args(["--cgroup-parent", parent]);
        }
        command.stdin(Stdio::null());
        Run { site, command, report, limit: Duration::from_secs(60), piped: true }
    }

    /// Under this policy: a name or a file.
    pub fn policy(mut self, policy: impl AsRef<OsStr>) -> Self {
        self.command.arg("--policy").arg(policy);
        self
    }

    /// Under a built-in policy, lowered where this caller cannot have it whole.
    pub fn built_in(self, name: &str) -> Self {
        let (limits, root) = (self.site.limits(), self.site.caller().is_root());
        let run = self.policy(name);
        let run = if limits { run } else { run.flag("--best-effort", "limits") };
        if root && limits { run } else { run.flag("--best-effort", "devices") }
    }

    /// Started by another program, which gets these words before the command.
    pub fn in_program(mut self, program: &str, words: &[&str]) -> Self {
        let mut command = self.site.command(Path::new(program));
        command.args(words).arg(self.command.get_program()).args(self.command.get_args());
        command.stdin(Stdio::null());
        self.command = command;
        self
    }

    /// In a mount namespace of its own, which root changes by this shell script first.
    pub fn where_root_did(mut self, script: &str) -> Self {
        let mut command = where_root_did(self.site, script);
        command.arg(self.command.get_program()).args(self.command.get_args());
        command.stdin(Stdio::null());
        self.command = command;
        self
    }

    /// With this directory at `/workspace`.
    pub fn workspace(self, folder: &Path) -> Self {
        self.flag("--workspace", folder)
    }

    /// With a flag that has a value.
    pub fn flag(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.arg(name).arg(value);
        self
    }

    /// With a variable in the caller's environment.
    pub fn caller_env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// From this working directory of the caller.
    pub fn from(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// With this standard input.
    pub fn stdin(mut self, input: impl Into<Stdio>) -> Self {
        self.command.stdin(input);
        self
    }

    /// With this standard output instead of the test's own pipe.
    pub fn stdout(mut self, output: impl Into<Stdio>) -> Self {
        self.command.stdout(output);
        self.piped = false;
        self
    }

    /// With one more descriptor, open at this number in the caller.
    pub fn descriptor(mut self, file: OwnedFd, number: i32) -> Self {
        // SAFETY: the closure makes one system call and allocates nothing.
        unsafe { self.command.pre_exec(move || duplicate(&file, number)) };
        self
    }

    /// Fails the test if the run takes longer; 60 s if not said.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Changes the command in a way that has no name here.
    pub fn with(mut self, change: impl FnOnce(&mut Command)) -> Self {
        change(&mut self.command);
        self
    }

    /// Starts it.
    #[track_caller]
    pub fn start<S: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = S>) -> Live {
        self.command.arg("--").args(words);
        if self.piped {
            self.command.stdout(Stdio::piped());
        }
        Live::new(self.command, Some(self.report), self.limit)
    }

    /// Runs it to its end.
    #[track_caller]
    pub fn end<S: AsRef<OsStr>>(self, words: impl IntoIterator<Item = S>) -> Ended {
        self.start(words).end()
    }

    /// Runs one action of the probe. The policy must mount it, as [`Site::policy`] does.
    #[track_caller]
    pub fn probe<S: AsRef<OsStr>>(self, action: impl IntoIterator<Item = S>) -> Outcome {
        let action = action.into_iter().map(|word| word.as_ref().to_owned());
        Outcome::of(&self.end(std::iter::once(OsString::from(Site::probe_inside())).chain(action)))
    }
}

/// A running command.
#[derive(Debug)]
pub struct Live {
    child: Child,
    words: String,
    report: Option<PathBuf>,
    started: Instant,
    limit: Duration,
    stdout: Stream,
    stderr: Stream,
}

impl Live {
    fn new(mut command: Command, report: Option<PathBuf>, limit: Duration) -> Live {
        let words = format!("{command:?}");
        command.stderr(Stdio::piped());
        let started = Instant::now();
        let mut child = spawn(&mut command).unwrap_or_else(|error| panic!("{words}: {error}"));
        Live {
            stdout: child.stdout.take().map(Stream::of).unwrap_or_default(),
            stderr: child.stderr.take().map(Stream::of).unwrap_or_default(),
            child,
            words,
            report,
            started,
            limit,
        }
    }

    /// Pid of the command.
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Sends a signal to the command.
    pub fn signal(&self, signal: Signal) {
        nix::sys::signal::kill(self.pid(), signal).expect("it runs");
    }

    /// Waits until it has printed this.
    #[track_caller]
    pub fn printed(&mut self, text: &str) {
        let found = crate::within(Duration::from_secs(20), || {
            self.stdout.text().contains(text) || self.child.try_wait().expect("own child").is_some()
        });
        let so_far = self.stdout.text();
        assert!(
            found && so_far.contains(text),
            "`{}` did not print `{text}`\nstdout: {so_far}\nstderr: {}",
            self.words,
            self.stderr.text(),
        );
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().expect("own child").is_none()
    }

    /// How long it may still take.
    pub(crate) fn left(&self) -> Duration {
        self.limit.saturating_sub(self.started.elapsed())
    }

    /// Waits for its end.
    #[track_caller]
    pub fn end(mut self) -> Ended {
        let left = self.left();
        let mut status = None;
        crate::within(left, || {
            status = self.child.try_wait().expect("own child");
            status.is_some()
        });
        let wall = self.started.elapsed();
        let Some(status) = status else {
            panic!("`{}` still ran after {wall:?}\nstderr: {}", self.words, self.stderr.text());
        };
        let (stdout, stdout_bytes) = self.stdout.end();
        let (stderr, _) = self.stderr.end();
        Ended {
            code: status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
            words: self.words.clone(),
            stdout,
            stdout_bytes,
            stderr,
            wall,
            report: self.report.as_deref().and_then(Report::read),
        }
    }
}

impl Drop for Live {
    /// A test that fails half-way leaves nothing running.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// How a command ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Exit status, as a shell sees it.
    pub code: i32,
    /// What it printed, up to 4 MiB.
    pub stdout: String,
    /// How many bytes it printed.
    pub stdout_bytes: usize,
    /// What it printed to the other stream.
    pub stderr: String,
    /// From start to end, as the caller sees it.
    pub wall: Duration,
    words: String,
    report: Option<Report>,
}

impl Ended {
    /// The end report, which must be there.
    #[track_caller]
    pub fn report(&self) -> &Report {
        self.report.as_ref().unwrap_or_else(|| panic!("no report was written: {self}"))
    }

    /// Checks that it ended with status 0.
    #[track_caller]
    pub fn succeeded(self) -> Ended {
        assert_eq!(self.code, 0, "{self}");
        self
    }

    /// Checks that Airlock refused (status 125) with an error that names all of these.
    #[track_caller]
    pub fn refused(self, pieces: &[&str]) -> Ended {
        assert_eq!(self.code, 125, "{self}");
        for piece in pieces {
            assert!(self.stderr.contains(piece), "the error does not name `{piece}`: {self}");
        }
        self
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "`{}` ended with {} after {:?}", self.words, self.code, self.wall)?;
        writeln!(f, "stdout: {}", self.stdout.get(..2000).unwrap_or(&self.stdout))?;
        write!(f, "stderr: {}", self.stderr)
    }
}

/// What runs the command that follows as the site's caller, in a mount namespace that root changed by this script.
pub(crate) fn where_root_did(site: &Site, script: &str) -> Command {
    let caller = match site.caller() {
        Caller::User(id) | Caller::Managed(id) => {
            format!("setpriv --reuid {id} --regid {id} --clear-groups ")
        }
        Caller::Root | Caller::Self_ => String::new(),
    };
    let script = format!("set -e\n{script}\nexec {caller}\"$0\" \"$@\"");
    let mut command = site.roots_command(Path::new("/usr/bin/unshare"));
    command.args(["--mount", "--propagation", "private", "bash", "-c", &script]);
    command
}

/// Starts any command.
pub(crate) fn start(mut command: Command, limit: Duration) -> Live {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    Live::new(command, None, limit)
}

/// A fork of another test's thread may hold the command's copy open for writing until it executes something else.
fn spawn(command: &mut Command) -> io::Result<Child> {
    let mut child = command.spawn();
    crate::within(Duration::from_secs(2), || {
        let busy = matches!(&child, Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy);
        if busy {
            child = command.spawn();
        }
        !busy
    });
    child
}

/// Makes `number` a copy of `file` that stays open across exec.
fn duplicate(file: &OwnedFd, number: i32) -> io::Result<()> {
    // SAFETY: dup2 takes two numbers; the process that calls this is about to exec, so nothing owns the other.
    match unsafe { libc::dup2(file.as_raw_fd(), number) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// A stream that is read in the background.
#[derive(Debug, Default)]
struct Stream {
    state: Arc<Mutex<(Vec<u8>, usize)>>,
    reader: Option<JoinHandle<()>>,
}

impl Stream {
    fn of(mut source: impl Read + Send + 'static) -> Stream {
        let state = Arc::new(Mutex::new((Vec::new(), 0)));
        let shared = Arc::clone(&state);
        let reader = std::thread::spawn(move || {
            let mut block = vec![0; 1 << 16];
            while let Ok(length @ 1..) = source.read(&mut block) {
                let mut state = shared.lock().expect("no holder panics");
                let room = KEPT.saturating_sub(state.0.len()).min(length);
                state.0.extend_from_slice(&block[..room]);
                state.1 += length;
            }
        });
        Stream { state, reader: Some(reader) }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.state.lock().expect("no holder panics").0).into_owned()
    }

    /// What came until now, or until the stream's end if that comes within two seconds: a process that
    /// outlives the command may hold the pipe.
    fn end(&self) -> (String, usize) {
        crate::within(Duration::from_secs(2), || self.reader.as_ref().is_none_or(JoinHandle::is_finished));
        let count = self.state.lock().expect("no holder panics").1;
        (self.text(), count)
    }
}
