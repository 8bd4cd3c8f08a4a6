//! The root file system of a plan: which mounts are made, what is put into them, and where they go.

mod bind;
mod devices;
mod overlay;

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use oci_spec::runtime::Mount;

use self::bind::source_error;
use self::overlay::whole_range;
use super::identity::Identity;
use super::options::{Options, is_read_write_bind};
use super::{Action, Entry, ExpectedMount, FileSystem, MountFlags, MountId, Owner, PlanError, Step, step};
use crate::gpu::ldcache;
use crate::host::{FileKind, HostFacts};
use crate::ids::{IdMapping, RANGE_LEN};
use crate::plan::step::Idmap;
use crate::spec::{Node, RootKind, Spec, Writable};

/// More mounts than this in one sandbox are taken for a mistake.
const MOST_MOUNTS: usize = 1024;
/// Size of an assembled root that is read-only: links, mount points and a few small files.
const SKELETON_SIZE: u64 = 16 << 20;

/// What of the kernel's file systems a tmpfs may cover: drivers' own words, which protect nothing, and a tree that no
/// sandbox has otherwise.
const COVERED: [&str; 2] = ["/proc/driver", "/sys"];

/// The steps that make and place the mounts.
#[derive(Default)]
pub(super) struct Layout {
    /// Mounts that the child makes and fills, before the old root goes: what it makes belongs to the sandbox.
    pub(super) made: Vec<Step>,
    /// Clones of the host's trees, and the device nodes that only root can make; on the host side for root.
    pub(super) brought: Vec<Step>,
    /// The mounts of `brought`.
    pub(super) handed_over: Vec<MountId>,
    /// Moves into place.
    pub(super) attach: Vec<Step>,
    pub(super) expected: Vec<ExpectedMount>,
}

/// What a path inside is known to be.
#[derive(Clone)]
enum Known {
    /// A directory in a mount that Airlock fills.
    Ours {
        mount: MountId,
        /// Path in that mount; empty: its root.
        inner: PathBuf,
    },
    /// The root of a mount whose contents belong to the host or to the kernel.
    Foreign,
    /// A file, link or device that Airlock makes.
    Leaf,
}

/// Where the layers of overlays are attached while they are laid.
#[derive(Clone, Copy)]
struct Scratch {
    mount: MountId,
    /// Holds the upper and work directories.
    upper: Option<MountId>,
}

struct Compiler<'a> {
    spec: &'a Spec,
    facts: &'a HostFacts,
    identity: &'a Identity,
    layout: Layout,
    known: HashMap<PathBuf, Known>,
    entries: Vec<Step>,
    /// Done after all entries are made.
    seals: Vec<Step>,
    /// The mount whose device nodes root makes.
    devices: Option<MountId>,
    /// Overlays: mounts attached in the scratch directory first.
    overlays: Vec<Step>,
    scratch: Option<Scratch>,
    next: u16,
}

pub(super) fn compile(
    spec: &Spec,
    facts: &HostFacts,
    identity: &Identity,
) -> Result<(Layout, Vec<Step>), PlanError> {
    let mounts = spec.oci.mounts().as_deref().unwrap_or_default();
    check_targets(spec, mounts)?;
    check_nesting(spec, facts, mounts)?;
    let mut compiler = Compiler {
        spec,
        facts,
        identity,
        layout: Layout::default(),
        known: HashMap::with_capacity(2 * (mounts.len() + spec.airlock.skeleton.len())),
        entries: Vec::new(),
        seals: Vec::new(),
        devices: None,
        overlays: Vec::new(),
        scratch: None,
        next: 0,
    };
    let root = compiler.root()?;
    for mount in mounts {
        compiler.mount(mount)?;
    }
    for node in &spec.airlock.skeleton {
        compiler.node(node)?;
    }
    compiler.devices()?;
    compiler.device_links()?;
    Ok(compiler.finish(root))
}

impl Compiler<'_> {
    fn id(&mut self) -> MountId {
        let id = MountId(self.next);
        self.next += 1;
        id
    }

    /// Plans `/` and returns the mount that is pivoted into.
    fn root(&mut self) -> Result<MountId, PlanError> {
        let writable = &self.spec.airlock.writable;
        let size = match writable {
            Writable::Tmpfs { size } => *size,
            Writable::None | Writable::Dir { .. } => SKELETON_SIZE,
        };
        let flags = MountFlags { read_only: *writable == Writable::None, no_dev: true, no_exec: false };
        let skeleton = self.tmpfs("root", size, 0o755, self.identity.root_owner, flags);
        self.known.insert("/".into(), Known::Ours { mount: skeleton, inner: PathBuf::new() });
        let mut root = skeleton;
        let mut file_system = FileSystem::Own("tmpfs");
        if let RootKind::Dir(path) = &self.spec.airlock.root {
            let facts = self.source("root.kind", path)?;
            if facts.kind != Some(FileKind::Directory) {
                return Err(source_error("root.kind", path, "is not a directory"));
            }
            let mapped = facts.uid < RANGE_LEN && facts.gid < RANGE_LEN;
            if self.identity.idmapped && *writable != Writable::None && !mapped {
                let why = format!(
                    "belongs to {}:{}, and a root that is written to is mapped from the ids below {RANGE_LEN} alone: \
                     `chown` it to ids of 0..{}, as those of an unpacked image are",
                    facts.uid,
                    facts.gid,
                    RANGE_LEN - 1,
                );
                return Err(source_error("root.kind", path, why));
            }
            let maps = || whole_range(self.identity.host_root);
            let idmap = self.identity.idmapped.then(|| Idmap { maps: maps(), required: false });
            let lower = self.tree(
                "root.kind",
                path,
                FileKind::Directory,
                MountFlags { read_only: true, ..flags },
                idmap,
            );
            root = self.overlay("root.kind", &[skeleton, lower], "root", flags)?;
            file_system = FileSystem::Own("overlay");
        }
        self.layout.expected.push(ExpectedMount {
            clause: "root.writable".into(),
            target: "/".into(),
            flags,
            file_system,
        });
        Ok(root)
    }

    fn mount(&mut self, mount: &Mount) -> Result<(), PlanError> {
        let target = mount.destination();
        let clause = self.clause(target);
        if let Some(why) = self.facts.crooked_targets.get(target) {
            return Err(target_error(&clause, target, why));
        }
        let options =
            Options::parse(mount).map_err(|source| PlanError::Option { clause: clause.clone(), source })?;
        let mut file = false;
        let mut within = Known::Foreign;
        let (id, file_system) = match mount.typ().as_deref() {
            Some("proc") => {
                let id = self.id();
                let step = step(&clause, Action::NewProc { mount: id });
                if self.facts.root && self.facts.proc_covered {
                    self.layout.brought.push(step);
                    self.layout.handed_over.push(id);
                } else {
                    self.layout.made.push(step);
                }
                (id, FileSystem::Own("proc"))
            }
            Some("devpts") => {
                let id = self.id();
                self.layout.made.push(step(&clause, Action::NewDevpts { mount: id }));
                (id, FileSystem::Own("devpts"))
            }
            Some("tmpfs") => {
                let size = options.size.unwrap_or(SKELETON_SIZE);
                let owner = self.owner(options.uid, options.gid)?;
                let mode = options.mode.unwrap_or(0o755);
                let id = if self.holds_devices(target) {
                    self.device_tmpfs(&clause, size, mode, options.flags)
                } else {
                    self.tmpfs(&clause, size, mode, owner, options.flags)
                };
                within = Known::Ours { mount: id, inner: PathBuf::new() };
                (id, FileSystem::Own("tmpfs"))
            }
            Some("bind") => {
                let source = mount
                    .source()
                    .as_ref()
                    .ok_or(PlanError::Missing { clause: "mount", what: "source for a bind mount" })?;
                if options.optional && is_absent(self.facts, source) {
                    return Ok(());
                }
                let (id, kind) = self.bind(&clause, source, &options)?;
                file = kind != FileKind::Directory;
                if file {
                    within = Known::Leaf;
                }
                let overlaid = self.is_overlaid(&clause, mount);
                (id, if overlaid { FileSystem::Own("overlay") } else { FileSystem::Host })
            }
            other => {
                return Err(PlanError::Target {
                    clause,
                    path: target.clone(),
                    why: format!(
                        "mounts of type {:?} are not supported (proc, tmpfs, devpts and bind are)",
                        other.unwrap_or("")
                    ),
                });
            }
        };
        let entry =
            if file { Entry::File { mode: 0o644, content: Vec::new() } } else { Entry::Dir { mode: 0o755 } };
        self.mount_point(&clause, target, entry)?;
        self.known.insert(target.clone(), within);
        self.layout.attach.push(step(&clause, Action::Attach { mount: id, target: target.clone() }));
        let mut flags = options.flags;
        flags.read_only &= file_system != FileSystem::Own("overlay");
        self.layout.expected.push(ExpectedMount { clause, target: target.clone(), flags, file_system });
        Ok(())
    }

    fn node(&mut self, node: &Node) -> Result<(), PlanError> {
        let (path, entry, owner) = match node {
            Node::Dir { path, mode, user_owned } => {
                let owner = if *user_owned { self.identity.user_owner } else { self.identity.root_owner };
                (path, Entry::Dir { mode: *mode }, owner)
            }
            Node::Link { path, target } => {
                (path, Entry::Link { target: target.clone() }, self.identity.root_owner)
            }
            Node::File { path, mode, content } => {
                let content = content.clone().into_bytes();
                (path, Entry::File { mode: *mode, content }, self.identity.root_owner)
            }
            Node::LoaderCache { path, entries } => {
                let content = ldcache::write(entries);
                (path, Entry::File { mode: 0o644, content }, self.identity.root_owner)
            }
            Node::Copy { path, source } => {
                (path, Entry::Copy { source: source.clone() }, self.identity.root_owner)
            }
        };
        if !matches!(node, Node::Dir { .. }) {
            self.check_displaced(path)?;
        }
        let clause = self.spec.airlock.origins.get(path).map_or("root.kind", String::as_str);
        self.entry(clause, path, entry, owner)
    }

    /// A file or a link of the skeleton gives way to a mounted file, and to nothing else.
    fn check_displaced(&self, path: &Path) -> Result<(), PlanError> {
        if matches!(self.known.get(path), None | Some(Known::Leaf)) {
            return Ok(());
        }
        let mut targets = self.spec.oci.mounts().iter().flatten().map(Mount::destination);
        let target = targets.find(|target| target.starts_with(path)).map_or(path, PathBuf::as_path);
        let why = format!(
            "{} is a file or a link inside: a directory can only be mounted over a directory, and nothing below a file",
            path.display(),
        );
        Err(target_error(&self.clause(target), target, &why))
    }

    fn mount_point(&mut self, clause: &str, target: &Path, entry: Entry) -> Result<(), PlanError> {
        let owner = self.identity.root_owner;
        self.entry(clause, target, entry, owner)
    }

    /// Plans an entry at `path` with the directories above it, in the mount that will cover its parent.
    /// Nothing is made in what belongs to the host: there the entry must exist.
    fn entry(&mut self, clause: &str, path: &Path, entry: Entry, owner: Owner) -> Result<(), PlanError> {
        if !is_plain_absolute(path) {
            return Err(target_error(clause, path, "must be absolute, without `.` or `..`"));
        }
        if self.known.contains_key(path) {
            return Ok(());
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(());
        };
        if let Known::Ours { mount, inner } = self.directory(clause, parent)? {
            let inner = inner.join(name);
            let owner = if self.devices == Some(mount) { self.identity.host_root } else { owner };
            let directory = matches!(entry, Entry::Dir { .. });
            self.entries.push(make(clause, mount, &inner, owner, entry));
            self.known.insert(
                path.to_path_buf(),
                if directory { Known::Ours { mount, inner } } else { Known::Leaf },
            );
        }
        Ok(())
    }

    /// What the directory at `path` will be, planned with those above it where nothing is known of them.
    fn directory(&mut self, clause: &str, path: &Path) -> Result<Known, PlanError> {
        match self.known.get(path) {
            Some(Known::Leaf) => {
                return Err(target_error(
                    clause,
                    path,
                    "is a file or a link, and something is to lie below it",
                ));
            }
            Some(known) => return Ok(known.clone()),
            None => {}
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(Known::Foreign);
        };
        let mut known = self.directory(clause, parent)?;
        if let Known::Ours { mount, inner } = &mut known {
            inner.push(name);
            let identity = self.identity;
            let owner = if self.devices == Some(*mount) { identity.host_root } else { identity.root_owner };
            self.entries.push(make(clause, *mount, inner, owner, Entry::Dir { mode: 0o755 }));
            self.known.insert(path.to_path_buf(), known.clone());
        }
        Ok(known)
    }

    fn tmpfs(&mut self, clause: &str, size: u64, mode: u32, owner: Owner, flags: MountFlags) -> MountId {
        let mount = self.id();
        let open = MountFlags { read_only: false, ..flags };
        self.layout.made.push(step(clause, Action::NewTmpfs { mount, size, mode, owner, flags: open }));
        if flags.read_only {
            self.seals.push(step(clause, Action::Seal { mount }));
        }
        mount
    }

    fn tree(
        &mut self,
        clause: &str,
        source: &Path,
        kind: FileKind,
        flags: MountFlags,
        idmap: Option<Idmap>,
    ) -> MountId {
        let mount = self.id();
        // The name without links, so that nothing can be put in its way between now and the launch.
        let source = self.facts.sources.get(source).map_or(source, |facts| &facts.resolved).to_path_buf();
        self.layout.brought.push(step(clause, Action::CloneTree { mount, source, kind, flags, idmap }));
        self.layout.handed_over.push(mount);
        mount
    }

    /// Owner of a tmpfs from its `uid=` and `gid=` options.
    fn owner(&self, uid: Option<u32>, gid: Option<u32>) -> Result<Owner, PlanError> {
        let identity = self.identity;
        match (uid, gid) {
            (None, None) => Ok(identity.root_owner),
            (uid, gid) if (uid.unwrap_or(0), gid.unwrap_or(0)) == (identity.uid, identity.gid) => {
                Ok(identity.user_owner)
            }
            (Some(0) | None, Some(0) | None) => Ok(identity.root_owner),
            (uid, gid) => Err(PlanError::Ids(format!(
                "a tmpfs can belong to the sandbox's root or to the payload's user, not to {uid:?}:{gid:?}"
            ))),
        }
    }

    fn clause(&self, target: &Path) -> String {
        self.spec
            .airlock
            .origins
            .get(target)
            .cloned()
            .unwrap_or_else(|| format!("mount {}", target.display()))
    }

    fn finish(mut self, root: MountId) -> (Layout, Vec<Step>) {
        let devices = self.devices;
        let among_devices =
            |step: &Step| matches!(step.action, Action::Make { mount, .. } if Some(mount) == devices);
        let (nodes, entries): (Vec<_>, Vec<_>) = self.entries.into_iter().partition(among_devices);
        self.layout.brought.extend(nodes);
        self.layout.made.extend(entries);
        self.layout.made.extend(self.seals);
        self.layout.attach.insert(0, step("root", Action::AttachRoot { mount: root }));
        (self.layout, self.overlays)
    }
}

fn check_targets(spec: &Spec, mounts: &[Mount]) -> Result<(), PlanError> {
    if mounts.len() > MOST_MOUNTS {
        return Err(PlanError::TooMany {
            clause: "mount",
            what: "mounts",
            found: mounts.len(),
            limit: MOST_MOUNTS,
        });
    }
    let mut seen = HashSet::new();
    for mount in mounts {
        let target = mount.destination();
        let kernel_made = matches!(mount.typ().as_deref(), Some("proc"));
        let covers =
            mount.typ().as_deref() == Some("tmpfs") && COVERED.iter().any(|path| target == Path::new(path));
        let text = target.as_os_str().as_bytes();
        let why = if !is_plain_absolute(target) {
            "must be absolute, without `.` or `..`"
        } else if target == Path::new("/") {
            "is the root itself; use [root]"
        } else if text.iter().any(|byte| matches!(byte, b'\0' | b'\n')) {
            "contains a NUL or newline character"
        } else if !(kernel_made || covers) && ["/proc", "/sys"].iter().any(|tree| target.starts_with(tree)) {
            "lies in a file system of the kernel, which no mount may cover"
        } else if !seen.insert(target) {
            "is used by two mounts"
        } else {
            continue;
        };
        let clause = spec.airlock.origins.get(target).map_or("mount", String::as_str);
        return Err(target_error(clause, target, why));
    }
    Ok(())
}

/// Whoever removes a mount point through another mount of its directory detaches what is mounted there
/// (the kernel since 3.18, `detach_mounts`): in a read-write bind, another payload can.
fn check_nesting(spec: &Spec, facts: &HostFacts, mounts: &[Mount]) -> Result<(), PlanError> {
    let present = |mount: &&Mount| mount.source().as_ref().is_some_and(|source| !is_absent(facts, source));
    // Whoever owns the source can write there too, whatever this mount's mode.
    let owned_by_root = |mount: &&Mount| {
        let source = mount.source().as_ref().and_then(|source| facts.sources.get(source));
        source.is_some_and(|facts| facts.uid == 0)
    };
    let is_bind = |mount: &&Mount| {
        let source = mount.source().as_ref().and_then(|source| facts.sources.get(source));
        mount.typ().as_deref() == Some("bind")
            && source.is_some_and(|facts| facts.kind != Some(FileKind::File))
    };
    let writable: HashSet<&Path> = mounts
        .iter()
        .filter(is_bind)
        .filter(|mount| is_read_write_bind(mount) || !owned_by_root(mount))
        .filter(present)
        .map(|mount| mount.destination().as_path())
        .collect();
    for target in mounts.iter().map(Mount::destination) {
        if let Some(outer) = target.ancestors().skip(1).find(|above| writable.contains(above)) {
            let why = format!(
                "lies inside {}, which others than root can write to on the host or inside: they could remove the mount \
                 point, and the mount with it; mount it elsewhere",
                outer.display(),
            );
            let clause = spec.airlock.origins.get(target).map_or("mount", String::as_str);
            return Err(target_error(clause, target, &why));
        }
    }
    Ok(())
}

/// Nothing is there that could be mounted. A link is something: who made it does not choose what is left out.
fn is_absent(facts: &HostFacts, source: &Path) -> bool {
    facts.sources.get(source).is_none_or(|facts| facts.kind.is_none() && facts.link.is_none())
}

/// Asked of every entry, so it looks at bytes: `Path::components` passes over `.` and costs more.
fn is_plain_absolute(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    bytes.starts_with(b"/") && bytes.split(|byte| *byte == b'/').all(|part| !matches!(part, b"." | b".."))
}

fn make(clause: &str, mount: MountId, path: &Path, owner: Owner, entry: Entry) -> Step {
    step(clause, Action::Make { mount, path: path.to_path_buf(), owner, entry })
}

fn one(inside: u32, outside: u32) -> IdMapping {
    IdMapping { inside, outside, count: 1 }
}

fn target_error(clause: &str, path: &Path, why: &str) -> PlanError {
    PlanError::Target { clause: clause.into(), path: path.to_path_buf(), why: why.into() }
}
