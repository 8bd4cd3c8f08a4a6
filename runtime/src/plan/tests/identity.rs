//! Ids, groups and capabilities.

use super::*;

fn identity(field: &str, value: Value) -> Spec {
    spec(|spec| spec["airlock"][field] = value)
}

fn groups(groups: &[u32]) -> Spec {
    spec(|spec| spec["oci"]["process"]["user"]["additionalGids"] = json!(groups))
}

fn capabilities(names: &[&str]) -> Spec {
    let sets = ["bounding", "effective", "inheritable", "permitted", "ambient"];
    let sets: BTreeMap<&str, &[&str]> = sets.into_iter().map(|set| (set, names)).collect();
    spec(|spec| spec["oci"]["process"]["capabilities"] = json!(sets))
}

fn maps(plan: &Plan) -> Vec<String> {
    about(plan, "map ids")
}

/// A read-write mount of what belongs to `owners`, the ids taken from there.
fn direct(owners: &[(u32, u32)]) -> (Spec, HostFacts) {
    let named = || owners.iter().enumerate().map(|(number, owner)| (format!("/srv/{number}"), *owner));
    let mounts = named().map(|(path, _)| bind(&path, &path, &["rw"]));
    let mut spec = with_mounts(mounts);
    spec.airlock.ids = crate::spec::IdMode::Direct;
    (spec, named().fold(root(), |facts, (path, owner)| having(facts, &path, directory(owner))))
}

#[test]
fn an_id_outside_the_range_is_refused() {
    let user = |uid: u32| spec(|spec| spec["oci"]["process"]["user"]["uid"] = uid.into());
    assert_eq!(planned(&user(65_535), &root()).expect.host_ids.0, BASE + 65_535);
    assert_eq!(refusal(&user(65_536), &root()), "identity: uid 65536 is outside 0..65536");
}

#[test]
fn modes_that_the_caller_cannot_have_are_named() {
    assert!(
        refusal(&identity("ids", "single".into()), &root())
            .contains("ids = \"single\" cannot be had by root")
    );
    for mode in ["range", "direct", "subids"] {
        let message = refusal(&identity("ids", mode.into()), &user());
        assert!(
            message.contains(&format!("ids = \"{mode}\" cannot be had by an ordinary user")),
            "{message}"
        );
    }
    planned(&identity("ids", "range".into()), &root());
    planned(&identity("ids", "single".into()), &user());
}

#[test]
fn subordinate_ids_surround_the_callers_own() {
    let facts =
        HostFacts { ids: HostIds::Subids { uids: (100_000, 65_536), gids: (200_000, 500) }, ..user() };
    let plan = planned(&identity("ids", "subids".into()), &facts);
    let map = "map ids by newuidmap: uid 0->100000+1000 uid 1000->501+1 uid 1001->101000+64535 \
               gid 0->200000+500 gid 1000->20+1";
    assert_eq!(maps(&plan), [map]);
    assert!(about(&plan, "supplementary groups []").len() == 1, "the helper lets groups be dropped");
}

#[test]
fn direct_ids_are_those_of_the_one_owner() {
    let (spec, facts) = direct(&[(501, 20), (501, 20)]);
    let plan = planned(&spec, &facts);
    assert_eq!(plan.expect.host_ids, (501, 20));
    let map = "map ids: uid 0->1048576+1000 uid 1000->501+1 uid 1001->1049576+64535 \
               gid 0->1048576+1000 gid 1000->20+1 gid 1001->1049576+64535";
    assert_eq!(maps(&plan), [map]);
    assert_eq!(about(&plan, "clone of /srv/0"), ["m6 = clone of /srv/0"], "nothing to map");
    for (owners, message) in [
        (&[][..], "there is none"),
        (&[(501, 20), (502, 20)], "one owner for all read-write mounts"),
        (&[(0, 20)], "the host's root"),
        (&[(501, 0)], "the host's root"),
    ] {
        let (spec, facts) = direct(owners);
        assert!(refusal(&spec, &facts).contains(message), "{owners:?}");
    }
}

#[test]
fn supplementary_groups_are_given_by_whoever_may_set_them() {
    let plan = planned(&groups(&[44, 100]), &root());
    assert_eq!(plan.expect.groups, Some(vec![BASE + 44, BASE + 100]));
    assert_eq!(
        about(&plan, "supplementary").as_slice(),
        ["become 1000:1000, supplementary groups [44, 100]"]
    );
    assert!(refusal(&groups(&[65_536]), &root()).contains("are not all mapped"));
    assert!(refusal(&groups(&[44]), &user()).contains("cannot give the payload groups [44]"));
}

/// setgroups(2) is denied in a user namespace made without privilege (CVE-2014-8989).
#[test]
fn groups_that_an_ordinary_user_cannot_drop_are_kept_or_refused() {
    let member = HostFacts { groups: vec![27, 44], ..user() };
    assert_eq!(planned(&spec(|_| ()), &member).expect.groups, None);
    let none = identity("groups", "none".into());
    assert!(refusal(&none, &member).contains("drop the groups [27, 44]"));
    planned(&none, &user());
    planned(&none, &HostFacts { groups: vec![27, 44], ..root() });
}

#[test]
fn setgroups_is_denied_exactly_where_the_kernel_wants_it() {
    let denied = |facts: &HostFacts| {
        let plan = planned(&spec(|_| ()), facts);
        let denied = plan.host.iter().map(|step| match step.action {
            Action::WriteIdMaps { deny_setgroups, .. } => deny_setgroups,
            _ => false,
        });
        denied.fold(false, |any, denied| any | denied)
    };
    assert_eq!((denied(&root()), denied(&user())), (false, true));
}

#[test]
fn kept_capabilities_are_numbers_in_order() {
    let plan = planned(&capabilities(&["CAP_NET_BIND_SERVICE", "CAP_CHOWN"]), &root());
    assert_eq!(plan.expect.capabilities, [0, 10]);
    assert_eq!(about(&plan, "capabilities"), ["keep 2 capabilities in every set"]);
}

#[test]
fn capabilities_that_undo_the_mounts_or_are_unknown_are_refused() {
    assert!(
        refusal(&capabilities(&["CAP_CHOWN", "CAP_SYS_ADMIN"]), &root())
            .contains("can unmount what hides the host")
    );
    let old = HostFacts { last_capability: 39, ..root() };
    assert!(refusal(&capabilities(&["CAP_CHECKPOINT_RESTORE"]), &old).contains("does not know"));
    planned(&capabilities(&["CAP_CHECKPOINT_RESTORE"]), &root());
}
