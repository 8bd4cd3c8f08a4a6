//! A spec made by hand, a place for files, and what /proc tells of processes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use airlock_runtime::Spec;
use airlock_runtime::host::is_root;
use airlock_runtime::launcher::{Request, Running};
use airlock_runtime::state::Sandboxes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;

use crate::child::until;

/// An id that no account of a usual host has.
const USER: u32 = 54_321;
const DIRECTORY: &str = "AIRLOCK_TEST_DIRECTORY";

/// One run of the tests as one user.
pub(crate) struct Fixture {
    pub(crate) root: bool,
    /// Holds a copy of this program, which any user can reach.
    directory: PathBuf,
    parent: PathBuf,
}

impl Fixture {
    /// Starts this program again, with a place for files and a secret in its environment, unless it has them.
    pub(crate) fn new() -> Fixture {
        if std::env::var_os(DIRECTORY).is_none() {
            let directory = tempfile::tempdir().unwrap().keep();
            fs::set_permissions(&directory, PermissionsExt::from_mode(0o755)).unwrap();
            fs::copy("/proc/self/exe", directory.join("probe")).unwrap();
            let error = Command::new(directory.join("probe"))
                .args(std::env::args_os().skip(1))
                .env(DIRECTORY, directory)
                .env("AIRLOCK_TEST_PASSWORD", "SECRET")
                .exec();
            panic!("{error}");
        }
        Fixture::from_environment()
    }

    pub(crate) fn from_environment() -> Fixture {
        let directory = PathBuf::from(std::env::var_os(DIRECTORY).unwrap());
        let name = directory.file_name().unwrap().to_string_lossy().replace('.', "");
        Fixture { root: is_root(), parent: format!("/airlock-test-{name}").into(), directory }
    }

    /// This program in another role.
    pub(crate) fn command(&self, role: &str) -> Command {
        let mut command = Command::new(self.directory.join("probe"));
        command.arg(role);
        command
    }

    /// A directory that this user can write to.
    pub(crate) fn scratch(&self) -> PathBuf {
        let directory = self.directory.join(if self.root { "root" } else { "user" });
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    pub(crate) fn request(&self) -> Request {
        Request { cgroup_parent: self.root.then(|| self.parent.clone()), ..Request::default() }
    }

    /// Where its sandboxes' cgroups are, in each hierarchy; for root.
    pub(crate) fn cgroups(&self) -> Vec<PathBuf> {
        let name = self.parent.strip_prefix("/").unwrap();
        let trees = fs::read_dir("/sys/fs/cgroup").unwrap().map(|tree| tree.unwrap().path());
        trees.chain([PathBuf::from("/sys/fs/cgroup")]).map(|tree| tree.join(name)).collect()
    }

    /// This program as payload.
    pub(crate) fn spec(&self, words: &[&str]) -> Spec {
        self.spec_of(&[&["/probe", "inside"], words].concat())
    }

    pub(crate) fn spec_of(&self, args: &[&str]) -> Spec {
        let namespaces: Vec<_> = ["user", "mount", "pid", "network", "ipc", "uts", "cgroup"]
            .iter()
            .map(|kind| json!({ "type": kind }))
            .collect();
        let resources = json!({
            "pids": { "limit": 32 },
            "memory": { "limit": 256 << 20 },
            "devices": [
                { "allow": false, "access": "rwm" },
                { "allow": true, "type": "c", "major": 1, "minor": 3, "access": "rw" },
            ],
        });
        let mut linux = json!({
            "namespaces": namespaces,
            "seccomp": airlock_runtime::seccomp::profile("default").unwrap(),
        });
        if self.root {
            linux["resources"] = resources;
        }
        let spec = json!({
            "oci": {
                "ociVersion": "1.2.0",
                "root": { "path": "/" },
                "hostname": "probe",
                "process": {
                    "user": { "uid": 0, "gid": 0 },
                    "args": args,
                    "env": ["PATH=/"],
                    "cwd": "/",
                    "noNewPrivileges": true,
                },
                "mounts": [
                    { "destination": "/probe", "type": "bind", "source": self.directory.join("probe"),
                      "options": ["bind", "ro", "nosuid", "nodev"] },
                    { "destination": "/proc", "type": "proc", "source": "proc",
                      "options": ["nosuid", "nodev", "noexec"] },
                ],
                "linux": linux,
            },
            "airlock": { "policy": "probe", "root": { "kind": "empty" }, "landlock": { "min_abi": 0, "read": null, "write": null } },
        });
        serde_json::from_value(spec).unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if self.root {
            sweep();
            for parent in self.cgroups() {
                until("the cgroup is empty", || !parent.exists() || fs::remove_dir(&parent).is_ok());
            }
        }
    }
}

/// Runs everything once more as an ordinary user, where this is root; true: all passed.
pub(crate) fn run_as_user(filter: &str) -> bool {
    if !is_root() {
        return true;
    }
    let directory = PathBuf::from(std::env::var_os(DIRECTORY).unwrap());
    for (name, mode) in [("runtime", 0o700), ("user", 0o755)] {
        let path = directory.join(name);
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(&path, Some(USER), Some(USER)).unwrap();
    }
    let status = Command::new(directory.join("probe"))
        .arg(filter)
        .env("XDG_RUNTIME_DIR", directory.join("runtime"))
        .uid(USER)
        .gid(USER)
        .status()
        .unwrap();
    fs::remove_dir_all(&directory).unwrap();
    status.success()
}

/// A process that is not a zombie.
pub(crate) fn alive(pid: i32) -> bool {
    state_and_parent(pid).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'))
}

pub(crate) fn parent_of(pid: i32) -> i32 {
    state_and_parent(pid).unwrap().1
}

/// Children, zombies included.
pub(crate) fn children_of(pid: i32) -> Vec<i32> {
    fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .unwrap()
        .split_whitespace()
        .map(|child| child.parse().unwrap())
        .collect()
}

/// The payload of a sandbox's init, which starts it when it is released.
pub(crate) fn payload_of(init: i32) -> i32 {
    until("the payload is there", || !children_of(init).is_empty());
    children_of(init)[0]
}

fn state_and_parent(pid: i32) -> Option<(char, i32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

pub(crate) fn resident_kib(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Where a process's descriptors lead.
pub(crate) fn open_descriptors(pid: i32) -> Vec<String> {
    fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .map(|entry| fs::read_link(entry.unwrap().path()).unwrap_or_default().display().to_string())
        .collect()
}

pub(crate) fn readable(running: &Running) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(running, PollFlags::IN)], Some(&now)).unwrap() == 1
}

pub(crate) fn kill(pid: i32) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
}

pub(crate) fn sweep() {
    let _ = Sandboxes::open().unwrap().sweep(Duration::from_secs(10));
}
