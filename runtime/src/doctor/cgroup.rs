//! Control groups, judged by the same placement that a launch uses.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use super::{Check, Topic};
use crate::cgroups::{
    CgroupError, CgroupFacts, CgroupTarget, Controller, Layout, Manager, Needs, TreeTarget, Version,
};

const LAYOUT: Topic = Topic::new("cgroup-layout", "cgroups");
const MANAGER: Topic = Topic::new("cgroup-manager", "cgroup manager");
const MEMORY: Topic = Topic::needed("cgroup-memory", "memory limit");
const PIDS: Topic = Topic::needed("cgroup-pids", "pids limit");
const CPU: Topic = Topic::new("cgroup-cpu", "cpu limit");
const CPUSET: Topic = Topic::new("cgroup-cpuset", "cpuset");
const IO: Topic = Topic::new("cgroup-io", "io limit");
const SWAP: Topic = Topic::needed("swap", "swap limit");
const KILL: Topic = Topic::new("cgroup-kill", "whole-tree kill and freeze");
const DEVICES: Topic = Topic::needed("device-filter", "device filter");
const DEVICES_USER: Topic = Topic::new("device-filter", "device filter");

pub(super) fn checks(root: bool) -> Vec<Check> {
    let facts = match CgroupFacts::read().and_then(|facts| facts.settle(None)) {
        Ok(facts) => facts,
        Err(error) => {
            let check = Topic { needed: true, ..LAYOUT };
            return vec![check.lacking(error.to_string(), "mount /proc and /sys/fs/cgroup")];
        }
    };
    let limits = [
        (MEMORY, Controller::Memory),
        (PIDS, Controller::Pids),
        (CPU, Controller::Cpu),
        (CPUSET, Controller::CpuSet),
        (IO, Controller::Io),
    ];
    let mut checks = vec![layout(facts.layout), manager(&facts)];
    checks.extend(limits.map(|(topic, controller)| limit(topic, &facts, controller)));
    let memory_tree = target(&facts, Some(Controller::Memory), false)
        .ok()
        .and_then(|target| target.trees.into_iter().next());
    checks.push(swap(
        swaps(&fs::read_to_string("/proc/swaps").unwrap_or_default()),
        memory_tree.map(|tree| has_swap_file(&tree)),
    ));
    checks.push(kill(&facts));
    checks.push(device_filter(root, &facts));
    checks
}

fn layout(layout: Layout) -> Check {
    match layout {
        Layout::V1 => LAYOUT.ok("v1"),
        Layout::V2 => LAYOUT.ok("v2"),
        Layout::Hybrid => LAYOUT.ok("hybrid: limits in v1 trees, kill and freeze in the v2 tree"),
        Layout::None => LAYOUT.lacking("none mounted", "as root: `mount -t cgroup2 cgroup2 /sys/fs/cgroup`"),
    }
}

/// Who makes the directories that a sandbox's go into.
fn manager(facts: &CgroupFacts) -> Check {
    match facts.v2.as_ref().map_or(&Manager::Cgroupfs, |tree| &tree.manager) {
        manager @ Manager::Refused(_) => {
            MANAGER.lacking(manager.to_string(), "see the lines below, or name a place with --cgroup-parent")
        }
        manager => MANAGER.ok(manager.to_string()),
    }
}

/// Where a sandbox with this one need would be placed.
fn target(
    facts: &CgroupFacts,
    limit: Option<Controller>,
    devices: bool,
) -> Result<CgroupTarget, CgroupError> {
    let needs = Needs { limits: BTreeSet::from_iter(limit), devices, ..Needs::default() };
    CgroupTarget::new(facts, None, "doctor", &needs)
}

fn limit(topic: Topic, facts: &CgroupFacts, controller: Controller) -> Check {
    match target(facts, Some(controller), false) {
        Ok(target) => match target.trees.first() {
            Some(tree) => usable(topic, tree, &Neighbours::read(tree)),
            None => topic.lacking("no place for it", "see cgroups(7)"),
        },
        Err(error) => refused(topic, &error),
    }
}

/// A v2 cgroup with processes of others cannot hand controllers to children.
struct Neighbours {
    /// `cgroup.subtree_control` of the caller's cgroup.
    handed_down: String,
    /// `cgroup.procs` of it.
    processes: String,
    /// It is the real root, to which the rule does not apply; only the root has no `cgroup.type`.
    root: bool,
}

impl Neighbours {
    fn read(tree: &TreeTarget) -> Self {
        let read = |file| fs::read_to_string(tree.base.join(file));
        Self {
            handed_down: read("cgroup.subtree_control").unwrap_or_default(),
            processes: read("cgroup.procs").unwrap_or_default(),
            root: read("cgroup.type").is_err(),
        }
    }

    fn in_the_way(&self, tree: &TreeTarget, own: u32) -> Vec<u32> {
        let handed_down = |controller: &Controller| {
            self.handed_down.split_whitespace().any(|name| name == controller.name())
        };
        if tree.version == Version::V1 || self.root || tree.required.iter().all(handed_down) {
            return Vec::new();
        }
        self.processes.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid != own).collect()
    }
}

fn usable(topic: Topic, tree: &TreeTarget, neighbours: &Neighbours) -> Check {
    let in_the_way = neighbours.in_the_way(tree, std::process::id());
    if in_the_way.is_empty() {
        return topic.ok(format!("{}, below {}", tree.version, tree.base.display()));
    }
    let controllers: Vec<&str> = tree.required.iter().map(|controller| controller.name()).collect();
    refused(
        topic,
        &CgroupError::InnerProcesses {
            path: tree.base.clone(),
            controllers: controllers.join(" "),
            pids: in_the_way,
        },
    )
}

/// These errors say the cause, then after a semicolon the remedy.
fn refused(topic: Topic, error: &CgroupError) -> Check {
    let text = error.to_string();
    match text.split_once("; ") {
        Some((cause, remedy)) => topic.lacking(cause, remedy),
        None => topic.lacking(text, "see cgroups(7)"),
    }
}

/// Swap areas in the text of /proc/swaps (proc(5)).
fn swaps(text: &str) -> usize {
    text.lines().skip(1).filter(|line| !line.trim().is_empty()).count()
}

fn has_swap_file(tree: &TreeTarget) -> bool {
    let file = match tree.version {
        Version::V1 => "memory.memsw.limit_in_bytes",
        Version::V2 => "memory.swap.max",
    };
    let is_there = |directory: &PathBuf| directory.join(file).exists();
    // The root cgroup of v2 has no limits of its own.
    is_there(&tree.base)
        || tree.version == Version::V2 && tree.base == tree.mount && !tree.base.join("cgroup.type").exists()
}

/// `limit`: the memory tree has a limit for swap; absent: there is no memory tree.
fn swap(areas: usize, limit: Option<bool>) -> Check {
    match (areas, limit) {
        (0, _) => SWAP.ok("the host has no swap"),
        (_, Some(true)) => SWAP.ok("swap is on, and limited with memory; timings vary when it is used"),
        (_, _) => SWAP.lacking(
            "swap is on, and cannot be limited: a sandbox could use it beyond its memory limit",
            "as root: `swapoff -a`, or boot with `swapaccount=1` and a memory controller",
        ),
    }
}

fn kill(facts: &CgroupFacts) -> Check {
    let needs = Needs { control: true, ..Needs::default() };
    let trees =
        CgroupTarget::new(facts, None, "doctor", &needs).map(|target| target.trees).unwrap_or_default();
    match trees.first().map(|tree| tree.version) {
        Some(Version::V2) => KILL.ok("v2: cgroup.kill and cgroup.freeze"),
        Some(Version::V1) => KILL.ok("v1 freezer: freeze, kill each process, thaw"),
        None => KILL.advice(
            "no cgroup of the caller's own can do it; the PID namespace still ends a sandbox whole, without freezing it",
            "start Airlock in a delegated cgroup v2 directory, for example by `systemd-run --user --scope -p Delegate=yes`",
        ),
    }
}

fn device_filter(root: bool, facts: &CgroupFacts) -> Check {
    if !root {
        return DEVICES_USER.advice(
            "none: only root may install one; the few nodes bound into /dev are all there is, and none can be made",
            "run as root if a filter is wanted on top",
        );
    }
    match target(facts, None, true) {
        Ok(target) => {
            let places: Vec<&str> = target
                .trees
                .iter()
                .map(|tree| match tree.version {
                    Version::V1 => "v1 devices list",
                    Version::V2 => "v2 BPF program",
                })
                .collect();
            DEVICES.ok(places.join(" and "))
        }
        Err(error) => refused(DEVICES, &error),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;
    use crate::cgroups::V2Tree;

    fn facts(controllers: &[Controller], writable: bool) -> CgroupFacts {
        CgroupFacts {
            layout: Layout::V2,
            v1: vec![],
            v2: Some(V2Tree {
                mount: "/cg".into(),
                root: "/".into(),
                own: Some("/user.slice".into()),
                controllers: controllers.to_vec(),
                root_controllers: controllers.to_vec(),
                writable,
                manager: Manager::Cgroupfs,
            }),
        }
    }

    #[test]
    fn a_cgroup_that_is_not_delegated_comes_with_its_remedy() {
        let check = limit(MEMORY, &facts(&[Controller::Memory], false), Controller::Memory);
        assert_eq!(check.status, Status::Lacking);
        assert!(check.found.contains("/cg/user.slice is not writable"), "{}", check.found);
        assert!(check.remedy.unwrap().contains("Delegate=yes"));
    }

    /// youki#3597, #3609: systemd delegates memory and pids by default, not cpuset and io.
    #[test]
    fn a_controller_that_is_not_delegated_is_named() {
        let facts = facts(&[Controller::Memory], true);
        assert_eq!(limit(MEMORY, &facts, Controller::Memory).status, Status::Ok);
        let check = limit(CPUSET, &facts, Controller::CpuSet);
        assert_eq!(check.status, Status::Lacking);
        assert!(check.found.contains("cpuset") && check.remedy.unwrap().contains("subtree_control"));
    }

    /// runc#2298, nsjail#196: EBUSY on subtree_control.
    #[test]
    fn processes_of_others_in_the_own_cgroup_are_named() {
        let target = target(&facts(&[Controller::Memory], true), Some(Controller::Memory), false).unwrap();
        let tree = &target.trees[0];
        let with = |handed_down: &str, root| Neighbours {
            handed_down: handed_down.into(),
            processes: "7\n8\n".into(),
            root,
        };
        assert_eq!(with("cpu", false).in_the_way(tree, 8), [7]);
        assert!(with("cpu memory", false).in_the_way(tree, 8).is_empty());
        assert!(with("", true).in_the_way(tree, 8).is_empty());
        let check = usable(MEMORY, tree, &with("", false));
        assert_eq!(check.status, Status::Lacking);
        assert!(check.found.contains("(7, 8)"), "{}", check.found);
    }

    #[test]
    fn swap_must_be_absent_or_limited() {
        let none = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
        assert_eq!(swaps(none), 0);
        let one = format!("{none}/dev/sda2                               partition\t8388604\t0\t-2\n");
        assert_eq!(swaps(&one), 1);
        assert_eq!(swap(0, Some(false)).status, Status::Ok);
        assert_eq!(swap(1, Some(true)).status, Status::Ok);
        assert_eq!(swap(1, Some(false)).status, Status::Lacking);
        assert_eq!(swap(1, None).status, Status::Lacking);
    }

    #[test]
    fn a_host_without_cgroups_lacks_what_needs_them() {
        let facts = CgroupFacts { layout: Layout::None, v1: vec![], v2: None };
        for check in
            [limit(PIDS, &facts, Controller::Pids), device_filter(true, &facts), layout(facts.layout)]
        {
            assert_eq!(check.status, Status::Lacking, "{}", check.id);
            assert!(check.remedy.is_some(), "{}", check.id);
        }
        assert_eq!(device_filter(false, &facts).status, Status::Advice);
        assert_eq!(kill(&facts).status, Status::Advice);
    }
}
