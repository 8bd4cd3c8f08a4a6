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
use super::facts::{Controller, SUPERVISOR_LEAF};
use super::target::TreeTarget;
use super::tree::{read_file, write_file};

const SUBTREE: &str = "cgroup.subtree_control";

/// Enables what the target requires, and of what it wants as much as can be had, for the children of `dir`.
///
/// Returns the required and wanted controllers that the children then have.
pub(super) fn enable(
    dir: BorrowedFd<'_>,
    path: &Path,
    target: &TreeTarget,
) -> Result<BTreeSet<Controller>, CgroupError> {
    if target.required.is_empty() && target.wanted.is_empty() {
        return Ok(BTreeSet::new());
    }
    let set = |file| {
        Ok::<_, CgroupError>(
            Controller::list(&read_file(dir, path, file)?)
                .into_iter()
                .collect(),
        )
    };
    let offered: BTreeSet<Controller> = set("cgroup.controllers")?;
    let enabled: BTreeSet<Controller> = set(SUBTREE)?;
    if let Some(&controller) = target.required.difference(&offered).next() {
        return Err(CgroupError::NoController { controller });
    }
    let missing: BTreeSet<Controller> = target.required.difference(&enabled).copied().collect();
    if !missing.is_empty() {
        enable_required(dir, path, &request(&missing), target.parents.is_empty())?;
    }
    for controller in target
        .wanted
        .intersection(&offered)
        .filter(|c| !enabled.contains(c))
    {
        // Statistics are worth neither an error nor moving a process.
        let _ = write_file(dir, path, SUBTREE, &request(&BTreeSet::from([*controller])));
    }
    let enabled: BTreeSet<Controller> = set(SUBTREE)?;
    Ok(target
        .required
        .union(&target.wanted)
        .filter(|c| enabled.contains(c))
        .copied()
        .collect())
}

/// `own`: `dir` is the caller's own cgroup, out of which it may move itself.
fn enable_required(dir: BorrowedFd<'_>, path: &Path, request: &str, own: bool) -> Result<(), CgroupError> {
    let Err(error) = write_file(dir, path, SUBTREE, request) else {
        return Ok(());
    };
    match error.errno() {
        Some(libc::EBUSY) if own && only_us(dir, path)? => {
            move_self_to_leaf(dir, path)?;
            write_file(dir, path, SUBTREE, request)
        }
        Some(libc::EBUSY) => Err(CgroupError::InnerProcesses {
            path: path.into(),
            controllers: request.into(),
            pids: pids(dir, path)?,
        }),
        Some(libc::EOPNOTSUPP) => Err(CgroupError::Threaded {
            path: path.into(),
            kind: read_file(dir, path, "cgroup.type")?.trim().into(),
        }),
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => {
            Err(CgroupError::NotDelegated { path: path.into() })
        }
        _ => Err(error),
    }
}

fn request(controllers: &BTreeSet<Controller>) -> String {
    controllers
        .iter()
        .map(|c| format!("+{c}"))
        .collect::<Vec<_>>()
        .join(" ")
}

fn pids(dir: BorrowedFd<'_>, path: &Path) -> Result<Vec<u32>, CgroupError> {
    Ok(read_file(dir, path, "cgroup.procs")?
        .lines()
        .filter_map(|line| line.parse().ok())
        .collect())
}

fn only_us(dir: BorrowedFd<'_>, path: &Path) -> Result<bool, CgroupError> {
    Ok(pids(dir, path)? == [getpid().as_raw_nonzero().get().unsigned_abs()])
}

/// Moves this process into `supervisor-<pid>` below its own cgroup. The leaf lives as long as this process
/// does; the scope's end, or the next Airlock in it, removes it.
fn move_self_to_leaf(dir: BorrowedFd<'_>, path: &Path) -> Result<(), CgroupError> {
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
    write_file(leaf.as_fd(), &leaf_path, "cgroup.procs", "0").inspect_err(|_| {
        // Empty, as nothing entered it; the write's error is the one to report.
        let _ = unlinkat(dir, &name, AtFlags::REMOVEDIR);
    })
}
