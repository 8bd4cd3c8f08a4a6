//! Sources, targets, id maps and mount points.

use super::*;

fn at(target: &str) -> Spec {
    with_mounts([bind("/srv", target, &["ro"])])
}

fn srv() -> HostFacts {
    having(root(), "/srv", directory((501, 20)))
}

/// The idmap of /srv when it is mounted with `options`, in words.
fn idmap(facts: &HostFacts, options: &[&str]) -> Option<String> {
    let plan = planned(&with_mounts([bind("/srv", "/srv", options)]), facts);
    let mut steps = plan.host.iter().chain(&plan.child);
    let idmap = steps.find_map(|step| match &step.action {
        Action::CloneTree { source, idmap, .. } if source == Path::new("/srv") => Some(idmap.clone()),
        _ => None,
    });
    idmap.unwrap().map(|Idmap { maps, required }| {
        let line = |lines: &[crate::ids::IdMapping]| crate::ids::map_text(lines).trim().to_owned();
        format!("{} / {}{}", line(&maps.uids), line(&maps.gids), if required { ", required" } else { "" })
    })
}

#[test]
fn targets_that_lead_elsewhere_are_refused() {
    planned(&at("/data"), &srv());
    for (target, message) in [
        ("data", "must be absolute"),
        ("/a/../etc", "must be absolute, without `.` or `..`"),
        ("/a/./b", "must be absolute, without `.` or `..`"),
        ("/", "is the root itself"),
        ("/proc", "a file system of the kernel"),
        ("/proc/self", "a file system of the kernel"),
        ("/sys/fs/cgroup", "a file system of the kernel"),
        ("/a\nb", "newline"),
        ("/a\0b", "NUL"),
        ("/tmp", "is used by two mounts"),
        ("/tmp/", "is used by two mounts"),
        ("//tmp", "is used by two mounts"),
    ] {
        let message_found = refusal(&at(target), &srv());
        assert!(message_found.contains(message), "{target:?}: {message_found}");
    }
    planned(&at("/processes"), &srv());
    planned(&at("/a/..b/.c"), &srv());
}

#[test]
fn sources_that_reach_the_host_are_refused() {
    let refused = |facts: HostFacts| refusal(&at("/data"), &facts);
    let leading_to = |resolved: &str| {
        let mut facts = srv();
        facts
            .sources
            .insert("/srv".into(), SourceFacts { resolved: resolved.into(), ..directory((501, 20)) });
        facts
    };
    let of = |kind| having(root(), "/srv", file(kind));
    assert!(refused(of(FileKind::Socket)).contains("whatever listens on it would be reachable"));
    for kind in [FileKind::BlockDevice, FileKind::CharDevice, FileKind::Fifo] {
        assert!(refused(of(kind)).contains("only directories and regular files"), "{kind:?}");
    }
    for (resolved, message) in [
        ("/", "the whole host"),
        ("/run", "sockets of the host's services"),
        ("/var", "sockets of the host's services"),
        ("/proc/1/root", "a kernel file system of the host"),
        ("/sys", "a kernel file system of the host"),
        ("/dev/shm", "a kernel file system of the host"),
    ] {
        assert!(refused(leading_to(resolved)).contains(message), "{resolved}");
    }
    planned(&at("/data"), &leading_to("/var/lib"));
    planned(&at("/data"), &of(FileKind::File));
}

/// Whoever may write where the link is would choose what is mounted.
#[test]
fn a_source_behind_a_link_is_refused() {
    let link = SourceFacts { link: Some("/mnt/link".into()), kind: None, ..directory((501, 20)) };
    let facts = having(root(), "/srv", link);
    for options in [&["ro"][..], &["rw"], &["ro", "optional"]] {
        assert!(
            refusal(&with_mounts([bind("/srv", "/data", options)]), &facts)
                .ends_with("source /srv: leads through the link /mnt/link; name the real path"),
            "{options:?}"
        );
    }
}

#[test]
fn what_is_mounted_is_named_without_links() {
    let real = SourceFacts { resolved: "/real".into(), ..directory((501, 20)) };
    let mut facts = srv();
    facts.sources.insert("/srv".into(), real);
    assert_eq!(about(&planned(&at("/data"), &facts), "/real"), ["m6 = clone of /real, ro, idmapped"]);
}

#[test]
fn a_target_behind_a_link_of_the_roots_directory_is_refused() {
    let mut facts = srv();
    facts.crooked_targets.insert("/data".into(), "leads through a link".into());
    assert_eq!(refusal(&at("/data"), &facts), "mount /data: target \"/data\": leads through a link");
}

#[test]
fn a_source_that_is_not_there_is_an_error_unless_it_is_optional() {
    let error = Some("No such file or directory (os error 2)".into());
    let missing = having(root(), "/srv", SourceFacts { kind: None, error, ..directory((0, 0)) });
    assert!(refusal(&at("/data"), &missing).ends_with("source /srv: No such file or directory (os error 2)"));
    assert!(refusal(&at("/data"), &root()).contains("the host facts are of another spec"));
    let optional = with_mounts([bind("/srv", "/data", &["ro", "optional"])]);
    assert_eq!(about(&planned(&optional, &missing), "to /data"), [""; 0]);
    assert_eq!(about(&planned(&optional, &srv()), "to /data"), ["move m6 to /data"]);
    // What is there is checked, optional or not.
    assert!(refusal(&optional, &having(root(), "/srv", file(FileKind::Socket))).contains("is a socket"));
}

#[test]
fn a_socket_is_mounted_only_if_one_is_asked_for() {
    let at = |options: &[&str]| with_mounts([bind("/srv", "/run/s", options)]);
    let socket = |uid| {
        let facts = SourceFacts { kind: Some(FileKind::Socket), ..directory((uid, uid)) };
        having(root(), "/srv", facts)
    };
    assert!(refusal(&at(&["ro"]), &socket(0)).contains("`socket = true` asks for that"));
    assert!(refusal(&at(&["ro", "socket"]), &srv()).ends_with("is not a socket"));
    let plan = planned(&at(&["ro", "socket"]), &socket(0));
    assert_eq!(about(&plan, "/srv"), ["m6 = clone of /srv, ro"]);
    // From ABI 9 on, to connect takes a right.
    assert!(about(&plan, "Landlock")[0].contains(" /run/s=w "), "{plan}");
}

#[test]
fn more_mounts_than_anyone_means_are_refused() {
    let many = |count: usize| {
        with_mounts((5..count).map(|number| bind("/srv", &format!("/data/{number}"), &["ro"])))
    };
    assert_eq!(planned(&many(1024), &srv()).expect.mounts.len(), 1025, "the root is one more");
    assert_eq!(refusal(&many(1025), &srv()), "mount: 1025 mounts, at most 1024 are supported");
}

#[test]
fn kinds_and_options_that_are_not_understood_are_refused() {
    let refused = |mount| refusal(&with_mounts([mount]), &srv());
    assert!(refused(mount("overlay", "/data", &[])).contains("mounts of type \"overlay\" are not supported"));
    assert!(refused(bind("/srv", "/data", &["suid"])).contains("mount option \"suid\" is not supported"));
    assert!(refused(mount("tmpfs", "/data", &["size=1G"])).contains("mount option \"size=1G\""));
    assert!(refused(json!({ "type": "bind", "destination": "/data" })).contains("source for a bind mount"));
}

/// A file that the payload makes on an idmapped mount is its owner's on the host.
#[test]
fn a_mount_maps_its_owner_to_the_payload() {
    let payload = BASE + 1000;
    let owner = format!("501 {payload} 1 / 20 {payload} 1");
    assert_eq!(idmap(&srv(), &["rw"]).unwrap(), format!("{owner}, required"));
    assert_eq!(idmap(&srv(), &["ro"]).unwrap(), owner, "without it, others' files are just less in reach");
    let user = HostFacts { sources: srv().sources, ..user() };
    assert_eq!(idmap(&user, &["rw"]), None, "the payload is the caller already");
}

/// On a shared directory of root's the payload would leave files of root's.
#[test]
fn what_belongs_to_root_is_written_only_where_no_one_else_comes() {
    let of = |owner| having(root(), "/srv", directory(owner));
    let rw = with_mounts([bind("/srv", "/srv", &["rw"])]);
    for owner in [(0, 0), (0, 20), (501, 0)] {
        assert!(refusal(&rw, &of(owner)).contains("below a directory that only root can enter"), "{owner:?}");
        assert_eq!(idmap(&of(owner), &["ro"]), None, "{owner:?}");
    }
    let private = having(root(), "/srv", SourceFacts { private: true, ..directory((0, 0)) });
    assert!(idmap(&private, &["rw"]).unwrap().ends_with("required"));
}

#[test]
fn a_mount_point_is_made_with_the_directories_above_it_once() {
    let spec = with_mounts([bind("/srv", "/a/b/c", &["ro"]), bind("/srv", "/a/b/d", &["ro"])]);
    let made = [
        "m0:a = directory 755",
        "m0:a/b = directory 755",
        "m0:a/b/c = directory 755",
        "m0:a/b/d = directory 755",
    ];
    assert_eq!(about(&planned(&spec, &srv()), "m0:a"), made);
}

#[test]
fn a_mount_point_is_made_in_the_mount_that_covers_its_parent() {
    let spec = with_mounts([
        mount("tmpfs", "/a/b", &[]),
        bind("/srv", "/a/b/c/d", &["ro"]),
        // In what is the host's, it must exist.
        bind("/srv", "/usr/local/e", &["ro"]),
        bind("/srv", "/usr/local/e/f", &["ro"]),
    ]);
    let plan = planned(&spec, &having(root(), "/srv", directory((0, 0))));
    let made = about(&plan, " = directory");
    let made: Vec<&str> =
        made.iter().map(String::as_str).skip_while(|words| !words.starts_with("m0:a")).collect();
    assert_eq!(
        made[..4],
        ["m0:a = directory 755", "m0:a/b = directory 755", "m6:c = directory 755", "m6:c/d = directory 755",]
    );
    assert_eq!(about(&plan, "local/e =").len() + about(&plan, "e/f =").len(), 0);
    assert_eq!(about(&plan, "to /usr/local/e"), ["move m8 to /usr/local/e", "move m9 to /usr/local/e/f"]);
}

/// Another payload with the same directory, or its owner on the host, could remove the mount point, and what is mounted there with it.
#[test]
fn nothing_is_mounted_inside_what_others_can_write() {
    let facts = having(srv(), "/mask", directory((501, 20)));
    let of_root = having(facts.clone(), "/srv", directory((0, 0)));
    let nested = |outer: &str, inner: Value| with_mounts([bind("/srv", "/data", &[outer]), inner]);
    let inner = [
        bind("/mask", "/data/mask", &["ro"]),
        bind("/mask", "/data/a/b/mask", &["rw"]),
        mount("tmpfs", "/data/tmp", &[]),
    ];
    for inner in inner {
        planned(&nested("ro", inner.clone()), &of_root);
        for mode in ["ro", "rw"] {
            let refused = refusal(&nested(mode, inner.clone()), &facts);
            assert!(
                refused.contains("lies inside /data, which others than root can write to"),
                "{inner}: {refused}"
            );
            assert!(refused.ends_with("mount it elsewhere"), "{inner}: {refused}");
        }
        let turned = with_mounts([inner.clone(), bind("/srv", "/data", &["rw"])]);
        assert!(refusal(&turned, &facts).contains("lies inside /data"), "{inner}");
    }
    planned(&nested("rw", bind("/mask", "/database", &["ro"])), &facts);
    let absent = SourceFacts { kind: None, ..directory((0, 0)) };
    let optional =
        with_mounts([bind("/none", "/tmp/x", &["rw", "optional"]), mount("tmpfs", "/tmp/x/y", &[])]);
    planned(&optional, &having(facts, "/none", absent));
}

#[test]
fn a_file_is_mounted_over_a_file_and_nothing_below_it() {
    let facts = having(root(), "/srv", file(FileKind::File));
    let plan = planned(&with_mounts([bind("/srv", "/etc/hosts", &["ro"])]), &facts);
    assert_eq!(about(&plan, "m0:etc/hosts"), ["m0:etc/hosts = file of 0 bytes"], "instead of the skeleton's");
    let below = with_mounts([bind("/srv", "/data", &["ro"]), bind("/srv", "/data/x", &["ro"])]);
    assert!(refusal(&below, &facts).contains("target \"/data\": is a file or a link"));
}

#[test]
fn nothing_is_made_below_a_link() {
    let spec = spec(|spec| {
        let node = json!({ "node": "dir", "path": "/bin/x", "mode": 0o755, "user_owned": false });
        spec["airlock"]["skeleton"].as_array_mut().unwrap().push(node);
    });
    assert_eq!(
        refusal(&spec, &root()),
        "root.kind: target \"/bin\": is a file or a link, and something is to lie below it"
    );
}

#[test]
fn a_tmpfs_belongs_to_the_sandboxs_root_or_to_the_payload() {
    let owner = |facts: &HostFacts, options: &[&str]| {
        let plan = planned(&with_mounts([mount("tmpfs", "/data", options)]), facts);
        about(&plan, "m6 = tmpfs")[0].rsplit_once("owner ").unwrap().1.to_owned()
    };
    assert_eq!(owner(&root(), &[]), "0:0");
    assert_eq!(owner(&root(), &["uid=0", "gid=0"]), "0:0");
    assert_eq!(owner(&root(), &["uid=1000", "gid=1000"]), "1000:1000");
    assert_eq!(owner(&user(), &["uid=1000", "gid=1000"]), "1000:1000");
    let other = with_mounts([mount("tmpfs", "/data", &["uid=7"])]);
    assert!(refusal(&other, &root()).starts_with("identity: a tmpfs can belong to"));
}

#[test]
fn a_skeleton_directory_can_be_the_payloads() {
    let spec = spec(|spec| {
        let node = json!({ "node": "dir", "path": "/home", "mode": 0o700, "user_owned": true });
        spec["airlock"]["skeleton"].as_array_mut().unwrap().push(node);
    });
    let plan = planned(&spec, &root());
    let owner = plan.child.iter().find_map(|step| match &step.action {
        Action::Make { path, owner, entry: Entry::Dir { mode: 0o700 }, .. } if path == Path::new("home") => {
            Some(*owner)
        }
        _ => None,
    });
    assert_eq!(owner.unwrap(), Owner { uid: 1000, gid: 1000 });
}

#[test]
fn without_a_dev_of_its_own_a_sandbox_gets_no_links_in_it() {
    let bare = spec(|spec| {
        spec["oci"]["mounts"].as_array_mut().unwrap().retain(|mount| mount["destination"] != "/dev");
    });
    assert_eq!(about(&planned(&bare, &root()), "/proc/self/fd"), [""; 0]);
    assert_eq!(about(&planned(&spec(|_| ()), &root()), "/proc/self/fd").len(), 4);
}

#[test]
fn a_device_number_that_is_none_is_refused() {
    let spec = spec(|spec| spec["oci"]["linux"]["devices"][0]["minor"] = json!(-1));
    assert_eq!(refusal(&spec, &root()), "devices: target \"/dev/null\": negative minor number");
}

/// bubblewrap#505: inside a user namespace the kernel refuses a procfs where the visible one is partly covered. Root
/// need not be inside.
#[test]
fn root_brings_a_procfs_where_the_hosts_is_covered() {
    let has_proc = |steps: &[Step]| words(steps).iter().any(|step| step.contains("= proc"));
    for (facts, covered, by_host) in [(root(), false, false), (root(), true, true), (user(), true, false)] {
        let plan = planned(&spec(|_| ()), &HostFacts { proc_covered: covered, ..facts });
        assert_eq!((has_proc(&plan.host), has_proc(&plan.child)), (by_host, !by_host));
    }
}
