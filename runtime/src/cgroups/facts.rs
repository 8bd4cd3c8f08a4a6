//! Which cgroup hierarchies this process sees, and where it stands in each.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use serde::{Deserialize, Serialize};

use super::error::CgroupError;

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
        text.split_ascii_whitespace()
            .filter_map(Self::from_name)
            .collect()
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
    /// The caller's cgroup as an absolute path below `mount`; absent if the mount does not show it.
    /// The leaf that Airlock once moved itself into counts as its parent.
    pub own: Option<PathBuf>,
    /// Controllers that the caller's cgroup can hand to its children.
    pub controllers: Vec<Controller>,
    /// Controllers at the top of the mount.
    pub root_controllers: Vec<Controller>,
    /// The caller may make cgroups in its own one.
    pub writable: bool,
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
        let read = |path: &str| std::fs::read(path).map_err(|source| CgroupError::io("read", path, source));
        let mut facts = Self::parse(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?);
        for tree in &mut facts.v1 {
            tree.writable = tree
                .own
                .as_ref()
                .is_some_and(|own| writable(&below(&tree.mount, own)));
        }
        if let Some(tree) = &mut facts.v2 {
            let controllers = |dir: &Path| {
                std::fs::read_to_string(dir.join("cgroup.controllers"))
                    .map(|text| Controller::list(&text))
                    .unwrap_or_default()
            };
            tree.root_controllers = controllers(&tree.mount);
            if let Some(own) = &tree.own {
                let own = below(&tree.mount, own);
                tree.controllers = controllers(&own);
                tree.writable = writable(&own);
            }
        }
        Ok(facts)
    }

    /// The facts that `/proc/self/mountinfo` and `/proc/self/cgroup` (proc(5), cgroups(7)) tell by
    /// themselves: nothing is writable yet, and v2 has no controllers yet.
    ///
    /// Lines that make no sense are skipped; mounts hidden below later ones are ignored.
    pub fn parse(mountinfo: &[u8], cgroup: &[u8]) -> Self {
        let mounts: Vec<Mount> = mountinfo
            .split(|&b| b == b'\n')
            .filter_map(Mount::parse)
            .collect();
        let visible: Vec<&Mount> = mounts
            .iter()
            .filter(|m| m.fstype.starts_with(b"cgroup") && !m.is_hidden(&mounts))
            .collect();
        let mut facts = Self {
            layout: Layout::None,
            v1: Vec::new(),
            v2: None,
        };
        for line in cgroup.split(|&b| b == b'\n') {
            // The path comes last and may hold colons; mkdir on cgroupfs refuses newlines.
            let mut fields = line.splitn(3, |&b| b == b':');
            let (Some(hierarchy), Some(names), Some(path)) = (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            if hierarchy == b"0" && names.is_empty() {
                let candidates = visible.iter().filter(|m| m.fstype == b"cgroup2");
                if let Some((mount, own)) = locate(candidates, path) {
                    let own = own.map(beside_supervisor_leaf);
                    facts.v2 = Some(V2Tree {
                        mount,
                        own,
                        controllers: vec![],
                        root_controllers: vec![],
                        writable: false,
                    });
                }
                continue;
            }
            let names: Vec<&[u8]> = names.split(|&b| b == b',').collect();
            if names
                .iter()
                .any(|name| name.is_empty() || name.starts_with(b"name="))
            {
                continue;
            }
            let candidates = visible.iter().filter(|m| {
                m.fstype == b"cgroup"
                    && names
                        .iter()
                        .all(|name| m.options.split(|&b| b == b',').any(|option| option == *name))
            });
            if let Some((mount, own)) = locate(candidates, path) {
                let controllers = names
                    .iter()
                    .filter_map(|name| Controller::from_name(std::str::from_utf8(name).ok()?))
                    .collect();
                facts.v1.push(V1Tree {
                    controllers,
                    mount,
                    own,
                    writable: false,
                });
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

/// `path`, which is absolute within a hierarchy, below that hierarchy's mount point.
pub(super) fn below(mount: &Path, path: &Path) -> PathBuf {
    mount.join(path.strip_prefix("/").unwrap_or(path))
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
        mounts.iter().any(|m| {
            line.contains(&m.parent)
                && !line.contains(&m.id)
                && Path::starts_with(path(self.point), path(m.point))
        })
    }
}

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// The first candidate that shows the cgroup, else the first one.
fn locate<'a>(
    candidates: impl Iterator<Item = &'a &'a Mount<'a>> + Clone,
    cgroup: &[u8],
) -> Option<(PathBuf, Option<PathBuf>)> {
    let located = candidates.map(|mount| (unescape(mount.point), own_path(&unescape(mount.root), cgroup)));
    located
        .clone()
        .find(|(_, own)| own.is_some())
        .or_else(|| located.into_iter().next())
}

/// A cgroup's path below a mount whose root is `root`; both are relative to the cgroup namespace.
///
/// Absent where the mount does not show it: another subtree, above the namespace's root
/// (`/..`, cgroup_namespaces(7)), or removed.
fn own_path(root: &Path, cgroup: &[u8]) -> Option<PathBuf> {
    let cgroup = path(cgroup);
    let plain = |p: &Path| {
        p.components()
            .all(|c| matches!(c, Component::RootDir | Component::Normal(_)))
    };
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
    let pid = own
        .file_name()
        .and_then(|name| name.as_bytes().strip_prefix(SUPERVISOR_LEAF.as_bytes()));
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
