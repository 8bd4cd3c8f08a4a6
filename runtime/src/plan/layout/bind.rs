//! Bind mounts: what may be mounted from the host, and with which ids.

use std::path::Path;

use super::{Compiler, one};
use crate::host::{FileKind, SourceFacts, WalkError};
use crate::ids::IdMaps;
use crate::plan::options::Options;
use crate::plan::step::Idmap;
use crate::plan::{MountFlags, MountId, PlanError, relative};
use crate::spec::Writable;

impl Compiler<'_> {
    pub(super) fn bind(
        &mut self,
        clause: &str,
        source: &Path,
        options: &Options,
    ) -> Result<(MountId, FileKind), PlanError> {
        let flags = options.flags;
        let facts = self.source(clause, source)?;
        let kind = match facts.kind {
            Some(FileKind::Socket) if options.socket => FileKind::Socket,
            Some(FileKind::Socket) => {
                return Err(source_error(
                    clause,
                    source,
                    "is a socket: whatever listens on it would be reachable from inside; `socket = true` asks for that",
                ));
            }
            Some(_) if options.socket => return Err(source_error(clause, source, "is not a socket")),
            Some(kind @ (FileKind::Directory | FileKind::File)) => kind,
            Some(kind) => {
                return Err(source_error(
                    clause,
                    source,
                    format!("is a {kind:?}; only directories and regular files can be mounted"),
                ));
            }
            None => unreachable_source(clause, source, facts)?,
        };
        if let Some(why) = forbidden_source(&facts.resolved) {
            return Err(source_error(clause, source, why));
        }
        let owned_by_root = facts.uid == 0 || facts.gid == 0;
        let idmap = if !self.identity.idmapped || (flags.read_only && owned_by_root) {
            None
        } else {
            refuse_shared_root(clause, source, facts)?;
            let (uid, gid) = self.identity.host_ids;
            let maps = IdMaps { uids: vec![one(facts.uid, uid)], gids: vec![one(facts.gid, gid)] };
            Some(Idmap { maps, required: !flags.read_only })
        };
        let lower = self.tree(clause, source, kind, flags, idmap);
        let from_root = clause.starts_with("root") && kind == FileKind::Directory;
        if from_root && self.spec.airlock.writable != Writable::None {
            let name = relative(source).to_string_lossy().replace('/', "-");
            let overlay = self.overlay(clause, &[lower], &name, MountFlags { read_only: false, ..flags })?;
            return Ok((overlay, kind));
        }
        Ok((lower, kind))
    }

    pub(super) fn source(&self, clause: &str, path: &Path) -> Result<&SourceFacts, PlanError> {
        let facts = self.facts.sources.get(path);
        let facts = facts.ok_or_else(|| {
            source_error(clause, path, "was not looked at; the host facts are of another spec")
        })?;
        if let Some(link) = &facts.link {
            return Err(source_error(clause, path, WalkError::Link(link.clone()).to_string()));
        }
        if facts.kind.is_none() {
            unreachable_source(clause, path, facts)?;
        }
        Ok(facts)
    }
}

/// Through a mapping of its owner, the payload makes files of the host's root. That is kept to where root alone
/// comes, so that a program left there is run by nobody else.
pub(super) fn refuse_shared_root(clause: &str, source: &Path, facts: &SourceFacts) -> Result<(), PlanError> {
    if (facts.uid != 0 && facts.gid != 0) || facts.private {
        return Ok(());
    }
    let why = format!(
        "belongs to root's user or group ({}:{}), and what the sandbox creates there would be root's on the host: \
         `chown USER:GROUP` it to an ordinary user and group, or put it below a directory that only root can enter",
        facts.uid, facts.gid,
    );
    Err(source_error(clause, source, why))
}

/// Trees of the host that give the sandbox reach into the host, whatever the mode.
pub(super) fn forbidden_source(resolved: &Path) -> Option<&'static str> {
    let whole = |path: &str| resolved == Path::new(path);
    if whole("/") {
        return Some("is the whole host; mount the parts that are needed");
    }
    if whole("/run") || whole("/var") {
        return Some("holds the sockets of the host's services; mount the parts that are needed");
    }
    let below = ["/proc", "/sys", "/dev"].iter().any(|tree| resolved.starts_with(tree));
    below.then_some("is a kernel file system of the host; the sandbox gets its own")
}

pub(super) fn unreachable_source<T>(clause: &str, path: &Path, facts: &SourceFacts) -> Result<T, PlanError> {
    let why = facts.error.clone().unwrap_or_else(|| "is of an unknown type".into());
    Err(source_error(clause, path, why))
}

pub(super) fn source_error(clause: &str, path: &Path, why: impl Into<String>) -> PlanError {
    PlanError::Source { clause: clause.into(), path: path.to_path_buf(), why: why.into() }
}
