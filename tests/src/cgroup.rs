//! A top-level cgroup of one's own, in every hierarchy of the host.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Processes that all sandboxes of one test may have: a test of fork bombs must not become one if the limit
/// under test fails.
const SAFETY_NET: &str = "2048";

/// Controllers that a sandbox's limits need.
const CONTROLLERS: [&str; 5] = ["cpu", "cpuset", "io", "memory", "pids"];

/// Where a caller sits in a version 2 cgroup whose children have controllers: no process may be in that one itself.
const CALLER: &str = "caller";

/// A cgroup directory in every hierarchy, ended and removed when dropped.
#[derive(Debug)]
pub struct Parent {
    name: String,
    folders: Vec<PathBuf>,
}

impl Parent {
    /// Makes `/NAME` in every mounted hierarchy.
    pub fn new(name: &str) -> io::Result<Parent> {
        let mut parent = Parent { name: format!("/{name}"), folders: Vec::new() };
        for (root, unified) in hierarchies()? {
            let folder = root.join(name);
            fs::create_dir(&folder)?;
            parent.folders.push(folder.clone());
            if unified {
                delegate(&root)?;
                delegate(&folder)?;
            } else if folder.join("cpuset.cpus").exists() {
                // A v1 cpuset takes no task before both are written.
                for file in ["cpuset.cpus", "cpuset.mems"] {
                    fs::write(folder.join(file), fs::read(root.join(file))?)?;
                }
            }
        }
        for file in parent.folders.iter().map(|folder| folder.join("pids.max")).filter(|file| file.exists()) {
            fs::write(file, SAFETY_NET)?;
        }
        if parent.folders.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no cgroup hierarchy is mounted"));
        }
        Ok(parent)
    }

    /// The value for `--cgroup-parent`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directories, one per hierarchy.
    pub fn folders(&self) -> &[PathBuf] {
        &self.folders
    }

    /// The directory in the version 2 tree, if that has controllers to hand out.
    pub fn unified(&self) -> Option<&Path> {
        self.folders.iter().find(|folder| has_controlled_children(folder)).map(PathBuf::as_path)
    }

    /// Hands the directories to an ordinary user, as a service manager delegates them.
    pub fn delegate_to(&self, uid: u32) -> io::Result<()> {
        for folder in &self.folders {
            give(folder, uid)?;
            if has_controlled_children(folder) {
                fs::create_dir(folder.join(CALLER))?;
                give(&folder.join(CALLER), uid)?;
            }
        }
        Ok(())
    }

    /// Makes a command start in these cgroups.
    pub fn enter_by(&self, command: &mut Command) -> io::Result<()> {
        let open = |folder: &PathBuf| {
            let place = if has_controlled_children(folder) { folder.join(CALLER) } else { folder.clone() };
            let file = place.join("cgroup.procs");
            fs::OpenOptions::new().write(true).open(file)
        };
        let files: Vec<fs::File> = self.folders.iter().map(open).collect::<io::Result<_>>()?;
        // SAFETY: the closure writes to open files and allocates nothing.
        unsafe { command.pre_exec(move || files.iter().try_for_each(|mut file| file.write_all(b"0"))) };
        Ok(())
    }

    /// All cgroups below, in all hierarchies, but the leaves in which callers sit to make room for controllers.
    pub fn children(&self) -> BTreeSet<PathBuf> {
        let mut all = self.all();
        all.retain(|folder| {
            let name = folder.file_name().and_then(OsStr::to_str);
            !name.is_some_and(|name| name == CALLER || name.starts_with("supervisor-"))
        });
        all
    }

    fn all(&self) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        for folder in &self.folders {
            below(folder, &mut found);
        }
        found
    }

    /// All processes in it and below.
    pub fn processes(&self) -> BTreeSet<i32> {
        let mut all = self.all();
        all.extend(self.folders.iter().cloned());
        all.iter()
            .filter_map(|folder| fs::read_to_string(folder.join("cgroup.procs")).ok())
            .flat_map(|text| text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<_>>())
            .collect()
    }

    /// Kills what is left and removes every directory below. True if something was there.
    pub fn clear(&self) -> bool {
        let found = !self.all().is_empty();
        crate::within(Duration::from_secs(5), || {
            for pid in self.processes() {
                let _ = nix::sys::signal::kill(
                    nix::unistd::Pid::from_raw(pid),
                    nix::sys::signal::Signal::SIGKILL,
                );
            }
            for folder in self.all() {
                let thawed = folder.join("freezer.state");
                if thawed.exists() {
                    let _ = fs::write(thawed, "THAWED");
                }
                let frozen = folder.join("cgroup.freeze");
                if frozen.exists() {
                    let _ = fs::write(frozen, "0");
                }
            }
            // Children come after their parents in the order of paths.
            for folder in self.all().iter().rev() {
                let _ = fs::remove_dir(folder);
            }
            self.all().is_empty()
        });
        found
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        self.clear();
        for folder in &self.folders {
            crate::within(Duration::from_secs(2), || fs::remove_dir(folder).is_ok() || !folder.exists());
        }
    }
}

/// Gives a directory to a user as a service manager does.
fn give(folder: &Path, uid: u32) -> io::Result<()> {
    std::os::unix::fs::chown(folder, Some(uid), Some(uid))?;
    for file in ["cgroup.procs", "cgroup.subtree_control", "cgroup.threads", "tasks"] {
        let file = folder.join(file);
        if file.exists() {
            std::os::unix::fs::chown(file, Some(uid), Some(uid))?;
        }
    }
    Ok(())
}

fn has_controlled_children(folder: &Path) -> bool {
    fs::read_to_string(folder.join("cgroup.subtree_control")).is_ok_and(|list| !list.trim().is_empty())
}

/// Mount points of the hierarchies, and whether each is a version 2 tree.
fn hierarchies() -> io::Result<Vec<(PathBuf, bool)>> {
    let text = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(text
        .lines()
        .filter_map(|line| {
            let (place, kind) = line.split_once(" - ")?;
            let kind = kind.split(' ').next()?;
            let folder = PathBuf::from(place.split(' ').nth(4)?);
            matches!(kind, "cgroup" | "cgroup2").then_some((folder, kind == "cgroup2"))
        })
        .collect())
}

/// Hands the controllers that this version 2 cgroup has down to its children.
fn delegate(folder: &Path) -> io::Result<()> {
    let here = fs::read_to_string(folder.join("cgroup.controllers"))?;
    let given = fs::read_to_string(folder.join("cgroup.subtree_control"))?;
    for controller in here.split_whitespace() {
        let wanted = CONTROLLERS.contains(&controller);
        if wanted && !given.split_whitespace().any(|name| name == controller) {
            fs::write(folder.join("cgroup.subtree_control"), format!("+{controller}"))?;
        }
    }
    Ok(())
}

fn below(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            below(&entry.path(), found);
            found.insert(entry.path());
        }
    }
}
