//! Overlays: where writes to the root go, and what lies under them.

use std::path::{Path, PathBuf};

use oci_spec::runtime::Mount;

use super::bind::source_error;
use super::{Compiler, Scratch, make, one};
use crate::host::{FileKind, SourceFacts};
use crate::ids::{IdMapping, IdMaps, RANGE_LEN};
use crate::plan::identity::{Identity, KEPT_START};
use crate::plan::step::Idmap;
use crate::plan::{Action, Entry, MountFlags, MountId, Owner, PlanError, step};
use crate::spec::Writable;

impl Compiler<'_> {
    /// An overlay over `lower`. Overlays take paths, not descriptors, before kernel 6.13; so the layers are
    /// attached in a scratch directory that goes away with the old root.
    pub(super) fn overlay(
        &mut self,
        clause: &str,
        lower: &[MountId],
        name: &str,
        flags: MountFlags,
    ) -> Result<MountId, PlanError> {
        let scratch = match self.scratch {
            Some(scratch) => scratch,
            None => self.scratch()?,
        };
        for layer in lower {
            self.scratch_attach(clause, scratch.mount, *layer);
        }
        let mount = self.id();
        let (lower, upper, name) = (lower.to_vec(), scratch.upper, name.into());
        self.overlays.push(step(clause, Action::NewOverlay { mount, lower, upper, name, flags }));
        Ok(mount)
    }

    /// Plans the scratch directory.
    pub(super) fn scratch(&mut self) -> Result<Scratch, PlanError> {
        let owner = self.identity.root_owner;
        let mount = self.tmpfs(
            "root.writable",
            1 << 20,
            0o700,
            owner,
            MountFlags { no_dev: true, ..MountFlags::default() },
        );
        self.overlays.push(step("root.writable", Action::AttachRoot { mount }));
        let flags = MountFlags { no_dev: true, ..MountFlags::default() };
        let upper = match self.spec.airlock.writable.clone() {
            Writable::None => None,
            Writable::Tmpfs { size } => Some(self.tmpfs("root.writable", size, 0o755, owner, flags)),
            Writable::Dir { path } => {
                let facts = self.source("root.writable", &path)?;
                if facts.kind != Some(FileKind::Directory) {
                    return Err(source_error("root.writable", &path, "is not a directory"));
                }
                if facts.uid == 0 && self.identity.root && !facts.private {
                    return Err(source_error(
                        "root.writable",
                        &path,
                        "belongs to root and others can enter it; `chmod 700` it or give it to an ordinary user",
                    ));
                }
                let idmap = self
                    .identity
                    .idmapped
                    .then(|| Idmap { maps: kept_upper(facts, self.identity), required: true });
                Some(self.tree("root.writable", &path, FileKind::Directory, flags, idmap))
            }
        };
        if let Some(upper) = upper {
            self.scratch_attach("root.writable", mount, upper);
        }
        let scratch = Scratch { mount, upper };
        self.scratch = Some(scratch);
        Ok(scratch)
    }

    pub(super) fn scratch_attach(&mut self, clause: &str, scratch: MountId, mount: MountId) {
        let name = PathBuf::from(mount.to_string());
        let owner = self.identity.root_owner;
        self.entries.push(make(clause, scratch, &name, owner, Entry::Dir { mode: 0o755 }));
        self.overlays.push(step(clause, Action::Attach { mount, target: Path::new("/").join(name) }));
    }

    /// Parts of the host's tree lie under an overlay where the root is writable.
    pub(super) fn is_overlaid(&self, clause: &str, mount: &Mount) -> bool {
        let source = mount.source().as_ref().and_then(|source| self.facts.sources.get(source));
        clause.starts_with("root")
            && self.spec.airlock.writable != Writable::None
            && source.is_some_and(|source| source.kind == Some(FileKind::Directory))
    }
}

/// On-disk ids 0..65536 as the sandbox's own.
pub(super) fn whole_range(root: Owner) -> IdMaps {
    let range = |outside| vec![IdMapping { inside: 0, outside, count: RANGE_LEN }];
    IdMaps { uids: range(root.uid), gids: range(root.gid) }
}

/// Ids of an upper directory that is kept: its owner is the payload, a reserved range on disk is all others,
/// the same at every run.
pub(super) fn kept_upper(facts: &SourceFacts, identity: &Identity) -> IdMaps {
    let map = |inside: u32, owner, root| {
        let others = |inside, count| IdMapping { inside: KEPT_START + inside, outside: root + inside, count };
        let lines =
            [others(0, inside), one(owner, root + inside), others(inside + 1, RANGE_LEN - 1 - inside)];
        lines.into_iter().filter(|line| line.count > 0).collect()
    };
    IdMaps {
        uids: map(identity.uid, facts.uid, identity.host_root.uid),
        gids: map(identity.gid, facts.gid, identity.host_root.gid),
    }
}
