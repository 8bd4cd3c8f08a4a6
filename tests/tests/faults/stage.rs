//! Where faults are tried: a site whose state and mount table are its own, so that anything left is seen at once.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use airlock_tests::{Ended, Run, Site, all_below, within};

use crate::inject::{Point, Seen, Supervisor};

/// What the command prints that runs in the sandbox.
pub(crate) const RAN: &str = "the command ran\n";

/// A site in a mount namespace of the calling thread's own.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) site: Site,
    policy: PathBuf,
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
        let mut site = Site::new();
        site.leaves_something();
        if airlock_tests::is_root() {
            own_places(&site);
        }
        let clauses = clauses(&site);
        let policy = site.policy(&clauses);
        let mut stage = Stage { site, policy, before: Trace::default() };
        let ended = stage.run().end(["echo", RAN.trim_end()]).succeeded();
        assert_eq!(ended.stdout, RAN, "{ended}");
        stage.before = stage.trace();
        stage
    }

    /// A launch to be, with its end report at this place.
    pub(crate) fn run_reporting_to(&self, report: &Path) -> Run<'_> {
        self.site.run_reporting_to(report).policy(&self.policy)
    }

    /// A launch to be.
    pub(crate) fn run(&self) -> Run<'_> {
        self.site.run().policy(&self.policy).limit(Duration::from_secs(20))
    }

    /// The plan of such a launch, as data and in words.
    pub(crate) fn plan(&self) -> (serde_json::Value, String) {
        let shown = |format: &[&str]| {
            let mut words = vec!["plan".into()];
            words.extend(format.iter().map(OsString::from));
            words.extend(
                self.site.cgroups().map(|parent| format!("--cgroup-parent={}", parent.name()).into()),
            );
            words.extend([self.policy.clone().into(), "--".into(), "echo".into(), RAN.trim_end().into()]);
            self.site.airlock_with(words).succeeded().stdout
        };
        (serde_json::from_str(&shown(&["--json"])).unwrap(), shown(&[]))
    }

    /// Launches, with one call failing.
    pub(crate) fn try_with(&self, fault: Option<(Point, i32)>) -> Tried {
        let mut supervisor = None;
        let supervised = |command: &mut Command| supervisor = Some(Supervisor::over(command, fault).unwrap());
        let ended = self.run().with(supervised).end(["echo", RAN.trim_end()]);
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
