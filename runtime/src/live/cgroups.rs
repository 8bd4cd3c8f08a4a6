//! Control groups of a process, and what limits it there.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Reader;

/// Files that limit, of both versions.
const FILES: [&str; 13] = [
    "memory.max",
    "memory.swap.max",
    "memory.limit_in_bytes",
    "memory.memsw.limit_in_bytes",
    "pids.max",
    "cpu.max",
    "cpu.cfs_quota_us",
    "cpu.cfs_period_us",
    "cpuset.cpus",
    "cpuset.mems",
    "io.max",
    "devices.list",
    "freezer.state",
];
/// Longest text of a setting that is shown.
const LONGEST: usize = 4096;

/// A control group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CgroupView {
    /// Controllers of a version 1 hierarchy; empty for version 2.
    pub controllers: String,
    /// Its path, from the hierarchy's root as the caller sees it.
    pub path: String,
    /// What limits it.
    pub settings: Vec<Setting>,
}

/// A file of a control group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Its name.
    pub file: String,
    /// Its text.
    pub value: String,
}

pub(super) fn read(reader: &mut Reader) -> Vec<CgroupView> {
    let own = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let text = reader.text("cgroup", "control groups");
    let groups: Vec<CgroupView> = text.lines().filter_map(|line| group(line, &own)).collect();
    if groups.iter().any(|group| group.controllers.is_empty()) {
        reader.miss("device programs of the version 2 tree", "they are shown to bpf(2) alone, not in a file");
    }
    groups
}

fn group(line: &str, mounts: &str) -> Option<CgroupView> {
    let mut fields = line.splitn(3, ':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let settings =
        directory(controllers, mounts).map(|root| settings(&root.join(path.trim_start_matches('/'))));
    Some(CgroupView {
        controllers: controllers.to_owned(),
        path: path.to_owned(),
        settings: settings.unwrap_or_default(),
    })
}

/// Where the caller has a hierarchy mounted.
fn directory(controllers: &str, mounts: &str) -> Option<PathBuf> {
    let is = |line: &&str| {
        let Some((_, after)) = line.split_once(" - ") else { return false };
        let fields: Vec<&str> = after.split(' ').collect();
        match controllers {
            "" => fields.first() == Some(&"cgroup2"),
            wanted => {
                let options: Vec<&str> = fields.get(2).unwrap_or(&"").split(',').collect();
                fields.first() == Some(&"cgroup") && wanted.split(',').all(|one| options.contains(&one))
            }
        }
    };
    mounts.lines().find(is)?.split(' ').nth(4).map(PathBuf::from)
}

fn settings(group: &Path) -> Vec<Setting> {
    let setting = |file: &&str| {
        let mut value = fs::read_to_string(group.join(file)).ok()?.trim().replace('\n', "; ");
        value.truncate(value.floor_char_boundary(LONGEST));
        Some(Setting { file: (*file).to_owned(), value })
    };
    FILES.iter().filter_map(setting).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_found_by_their_controllers() {
        let mounts = "35 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n\
                      36 31 0:33 / /cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                      41 31 0:38 / /cg/unified rw - cgroup2 cgroup2 rw";
        let at = |controllers| directory(controllers, mounts);
        assert_eq!(at("memory"), Some("/cg/memory".into()));
        assert_eq!(at("cpu,cpuacct"), Some("/cg/cpu,cpuacct".into()));
        assert_eq!(at(""), Some("/cg/unified".into()));
        assert_eq!(at("pids"), None);
    }
}
