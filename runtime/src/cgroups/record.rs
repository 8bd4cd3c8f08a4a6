//! A cgroup written down, so that a later process can end and remove it.

use std::collections::BTreeSet;
use std::path::{Component, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::CgroupError;
use super::facts::{CgroupFacts, Controller, Version};
use super::group::Cgroup;
use super::target::{CgroupTarget, check_name};
use super::tree::Tree;

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
    /// How many directories just above `path` the sandbox made.
    pub made: usize,
}

impl CgroupTarget {
    /// The record of a group that is about to be made, for a sweep after a crash in between. Directories
    /// above the sandbox's own are left to the record that [`Cgroup::record`] gives afterwards.
    pub fn record(&self) -> CgroupRecord {
        let trees = self.trees.iter().map(|tree| TreeRecord {
            version: tree.version,
            mount: tree.mount.clone(),
            path: tree.path(),
            controllers: tree.required.union(&tree.wanted).copied().collect(),
            made: 0,
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
                made: tree.made,
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
                entry.made,
            )?);
        }
        Ok(group)
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
        if self.made >= depth { fail("claims to have made its mount") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::cgroups::{Layout, V2Tree};

    fn facts() -> CgroupFacts {
        let tree = V2Tree {
            mount: "/cg".into(),
            own: None,
            controllers: vec![],
            root_controllers: vec![],
            writable: false,
        };
        CgroupFacts { layout: Layout::V2, v1: vec![], v2: Some(tree) }
    }

    fn entry(mount: &str, path: &str, made: usize) -> TreeRecord {
        TreeRecord {
            version: Version::V2,
            mount: mount.into(),
            path: path.into(),
            controllers: BTreeSet::new(),
            made,
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
