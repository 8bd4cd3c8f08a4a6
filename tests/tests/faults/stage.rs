//! Where faults are tried: a site whose state and mount table are its own, so that anything left is seen at once.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use airlock_tests::{Ended, Live, Run, Site, all_below, within};
use nix::pty::openpty;

use crate::inject::{Fault, Point, Seen, Supervisor};
use crate::scenes::Scene;

/// What runs in the sandbox, and says where it is: a program that needs nothing of the root.
const COMMAND: [&str; 2] = ["/probe/probe", "cwd"];

/// The name of its process.
pub(crate) const PAYLOAD: &str = "probe";

/// A site in a mount namespace of the calling thread's own.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) site: Site,
    policy: PathBuf,
    script: Option<String>,
    /// A terminal, both ends.
    terminal: Option<[OwnedFd; 2]>,
    /// What the command prints.
    ran: String,
    before: Trace,
}

/// What may be left of a launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Trace {
    processes: BTreeSet<String>,
    cgroups: BTreeSet<PathBuf>,
    mounts: BTreeSet<String>,
    /// Files of the runtime state and of the site but reports.
    files: BTreeSet<PathBuf>,
}

/// What came of a launch.
#[derive(Debug)]
pub(crate) struct Tried {
    pub(crate) ended: Ended,
    pub(crate) seen: Seen,
    /// What was left, in words.
    pub(crate) left: String,
}

impl Stage {
    /// A site with this policy on top of `base`; `clauses` makes what it mounts.
    pub(crate) fn new(clauses: impl Fn(&Site) -> String) -> Stage {
        Stage::at(Site::new(), clauses, None, false)
    }

    /// This site, and nothing on top of `base`.
    pub(crate) fn with(site: Site) -> Stage {
        Stage::at(site, |_| String::new(), None, false)
    }

    /// What a scene needs; none where these tests cannot have it.
    pub(crate) fn of(scene: &Scene) -> Option<Stage> {
        let site = (scene.site)()?;
        let script = scene.script.map(|script| script(&site));
        Some(Stage::at(site, scene.clauses, script, scene.terminal))
    }

    fn at(
        mut site: Site,
        clauses: impl Fn(&Site) -> String,
        script: Option<String>,
        terminal: bool,
    ) -> Stage {
        site.leaves_something();
        if airlock_tests::is_root() {
            own_places(&site);
        }
        let clauses = clauses(&site);
        let policy = site.policy(&clauses);
        let terminal = terminal.then(|| openpty(None, None).unwrap());
        let terminal = terminal.map(|pair| [pair.master, pair.slave]);
        let (ran, before) = (String::new(), Trace::default());
        let mut stage = Stage { site, policy, script, terminal, ran, before };
        stage.ran = stage.run().end(COMMAND).succeeded().stdout;
        assert!(stage.ran.contains('/'), "{}", stage.ran);
        stage.before = stage.trace();
        stage
    }

    /// Who launches, in words.
    pub(crate) fn leg(&self) -> &'static str {
        match (self.site.caller().is_root(), self.site.limits()) {
            (true, _) => "root",
            (false, true) => "a delegated user",
            (false, false) => "a user",
        }
    }

    /// The command, in a launch to be, with its end report at this place.
    pub(crate) fn run_reporting_to(&self, report: &Path) -> Run<'_> {
        self.prepared(self.site.run_reporting_to(report))
    }

    /// A launch to be.
    pub(crate) fn run(&self) -> Run<'_> {
        self.prepared(self.site.run())
    }

    fn prepared<'a>(&'a self, run: Run<'a>) -> Run<'a> {
        let mut run = run.policy(&self.policy).limit(Duration::from_secs(20));
        if let Some(script) = &self.script {
            run = run.where_root_did(script);
        }
        if let Some([_, peer]) = &self.terminal {
            run = run.stdin(peer.try_clone().unwrap());
        }
        run
    }

    /// The command ran, and did nothing else.
    pub(crate) fn ran(&self, ended: &Ended) -> bool {
        ended.stdout == self.ran
    }

    pub(crate) fn has_terminal(&self) -> bool {
        self.terminal.is_some()
    }

    /// Where Airlock keeps its runtime state.
    pub(crate) fn state(&self) -> PathBuf {
        if self.site.caller().is_root() { "/run/airlock".into() } else { self.site.path("state/airlock") }
    }

    /// Starts it.
    pub(crate) fn start(&self, run: Run<'_>) -> Live {
        run.start(COMMAND)
    }

    /// Launches it.
    pub(crate) fn end(&self, run: Run<'_>) -> Ended {
        run.end(COMMAND)
    }

    /// The plan of such a launch, as data and in words.
    pub(crate) fn plan(&self) -> (serde_json::Value, String) {
        let shown = |format: &[&str]| {
            let mut words = vec!["plan".into()];
            words.extend(format.iter().map(OsString::from));
            words.extend(
                self.site.cgroups().map(|parent| format!("--cgroup-parent={}", parent.name()).into()),
            );
            words.extend([self.policy.clone().into(), "--".into()]);
            words.extend(COMMAND.map(OsString::from));
            let shown = match &self.script {
                Some(script) => self.site.airlock_where_root_did(script, words),
                None => self.site.airlock_with(words),
            };
            shown.succeeded().stdout
        };
        (serde_json::from_str(&shown(&["--json"])).unwrap(), shown(&[]))
    }

    /// Launches, with this done to one call.
    pub(crate) fn try_with(&self, fault: Option<(Point, Fault)>) -> Tried {
        let mut supervisor = None;
        let supervised = |command: &mut Command| supervisor = Some(Supervisor::over(command, fault).unwrap());
        let ended = self.end(self.run().with(supervised));
        let seen = supervisor.map(Supervisor::end).unwrap();
        Tried { ended, seen, left: self.left() }
    }

    /// What is there that was not before; empty if nothing.
    pub(crate) fn left(&self) -> String {
        let mut now = Trace::default();
        let clean = within(Duration::from_secs(1), || {
            now = self.trace();
            now == self.before
        });
        if clean { String::new() } else { now.without(&self.before) }
    }

    fn trace(&self) -> Trace {
        let site = &self.site;
        let mounts = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        let mut files = all_below(&site.path(""));
        files.retain(|path| !is_report(path));
        Trace {
            processes: site.processes().into_iter().map(|(pid, name)| format!("{name} ({pid})")).collect(),
            cgroups: site.cgroups().map(|parent| parent.children()).unwrap_or_default(),
            mounts: mounts.lines().map(str::to_owned).collect(),
            files,
        }
    }
}

impl Trace {
    fn without(&self, before: &Trace) -> String {
        let mut words: Vec<String> = Vec::new();
        words.extend(self.processes.difference(&before.processes).map(|name| format!("process {name}")));
        words.extend(
            self.cgroups.difference(&before.cgroups).map(|path| format!("cgroup {}", path.display())),
        );
        words.extend(self.mounts.difference(&before.mounts).map(|line| format!("mount {line}")));
        words.extend(self.files.difference(&before.files).map(|path| format!("file {}", path.display())));
        words.extend(before.files.difference(&self.files).map(|path| format!("no file {}", path.display())));
        words.join(", ")
    }
}

/// Gives the calling thread a mount namespace, and root's Airlock a state directory in the site.
fn own_places(site: &Site) {
    use nix::mount::{MsFlags, mount};
    let none: Option<&Path> = None;
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    if site.caller().is_root() {
        fs::create_dir_all("/run/airlock").unwrap();
        fs::create_dir(site.path("state/airlock")).unwrap();
        mount(Some(&site.path("state/airlock")), "/run/airlock", none, MsFlags::MS_BIND, none).unwrap();
    }
}

fn is_report(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.starts_with("report-") && name.ends_with(".json")
}
