//! Ids and capabilities of a plan.

use oci_spec::runtime::Capability;

use super::options::is_read_write_bind;
use super::{Owner, PlanError};
use crate::host::{HostFacts, SourceFacts};
use crate::ids::{HostIds, IdMapping, IdMaps, POOL_START, RANGE_LEN, map_with_one_apart};
use crate::spec::{Groups, IdMode, Spec};

/// First on-disk id in an upper directory that is kept: the range just below the pool, which no live sandbox
/// has.
pub(super) const KEPT_START: u32 = POOL_START - RANGE_LEN;

/// Who the payload is, inside and on the host.
pub(super) struct Identity {
    /// The monitor builds as root of the host.
    pub(super) root: bool,
    /// Payload's uid inside.
    pub(super) uid: u32,
    /// Payload's gid inside.
    pub(super) gid: u32,
    /// Supplementary groups inside, when they can be set.
    pub(super) inner_groups: Vec<u32>,
    /// Supplementary groups as the host sees them; `None`: the caller's stay.
    pub(super) groups: Option<Vec<u32>>,
    pub(super) maps: IdMaps,
    /// Payload's uid and gid on the host.
    pub(super) host_ids: (u32, u32),
    pub(super) deny_setgroups: bool,
    pub(super) helper: bool,
    pub(super) capabilities: Vec<u8>,
    /// Owner, inside, of what the sandbox's root owns; the payload where no other id is mapped.
    pub(super) root_owner: Owner,
    /// Owner, inside, of what the payload owns.
    pub(super) user_owner: Owner,
    /// `root_owner` as the host names it.
    pub(super) host_root: Owner,
    /// Read-write binds need an idmap.
    pub(super) idmapped: bool,
}

pub(super) fn resolve(spec: &Spec, facts: &HostFacts) -> Result<Identity, PlanError> {
    let process =
        spec.oci.process().as_ref().ok_or(PlanError::Missing { clause: "process", what: "process" })?;
    let user = process.user();
    let (uid, gid) = (user.uid(), user.gid());
    for (id, name) in [(uid, "uid"), (gid, "gid")] {
        if id >= RANGE_LEN {
            return Err(PlanError::Ids(format!("{name} {id} is outside 0..{RANGE_LEN}")));
        }
    }
    let maps = maps(spec, facts, uid, gid)?;
    let host_ids = maps
        .to_host(uid, gid)
        .ok_or_else(|| PlanError::Ids(format!("{uid}:{gid} is not mapped to any id of the host")))?;
    let helper = matches!(facts.ids, HostIds::Subids { .. });
    let may_set_groups = facts.root || helper;
    let additional: Vec<u32> = user.additional_gids().clone().unwrap_or_default();
    let groups = if may_set_groups {
        let on_host = additional.iter().map(|group| maps.to_host(uid, *group).map(|(_, gid)| gid));
        Some(on_host.collect::<Option<Vec<u32>>>().ok_or_else(|| {
            PlanError::Ids(format!("supplementary groups {additional:?} are not all mapped"))
        })?)
    } else {
        refuse_unavoidable_groups(spec, facts, &additional)?;
        None
    };
    let user_owner = Owner { uid, gid };
    let root_owner = match facts.ids {
        HostIds::Range { .. } | HostIds::Subids { .. } => Owner { uid: 0, gid: 0 },
        HostIds::Caller => user_owner,
    };
    let (root_uid, root_gid) = maps.to_host(root_owner.uid, root_owner.gid).unwrap_or(host_ids);
    let host_root = Owner { uid: root_uid, gid: root_gid };
    Ok(Identity {
        root: facts.root,
        uid,
        gid,
        inner_groups: additional,
        groups,
        maps,
        host_ids,
        deny_setgroups: !may_set_groups,
        helper,
        capabilities: capabilities(process, facts.last_capability)?,
        root_owner,
        user_owner,
        host_root,
        idmapped: facts.root && spec.airlock.ids != IdMode::Direct,
    })
}

fn maps(spec: &Spec, facts: &HostFacts, uid: u32, gid: u32) -> Result<IdMaps, PlanError> {
    match (&facts.ids, spec.airlock.ids) {
        (HostIds::Range { base }, IdMode::Auto | IdMode::Range) => {
            let line = vec![IdMapping { inside: 0, outside: *base, count: RANGE_LEN }];
            Ok(IdMaps { uids: line.clone(), gids: line })
        }
        (HostIds::Range { base }, IdMode::Direct) => {
            let (owner_uid, owner_gid) = direct_owner(spec, facts)?;
            let apart = |inside, outside| map_with_one_apart(inside, outside, *base, RANGE_LEN - 1);
            Ok(IdMaps { uids: apart(uid, owner_uid), gids: apart(gid, owner_gid) })
        }
        (HostIds::Caller, IdMode::Auto | IdMode::Single) => {
            let one = |inside, outside| vec![IdMapping { inside, outside, count: 1 }];
            Ok(IdMaps { uids: one(uid, facts.uid), gids: one(gid, facts.gid) })
        }
        (HostIds::Subids { uids, gids }, IdMode::Subids) => Ok(IdMaps {
            uids: map_with_one_apart(uid, facts.uid, uids.0, uids.1.min(RANGE_LEN - 1)),
            gids: map_with_one_apart(gid, facts.gid, gids.0, gids.1.min(RANGE_LEN - 1)),
        }),
        (_, wanted) => Err(PlanError::Ids(format!(
            "ids = {:?} cannot be had by {}; `auto` always can",
            format!("{wanted:?}").to_lowercase(),
            if facts.root { "root" } else { "an ordinary user" },
        ))),
    }
}

/// The one host owner that direct-uid mode gives the payload.
fn direct_owner(spec: &Spec, facts: &HostFacts) -> Result<(u32, u32), PlanError> {
    let mounts = spec.oci.mounts().iter().flatten();
    let sources =
        mounts.filter(|mount| is_read_write_bind(mount)).filter_map(|mount| mount.source().as_ref());
    let mut owners: Vec<(u32, u32)> = sources
        .filter_map(|source| facts.sources.get(source))
        .filter(|source| source.kind.is_some())
        .map(|SourceFacts { uid, gid, .. }| (*uid, *gid))
        .collect();
    owners.sort_unstable();
    owners.dedup();
    match owners[..] {
        [(0, _) | (_, 0)] => Err(PlanError::Ids(
            "ids = \"direct\" would run the payload as the host's root; give the read-write mounts to an ordinary user (chown)".into(),
        )),
        [owner] => Ok(owner),
        [] => Err(PlanError::Ids("ids = \"direct\" takes its id from the read-write mounts, and there is none; use `auto`".into())),
        _ => Err(PlanError::Ids(format!(
            "ids = \"direct\" needs one owner for all read-write mounts, found {owners:?}"
        ))),
    }
}

fn refuse_unavoidable_groups(spec: &Spec, facts: &HostFacts, additional: &[u32]) -> Result<(), PlanError> {
    if !additional.is_empty() {
        return Err(PlanError::Ids(format!(
            "an ordinary user cannot give the payload groups {additional:?}; use ids = \"subids\""
        )));
    }
    if spec.airlock.groups == Groups::None && !facts.groups.is_empty() {
        return Err(PlanError::Ids(format!(
            "groups = \"none\": the kernel does not let an ordinary user drop the groups {:?} (setgroups is denied \
             in a user namespace made without privilege); use ids = \"subids\", or groups = \"auto\" to keep them",
            facts.groups
        )));
    }
    Ok(())
}

fn capabilities(process: &oci_spec::runtime::Process, last: u8) -> Result<Vec<u8>, PlanError> {
    let Some(sets) = process.capabilities() else {
        return Ok(Vec::new());
    };
    let Some(wanted) = sets.permitted() else {
        return Ok(Vec::new());
    };
    let mut numbers = Vec::new();
    for capability in wanted {
        if *capability == Capability::SysAdmin {
            return Err(PlanError::Capability(
                "CAP_SYS_ADMIN can unmount what hides the host and clear read-only flags; keep a narrower capability".into(),
            ));
        }
        let number = crate::capabilities::number(*capability);
        if number > last {
            return Err(PlanError::Capability(format!("this kernel does not know {capability:?}")));
        }
        numbers.push(number);
    }
    numbers.sort_unstable();
    Ok(numbers)
}
