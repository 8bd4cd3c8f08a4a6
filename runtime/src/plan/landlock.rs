//! Landlock's rules of a plan: the rights that follow from the mounts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::options::Options;
use super::{Access, LandlockRule};
use crate::spec::{Landlock, Node, RootKind, Spec, Writable};

/// The rights that the mounts imply, narrowed by the policy's table.
pub(super) fn rules(spec: &Spec, landlock: &Landlock) -> Vec<LandlockRule> {
    let mut grants: Vec<(PathBuf, Access)> = Vec::new();
    let (whole, assembled) = match &spec.airlock.root {
        RootKind::Dir(_) => (true, false),
        RootKind::Host | RootKind::Empty => (false, true),
    };
    let reading = Access { read: true, exec: true, list: true, ..Access::default() };
    let writing = Access { write: true, create: true, ..reading };
    let writable = spec.airlock.writable != Writable::None;
    if whole || writable {
        grants.push(("/".into(), if writable { writing } else { reading }));
    }
    if assembled {
        let files = spec.airlock.skeleton.iter().filter_map(|node| match node {
            Node::File { path, .. } | Node::Copy { path, .. } | Node::LoaderCache { path, .. } => {
                path.parent()
            }
            Node::Dir { .. } | Node::Link { .. } => None,
        });
        // In the sandbox's own file systems over the kernel's, the mount has a rule.
        let covered = |path: &Path| ["/proc", "/sys"].iter().any(|tree| path.starts_with(tree));
        let directories: BTreeSet<&Path> =
            files.filter(|parent| *parent != Path::new("/") && !covered(parent)).collect();
        grants.extend(
            directories.into_iter().map(|path| (path.to_path_buf(), Access { exec: false, ..reading })),
        );
    }
    let mut fixed = Vec::new();
    for mount in spec.oci.mounts().iter().flatten() {
        let Ok(options) = Options::parse(mount) else {
            continue;
        };
        let target = mount.destination().clone();
        let device = Access { read: true, list: true, write: true, ioctl: true, ..Access::default() };
        match mount.typ().as_deref() {
            // Thread names are written below /proc/self/task (CUDA does); the PID namespace is private.
            Some("proc") => {
                fixed.push((target, Access { read: true, list: true, write: true, ..Access::default() }))
            }
            Some("devpts") => fixed.push((target, device)),
            // To connect to a socket is to write to it.
            Some("bind") if options.socket => {
                grants.push((target, Access { write: true, ..Access::default() }));
            }
            Some("tmpfs") if target == Path::new("/dev") => fixed.push((target, device)),
            Some("tmpfs" | "bind") => {
                let access = if options.flags.read_only && !(writable && is_root_part(spec, &target)) {
                    reading
                } else {
                    writing
                };
                grants.push((target, Access { exec: !options.flags.no_exec, ..access }));
            }
            _ => {}
        }
    }
    let narrowed = landlock.read.is_some() || landlock.write.is_some();
    let mut rules = match (&landlock.read, &landlock.write) {
        (None, None) => grants,
        (read, write) => {
            let everything = vec![PathBuf::from("/")];
            let mut rules = narrow(&grants, read.as_ref().unwrap_or(&everything), reading);
            rules.extend(narrow(
                &grants,
                write.as_ref().unwrap_or(&everything),
                Access { write: true, create: true, ..Access::default() },
            ));
            rules
        }
    };
    rules.extend(fixed);
    if !narrowed {
        // Names may be listed everywhere: a rule on `/` reaches across mounts, so it cannot say "only here".
        rules.push(("/".into(), Access { list: true, ..Access::default() }));
    }
    rules
        .into_iter()
        .filter(|(_, access)| *access != Access::default())
        .map(|(path, access)| LandlockRule { path, access })
        .collect()
}

/// What of `grants` remains at and below `paths` when only the rights of `mask` count.
fn narrow(grants: &[(PathBuf, Access)], paths: &[PathBuf], mask: Access) -> Vec<(PathBuf, Access)> {
    let mut rules = Vec::new();
    for path in paths {
        let covering = grants
            .iter()
            .filter(|(target, _)| path.starts_with(target))
            .max_by_key(|(target, _)| target.components().count());
        rules.extend(covering.map(|(_, access)| (path.clone(), access.and(mask))));
        let beneath = grants.iter().filter(|(target, _)| target != path && target.starts_with(path));
        rules.extend(beneath.map(|(target, access)| (target.clone(), access.and(mask))));
    }
    rules
}

fn is_root_part(spec: &Spec, target: &Path) -> bool {
    spec.airlock.origins.get(target).is_some_and(|clause| clause.starts_with("root"))
}

impl Access {
    /// The rights in both.
    fn and(self, other: Access) -> Access {
        Access {
            read: self.read && other.read,
            exec: self.exec && other.exec,
            list: self.list && other.list,
            write: self.write && other.write,
            create: self.create && other.create,
            ioctl: self.ioctl && other.ioctl,
        }
    }
}
