//! Plans of small specs on hosts that are described by hand.

mod gpu;
mod identity;
mod landlock;
mod mounts;
mod overlays;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::cgroups::{CgroupFacts, Controller, Layout, Manager, V2Tree};
use crate::host::{FileKind, SourceFacts};
use crate::ids::HostIds;

/// First host id of the sandbox's range.
const BASE: u32 = 1 << 20;

/// A spec like that of `base`, but small; `edit` changes its JSON.
fn spec(edit: impl FnOnce(&mut Value)) -> Spec {
    let namespaces =
        ["user", "mount", "pid", "network", "ipc", "uts", "cgroup"].map(|kind| json!({ "type": kind }));
    let mut spec = json!({
        "oci": {
            "ociVersion": "1.2.0",
            "hostname": "airlock",
            "process": {
                "user": { "uid": 1000, "gid": 1000 },
                "args": ["true"],
                "env": ["HOME=/tmp"],
                "cwd": "/tmp",
                "rlimits": [{ "type": "RLIMIT_NOFILE", "soft": 4096, "hard": 4096 }],
            },
            "mounts": [
                mount("tmpfs", "/dev", &["nosuid", "noexec", "mode=755", "size=1048576"]),
                mount("devpts", "/dev/pts", &["nosuid", "noexec", "newinstance"]),
                mount("proc", "/proc", &["nosuid", "nodev", "noexec"]),
                mount("tmpfs", "/tmp", &["nosuid", "nodev", "mode=1777", "size=4096"]),
                bind("/usr", "/usr", &["rro", "rnodev"]),
            ],
            "linux": {
                "namespaces": namespaces,
                "resources": { "pids": { "limit": 64 }, "devices": [{ "allow": false, "access": "rwm" }] },
                "devices": [{ "path": "/dev/null", "type": "c", "major": 1, "minor": 3 }],
                "maskedPaths": ["/proc/kcore"],
                "readonlyPaths": ["/proc/sys"],
                "seccomp": { "defaultAction": "SCMP_ACT_ALLOW" },
            },
        },
        "airlock": {
            "root": { "kind": "host" },
            "landlock": { "min_abi": 1 },
            "origins": { "/usr": "root.kind", "/tmp": "limits.tmp" },
            "skeleton": [
                { "node": "link", "path": "/bin", "target": "usr/bin" },
                { "node": "copy", "path": "/etc/localtime", "source": "/etc/localtime" },
                { "node": "file", "path": "/etc/hosts", "mode": 0o644, "content": "127.0.0.1 localhost\n" },
            ],
        },
    });
    edit(&mut spec);
    serde_json::from_value(spec).unwrap()
}

/// [`spec`] with mounts added.
fn with_mounts(more: impl IntoIterator<Item = Value>) -> Spec {
    spec(|spec| spec["oci"]["mounts"].as_array_mut().unwrap().extend(more))
}

fn mount(kind: &str, target: &str, options: &[&str]) -> Value {
    json!({ "type": kind, "source": kind, "destination": target, "options": options })
}

fn bind(source: &str, target: &str, options: &[&str]) -> Value {
    json!({ "type": "bind", "source": source, "destination": target, "options": options })
}

/// A root caller on a host with cgroup v2 and Landlock.
fn root() -> HostFacts {
    let tree = V2Tree {
        mount: "/cg".into(),
        root: "/".into(),
        own: Some("/scope".into()),
        controllers: vec![Controller::Pids],
        root_controllers: vec![Controller::Pids],
        writable: true,
        manager: Manager::Cgroupfs,
    };
    HostFacts {
        kernel: (6, 12),
        root: true,
        uid: 0,
        gid: 0,
        groups: Vec::new(),
        last_capability: 40,
        landlock_abi: 6,
        open_files: 1 << 20,
        pending_signals: 1 << 20,
        cgroups: CgroupFacts { layout: Layout::V2, v1: Vec::new(), v2: Some(tree) },
        ids: HostIds::Range { base: BASE },
        sources: BTreeMap::from([("/usr".into(), directory((0, 0)))]),
        proc_covered: false,
        crooked_targets: BTreeMap::new(),
        gpu: None,
        gpu_host: None,
    }
}

/// An ordinary caller, 501:20, on the same host.
fn user() -> HostFacts {
    HostFacts { root: false, uid: 501, gid: 20, ids: HostIds::Caller, ..root() }
}

/// `facts` of a host that has something at `path`.
fn having(mut facts: HostFacts, path: &str, source: SourceFacts) -> HostFacts {
    facts.sources.insert(path.into(), SourceFacts { resolved: path.into(), ..source });
    facts
}

fn directory((uid, gid): (u32, u32)) -> SourceFacts {
    SourceFacts {
        kind: Some(FileKind::Directory),
        error: None,
        uid,
        gid,
        resolved: "/usr".into(),
        private: false,
        link: None,
    }
}

fn file(kind: FileKind) -> SourceFacts {
    SourceFacts { kind: Some(kind), ..directory((1234, 1234)) }
}

fn compile(spec: &Spec, facts: &HostFacts) -> Result<Plan, PlanError> {
    plan(spec, facts, &Placement { id: "s1".into(), cgroup_parent: None })
}

fn planned(spec: &Spec, facts: &HostFacts) -> Plan {
    compile(spec, facts).unwrap()
}

/// Why a plan cannot be made.
fn refusal(spec: &Spec, facts: &HostFacts) -> String {
    compile(spec, facts).map(|plan| plan.to_string()).unwrap_err().to_string()
}

/// Steps in words.
fn words(steps: &[Step]) -> Vec<String> {
    steps.iter().map(|step| step.action.to_string()).collect()
}

/// The steps in words that have `part` in them, of both sides.
fn about(plan: &Plan, part: &str) -> Vec<String> {
    let steps = plan.host.iter().chain(&plan.child);
    steps.map(|step| step.action.to_string()).filter(|words| words.contains(part)).collect()
}

/// Root brings what only root can: trees of the host, and device nodes. What belongs to the sandbox is made by
/// init, which is its root.
#[test]
fn root_brings_trees_and_device_nodes() {
    let plan = planned(&spec(|_| ()), &root());
    assert_eq!(
        words(&plan.host),
        [
            "create control group /cg/scope/s1",
            "clone init into new namespaces: user mnt pid ipc uts",
            "map ids: uid 0->1048576+65536 gid 0->1048576+65536",
            "limit the control group: pids.max = 64",
            "m1 = tmpfs of 1048576 bytes, mode 755, owner 1048576:1048576, noexec",
            "m5 = clone of /usr, ro, nodev",
            "m1:pts = directory 755",
            "m1:null = device 1:3",
            "m1:fd = link to /proc/self/fd",
            "m1:stdin = link to /proc/self/fd/0",
            "m1:stdout = link to /proc/self/fd/1",
            "m1:stderr = link to /proc/self/fd/2",
            "m1:ptmx = link to pts/ptmx",
            "hand over 2 mounts",
            "allow no device; refuse every other device",
        ]
    );
}

/// Ids before capabilities, capabilities before no_new_privs, Landlock after the last mount, seccomp last.
#[test]
fn the_child_gives_up_its_powers_in_the_only_order_that_works() {
    let plan = planned(&spec(|_| ()), &root());
    assert_eq!(
        words(&plan.child),
        [
            "unshare net",
            "wait for the id maps",
            "become the sandbox's root",
            "new session and session keyring",
            "make / recursively private",
            "m0 = tmpfs of 16777216 bytes, mode 755, owner 0:0, nodev",
            "m2 = devpts",
            "m3 = proc, foreign processes hidden",
            "m4 = tmpfs of 4096 bytes, mode 1777, owner 0:0, nodev",
            "m0:dev = directory 755",
            "m0:proc = directory 755",
            "m0:tmp = directory 755",
            "m0:usr = directory 755",
            "m0:bin = link to usr/bin",
            "m0:etc = directory 755",
            "m0:etc/localtime = copy of /etc/localtime",
            "m0:etc/hosts = file of 20 bytes",
            "seal m0 read-only",
            "receive 2 mounts, join control groups",
            "unshare cgroup",
            "move m0 onto /",
            "move m1 to /dev",
            "move m2 to /dev/pts",
            "move m3 to /proc",
            "move m4 to /tmp",
            "move m5 to /usr",
            "pivot into it, detach the old root",
            "limit what is counted for the owner too",
            "user.max_user_namespaces = 0",
            "mask 1 paths",
            "make 1 paths read-only",
            "host name airlock",
            "resource limits: open files 4096",
            "drop the bounding set but 0",
            "become 1000:1000, supplementary groups []",
            "keep 0 capabilities in every set",
            "die with the monitor",
            "no_new_privs",
            "Landlock ABI 6: /etc=rl /tmp=rxlwc /usr=rxl /dev=rlwi /dev/pts=rlwi /proc=rlw /=l",
            "close what was inherited, reset umask",
            "enter /tmp",
            "seccomp filter of 7 instructions",
        ]
    );
}

/// Handles opened in another mount namespace are refused by the kernel, so an ordinary user's child builds
/// for itself; it has no device nodes of its own and cannot install a device filter.
#[test]
fn an_ordinary_users_child_builds_for_itself() {
    let plan = planned(&spec(|_| ()), &user());
    assert_eq!(
        words(&plan.host),
        [
            "create control group /cg/scope/s1",
            "clone init into new namespaces: user mnt pid ipc uts",
            "map ids: uid 1000->501+1 gid 1000->20+1",
            "limit the control group: pids.max = 64",
            "hand over 0 mounts",
        ]
    );
    assert_eq!(plan.lowered[0].clause, "devices");
    let child = words(&plan.child);
    let at = |step: &str| {
        child.iter().position(|words| words == step).unwrap_or_else(|| panic!("{step}: {child:#?}"))
    };
    let order = [
        "new session and session keyring",
        "m0 = tmpfs of 16777216 bytes, mode 755, owner 1000:1000, nodev",
        "m3 = proc, foreign processes hidden",
        "m1:null = file of 0 bytes",
        "seal m0 read-only",
        "m5 = clone of /usr, ro, nodev",
        "m6 = node /dev/null, which must be 1:3, noexec",
        "receive 0 mounts, join control groups",
        "move m0 onto /",
        "move m1 to /dev",
        "move m6 to /dev/null",
        "pivot into it, detach the old root",
        "become 1000:1000, supplementary groups kept",
    ];
    assert!(order.is_sorted_by_key(|step| at(step)), "{child:#?}");
    assert!(!child.iter().any(|words| words == "become the sandbox's root"));
    assert!(plan.expect.mounts.iter().any(|mount| mount.target == Path::new("/dev/null")));
}

#[test]
fn what_is_read_back_is_what_was_planned() {
    let plan = planned(&spec(|_| ()), &root());
    let targets: Vec<&str> = plan.expect.mounts.iter().map(|mount| mount.target.to_str().unwrap()).collect();
    assert_eq!(targets, ["/", "/dev", "/dev/pts", "/proc", "/tmp", "/usr"]);
    let types: Vec<FileSystem> = plan.expect.mounts.iter().map(|mount| mount.file_system).collect();
    let own = ["tmpfs", "tmpfs", "devpts", "proc", "tmpfs"].map(FileSystem::Own);
    assert_eq!(types, [&own[..], &[FileSystem::Host]].concat());
    assert!(plan.expect.mounts[0].flags.read_only && plan.expect.mounts[5].flags.read_only);
    assert_eq!(plan.expect.namespaces, Namespace::ALL);
    assert_eq!(plan.expect.host_ids, (BASE + 1000, BASE + 1000));
    assert_eq!(plan.expect.covered, ["/proc/kcore", "/proc/sys"].map(PathBuf::from));
    assert!(plan.expect.seccomp && plan.expect.resources.is_some());
}

#[test]
fn clauses_that_are_off_have_no_step() {
    let plan = planned(
        &spec(|spec| {
            spec["airlock"]["nesting"] = true.into();
            spec["airlock"]["landlock"] = Value::Null;
            spec["airlock"]["network"] = "loopback".into();
            spec["oci"]["linux"]["seccomp"] = Value::Null;
            spec["oci"]["linux"]["resources"] = Value::Null;
            spec["oci"]["process"]["terminal"] = true.into();
        }),
        &root(),
    );
    for absent in ["max_user_namespaces", "Landlock", "seccomp", "the control group", "unshare cgroup"] {
        assert_eq!(about(&plan, absent), [""; 0], "{absent}");
        assert_ne!(about(&planned(&spec(|_| ()), &root()), absent), [""; 0], "{absent}");
    }
    assert_eq!(about(&plan, "loopback up").len() + about(&plan, "pseudo-terminal").len(), 2);
    assert!(
        !plan.expect.namespaces.contains(&Namespace::Cgroup),
        "it would show the caller's group as the root"
    );
}

#[test]
fn the_callers_limits_stay_where_they_are_tighter() {
    let soft = |open_files| planned(&spec(|_| ()), &HostFacts { open_files, ..root() }).expect.limits[0].soft;
    assert_eq!((soft(1024), soft(1 << 20)), (1024, 4096));
    let spec = spec(|spec| spec["oci"]["process"]["rlimits"][0]["type"] = "RLIMIT_SIGPENDING".into());
    let hard =
        |pending_signals| planned(&spec, &HostFacts { pending_signals, ..root() }).expect.limits[0].hard;
    assert_eq!((hard(64), hard(1 << 20)), (64, 4096));
}

#[test]
fn a_process_that_cannot_be_started_is_refused() {
    let refused =
        |field: &str, value: Value| refusal(&spec(|spec| spec["oci"]["process"][field] = value), &root());
    for (field, value, message) in [
        ("args", json!([]), "no command to run"),
        ("args", json!([""]), "no command to run"),
        ("args", json!(["a\0b"]), "a NUL byte in \"a\\0b\""),
        ("args", json!(["true", "x".repeat(131_072)]), "131072 bytes starting with \"xxxx"),
        ("env", json!(["A=\0"]), "a NUL byte"),
        ("cwd", json!("tmp"), "is not absolute"),
    ] {
        assert!(refused(field, value.clone()).contains(message), "{field} {}", refused(field, value));
    }
    planned(&spec(|spec| spec["oci"]["process"]["args"] = json!(["x".repeat(131_071)])), &root());
}

#[test]
fn a_sandbox_has_namespaces_of_its_own() {
    let refused =
        |namespaces: Value| refusal(&spec(|spec| spec["oci"]["linux"]["namespaces"] = namespaces), &root());
    let three = json!([{ "type": "user" }, { "type": "mount" }, { "type": "pid" }]);
    planned(&spec(|spec| spec["oci"]["linux"]["namespaces"] = three), &root());
    assert!(refused(json!([{ "type": "user" }, { "type": "pid" }])).contains("cannot be verified"));
    assert!(
        refused(json!([{ "type": "user", "path": "/proc/1/ns/user" }]))
            .contains("joining an existing namespace")
    );
    assert!(refused(json!([{ "type": "time" }])).contains("time namespaces"));
}

#[test]
fn a_filter_that_stops_airlock_itself_is_refused() {
    let deny = |call: &str| {
        let rule = json!([{ "names": [call], "action": "SCMP_ACT_ERRNO", "errnoRet": 1 }]);
        spec(|spec| spec["oci"]["linux"]["seccomp"]["syscalls"] = rule)
    };
    assert!(refusal(&deny("execve"), &root()).contains("execve, which Airlock itself needs"));
    planned(&deny("ptrace"), &root());
}
