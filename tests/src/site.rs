//! What one test works in.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::{Caller, Census, Outcome, Run, cgroup};

/// Where the probe lies inside.
const PROBE: &str = "/probe/probe";

/// A directory, a caller and a cgroup parent of one test's own.
///
/// Dropping it checks that no process, cgroup or state of its sandboxes is left.
#[derive(Debug)]
pub struct Site {
    folder: tempfile::TempDir,
    caller: Caller,
    owner: Caller,
    cgroups: Option<cgroup::Parent>,
    /// Commands start inside the site's cgroup.
    inside: bool,
    /// Its caller gets a scope of systemd.
    managed: bool,
    leftovers: bool,
    policies: AtomicU32,
}

impl Site {
    /// A site of the caller that this run of the tests is about.
    pub fn new() -> Site {
        match Caller::is_delegated().then(Site::delegated).flatten() {
            Some(site) => site,
            None => Site::of(Caller::current()),
        }
    }

    /// A site of root; none if the tests run as, or are about, an ordinary user.
    pub fn root() -> Option<Site> {
        Caller::current().is_root().then(Site::new)
    }

    /// A site of an ordinary user.
    pub fn user() -> Site {
        Site::of(Caller::user())
    }

    /// A site of an ordinary user who is in a cgroup that root has delegated; none if the tests are not root.
    pub fn delegated() -> Option<Site> {
        let mut site = Site::user();
        let cgroups = cgroups()?;
        cgroups.delegate_to(site.caller.uid()).expect("root may delegate");
        site.cgroups = Some(cgroups);
        site.inside = true;
        Some(site)
    }

    /// Sites of callers who have no cgroup of their own, and get a scope of systemd: root, and an ordinary user whose
    /// manager runs. None if the tests are not root, or systemd does not run on cgroup v2.
    pub fn managed() -> Vec<Site> {
        let systemd = Path::new("/run/systemd/system").is_dir();
        if !systemd || !crate::is_root() || !Path::new("/sys/fs/cgroup/cgroup.procs").exists() {
            return Vec::new();
        }
        let callers = [Some(Caller::Root), Caller::managed()].into_iter().flatten();
        let managed = |caller| {
            let mut site = Site::of(caller);
            (site.managed, site.cgroups) = (true, None);
            site
        };
        callers.map(managed).collect()
    }

    /// Makes a command start where the site's commands do.
    pub fn enter_by(&self, command: &mut Command) {
        if let (true, Some(parent)) = (self.inside, &self.cgroups) {
            parent.enter_by(command).expect("root may enter");
        }
    }

    /// Starts commands outside of the site's cgroup.
    pub fn stay_outside(&mut self) {
        self.inside = false;
    }

    fn of(caller: Caller) -> Site {
        let folder =
            tempfile::Builder::new().prefix("airlock-test-").tempdir_in("/tmp").expect("a directory");
        let site = Site {
            cgroups: if caller.is_root() { cgroups() } else { None },
            folder,
            caller,
            owner: if caller.is_root() { Caller::user() } else { caller },
            inside: false,
            managed: false,
            leftovers: false,
            policies: AtomicU32::new(0),
        };
        fs::set_permissions(site.path(""), fs::Permissions::from_mode(0o755)).expect("own directory");
        for name in ["bin", "probe", "state"] {
            fs::create_dir(site.path(name)).expect("own directory");
        }
        fs::set_permissions(site.path("state"), fs::Permissions::from_mode(0o700)).expect("own directory");
        copy(&program("airlock"), &site.airlock());
        copy(Path::new(concat!(env!("OUT_DIR"), "/probe")), &site.path("probe/probe"));
        for name in ["", "bin", "probe", "state"] {
            caller.own(&site.path(name));
        }
        site
    }

    /// A path in the site's directory, which is readable by all and writable by the caller.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The copy of the command under test that this site runs.
    pub fn airlock(&self) -> PathBuf {
        self.path("bin/airlock")
    }

    /// Who runs the commands.
    pub fn caller(&self) -> Caller {
        self.caller
    }

    /// The site's cgroup parent, where its caller may make cgroups.
    pub fn cgroups(&self) -> Option<&cgroup::Parent> {
        self.cgroups.as_ref()
    }

    /// Whether the caller may set limits by cgroup.
    pub fn limits(&self) -> bool {
        self.cgroups.is_some() || self.managed
    }

    /// Makes a directory of data: it belongs to an ordinary user, the caller where that is one.
    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir(&path).expect("own directory");
        self.owner.own(&path);
        path
    }

    /// Makes a file of data that all may read.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).expect("own file");
        self.owner.own(&path);
        path
    }

    /// Writes a policy: `base`, the probe at `/probe`, and these clauses.
    pub fn policy(&self, clauses: &str) -> PathBuf {
        self.policy_extending("base", clauses)
    }

    /// Writes a policy: a built-in one, the probe at `/probe`, and these clauses.
    pub fn policy_extending(&self, built_in: &str, clauses: &str) -> PathBuf {
        let number = self.policies.fetch_add(1, Ordering::Relaxed);
        let lowered = match (self.limits(), self.caller.is_root()) {
            (true, true) => "",
            (true, false) => "best_effort = [\"devices\"]\n",
            (false, _) => "best_effort = [\"limits\", \"devices\"]\n",
        };
        let text = format!(
            "version = 1\nname = \"test-{number}\"\nextends = \"{built_in}\"\n{lowered}\
             {clauses}\n\n[[mount]]\nsource = \"{}\"\ntarget = \"/probe\"\nexec = true\n",
            self.path("probe").display(),
        );
        self.file(&format!("test-{number}.toml"), text)
    }

    /// Prepares `airlock run`.
    pub fn run(&self) -> Run<'_> {
        self.run_reporting_to(&self.next_report())
    }

    /// Prepares `airlock run` below the caller's own cgroup, wherever that is.
    pub fn run_without_parent(&self) -> Run<'_> {
        Run::new(self, self.next_report(), None)
    }

    fn next_report(&self) -> PathBuf {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        self.path(&format!("report-{}.json", NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    /// Prepares `airlock run` with its end report at this place.
    pub fn run_reporting_to(&self, report: &Path) -> Run<'_> {
        Run::new(self, report.to_owned(), self.cgroups.as_ref().map(cgroup::Parent::name))
    }

    /// Tries an action of the probe under `base` and these clauses.
    #[track_caller]
    pub fn inside<S: AsRef<OsStr>>(&self, clauses: &str, action: impl IntoIterator<Item = S>) -> Outcome {
        self.run().policy(self.policy(clauses)).probe(action)
    }

    /// Tries an action of the probe as the caller, without Airlock.
    #[track_caller]
    pub fn outside<S: AsRef<OsStr>>(&self, action: impl IntoIterator<Item = S>) -> Outcome {
        Outcome::of(&self.start_outside(action).end())
    }

    /// Starts an action of the probe as the caller, without Airlock.
    pub fn start_outside<S: AsRef<OsStr>>(&self, action: impl IntoIterator<Item = S>) -> crate::Live {
        let mut command = self.command(&self.path("probe/probe"));
        command.args(action);
        crate::run::start(command, Duration::from_secs(60))
    }

    /// `airlock WORDS`, as the caller, to its end.
    #[track_caller]
    pub fn airlock_with<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> crate::Ended {
        self.start_airlock(words).end()
    }

    /// Starts `airlock WORDS` as the caller.
    pub fn start_airlock<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> crate::Live {
        let mut command = self.command(&self.airlock());
        command.args(words);
        crate::run::start(command, Duration::from_secs(60))
    }

    /// `airlock WORDS`, as the caller, to its end, in a mount namespace of its own, which root changes by this shell
    /// script first.
    #[track_caller]
    pub fn airlock_where_root_did<S: AsRef<OsStr>>(
        &self,
        script: &str,
        words: impl IntoIterator<Item = S>,
    ) -> crate::Ended {
        self.program_where_root_did(script, &self.airlock(), words)
    }

    /// Another program, likewise.
    #[track_caller]
    pub fn program_where_root_did<S: AsRef<OsStr>>(
        &self,
        script: &str,
        program: &Path,
        words: impl IntoIterator<Item = S>,
    ) -> crate::Ended {
        let mut command = crate::run::where_root_did(self, script);
        command.arg(program).args(words);
        crate::run::start(command, Duration::from_secs(60)).end()
    }

    /// Starts `airlock task WORDS` (`run` or `resume`, the task or the run, and flags), as the caller: with Airlock's
    /// other programs beside it, below the site's cgroup, and lowered where this caller cannot have it whole. What
    /// follows `--agent` must come last.
    #[track_caller]
    pub fn lead<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> crate::Live {
        let mut words = words.into_iter();
        let mut command = self.leading(words.next().expect("run or resume"));
        command.args(words);
        crate::run::start(command, Duration::from_secs(180))
    }

    /// `airlock task run` or `resume`, as [`Site::lead`] has it.
    pub(crate) fn leading(&self, verb: impl AsRef<OsStr>) -> Command {
        for name in ["airlock-harness", "airlock-grader"] {
            let path = self.path("bin").join(name);
            if !path.exists() {
                fs::copy(program(name), &path).expect("Airlock's programs: build airlock-grader first");
            }
        }
        let mut command = self.command(&self.airlock());
        command.arg("task").arg(&verb);
        if let Some(parent) = self.cgroups() {
            command.args(["--cgroup-parent", parent.name()]);
        }
        let lowered = match (self.limits(), self.caller.is_root()) {
            (true, true) => "",
            (true, false) => "devices",
            (false, _) => "limits,devices",
        };
        if verb.as_ref() == "run" && !lowered.is_empty() {
            command.args(["--best-effort", lowered]);
        }
        command
    }

    /// `airlock audit WORDS` of `--probe` and `--mutate`, as [`Site::lead`] has it.
    #[track_caller]
    pub fn audit<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> crate::Ended {
        let mut command = self.command(&self.airlock());
        self.auditing(&mut command, words);
        crate::run::start(command, Duration::from_secs(240)).end()
    }

    /// The same in a mount namespace of its own, as [`Site::airlock_where_root_did`] has it.
    #[track_caller]
    pub fn audit_where_root_did<S: AsRef<OsStr>>(
        &self,
        script: &str,
        words: impl IntoIterator<Item = S>,
    ) -> crate::Ended {
        let mut command = crate::run::where_root_did(self, script);
        command.arg(self.airlock());
        self.auditing(&mut command, words);
        crate::run::start(command, Duration::from_secs(240)).end()
    }

    fn auditing<S: AsRef<OsStr>>(&self, command: &mut Command, words: impl IntoIterator<Item = S>) {
        let path = self.path("bin/airlock-probe");
        if !path.exists() {
            fs::copy(program("airlock-probe"), &path).expect("Airlock's programs: build airlock first");
        }
        command.arg("audit").args(words);
        if let Some(parent) = self.cgroups() {
            command.args(["--cgroup-parent", parent.name()]);
        }
        match (self.limits(), self.caller.is_root()) {
            (true, true) => {}
            (true, false) => drop(command.args(["--best-effort", "devices"])),
            (false, _) => drop(command.args(["--best-effort", "limits,devices"])),
        }
    }

    /// Where the probe lies inside, under a policy of [`Site::policy`].
    pub fn probe_inside() -> &'static str {
        PROBE
    }

    /// Processes of this site's sandboxes and of its runs of the command.
    pub fn processes(&self) -> std::collections::BTreeMap<i32, String> {
        Census::processes_of(self)
    }

    /// Says that this test leaves something behind on purpose; it is cleared, not checked.
    pub fn leaves_something(&mut self) {
        self.leftovers = true;
    }

    /// Kills the monitor of a sandbox and sees nothing of the sandbox left.
    ///
    /// Without a cgroup of one's own, the death of the process namespace is what ends everything.
    pub fn dies_with_its_monitor(mut self) {
        self.leaves_something();
        let mut live = self.run().policy(self.policy("")).start([PROBE, "stay"]);
        live.printed("ready");
        live.signal(nix::sys::signal::Signal::SIGKILL);
        let gone = crate::within(Duration::from_secs(5), || self.processes().is_empty());
        assert!(gone, "{:?}", self.processes());
        live.end();
        self.airlock_with(["gc"]).succeeded();
    }

    /// A command as the caller, with a small environment.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = self.roots_command(program);
        self.caller.become_by(&mut command);
        command
    }

    /// A command with the same environment, in the same place, which does not become the caller.
    pub(crate) fn roots_command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LANG", "C.UTF-8");
        command.env("XDG_RUNTIME_DIR", self.path("state")).env("HOME", self.path(""));
        if let Caller::Managed(id) = self.caller {
            command.env("DBUS_SESSION_BUS_ADDRESS", format!("unix:path=/run/user/{id}/bus"));
        }
        command.current_dir(self.path(""));
        self.enter_by(&mut command);
        command
    }
}

/// Copies a program in a process of its own: what another thread forks while this one has it open for writing keeps it
/// from being executed ("Text file busy").
fn copy(from: &Path, to: &Path) {
    assert!(from.exists(), "{} is not there: build it first, or set AIRLOCK_BIN", from.display());
    assert!(Command::new("cp").args([from, to]).status().is_ok_and(|status| status.success()), "cp failed");
}

impl Default for Site {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let clean = crate::within(Duration::from_secs(2), || {
            self.processes().is_empty()
                && self.cgroups.as_ref().is_none_or(|parent| parent.children().is_empty())
        });
        let left =
            format!("{:?} {:?}", self.processes(), self.cgroups.as_ref().map(cgroup::Parent::children));
        for pid in self.processes().into_keys() {
            let _ =
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
        }
        if !clean && !self.leftovers && !std::thread::panicking() {
            panic!("the test's sandboxes left something behind: {left}");
        }
    }
}

/// A program of Airlock: the command under test, or what lies beside it, or else where the build put it.
fn program(name: &str) -> PathBuf {
    // Test executables lie in PROFILE/deps, programs in PROFILE.
    let own = std::env::current_exe().expect("own path");
    let built = own.ancestors().nth(2).expect("a build directory").join(name);
    let Some(named) = std::env::var_os("AIRLOCK_BIN").map(PathBuf::from) else { return built };
    let beside = named.with_file_name(name);
    match name {
        "airlock" => named,
        _ if beside.exists() => beside,
        _ => built,
    }
}

/// A cgroup parent that no other site has; none where this process may not make one.
fn cgroups() -> Option<cgroup::Parent> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    if !crate::is_root() {
        return None;
    }
    let name = format!("airlock-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    match cgroup::Parent::new(&name) {
        Ok(parent) => Some(parent),
        Err(error) => {
            eprintln!("no cgroups for this test: {error}");
            None
        }
    }
}
