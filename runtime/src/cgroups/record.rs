//! A cgroup written down, so that a later process can end and remove it.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::CgroupError;
use super::facts::{CgroupFacts, Controller, Version, below};
use super::group::Cgroup;
use super::target::{CgroupTarget, check_name};
use super::tree::Tree;
use super::v2;

/// Where a sandbox's directories are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CgroupRecord {
    /// Name of the directory in each tree.
    pub name: String,
    /// One entry per tree.
    pub trees: Vec<TreeRecord>,
}

/// One directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeRecord {
    /// The tree's interface.
    pub version: Version,
    /// Where the tree is mounted.
    pub mount: PathBuf,
    /// The sandbox's directory, below `mount`.
    pub path: PathBuf,
    /// Controllers that serve the sandbox here.
    pub controllers: BTreeSet<Controller>,
    /// How many directories just above `path` belong to an explicit parent.
    pub above: usize,
}

impl CgroupTarget {
    /// The record of a group that is about to be made, for a sweep after a crash in between.
    pub fn record(&self) -> CgroupRecord {
        let trees = self.trees.iter().map(|tree| TreeRecord {
            version: tree.version,
            mount: tree.mount.clone(),
            path: tree.path(),
            controllers: tree.required.union(&tree.wanted).copied().collect(),
            above: tree.parents.len(),
        });
        CgroupRecord { name: self.name.clone(), trees: trees.collect() }
    }
}

impl Cgroup {
    /// What a later [`Cgroup::open`] needs.
    pub fn record(&self) -> CgroupRecord {
        let trees = self
            .trees
            .iter()
            .map(|tree| TreeRecord {
                version: tree.version,
                mount: tree.mount.clone(),
                path: tree.path.clone(),
                controllers: tree.controllers.clone(),
                above: tree.above,
            })
            .collect();
        CgroupRecord { name: self.name.clone(), trees }
    }

    /// Opens the directories of a record that still exist.
    ///
    /// The record is only believed where this host's facts bear it out: each path lies below a mounted
    /// hierarchy of that version, has no `..`, ends in the record's name, and is on a cgroup file system.
    pub fn open(record: &CgroupRecord, facts: &CgroupFacts) -> Result<Self, CgroupError> {
        let mut group = Self {
            name: record.name.clone(),
            trees: Vec::new(),
            skipped: BTreeSet::new(),
            best_effort: BTreeSet::new(),
            lowered: Vec::new(),
        };
        for entry in &record.trees {
            entry.check(&record.name, facts)?;
            group.trees.extend(Tree::open(
                entry.version,
                entry.controllers.clone(),
                &entry.mount,
                &entry.path,
                entry.above,
            )?);
        }
        Ok(group)
    }
}

impl CgroupFacts {
    /// Removes the leaves, empty now, into which callers had moved themselves: beside a recorded cgroup, or in this
    /// process's own one.
    pub fn remove_leaves(&self, record: Option<&CgroupRecord>) {
        let trees = record.map(|record| record.trees.as_slice()).unwrap_or_default();
        let beside = trees.iter().filter(|tree| tree.version == Version::V2 && tree.above == 0);
        let beside = beside.filter_map(|tree| tree.path.parent().map(Path::to_path_buf));
        let own = self.v2.as_ref().filter(|_| record.is_none());
        let own = own.and_then(|tree| Some(below(&tree.mount, tree.own.as_ref()?)));
        beside.chain(own).for_each(|directory| v2::remove_leaves(&directory));
    }
}

impl TreeRecord {
    fn check(&self, name: &str, facts: &CgroupFacts) -> Result<(), CgroupError> {
        let fail = |reason| Err(CgroupError::Record { path: self.path.clone(), reason });
        if let Err(reason) = check_name(name.as_bytes()) {
            return fail(reason);
        }
        if !facts.mounts().any(|(mount, version)| mount == self.mount && version == self.version) {
            return fail("is not below a mounted hierarchy");
        }
        let Ok(below) = self.path.strip_prefix(&self.mount) else {
            return fail("is not below its mount");
        };
        let depth = below.components().count();
        if below.components().any(|component| !matches!(component, Component::Normal(_))) || depth == 0 {
            return fail("is not a plain path below its mount");
        }
        if self.path.file_name() != Some(name.as_ref()) {
            return fail("does not end in the sandbox's name");
        }
        if self.above >= depth { fail("counts its mount among its parents") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroups::{Layout, Manager, V2Tree};

    fn facts() -> CgroupFacts {
        let tree = V2Tree {
            mount: "/cg".into(),
            root: "/".into(),
            own: None,
            controllers: vec![],
            root_controllers: vec![],
            writable: false,
            manager: Manager::Cgroupfs,
        };
        CgroupFacts { layout: Layout::V2, v1: vec![], v2: Some(tree) }
    }

    fn entry(mount: &str, path: &str, above: usize) -> TreeRecord {
        TreeRecord {
            version: Version::V2,
            mount: mount.into(),
            path: path.into(),
            controllers: BTreeSet::new(),
            above,
        }
    }

    #[test]
    fn a_record_that_points_elsewhere_is_refused() {
        assert!(entry("/cg", "/cg/a/box", 1).check("box", &facts()).is_ok());
        for (name, entry) in [
            ("box", entry("/other", "/other/box", 0)),
            ("box", entry("/cg", "/other/box", 0)),
            ("box", entry("/cg", "/cg/../box", 0)),
            ("box", entry("/cg", "/cg/a", 0)),
            ("box", entry("/cg", "/cg/a/box", 2)),
            ("cg", entry("/cg", "/cg", 0)),
            ("..", entry("/cg", "/cg/..", 0)),
            ("", entry("/cg", "/cg/box", 0)),
        ] {
            let result = entry.check(name, &facts());
            assert!(matches!(result, Err(CgroupError::Record { .. })), "{name:?} {entry:?}");
        }
        let v1 = TreeRecord { version: Version::V1, ..entry("/cg", "/cg/box", 0) };
        assert!(v1.check("box", &facts()).is_err(), "the version must be that of the mount");
    }

    #[test]
    fn a_directory_that_is_gone_is_not_an_error() {
        let record = CgroupRecord { name: "box".into(), trees: vec![entry("/cg", "/cg/box", 0)] };
        assert!(!Path::new("/cg").exists());
        assert_eq!(Cgroup::open(&record, &facts()).unwrap().paths().count(), 0);
    }
}
