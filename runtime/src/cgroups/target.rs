//! Which directories one sandbox gets, in which trees. Pure.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use oci_spec::runtime::LinuxResources;

use super::error::CgroupError;
use super::facts::{CgroupFacts, Controller, Version, below};
use super::limits::{self, LimitWrite};
use super::manager::Manager;
use crate::spec::BestEffort;

/// A path from the root of a hierarchy to a cgroup that is not the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupPath(PathBuf);

impl CgroupPath {
    /// Checks component by component: absolute, not `/`, no `.`, `..` or empty component, no control
    /// characters (crun 1.28 and 1.29 fixed escapes through such paths).
    pub fn new(path: impl AsRef<Path>) -> Result<Self, CgroupError> {
        let path = path.as_ref();
        let invalid = |reason| CgroupError::InvalidPath { path: path.into(), reason };
        let text = path.as_os_str().as_bytes();
        let Some(relative) = text.strip_prefix(b"/") else {
            return Err(invalid("must be absolute"));
        };
        if relative.is_empty() {
            return Err(invalid("must not be the root of the hierarchy"));
        }
        for component in relative.split(|&b| b == b'/') {
            check_name(component).map_err(invalid)?;
        }
        Ok(Self(path.into()))
    }

    fn components(&self) -> Vec<OsString> {
        self.0.components().filter(|c| *c != Component::RootDir).map(|c| c.as_os_str().into()).collect()
    }
}

/// One component of a cgroup path.
pub(super) fn check_name(name: &[u8]) -> Result<(), &'static str> {
    match name {
        b"" => Err("has an empty component"),
        b"." | b".." => Err("has a `.` or `..` component"),
        _ if name.len() > 255 => Err("has a component longer than 255 bytes"),
        _ if name.iter().any(|&b| b == b'/' || b < 0x20 || b == 0x7f) => {
            Err("has a control character or a slash in a component")
        }
        _ => Ok(()),
    }
}

/// What a sandbox needs from its cgroup.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// Controllers that a limit needs: each one is had, lowered by best effort, or an error.
    pub limits: BTreeSet<Controller>,
    /// Controllers of limits that nobody asked for, such as none of huge pages; never an error.
    pub implied: BTreeSet<Controller>,
    /// The device filter: had, lowered by best effort, or an error.
    pub devices: bool,
    /// Statistics are read where the caller may make cgroups; never an error.
    pub statistics: bool,
    /// Whole-tree kill and freeze, where the caller may make cgroups; never an error.
    pub control: bool,
    /// Clauses that may be lowered.
    pub best_effort: BTreeSet<BestEffort>,
}

impl Needs {
    /// The needs of an OCI resources table, with statistics and control.
    pub fn new(resources: &LinuxResources, best_effort: &BTreeSet<BestEffort>) -> Result<Self, CgroupError> {
        let (limits, implied) = limits::controllers(resources)?;
        Ok(Self {
            limits,
            implied,
            devices: resources.devices().as_ref().is_some_and(|rules| !rules.is_empty()),
            statistics: true,
            control: true,
            best_effort: best_effort.clone(),
        })
    }
}

/// One directory to make in one tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeTarget {
    /// The tree's interface.
    pub version: Version,
    /// Where the tree is mounted.
    pub mount: PathBuf,
    /// The cgroup that the mount shows as its top.
    pub root: PathBuf,
    /// Existing directory where making starts: the caller's own cgroup, or the mount for an explicit parent.
    pub base: PathBuf,
    /// Directories below `base` that are made if absent, outermost first.
    pub parents: Vec<OsString>,
    /// The sandbox's own directory, which must not exist.
    pub name: OsString,
    /// Controllers of this tree that limits need.
    pub required: BTreeSet<Controller>,
    /// Controllers of this tree that are used if they are there.
    pub wanted: BTreeSet<Controller>,
}

impl TreeTarget {
    /// The sandbox's own directory.
    pub fn path(&self) -> PathBuf {
        let mut path = self.base.clone();
        path.extend(&self.parents);
        path.join(&self.name)
    }

    /// Whether `/proc/PID/cgroup` (cgroups(7)) puts its process into the sandbox's own directory of this tree.
    pub fn holds(&self, cgroup: &str) -> bool {
        let path = self.path();
        let Ok(shown) = path.strip_prefix(&self.mount) else { return false };
        let found = cgroup.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (number, names, path) = (fields.next()?, fields.next()?, fields.next()?);
            let serves =
                |controller| self.required.contains(&controller) || self.wanted.contains(&controller);
            let ours = match self.version {
                Version::V1 => names.split(',').filter_map(Controller::from_name).any(serves),
                Version::V2 => number == "0" && names.is_empty(),
            };
            ours.then_some(path)
        });
        found.is_some_and(|found| Path::new(found) == self.root.join(shown))
    }
}

/// The directories of one sandbox.
#[derive(Clone, Debug)]
pub struct CgroupTarget {
    /// Name of the sandbox's directory in each tree.
    pub name: String,
    /// One entry per tree, v1 trees first; empty if nothing is needed or all was lowered.
    pub trees: Vec<TreeTarget>,
    /// What best effort gave up, in words.
    pub lowered: Vec<String>,
    /// Controllers whose limits best effort gave up.
    pub(super) skipped: BTreeSet<Controller>,
    /// Clauses that may be lowered.
    pub(super) best_effort: BTreeSet<BestEffort>,
}

impl CgroupTarget {
    /// Places a sandbox named `name` below the caller's own cgroup, or below `parent`, which is counted from
    /// the root of each mounted hierarchy.
    ///
    /// An explicit parent is made if absent, and marked; the last sandbox in it removes it again. A parent without the
    /// mark is left alone. It is never lowered: if it cannot be written, creation fails.
    pub fn new(
        facts: &CgroupFacts,
        parent: Option<&CgroupPath>,
        name: &str,
        needs: &Needs,
    ) -> Result<Self, CgroupError> {
        check_name(name.as_bytes())
            .map_err(|reason| CgroupError::InvalidPath { path: name.into(), reason })?;
        let mut plan = Placement { facts, parent, name: name.as_ref(), trees: Vec::new() };
        let mut target = Self {
            name: name.into(),
            trees: Vec::new(),
            lowered: Vec::new(),
            skipped: BTreeSet::new(),
            best_effort: needs.best_effort.clone(),
        };
        for &controller in &needs.limits {
            match plan.place(controller) {
                Ok(tree) => drop(tree.required.insert(controller)),
                Err(error) if needs.best_effort.contains(&BestEffort::Limits) => {
                    target.lowered.push(format!("{controller} limit: {error}"));
                    target.skipped.insert(controller);
                }
                Err(error) => return Err(error),
            }
        }
        if needs.devices {
            match plan.place_device_filter() {
                Ok(()) => {}
                Err(error) if needs.best_effort.contains(&BestEffort::Devices) => {
                    target.lowered.push(format!("device filter: {error}"));
                }
                Err(error) => return Err(error),
            }
        }
        needs.implied.iter().for_each(|&controller| plan.want(controller));
        if needs.control && plan.enter_v2().is_err() {
            plan.want(Controller::Freezer);
        }
        if needs.statistics {
            if plan.enter_v2().is_err() {
                plan.want(Controller::CpuAcct);
            }
            for controller in [Controller::Memory, Controller::Pids, Controller::Io] {
                plan.want(controller);
            }
        }
        target.trees = plan.trees;
        target.trees.sort_by_key(|tree| tree.version == Version::V2);
        Ok(target)
    }
}

impl CgroupTarget {
    /// Whether [`Cgroup::freeze`](super::Cgroup::freeze) will have a directory to do it in.
    pub fn can_freeze(&self) -> bool {
        let freezer = |tree: &TreeTarget| {
            tree.wanted.contains(&Controller::Freezer) || tree.required.contains(&Controller::Freezer)
        };
        self.trees.iter().any(|tree| tree.version == Version::V2 || freezer(tree))
    }

    /// The limits as files and values.
    pub(crate) fn limit_writes(&self, resources: &LinuxResources) -> Result<Vec<LimitWrite>, CgroupError> {
        let serves = |tree: &&TreeTarget, controller| {
            tree.required.contains(&controller) || tree.wanted.contains(&controller)
        };
        let version =
            |controller| self.trees.iter().find(|tree| serves(tree, controller)).map(|tree| tree.version);
        limits::writes(resources, version, &self.skipped)
    }
}

struct Placement<'a> {
    facts: &'a CgroupFacts,
    parent: Option<&'a CgroupPath>,
    name: &'a OsStr,
    trees: Vec<TreeTarget>,
}

impl Placement<'_> {
    /// The tree that has a controller, entered into the target.
    fn place(&mut self, controller: Controller) -> Result<&mut TreeTarget, CgroupError> {
        let facts = self.facts;
        if let Some(tree) = facts.v1.iter().find(|tree| tree.controllers.contains(&controller)) {
            return self.enter(Version::V1, (&tree.mount, &tree.root), tree.own.as_deref(), tree.writable);
        }
        self.check_manager()?;
        let offered = facts.v2.as_ref().is_some_and(|tree| {
            let own = if self.parent.is_some() { &tree.root_controllers } else { &tree.controllers };
            own.contains(&controller)
        });
        if offered { self.enter_v2() } else { Err(CgroupError::NoController { controller }) }
    }

    /// systemd's own cgroups are left alone, even by root, who could write to them.
    fn check_manager(&self) -> Result<(), CgroupError> {
        match self.facts.v2.as_ref().map(|tree| (tree, &tree.manager)) {
            Some((tree, Manager::Refused(why))) if self.parent.is_none() => Err(CgroupError::NoScope {
                path: below(&tree.mount, tree.own.as_deref().unwrap_or(Path::new("/"))),
                why: why.clone(),
            }),
            _ => Ok(()),
        }
    }

    fn enter_v2(&mut self) -> Result<&mut TreeTarget, CgroupError> {
        self.check_manager()?;
        match &self.facts.v2 {
            Some(tree) => {
                self.enter(Version::V2, (&tree.mount, &tree.root), tree.own.as_deref(), tree.writable)
            }
            None => Err(CgroupError::NoController { controller: Controller::Freezer }),
        }
    }

    /// A controller that is used if it can be had.
    fn want(&mut self, controller: Controller) {
        if let Ok(tree) = self.place(controller) {
            tree.wanted.insert(controller);
        }
    }

    /// Where both interfaces exist both must allow an access, and either alone could be undone by its owner.
    fn place_device_filter(&mut self) -> Result<(), CgroupError> {
        let v1 = self.facts.v1.iter().any(|tree| tree.controllers.contains(&Controller::Devices));
        if v1 {
            self.place(Controller::Devices)?.required.insert(Controller::Devices);
        }
        if self.facts.v2.is_some() {
            self.enter_v2()?;
        }
        if v1 || self.facts.v2.is_some() { Ok(()) } else { Err(CgroupError::NoDeviceFilter) }
    }

    fn enter(
        &mut self,
        version: Version,
        (mount, root): (&Path, &Path),
        own: Option<&Path>,
        writable: bool,
    ) -> Result<&mut TreeTarget, CgroupError> {
        if let Some(index) = self.trees.iter().position(|tree| tree.mount == mount) {
            return Ok(&mut self.trees[index]);
        }
        let (base, parents) = match self.parent {
            Some(parent) => (mount.to_path_buf(), parent.components()),
            None => {
                let own = own.ok_or_else(|| CgroupError::NotVisible { mount: mount.into() })?;
                let base = below(mount, own);
                if !writable {
                    return Err(CgroupError::NotDelegated { path: base });
                }
                (base, Vec::new())
            }
        };
        self.trees.push(TreeTarget {
            version,
            mount: mount.into(),
            root: root.into(),
            base,
            parents,
            name: self.name.into(),
            required: BTreeSet::new(),
            wanted: BTreeSet::new(),
        });
        let last = self.trees.len() - 1;
        Ok(&mut self.trees[last])
    }
}

#[cfg(test)]
mod tests {
    use oci_spec::runtime::{LinuxCpuBuilder, LinuxMemoryBuilder, LinuxPidsBuilder, LinuxResourcesBuilder};

    use super::*;
    use crate::cgroups::{Layout, ScopeError, V1Tree, V2Tree};

    fn v1(controller: Controller, own: &str) -> V1Tree {
        V1Tree {
            controllers: vec![controller],
            mount: format!("/cg/{controller}").into(),
            root: "/".into(),
            own: Some(own.into()),
            writable: true,
        }
    }

    fn v2(controllers: &[Controller]) -> V2Tree {
        V2Tree {
            mount: "/cg/unified".into(),
            root: "/".into(),
            own: Some("/scope".into()),
            controllers: controllers.to_vec(),
            root_controllers: controllers.to_vec(),
            writable: true,
            manager: Manager::Cgroupfs,
        }
    }

    fn hybrid() -> CgroupFacts {
        use Controller::*;
        let trees = [Cpu, CpuAcct, CpuSet, Devices, Freezer, Io, Pids].map(|c| v1(c, "/"));
        let mut trees = trees.to_vec();
        trees.push(v1(Memory, "/deep/er"));
        CgroupFacts { layout: Layout::Hybrid, v1: trees, v2: Some(v2(&[HugeTlb])) }
    }

    fn needs() -> Needs {
        let resources = LinuxResourcesBuilder::default()
            .memory(LinuxMemoryBuilder::default().limit(1 << 30).build().unwrap())
            .pids(LinuxPidsBuilder::default().limit(64).build().unwrap())
            .cpu(LinuxCpuBuilder::default().quota(100_000).build().unwrap())
            .build()
            .unwrap();
        Needs::new(&resources, &BTreeSet::new()).unwrap()
    }

    fn paths(target: &CgroupTarget) -> Vec<String> {
        let mut paths: Vec<_> = target.trees.iter().map(|tree| tree.path().display().to_string()).collect();
        paths.sort();
        paths
    }

    #[test]
    fn below_the_callers_own_cgroup_only_the_trees_needed() {
        let mut needs = needs();
        needs.implied.clear();
        needs.statistics = false;
        needs.control = false;
        let target = CgroupTarget::new(&hybrid(), None, "box", &needs).unwrap();
        assert_eq!(
            paths(&target),
            ["/cg/cpu/box", "/cg/memory/deep/er/box", "/cg/pids/box"],
            "each tree has its own place"
        );
        needs.control = true;
        needs.devices = true;
        let target = CgroupTarget::new(&hybrid(), None, "box", &needs).unwrap();
        assert!(paths(&target).contains(&"/cg/unified/scope/box".into()));
        assert!(paths(&target).contains(&"/cg/devices/box".into()));
        assert!(!paths(&target).iter().any(|path| path.contains("freezer")), "v2 freezes");
        assert_eq!(target.trees.last().unwrap().version, Version::V2);
    }

    #[test]
    fn an_explicit_parent_counts_from_the_root_of_each_tree() {
        let parent = CgroupPath::new("/tests/a").unwrap();
        let target = CgroupTarget::new(&hybrid(), Some(&parent), "box", &needs()).unwrap();
        assert!(paths(&target).contains(&"/cg/memory/tests/a/box".into()));
        assert!(target.trees.iter().all(|tree| tree.base == tree.mount && tree.parents == ["tests", "a"]));
    }

    /// A container without a cgroup namespace: its mounts begin at its own cgroup, `/proc/PID/cgroup` does not.
    #[test]
    fn a_process_is_found_in_the_tree_it_is_in_and_no_other() {
        let mut facts = hybrid();
        facts.v1.iter_mut().for_each(|tree| tree.root = "/pod/a".into());
        facts.v2.as_mut().unwrap().root = "/pod/a".into();
        let target = CgroupTarget::new(&facts, None, "box", &needs()).unwrap();
        let tree = |name: &str| target.trees.iter().find(|tree| tree.mount.ends_with(name)).unwrap();
        let memory = tree("memory");
        assert!(memory.holds("7:pids:/pod/a/box\n4:memory:/pod/a/deep/er/box\n0::/pod/a\n"));
        for elsewhere in
            ["/pod/a/deep/er", "/deep/er/box", "/pod/b/deep/er/box", "/pod/a/deep/er/box/in", "/"]
        {
            assert!(
                !memory.holds(&format!("4:memory:{elsewhere}\n7:pids:/pod/a/deep/er/box\n")),
                "{elsewhere}"
            );
        }
        assert!(tree("unified").holds("4:memory:/\n0::/pod/a/scope/box\n"));
        assert!(!tree("unified").holds("4:memory:/pod/a/scope/box\n0::/pod/a/scope\n"));
    }

    #[test]
    fn pure_v1_freezes_and_counts_cpu_time_by_its_own_trees() {
        let mut facts = hybrid();
        facts.v2 = None;
        let needs = Needs { statistics: true, control: true, ..Needs::default() };
        let target = CgroupTarget::new(&facts, None, "box", &needs).unwrap();
        let trees =
            ["/cg/cpuacct/box", "/cg/freezer/box", "/cg/io/box", "/cg/memory/deep/er/box", "/cg/pids/box"];
        assert_eq!(paths(&target), trees);
    }

    #[test]
    fn pure_v2_has_one_directory() {
        let facts = CgroupFacts {
            layout: Layout::V2,
            v1: vec![],
            v2: Some(v2(&[Controller::Memory, Controller::Pids, Controller::Cpu])),
        };
        let mut needs = needs();
        needs.devices = true;
        let target = CgroupTarget::new(&facts, None, "box", &needs).unwrap();
        assert_eq!(paths(&target), ["/cg/unified/scope/box"]);
        assert_eq!(target.trees[0].required, needs.limits);
    }

    #[test]
    fn an_absent_controller_is_named_unless_best_effort_lowers_it() {
        let mut facts = hybrid();
        facts.v1.retain(|tree| tree.controllers != [Controller::Pids]);
        let mut needs = needs();
        let error = CgroupTarget::new(&facts, None, "box", &needs).unwrap_err();
        assert!(matches!(error, CgroupError::NoController { controller: Controller::Pids }));
        needs.best_effort.insert(BestEffort::Limits);
        let target = CgroupTarget::new(&facts, None, "box", &needs).unwrap();
        assert_eq!(target.lowered.len(), 1);
        assert!(target.lowered[0].starts_with("pids limit: "));
        assert_eq!(target.skipped, BTreeSet::from([Controller::Pids]));
    }

    #[test]
    fn without_a_delegated_cgroup_the_remedy_is_named() {
        let mut facts = hybrid();
        facts.v1.iter_mut().for_each(|tree| tree.writable = false);
        facts.v2.as_mut().unwrap().writable = false;
        let mut needs = needs();
        let error = CgroupTarget::new(&facts, None, "box", &needs).unwrap_err().to_string();
        assert!(error.starts_with("no delegated cgroup: ") && error.contains("Delegate=yes"), "{error}");
        needs.devices = true;
        needs.best_effort = BTreeSet::from([BestEffort::Limits, BestEffort::Devices]);
        let target = CgroupTarget::new(&facts, None, "box", &needs).unwrap();
        assert!(target.trees.is_empty());
        assert_eq!(target.lowered.len(), 4);
        let nothing = Needs { statistics: true, control: true, ..Needs::default() };
        assert!(CgroupTarget::new(&facts, None, "box", &nothing).unwrap().trees.is_empty());
    }

    #[test]
    fn what_systemd_gives_no_scope_for_is_refused_or_lowered_unless_a_parent_is_named() {
        let tree = V2Tree { manager: Manager::Refused(ScopeError::NoBus), ..v2(&[Controller::Pids]) };
        let facts = CgroupFacts { layout: Layout::V2, v1: vec![], v2: Some(tree) };
        let mut needs = Needs { limits: BTreeSet::from([Controller::Pids]), ..Needs::default() };
        let error = CgroupTarget::new(&facts, None, "box", &needs).unwrap_err().to_string();
        for piece in ["/cg/unified/scope is systemd's", "XDG_RUNTIME_DIR", "; ", "--cgroup-parent"] {
            assert!(error.contains(piece), "{error}");
        }
        let parent = CgroupPath::new("/tests").unwrap();
        assert_eq!(CgroupTarget::new(&facts, Some(&parent), "box", &needs).unwrap().trees.len(), 1);
        needs.best_effort = BTreeSet::from([BestEffort::Limits]);
        assert_eq!(CgroupTarget::new(&facts, None, "box", &needs).unwrap().lowered.len(), 1);
    }

    #[test]
    fn a_device_filter_without_a_place_is_an_error() {
        let facts = CgroupFacts { layout: Layout::None, v1: vec![], v2: None };
        let needs = Needs { devices: true, ..Needs::default() };
        assert!(matches!(CgroupTarget::new(&facts, None, "box", &needs), Err(CgroupError::NoDeviceFilter)));
    }

    /// crun 1.28 and 1.29: a delegate path with `..` left the sub-cgroup.
    #[test]
    fn paths_that_could_leave_are_refused() {
        for path in ["", "/", "a", "//", "/a//b", "/a/", "/a/../b", "/..", "/.", "/a/./b", "/a\nb", "/\u{7f}"]
        {
            assert!(matches!(CgroupPath::new(path), Err(CgroupError::InvalidPath { .. })), "{path:?}");
        }
        assert!(CgroupPath::new("/a/b..c").is_ok());
        for name in ["", ".", "..", "a/b", "/a", "a\0"] {
            let result = CgroupTarget::new(&hybrid(), None, name, &Needs::default());
            assert!(matches!(result, Err(CgroupError::InvalidPath { .. })), "{name:?}");
        }
    }
}
