//! The tree inside: what lies at a path, by the plan's mounts, the skeleton and the host's files.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use airlock_runtime::ids::IdMapping;
use airlock_runtime::plan::{Action, ExpectedMount, FileSystem};
use airlock_runtime::spec::{Node, RootKind};
use oci_spec::runtime::Mount;

use super::{Explained, HostFile, HostKind};

/// More links than this on one way are a circle (ELOOP, path_resolution(7)).
const MOST_LINKS: usize = 40;

/// A file inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) directory: bool,
    /// Permission bits for the payload: read 4, write 2, execute or search 1.
    pub(super) may: u32,
    /// A node of /dev.
    pub(super) device: bool,
}

/// Where a path leads.
pub(super) struct Way<'a> {
    /// Without links.
    pub(super) path: PathBuf,
    /// The mount that it lies in.
    pub(super) mount: &'a ExpectedMount,
    /// What is there.
    pub(super) entry: Option<Entry>,
    /// The directory that it lies in; `None` where that is not there.
    pub(super) parent: Option<Entry>,
    /// A directory on the way that the payload may not search.
    pub(super) closed: Option<PathBuf>,
}

impl Explained<'_> {
    /// Follows a path as the kernel would; `None` if it leads in a circle.
    pub(super) fn walk(&self, path: &Path) -> Option<Way<'_>> {
        let mut left: VecDeque<OsString> = names(path).collect();
        let mut here = PathBuf::from("/");
        let mut closed = None;
        let mut links = 0;
        while let Some(name) = left.pop_front() {
            if name == ".." {
                here.pop();
                continue;
            }
            if closed.is_none() && self.entry(&here).is_some_and(|entry| entry.may & 1 == 0) {
                closed = Some(here.clone());
            }
            let next = here.join(&name);
            let Some(text) = self.link(&next) else {
                here = next;
                continue;
            };
            links += 1;
            if links > MOST_LINKS {
                return None;
            }
            if text.is_absolute() {
                here = PathBuf::from("/");
            }
            names(&text).rev().for_each(|name| left.push_front(name));
        }
        let parent = here.parent().and_then(|parent| self.entry(parent));
        Some(Way { mount: self.mount(&here)?, entry: self.entry(&here), parent, closed, path: here })
    }

    /// The mount that a path without links lies in.
    pub(super) fn mount(&self, path: &Path) -> Option<&ExpectedMount> {
        let covering = self.plan.expect.mounts.iter().filter(|mount| path.starts_with(&mount.target));
        covering.max_by_key(|mount| mount.target.components().count())
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        let skeleton = self.spec.airlock.skeleton.iter().find_map(|node| match node {
            Node::Link { path: at, target } if at == path => Some(target.clone()),
            _ => None,
        });
        let covered = self.plan.expect.mounts.iter().any(|mount| mount.target == path);
        if covered || skeleton.is_some() {
            return skeleton.filter(|_| !covered);
        }
        match self.host_file(path)?.kind {
            HostKind::Link(text) => Some(text),
            HostKind::Directory | HostKind::File => None,
        }
    }

    /// What lies at a path without links.
    pub(super) fn entry(&self, path: &Path) -> Option<Entry> {
        let mount = self.mount(path)?;
        let (root_mode, owned) = self.own(&mount.target);
        let made = |directory: bool, mode: u32| {
            let may = if owned { mode >> 6 & 7 } else { mode & 7 };
            Some(Entry { directory, may, device: false })
        };
        match mount.file_system {
            FileSystem::Host | FileSystem::Own("overlay" | "proc") => {
                let file = self.host_file(path)?;
                let directory = file.kind == HostKind::Directory;
                Some(Entry { directory, may: self.permitted(path, &file), device: false })
            }
            FileSystem::Device => Some(Entry { directory: false, may: 6, device: true }),
            FileSystem::Own(_) if path == mount.target => made(true, root_mode),
            FileSystem::Own(_) => {
                let devices = self.spec.oci.linux().as_ref().and_then(|linux| linux.devices().as_ref());
                if devices.into_iter().flatten().any(|device| device.path() == path) {
                    return Some(Entry { directory: false, may: 6, device: true });
                }
                let nodes = &self.spec.airlock.skeleton;
                let node = nodes.iter().find_map(|node| match node {
                    Node::Dir { path: at, mode, .. } if at == path => made(true, *mode),
                    Node::File { path: at, mode, .. } if at == path => made(false, *mode),
                    Node::Copy { path: at, source } if at == path => {
                        self.host.look(source).and_then(|_| made(false, 0o644))
                    }
                    _ => None,
                });
                // Airlock makes the directories above what it mounts.
                let above = self.plan.expect.mounts.iter().any(|mount| mount.target.starts_with(path));
                node.or_else(|| above.then(|| made(true, 0o755)).flatten())
            }
        }
    }

    /// The host's file that a path without links shows.
    fn host_file(&self, path: &Path) -> Option<HostFile> {
        let mount = self.mount(path)?;
        // A procfs of its own has what the host's has, but for the processes.
        if mount.file_system == FileSystem::Own("proc") {
            return self.host.look(path);
        }
        let below = path.strip_prefix(&mount.target).ok()?;
        let source = self.source(mount)?;
        // Joined with an empty path, a file's path would end in a slash.
        if below.as_os_str().is_empty() {
            self.host.look(source)
        } else {
            self.host.look(&source.join(below))
        }
    }

    /// The host's path that a mount shows.
    fn source(&self, mount: &ExpectedMount) -> Option<&Path> {
        match (mount.file_system, &self.spec.airlock.root) {
            (FileSystem::Own("overlay"), RootKind::Dir(root)) if mount.target == Path::new("/") => Some(root),
            (FileSystem::Host | FileSystem::Own("overlay"), _) => {
                self.bind(&mount.target)?.source().as_deref()
            }
            _ => None,
        }
    }

    fn bind(&self, target: &Path) -> Option<&Mount> {
        self.spec.oci.mounts().iter().flatten().find(|mount| mount.destination() == target)
    }

    /// The payload's ids inside.
    pub(super) fn payload(&self) -> (u32, u32) {
        self.spec
            .oci
            .process()
            .as_ref()
            .map_or((0, 0), |process| (process.user().uid(), process.user().gid()))
    }

    /// The permission bits that count for the payload, by the ids that the mount shows the file with.
    fn permitted(&self, path: &Path, file: &HostFile) -> u32 {
        let source = self.mount(path).and_then(|mount| self.source(mount));
        let map = self.actions().find_map(|action| match action {
            Action::CloneTree { source: cloned, idmap: Some(idmap), .. }
                if Some(cloned.as_path()) == source =>
            {
                Some(&idmap.maps)
            }
            _ => None,
        });
        let host = self.plan.expect.host_ids;
        let (uid, gid) = match map {
            Some(maps) => (
                maps.uids.iter().find_map(|line| on_disk(line, host.0)),
                maps.gids.iter().find_map(|line| on_disk(line, host.1)),
            ),
            None => (Some(host.0), Some(host.1)),
        };
        if uid == Some(file.uid) {
            file.mode >> 6 & 7
        } else if gid == Some(file.gid)
            || self.plan.expect.groups.iter().flatten().any(|group| *group == file.gid)
        {
            file.mode >> 3 & 7
        } else {
            file.mode & 7
        }
    }

    /// Permission bits of the root of a tmpfs of the sandbox's own, and whether what Airlock makes in it belongs to the
    /// payload: where an ordinary user has a single id, all of it does.
    fn own(&self, target: &Path) -> (u32, bool) {
        // The last: before the root, the place where overlays are laid is attached there.
        let attached = self.actions().filter_map(|action| match action {
            Action::Attach { mount, target: at } if at == target => Some(*mount),
            Action::AttachRoot { mount } if target == Path::new("/") => Some(*mount),
            _ => None,
        });
        let attached = attached.last();
        let made = self.actions().find_map(|action| match action {
            Action::NewTmpfs { mount, mode, owner, .. } if Some(*mount) == attached => Some((*mode, *owner)),
            _ => None,
        });
        // Of a device file system, which root makes on the host side, the owner is an id of the host.
        let ids = [self.payload().0, self.plan.expect.host_ids.0];
        made.map_or((0o755, false), |(mode, owner)| (mode, ids.contains(&owner.uid)))
    }
}

/// The id on disk that a line of a mount's map shows as this id of the host.
fn on_disk(line: &IdMapping, outside: u32) -> Option<u32> {
    let at = outside.checked_sub(line.outside).filter(|at| *at < line.count)?;
    line.inside.checked_add(at)
}

fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}
