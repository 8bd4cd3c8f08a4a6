//! Enabling cgroup v2 controllers for the children of a directory.
//!
//! A controller serves a cgroup only if its parent's `cgroup.subtree_control` lists it, and a parent that
//! lists one may hold no processes, the root excepted (cgroup-v2.rst, "No Internal Process Constraint";
//! runc#2298, nsjail#196).

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, unlinkat};
use rustix::process::getpid;

use super::error::CgroupError;
use super::facts::{Controller, SUPERVISOR_LEAF, Version};
use super::target::TreeTarget;
use super::tree::{open_directory, read_file, write_file};

const SUBTREE: &str = "cgroup.subtree_control";

/// Enables what the target requires, and of what it wants as much as can be had, for the children of `dir`.
///
/// Returns the required and wanted controllers that the children then have.
pub(super) fn enable(
    dir: BorrowedFd<'_>,
    path: &Path,
    target: &TreeTarget,
) -> Result<BTreeSet<Controller>, CgroupError> {
    let root = is_root(dir, path)?;
    if target.required.is_empty() && target.wanted.is_empty() {
        return Ok(BTreeSet::new());
    }
    let set =
        |file| Ok::<_, CgroupError>(Controller::list(&read_file(dir, path, file)?).into_iter().collect());
    let offered: BTreeSet<Controller> = set("cgroup.controllers")?;
    let enabled: BTreeSet<Controller> = set(SUBTREE)?;
    if let Some(&controller) = target.required.difference(&offered).next() {
        return Err(CgroupError::NoController { controller });
    }
    let missing: BTreeSet<Controller> = target.required.difference(&enabled).copied().collect();
    if !missing.is_empty() {
        let request = request(&missing);
        if !root {
            make_room(dir, path, &request, target.parents.is_empty())?;
        }
        write_file(dir, path, SUBTREE, &[&request]).map_err(|error| match error.errno() {
            Some(libc::EACCES | libc::EPERM | libc::EROFS) => CgroupError::NotDelegated { path: path.into() },
            _ => error,
        })?;
    }
    let wanted: BTreeSet<Controller> =
        target.wanted.intersection(&offered).filter(|c| !enabled.contains(c)).copied().collect();
    if !wanted.is_empty() && (root || pids(dir, path)?.is_empty()) {
        // Statistics are not worth an error.
        let _ = write_file(dir, path, SUBTREE, &[request(&wanted)]);
    }
    let enabled: BTreeSet<Controller> = set(SUBTREE)?;
    Ok(target.required.union(&target.wanted).filter(|c| enabled.contains(c)).copied().collect())
}

/// The hierarchy's true root, which alone has no type and may hold processes beside controlled children.
/// Children of any type but `domain` would be unusable for a sandbox.
fn is_root(dir: BorrowedFd<'_>, path: &Path) -> Result<bool, CgroupError> {
    match read_file(dir, path, "cgroup.type") {
        Err(error) if error.errno() == Some(libc::ENOENT) => Ok(true),
        Ok(kind) if kind.trim() != "domain" => {
            Err(CgroupError::Threaded { path: path.into(), kind: kind.trim().into() })
        }
        kind => kind.map(|_| false),
    }
}

/// Sees to it that no process sits in `dir`. The kernel's EBUSY cannot be waited for: controllers such as pids are
/// enabled all the same, but the parent becomes a threaded domain, and its children refuse processes.
///
/// `own`: `dir` is the caller's own cgroup, out of which it may move itself if it is alone there.
fn make_room(dir: BorrowedFd<'_>, path: &Path, request: &str, own: bool) -> Result<(), CgroupError> {
    let pids = pids(dir, path)?;
    if pids.is_empty() {
        return Ok(());
    }
    if own && pids == [getpid().as_raw_nonzero().get().unsigned_abs()] {
        return enter_leaf(dir, path);
    }
    Err(CgroupError::InnerProcesses { path: path.into(), controllers: request.into(), pids })
}

fn request(controllers: &BTreeSet<Controller>) -> String {
    controllers.iter().map(|c| format!("+{c}")).collect::<Vec<_>>().join(" ")
}

fn pids(dir: BorrowedFd<'_>, path: &Path) -> Result<Vec<u32>, CgroupError> {
    Ok(read_file(dir, path, "cgroup.procs")?.lines().filter_map(|line| line.parse().ok()).collect())
}

/// Removes the leaves in `dir` of callers that are gone. One that holds processes stays.
pub(super) fn remove_leaves(dir: &Path) {
    let leaf = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        let pid = name.to_str()?.strip_prefix(SUPERVISOR_LEAF)?.parse::<u32>().ok()?;
        (!Path::new("/proc").join(pid.to_string()).exists()).then(|| entry.path())
    };
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    for leaf in entries.filter_map(leaf) {
        // EBUSY: its number is of another PID namespace, and it is in use.
        let _ = std::fs::remove_dir(leaf);
    }
}

/// Moves this process, which may have others beside it, out of `path`.
pub(super) fn move_to_leaf(path: &Path) -> Result<(), CgroupError> {
    enter_leaf(open_directory(path, Version::V2)?.as_fd(), path)
}

/// Moves this process into `supervisor-<pid>` below its own cgroup. The leaf lives as long as this process
/// does; the scope's end, or a later sweep, removes it.
fn enter_leaf(dir: BorrowedFd<'_>, path: &Path) -> Result<(), CgroupError> {
    let name = format!("{SUPERVISOR_LEAF}{}", getpid().as_raw_nonzero());
    let leaf_path = path.join(&name);
    match mkdirat(dir, &name, Mode::from(0o755)) {
        // A recycled pid.
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(errno) => return Err(CgroupError::io("make cgroup", leaf_path, errno)),
    }
    let leaf = openat(
        dir,
        &name,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::empty(),
    )
    .map_err(|errno| CgroupError::io("open cgroup", &leaf_path, errno))?;
    write_file(leaf.as_fd(), &leaf_path, "cgroup.procs", &["0"]).inspect_err(|_| {
        // Empty, as nothing entered it; the write's error is the one to report.
        let _ = unlinkat(dir, &name, AtFlags::REMOVEDIR);
    })
}
