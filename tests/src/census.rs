//! What is there of a site's sandboxes, to be counted before and after.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::{Caller, Site};

/// Processes, cgroups, mounts and state at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Census {
    /// Processes of the site, by pid, with their names.
    pub processes: BTreeMap<i32, String>,
    /// Cgroups below the site's parent.
    pub cgroups: BTreeSet<PathBuf>,
    /// The host's mount table.
    pub mounts: BTreeSet<String>,
    /// Files and directories of Airlock's runtime state, but those of sandboxes that run: root's tests share the
    /// state with all other root's sandboxes of the machine.
    pub state: BTreeSet<PathBuf>,
    /// Files and directories in the site's own directory.
    pub files: BTreeSet<PathBuf>,
}

impl Census {
    /// Counts now.
    pub fn of(site: &Site) -> Census {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("own mounts");
        Census {
            processes: Census::processes_of(site),
            cgroups: site.cgroups().map(|parent| parent.children()).unwrap_or_default(),
            mounts: mounts.lines().map(str::to_owned).collect(),
            state: all_below(&state_folder(site)).into_iter().filter(|path| is_left(path)).collect(),
            files: all_below(&site.path("")),
        }
    }

    /// Processes that run the site's copy of the command, are in its cgroups, or have its user's id.
    pub(crate) fn processes_of(site: &Site) -> BTreeMap<i32, String> {
        let members = site.cgroups().map(|parent| parent.processes()).unwrap_or_default();
        let user = match site.caller() {
            Caller::User(id) => Some(id.to_string()),
            _ => None,
        };
        let ours = |pid: &i32| {
            let folder = PathBuf::from(format!("/proc/{pid}"));
            members.contains(pid)
                || fs::read_link(folder.join("exe")).is_ok_and(|exe| exe.starts_with(site.path("")))
                || user.as_ref().is_some_and(|user| real_uid(&folder).as_ref() == Some(user))
        };
        fs::read_dir("/proc")
            .expect("/proc")
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(ours)
            .filter_map(|pid| Some((pid, living_name(pid)?)))
            .collect()
    }
}

/// Where Airlock keeps its runtime state for the site's caller.
fn state_folder(site: &Site) -> PathBuf {
    if site.caller().is_root() { "/run/airlock".into() } else { site.path("state/airlock") }
}

/// A record whose monitor is gone, or an id range that nobody holds. Processes are counted by themselves.
fn is_left(path: &Path) -> bool {
    match path.extension().and_then(OsStr::to_str) {
        Some("json") => fs::read(path).is_ok_and(|text| {
            let record: Value = serde_json::from_slice(&text).unwrap_or_default();
            let monitor = record["monitor"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
            monitor.and_then(living_name).is_none()
        }),
        Some("lock") => fs::File::open(path).is_ok_and(|file| file.try_lock_shared().is_ok()),
        _ => path.exists(),
    }
}

/// The name of a process that is no zombie.
fn living_name(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    (!rest.starts_with(" Z") && !rest.starts_with(" X")).then(|| name.to_owned())
}

fn real_uid(folder: &Path) -> Option<String> {
    let status = fs::read_to_string(folder.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    Some(line.split_whitespace().next()?.to_owned())
}

/// Everything below a folder, at any depth; nothing where it is missing.
pub fn all_below(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(all_below(&entry.path()));
        }
        found.insert(entry.path());
    }
    found
}
