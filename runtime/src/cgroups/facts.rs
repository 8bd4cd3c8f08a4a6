//! Which cgroup hierarchies this process sees, and where it stands in each.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use serde::{Deserialize, Serialize};

use super::error::CgroupError;
use super::manager::Manager;

/// Prefix of the leaf into which Airlock moves itself so that its own cgroup may have controlled children.
pub(super) const SUPERVISOR_LEAF: &str = "supervisor-";

/// The controllers that Airlock uses; others are left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Controller {
    /// CPU quota and weight.
    Cpu,
    /// CPU time used (v1 only; v2 counts it without a controller).
    CpuAcct,
    /// CPUs and memory nodes.
    CpuSet,
    /// Memory and swap.
    Memory,
    /// Number of tasks.
    Pids,
    /// Block IO: `blkio` on v1, `io` on v2.
    Io,
    /// Device access (v1 only; v2 uses a BPF program).
    Devices,
    /// Freezing (v1 only; v2 freezes without a controller).
    Freezer,
    /// Huge pages.
    HugeTlb,
}

impl Controller {
    /// By its name in `/proc/PID/cgroup` (v1) or `cgroup.controllers` (v2).
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "cpu" => Self::Cpu,
            "cpuacct" => Self::CpuAcct,
            "cpuset" => Self::CpuSet,
            "memory" => Self::Memory,
            "pids" => Self::Pids,
            "blkio" | "io" => Self::Io,
            "devices" => Self::Devices,
            "freezer" => Self::Freezer,
            "hugetlb" => Self::HugeTlb,
            _ => return None,
        })
    }

    /// Its name in cgroup v2, which v1 shares but for `blkio`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::CpuAcct => "cpuacct",
            Self::CpuSet => "cpuset",
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Io => "io",
            Self::Devices => "devices",
            Self::Freezer => "freezer",
            Self::HugeTlb => "hugetlb",
        }
    }

    /// The known names of a list separated by white space, as in `cgroup.controllers`.
    pub(super) fn list(text: &str) -> Vec<Self> {
        text.split_ascii_whitespace().filter_map(Self::from_name).collect()
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The two cgroup interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// One tree per controller, or set of controllers.
    V1,
    /// One tree for all controllers.
    V2,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1 => "v1",
            Self::V2 => "v2",
        })
    }
}

/// Which interfaces are mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Only v1 trees.
    V1,
    /// Only the v2 tree.
    V2,
    /// Both.
    Hybrid,
    /// Neither.
    None,
}

/// A mounted v1 hierarchy with at least one controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct V1Tree {
    /// Its controllers, of those that Airlock knows.
    pub controllers: Vec<Controller>,
    /// Where it is mounted.
    pub mount: PathBuf,
    /// The cgroup that the mount shows as its top, as `/proc/PID/cgroup` counts: `/` but in containers.
    pub root: PathBuf,
    /// The caller's cgroup as an absolute path below `mount`; absent if the mount does not show it.
    pub own: Option<PathBuf>,
    /// The caller may make cgroups in its own one.
    pub writable: bool,
}

/// The mounted v2 hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct V2Tree {
    /// Where it is mounted.
    pub mount: PathBuf,
    /// The cgroup that the mount shows as its top, as `/proc/PID/cgroup` counts: `/` but in containers.
    pub root: PathBuf,
    /// The caller's cgroup as an absolute path below `mount`; absent if the mount does not show it.
    /// The leaf that Airlock once moved itself into counts as its parent.
    pub own: Option<PathBuf>,
    /// Controllers that the caller's cgroup can hand to its children.
    pub controllers: Vec<Controller>,
    /// Controllers at the top of the mount.
    pub root_controllers: Vec<Controller>,
    /// The caller may make cgroups in its own one.
    pub writable: bool,
    /// Who manages the caller's own cgroup.
    pub manager: Manager,
}

/// The cgroup hierarchies as this process sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupFacts {
    /// Which interfaces are mounted.
    pub layout: Layout,
    /// The v1 trees, in the order of `/proc/self/cgroup`.
    pub v1: Vec<V1Tree>,
    /// The v2 tree.
    pub v2: Option<V2Tree>,
}

impl CgroupFacts {
    /// Reads this process's facts from the kernel.
    pub fn read() -> Result<Self, CgroupError> {
        Self::read_with(&read("/proc/self/mountinfo")?)
    }

    /// [`CgroupFacts::read`] with the text of `/proc/self/mountinfo`, which a launch has read already.
    pub(crate) fn read_with(mountinfo: &[u8]) -> Result<Self, CgroupError> {
        let mut facts = Self::parse(mountinfo, &read("/proc/self/cgroup")?);
        for tree in &mut facts.v1 {
            tree.writable = tree.own.as_ref().is_some_and(|own| writable(&below(&tree.mount, own)));
        }
        if let Some(tree) = &mut facts.v2 {
            let controllers = |dir: &Path| {
                let file = dir.join("cgroup.controllers");
                match std::fs::read_to_string(&file) {
                    Ok(text) => Ok(Controller::list(&text)),
                    // Covered by another mount, or not for this caller to see.
                    Err(error)
                        if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) =>
                    {
                        Ok(Vec::new())
                    }
                    Err(source) => Err(CgroupError::io("read", file, source)),
                }
            };
            tree.root_controllers = controllers(&tree.mount)?;
            if let Some(own) = &tree.own {
                let own = below(&tree.mount, own);
                tree.controllers =
                    if own == tree.mount { tree.root_controllers.clone() } else { controllers(&own)? };
                tree.writable = writable(&own);
            }
            // On hybrid hosts the limits are in v1 trees, which systemd delegates to nobody.
            if let (Layout::V2, Some(own)) = (facts.layout, &tree.own) {
                tree.manager = Manager::of(&tree.mount, own);
            }
        }
        Ok(facts)
    }

    /// The facts that `/proc/self/mountinfo` and `/proc/self/cgroup` (proc(5), cgroups(7)) tell by
    /// themselves: nothing is writable yet, and v2 has no controllers and no manager yet.
    ///
    /// Lines that make no sense are skipped; mounts hidden below later ones are ignored.
    pub fn parse(mountinfo: &[u8], cgroup: &[u8]) -> Self {
        let mounts: Vec<Mount> = mountinfo.split(|&b| b == b'\n').filter_map(Mount::parse).collect();
        let visible: Vec<&Mount> =
            mounts.iter().filter(|m| m.fstype.starts_with(b"cgroup") && !m.is_hidden(&mounts)).collect();
        let mut facts = Self { layout: Layout::None, v1: Vec::new(), v2: None };
        for line in cgroup.split(|&b| b == b'\n') {
            // The path comes last and may hold colons; mkdir on cgroupfs refuses newlines.
            let mut fields = line.splitn(3, |&b| b == b':');
            let (Some(hierarchy), Some(names), Some(path)) = (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            if hierarchy == b"0" && names.is_empty() {
                let candidates = visible.iter().filter(|m| m.fstype == b"cgroup2");
                if let Some((mount, root, own)) = locate(candidates, path) {
                    let own = own.map(beside_supervisor_leaf);
                    facts.v2 = Some(V2Tree {
                        mount,
                        root,
                        own,
                        controllers: vec![],
                        root_controllers: vec![],
                        writable: false,
                        manager: Manager::Cgroupfs,
                    });
                }
                continue;
            }
            let names: Vec<&[u8]> = names.split(|&b| b == b',').collect();
            if names.iter().any(|name| name.is_empty() || name.starts_with(b"name=")) {
                continue;
            }
            let candidates = visible.iter().filter(|m| {
                m.fstype == b"cgroup"
                    && names.iter().all(|name| m.options.split(|&b| b == b',').any(|option| option == *name))
            });
            if let Some((mount, root, own)) = locate(candidates, path) {
                let controllers = names
                    .iter()
                    .filter_map(|name| Controller::from_name(std::str::from_utf8(name).ok()?))
                    .collect();
                facts.v1.push(V1Tree { controllers, mount, root, own, writable: false });
            }
        }
        facts.layout = match (facts.v1.is_empty(), &facts.v2) {
            (true, None) => Layout::None,
            (true, Some(_)) => Layout::V2,
            (false, None) => Layout::V1,
            (false, Some(_)) => Layout::Hybrid,
        };
        facts
    }

    /// Every mount point of a hierarchy listed here, with its version.
    pub(super) fn mounts(&self) -> impl Iterator<Item = (&Path, Version)> {
        let v1 = self.v1.iter().map(|tree| (tree.mount.as_path(), Version::V1));
        v1.chain(self.v2.iter().map(|tree| (tree.mount.as_path(), Version::V2)))
    }
}

fn read(path: &str) -> Result<Vec<u8>, CgroupError> {
    // Room for the usual file, so that one read takes it.
    let mut bytes = Vec::with_capacity(16 * 1024);
    let length = File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
    length.map(|_| bytes).map_err(|source| CgroupError::io("read", path, source))
}

/// `path`, which is absolute within a hierarchy, below that hierarchy's mount point.
pub(super) fn below(mount: &Path, path: &Path) -> PathBuf {
    match path.strip_prefix("/").unwrap_or(path) {
        // Joined to nothing, a path would end with a slash.
        top if top.as_os_str().is_empty() => mount.to_path_buf(),
        path => mount.join(path),
    }
}

fn writable(dir: &Path) -> bool {
    accessat(CWD, dir, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

/// The fields of one mountinfo line that matter here, still escaped.
struct Mount<'a> {
    id: &'a [u8],
    parent: &'a [u8],
    root: &'a [u8],
    point: &'a [u8],
    fstype: &'a [u8],
    options: &'a [u8],
}

impl<'a> Mount<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.split(|&b| b == b' ');
        let (id, parent) = (fields.next()?, fields.next()?);
        let (root, point) = (fields.nth(1)?, fields.next()?);
        // Optional fields end with a single hyphen.
        fields.find(|field| *field == b"-")?;
        let fstype = fields.next()?;
        let options = fields.nth(1)?;
        (root.starts_with(b"/") && point.starts_with(b"/")).then_some(Self {
            id,
            parent,
            root,
            point,
            fstype,
            options,
        })
    }

    /// Another mount covers this one, or a directory on the way to it.
    fn is_hidden(&self, mounts: &[Self]) -> bool {
        let mut line = vec![self.id];
        let mut parent = self.parent;
        while let Some(mount) = mounts.iter().find(|m| m.id == parent) {
            if line.contains(&mount.id) {
                break;
            }
            line.push(mount.id);
            parent = mount.parent;
        }
        mounts.iter().any(|m| line.contains(&m.parent) && !line.contains(&m.id) && m.covers(self.point))
    }

    /// `point` is this mount's point or lies below it.
    fn covers(&self, point: &[u8]) -> bool {
        self.point == b"/"
            || point.strip_prefix(self.point).is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
    }
}

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Point and root of the first candidate that shows the cgroup, else of the first one.
fn locate<'a>(
    candidates: impl Iterator<Item = &'a &'a Mount<'a>> + Clone,
    cgroup: &[u8],
) -> Option<(PathBuf, PathBuf, Option<PathBuf>)> {
    let located = candidates.map(|mount| {
        let root = unescape(mount.root);
        let own = own_path(&root, cgroup);
        (unescape(mount.point), root, own)
    });
    located.clone().find(|(_, _, own)| own.is_some()).or_else(|| located.into_iter().next())
}

/// A cgroup's path below a mount whose root is `root`; both are relative to the cgroup namespace.
///
/// Absent where the mount does not show it: another subtree, above the namespace's root
/// (`/..`, cgroup_namespaces(7)), or removed.
fn own_path(root: &Path, cgroup: &[u8]) -> Option<PathBuf> {
    let cgroup = path(cgroup);
    let plain = |p: &Path| p.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
    if !cgroup.is_absolute()
        || !plain(cgroup)
        || !plain(root)
        || cgroup.as_os_str().as_bytes().ends_with(b" (deleted)")
    {
        return None;
    }
    Some(Path::new("/").join(cgroup.strip_prefix(root).ok()?))
}

fn beside_supervisor_leaf(own: PathBuf) -> PathBuf {
    let pid = own.file_name().and_then(|name| name.as_bytes().strip_prefix(SUPERVISOR_LEAF.as_bytes()));
    match own.parent() {
        Some(parent) if pid.is_some_and(|pid| !pid.is_empty() && pid.iter().all(u8::is_ascii_digit)) => {
            parent.into()
        }
        _ => own,
    }
}

/// Undoes mountinfo's octal escapes (space, tab, newline, backslash).
fn unescape(bytes: &[u8]) -> PathBuf {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, tail)) = rest.split_first() {
        match tail {
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] if first == b'\\' => {
                plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail;
            }
            _ => {
                plain.push(first);
                rest = tail;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(plain))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const V1_MOUNTS: &str = "\
23 1 0:2 / / rw - ext4 /dev/root rw
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:5 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
";
    const V1_CGROUPS: &str = "9:name=systemd:/init.scope\n4:memory:/user/a:b\n3:cpu,cpuacct:/\n";

    fn parse(mountinfo: &str, cgroup: &str) -> CgroupFacts {
        CgroupFacts::parse(mountinfo.as_bytes(), cgroup.as_bytes())
    }

    #[test]
    fn v1_trees_may_hold_two_controllers_and_named_ones_are_left_alone() {
        let facts = parse(V1_MOUNTS, V1_CGROUPS);
        assert_eq!(facts.layout, Layout::V1);
        assert_eq!(facts.v1.len(), 2);
        assert_eq!(facts.v1[0].controllers, [Controller::Memory]);
        assert_eq!(facts.v1[0].own.as_deref(), Some(Path::new("/user/a:b")), "a path may hold colons");
        assert_eq!(facts.v1[1].controllers, [Controller::Cpu, Controller::CpuAcct]);
        assert_eq!(facts.v1[1].mount, Path::new("/sys/fs/cgroup/cpu,cpuacct"));
    }

    #[test]
    fn v2_alone() {
        let facts = parse(
            "23 1 0:2 / / rw - ext4 x rw\n30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n",
            "0::/user.slice/session-1.scope\n",
        );
        assert_eq!(facts.layout, Layout::V2);
        assert_eq!(facts.v2.unwrap().own.as_deref(), Some(Path::new("/user.slice/session-1.scope")));
    }

    #[test]
    fn hybrid() {
        let mounts = format!("{V1_MOUNTS}41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
        let facts = parse(&mounts, &format!("{V1_CGROUPS}0::/\n"));
        assert_eq!(facts.layout, Layout::Hybrid);
        assert_eq!(facts.v2.unwrap().mount, Path::new("/sys/fs/cgroup/unified"));
    }

    #[test]
    fn nothing_mounted() {
        assert_eq!(parse("23 1 0:2 / / rw - ext4 x rw\n", V1_CGROUPS).layout, Layout::None);
        assert_eq!(parse(V1_MOUNTS, "").layout, Layout::None);
        assert_eq!(parse("", "").layout, Layout::None);
    }

    /// A container without a cgroup namespace sees its own subtree mounted, but full paths in /proc.
    #[test]
    fn own_cgroups_are_counted_from_the_root_of_the_mount() {
        let mounts = "31 23 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n\
                      32 23 0:33 /docker/abc /sys/fs/cgroup/pids ro - cgroup cgroup rw,pids\n\
                      33 23 0:34 /docker/abc /sys/fs/cgroup/devices ro - cgroup cgroup rw,devices\n";
        let facts = parse(mounts, "3:memory:/docker/abc/x\n2:pids:/docker/abc\n1:devices:/docker/abcd\n");
        assert_eq!(facts.v1[0].own.as_deref(), Some(Path::new("/x")));
        assert_eq!(facts.v1[1].own.as_deref(), Some(Path::new("/")));
        assert_eq!(facts.v1[2].own, None, "a longer name is another cgroup");
    }

    #[test]
    fn cgroups_outside_the_namespace_or_removed_are_not_visible() {
        let mount = |root| format!("31 23 0:32 {root} /cg rw - cgroup2 cgroup2 rw\n");
        for (root, own) in [("/", "/../other"), ("/..", "/"), ("/", "/gone (deleted)"), ("/", "relative")] {
            assert_eq!(parse(&mount(root), &format!("0::{own}\n")).v2.unwrap().own, None, "{root} {own}");
        }
    }

    #[test]
    fn mount_points_are_unescaped() {
        let facts = parse("31 23 0:32 / /a\\040b\\134c\\011\\012d rw - cgroup2 none rw\n", "0::/\n");
        assert_eq!(facts.v2.unwrap().mount, Path::new("/a b\\c\t\nd"));
        assert_eq!(unescape(b"/\\9\\40\\777\\"), Path::new("/\\9\\40\\777\\"), "what is no escape stays");
    }

    #[test]
    fn hidden_mounts_are_ignored() {
        let covered = format!("{V1_MOUNTS}50 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        let facts = parse(&covered, &format!("{V1_CGROUPS}0::/\n"));
        assert_eq!(facts.layout, Layout::V2, "a mount over the parent directory hides what is below");
        let stacked = "31 1 0:32 /a /cg rw - cgroup2 none rw\n32 31 0:32 /b /cg rw - cgroup2 none rw\n";
        assert_eq!(parse(stacked, "0::/b/x\n").v2.unwrap().own.as_deref(), Some(Path::new("/x")));
    }

    #[test]
    fn the_leaf_that_airlock_moved_into_counts_as_its_parent() {
        let own = |path: &str| {
            let facts = parse("31 23 0:32 / /cg rw - cgroup2 none rw\n", &format!("0::{path}\n"));
            facts.v2.unwrap().own.unwrap()
        };
        assert_eq!(own("/scope/supervisor-12"), Path::new("/scope"));
        assert_eq!(own("/scope/supervisor-"), Path::new("/scope/supervisor-"));
        assert_eq!(own("/scope/supervisor-1x"), Path::new("/scope/supervisor-1x"));
    }

    #[test]
    fn damaged_lines_are_skipped() {
        let mounts = format!(
            "\n \n31\n31 23 0:32 / /x rw\n31 23 0:32 x y rw - cgroup2 n rw\n5 5 0:1 / / rw - cgroup c\n{V1_MOUNTS}"
        );
        let facts = parse(&mounts, &format!("::\n:\nx\n7:,:/\n6:memory\n{V1_CGROUPS}"));
        assert_eq!(facts, parse(V1_MOUNTS, V1_CGROUPS));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(
            mounts in proptest::collection::vec("[0-3] [0-3] 0:1 (/|/\\.\\.|/a) /[ab\\\\0/]{0,4} rw - (cgroup|cgroup2|x) n (rw|cpu)\n", 0..6),
            cgroup in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let text: String = mounts.concat();
            let facts = CgroupFacts::parse(text.as_bytes(), b"0::/a\n1:cpu:/a\n");
            for own in facts.v1.iter().map(|t| &t.own).chain(facts.v2.iter().map(|t| &t.own)).flatten() {
                prop_assert!(own.is_absolute() && own.components().all(|c| c != Component::ParentDir));
            }
            CgroupFacts::parse(&cgroup, &cgroup);
            CgroupFacts::parse(text.as_bytes(), &cgroup);
        }
    }
}
