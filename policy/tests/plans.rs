//! The plan of `base`, whole, on a host that is described here: what changes in it is seen.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use airlock_policy::{HostEntry, HostTree, Overrides, Policy, ResolveInput, resolve};
use airlock_runtime::Spec;
use airlock_runtime::cgroups::{CgroupFacts, Controller, Layout, Manager, V2Tree};
use airlock_runtime::host::{FileKind, HostFacts, SourceFacts};
use airlock_runtime::ids::{HostIds, POOL_START};
use airlock_runtime::plan::{Placement, plan};

fn base() -> Spec {
    let entries = [
        ("/usr", HostEntry::Dir),
        ("/opt", HostEntry::Dir),
        ("/bin", HostEntry::Link("usr/bin".into())),
        ("/etc/alternatives", HostEntry::Dir),
        ("/etc/ld.so.cache", HostEntry::File),
        ("/etc/ssl/certs", HostEntry::Dir),
    ];
    let system = entries.map(|(path, entry)| (path.into(), entry));
    let host = HostTree { system: BTreeMap::from(system), ..HostTree::default() };
    let overrides = Overrides { workspace: Some("/home/ann/work".into()), ..Overrides::default() };
    let policy = Policy::load("base", &overrides, Path::new("/")).unwrap();
    let input =
        ResolveInput { args: vec!["python3".into(), "train.py".into()], host, ..ResolveInput::default() };
    resolve(&policy, &input).unwrap()
}

/// The host as root finds it, or as ann does (501:20).
fn facts(root: bool) -> HostFacts {
    let source = |path: &str, owner: u32| {
        let path = PathBuf::from(path);
        let facts = SourceFacts {
            kind: Some(FileKind::Directory),
            error: None,
            uid: owner,
            gid: owner,
            resolved: path.clone(),
            link: None,
            private: false,
        };
        (path, facts)
    };
    let tree = V2Tree {
        mount: "/sys/fs/cgroup".into(),
        root: "/".into(),
        own: Some("/session".into()),
        controllers: vec![Controller::Memory, Controller::Pids],
        root_controllers: vec![Controller::Memory, Controller::Pids],
        writable: true,
        manager: Manager::Cgroupfs,
    };
    HostFacts {
        kernel: (6, 12),
        root,
        uid: if root { 0 } else { 501 },
        gid: if root { 0 } else { 20 },
        groups: Vec::new(),
        last_capability: 40,
        landlock_abi: 6,
        open_files: 1 << 20,
        pending_signals: 1 << 20,
        cgroups: CgroupFacts { layout: Layout::V2, v1: Vec::new(), v2: Some(tree) },
        ids: if root { HostIds::Range { base: POOL_START } } else { HostIds::Caller },
        sources: BTreeMap::from([
            source("/usr", 0),
            source("/opt", 0),
            source("/etc/alternatives", 0),
            source("/etc/ssl/certs", 0),
            source("/home/ann/work", 501),
        ]),
        proc_covered: false,
        crooked_targets: BTreeMap::new(),
        gpu: None,
        gpu_host: None,
    }
}

/// The plan as `airlock plan` prints it, but for the length of the filter, which is another matter.
fn printed(root: bool) -> String {
    let placement = Placement { id: "s1".into(), cgroup_parent: None };
    let text = plan(&base(), &facts(root), &placement).unwrap().to_string();
    let lines = text
        .lines()
        .map(|line| line.split(" of ").next().filter(|_| line.contains("seccomp filter")).unwrap_or(line));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_plan_of_base_for_root() {
    let plan = printed(true);
    assert_eq!(plan, include_str!("plans/base.root.txt"), "\n{plan}");
}

#[test]
fn the_plan_of_base_for_an_ordinary_user() {
    let plan = printed(false);
    assert_eq!(plan, include_str!("plans/base.user.txt"), "\n{plan}");
}
