//! Writable roots.

use super::*;
use crate::plan::identity::KEPT_START;

fn writable(kind: Value, writable: Value) -> Spec {
    spec(|spec| {
        let mounts = spec["oci"]["mounts"].as_array_mut().unwrap();
        if kind["kind"] == "dir" {
            mounts.retain(|mount| mount["destination"] != "/usr");
        }
        mounts.push(bind("/srv", "/srv", &["ro"]));
        spec["airlock"]["root"] = kind;
        spec["airlock"]["writable"] = writable;
    })
}

fn host() -> Value {
    json!({ "kind": "host" })
}

fn dir() -> Value {
    json!({ "kind": "dir", "path": "/image" })
}

fn tmpfs() -> Value {
    json!({ "to": "tmpfs", "size": 8192 })
}

fn kept() -> Value {
    json!({ "to": "dir", "path": "/upper" })
}

fn facts() -> HostFacts {
    let facts = having(root(), "/srv", directory((0, 0)));
    let facts = having(facts, "/image", directory((0, 0)));
    having(facts, "/upper", directory((501, 20)))
}

/// What is mounted, from the scratch directory to the root.
fn laid(plan: &Plan) -> Vec<String> {
    let laid =
        |words: &String| words.contains(" onto /") || words.contains("overlay") || words.contains(" to /m");
    words(&plan.child).into_iter().filter(laid).collect()
}

#[test]
fn a_read_only_root_needs_no_overlay() {
    let plan = planned(&writable(host(), json!({ "to": "none" })), &facts());
    assert_eq!(laid(&plan), ["move m0 onto /"]);
    assert_eq!(about(&plan, "seal"), ["seal m0 read-only"]);
    assert!(plan.expect.mounts[0].flags.read_only);
}

#[test]
fn writes_to_the_hosts_parts_go_to_memory() {
    let plan = planned(&writable(host(), tmpfs()), &facts());
    // /usr comes from the root and is laid over; /srv is the policy's own and stays read-only.
    assert_eq!(
        laid(&plan),
        [
            "move m6 onto /",
            "move m7 to /m7",
            "move m5 to /m5",
            "m8 = overlay, lower m5, upper m7",
            "move m0 onto /",
        ]
    );
    assert_eq!(about(&plan, "to /usr"), ["move m8 to /usr"]);
    assert_eq!(about(&plan, "to /srv"), ["move m9 to /srv"]);
    assert_eq!(about(&plan, "m7 = tmpfs"), ["m7 = tmpfs of 8192 bytes, mode 755, owner 0:0, nodev"]);
    assert_eq!(about(&plan, "m0 = tmpfs of 8192 bytes").len(), 1);
    assert_eq!(about(&plan, "seal"), [""; 0]);
}

#[test]
fn a_directory_is_the_lowest_layer_of_a_root() {
    let lower = |kind| {
        let plan = planned(&writable(dir(), kind), &facts());
        assert_eq!(about(&plan, "clone of /image"), ["m1 = clone of /image, ro, nodev, idmapped"]);
        laid(&plan).into_iter().filter(|words| words.contains("overlay")).collect::<Vec<_>>()
    };
    assert_eq!(lower(json!({ "to": "none" })), ["m3 = overlay, lower m0:m1, upper none"]);
    assert_eq!(lower(tmpfs()), ["m4 = overlay, lower m0:m1, upper m3"]);
    assert_eq!(lower(kept()), ["m4 = overlay, lower m0:m1, upper m3"]);
    let plan = planned(&writable(dir(), tmpfs()), &facts());
    assert!(laid(&plan).contains(&"move m4 onto /".into()), "the overlay is the root: {:?}", laid(&plan));
}

#[test]
fn a_directory_that_is_no_directory_is_refused() {
    let spec = writable(dir(), tmpfs());
    let facts = having(facts(), "/image", file(FileKind::File));
    assert_eq!(refusal(&spec, &facts), "root.kind: source /image: is not a directory");
}

#[test]
fn what_is_written_to_a_kept_directory_belongs_to_its_owner() {
    let plan = planned(&writable(host(), kept()), &facts());
    let upper = plan.host.iter().find_map(|step| match &step.action {
        Action::CloneTree { source, idmap, .. } if source == Path::new("/upper") => idmap.as_ref(),
        _ => None,
    });
    let upper = upper.unwrap();
    let pairs = |lines: &[crate::ids::IdMapping]| {
        lines.iter().map(|line| (line.inside, line.outside, line.count)).collect::<Vec<_>>()
    };
    assert!(upper.required);
    let map = |owner| {
        vec![(KEPT_START, BASE, 1000), (owner, BASE + 1000, 1), (KEPT_START + 1001, BASE + 1001, 64_535)]
    };
    assert_eq!(pairs(&upper.maps.uids), map(501));
    assert_eq!(pairs(&upper.maps.gids), map(20));
}

#[test]
fn a_kept_directory_that_others_could_use_is_refused() {
    let spec = writable(host(), kept());
    let upper = |upper| having(facts(), "/upper", upper);
    assert!(refusal(&spec, &upper(directory((0, 0)))).contains("belongs to root and others can enter it"));
    assert!(refusal(&spec, &upper(file(FileKind::File))).contains("is not a directory"));
    planned(&spec, &upper(SourceFacts { private: true, ..directory((0, 0)) }));
}

#[test]
fn an_ordinary_users_overlays_are_the_childs_and_unmapped() {
    let facts = HostFacts { sources: facts().sources, ..user() };
    let plan = planned(&writable(dir(), kept()), &facts);
    assert_eq!(about(&plan, "clone of /image"), ["m1 = clone of /image, ro, nodev"]);
    assert_eq!(about(&plan, "clone of /upper"), ["m3 = clone of /upper, nodev"]);
    assert!(laid(&plan).contains(&"m4 = overlay, lower m0:m1, upper m3".into()));
}
