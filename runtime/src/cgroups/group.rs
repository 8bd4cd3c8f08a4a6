//! A sandbox's cgroup: one directory in each tree that it needs.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use oci_spec::runtime::LinuxResources;

use super::error::CgroupError;
use super::facts::{Controller, Version};
use super::limits::{self, LimitWrite};
use super::readback::LimitReading;
use super::target::CgroupTarget;
use super::tree::Tree;
use crate::spec::BestEffort;

/// A sandbox's directories, made or opened by [`Cgroup::create`] and [`Cgroup::open`] only, so it never
/// denotes the caller's own cgroup or a root.
///
/// Dropping it removes nothing: [`Cgroup::remove`] does, after the last process has ended.
#[derive(Debug)]
pub struct Cgroup {
    pub(super) name: String,
    pub(super) trees: Vec<Tree>,
    pub(super) skipped: BTreeSet<Controller>,
    pub(super) best_effort: BTreeSet<BestEffort>,
    pub(super) lowered: Vec<String>,
}

impl Cgroup {
    /// Makes the target's directories. On failure all that were made are removed again.
    pub fn create(target: &CgroupTarget) -> Result<Self, CgroupError> {
        let mut group = Self::begin(target)?;
        group.complete(target)?;
        Ok(group)
    }

    /// Makes the v2 directory alone, the only one that clone3 needs: the others can be made while the child
    /// already works. On failure nothing is left.
    pub fn begin(target: &CgroupTarget) -> Result<Self, CgroupError> {
        let mut group = Self {
            name: target.name.clone(),
            trees: Vec::with_capacity(target.trees.len()),
            skipped: target.skipped.clone(),
            best_effort: target.best_effort.clone(),
            lowered: target.lowered.clone(),
        };
        group.make(target, Version::V2)?;
        Ok(group)
    }

    /// Makes the v1 directories after [`Cgroup::begin`]. On failure all directories are removed again, as far
    /// as no process is in them.
    pub fn complete(&mut self, target: &CgroupTarget) -> Result<(), CgroupError> {
        self.make(target, Version::V1)?;
        self.trees.sort_by_key(|tree| tree.version == Version::V2);
        Ok(())
    }

    fn make(&mut self, target: &CgroupTarget, version: Version) -> Result<(), CgroupError> {
        for tree in target.trees.iter().filter(|tree| tree.version == version) {
            match Tree::create(tree) {
                Ok(tree) => self.trees.push(tree),
                Err(error) => {
                    // The first error is the one to report.
                    let _ = self.remove(Duration::ZERO);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Name of the directory in each tree.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directories, v1 trees first.
    pub fn paths(&self) -> impl Iterator<Item = (Version, PathBuf)> + '_ {
        self.trees.iter().map(|tree| (tree.version, tree.path.clone()))
    }

    /// What best effort gave up so far, in words.
    pub fn lowered(&self) -> &[String] {
        &self.lowered
    }

    /// Writes the limits; to be done before a process is in.
    ///
    /// `resources.devices` is not looked at: see [`Cgroup::filter_devices`].
    pub fn limit(&self, resources: &LinuxResources) -> Result<(), CgroupError> {
        for write in self.limit_writes(resources)? {
            let tree = self.tree(write.controller)?;
            match tree.write(&write.file, &write.value) {
                // Without CONFIG_SWAP there is nothing to limit, and no file to say so.
                Err(error)
                    if error.errno() == Some(libc::ENOENT)
                        && write.is_swap()
                        && !std::path::Path::new("/proc/swaps").exists() => {}
                Err(error) if error.errno() == Some(libc::ENOENT) && write.implied => {}
                result => result?,
            }
        }
        Ok(())
    }

    /// Reads every limit back from the kernel.
    pub fn read_limits(&self, resources: &LinuxResources) -> Result<Vec<LimitReading>, CgroupError> {
        self.limit_writes(resources)?
            .into_iter()
            .filter_map(|write| {
                let reading = self.tree(write.controller).and_then(|tree| {
                    let found = tree.read(&write.file)?;
                    Ok(LimitReading::new(tree.path.join(&write.file), &write, &found))
                });
                match reading {
                    Err(error) if error.errno() == Some(libc::ENOENT) && write.implied => None,
                    reading => Some(reading),
                }
            })
            .collect()
    }

    fn limit_writes(&self, resources: &LinuxResources) -> Result<Vec<LimitWrite>, CgroupError> {
        limits::writes(resources, |controller| self.version_of(controller), &self.skipped)
    }

    /// `tasks` of each v1 directory, open for writing.
    ///
    /// The child writes `0` to each. Moving the calling thread takes no global lock; a pid in
    /// `cgroup.procs` waits 5-10 ms for an RCU grace period.
    pub fn join_descriptors(&self) -> Result<Vec<OwnedFd>, CgroupError> {
        let v1 = self.trees.iter().filter(|tree| tree.version == Version::V1);
        v1.map(|tree| tree.open_for_writing("tasks")).collect()
    }

    /// The v2 directory, for `clone3(CLONE_INTO_CGROUP)`.
    pub fn clone_into(&self) -> Result<Option<OwnedFd>, CgroupError> {
        self.v2()
            .map(|tree| {
                tree.dir()
                    .try_clone_to_owned()
                    .map_err(|source| CgroupError::io("duplicate the descriptor of", &tree.path, source))
            })
            .transpose()
    }

    /// Removes every directory with all below it, deepest first; what is gone already is success.
    ///
    /// Waits up to `timeout` for the kernel to let go of processes that have just ended. All trees are
    /// tried even if one fails; the first error is returned.
    pub fn remove(&self, timeout: Duration) -> Result<(), CgroupError> {
        let deadline = Instant::now() + timeout;
        let mut result = Ok(());
        for tree in &self.trees {
            let removed = match tree.remove(deadline) {
                Err(error) if error.errno() == Some(libc::EBUSY) => match tree.pids() {
                    Ok(pids) if !pids.is_empty() => {
                        Err(CgroupError::StillAlive { path: tree.path.clone(), pids, waited: timeout })
                    }
                    _ => Err(error),
                },
                removed => removed,
            };
            result = result.and(removed);
        }
        result
    }

    pub(super) fn v2(&self) -> Option<&Tree> {
        self.trees.iter().find(|tree| tree.version == Version::V2)
    }

    pub(super) fn v1(&self, controller: Controller) -> Option<&Tree> {
        self.trees.iter().find(|tree| tree.version == Version::V1 && tree.controllers.contains(&controller))
    }

    pub(super) fn version_of(&self, controller: Controller) -> Option<Version> {
        self.trees.iter().find(|tree| tree.controllers.contains(&controller)).map(|tree| tree.version)
    }

    fn tree(&self, controller: Controller) -> Result<&Tree, CgroupError> {
        self.trees
            .iter()
            .find(|tree| tree.controllers.contains(&controller))
            .ok_or(CgroupError::NoController { controller })
    }
}
