//! Bundles, as changes to one that is sound.

use airlock_policy::audit::{Finding, Subject};
use serde_json::{Value, json};

/// A member by pointer, and the JSON that is put there; a pointer that ends in `/-` appends, `null` removes.
type Edit = (&'static str, &'static str);

/// Rule; a bundle that trips it; the nearest one that does not.
pub(crate) const PAIRS: &[(&str, &[Edit], &[Edit])] = &[
    ("AL001", &[without("user")], &[]),
    ("AL002", &[without("network")], &[]),
    ("AL003", &[without("pid")], &[]),
    ("AL004", &[without("mount")], &[]),
    ("AL005", &[without("ipc")], &[]),
    ("AL006", &[without("uts")], &[]),
    ("AL007", &[without("cgroup")], &[]),
    ("AL008", &[("/linux/namespaces/0/path", "\"/proc/1/ns/pid\"")], &[]),
    ("AL010", &[("/linux/gidMappings/0/hostID", "0")], &[]),
    ("AL011", &[without("user"), ("/process/user/uid", "0")], &[without("user")]),
    ("AL014", &[("/process/noNewPrivileges", "false")], &[]),
    (
        "AL015",
        &[without("user"), ("/process/user/additionalGids", "[0]")],
        &[without("user"), ("/process/user/additionalGids", "[10]")],
    ),
    ("AL020", &[("/process/capabilities/bounding/-", "\"CAP_SYS_ADMIN\"")], &[]),
    ("AL021", &[("/process/capabilities/permitted/-", "\"CAP_NET_RAW\"")], &[]),
    ("AL022", &[("/process/capabilities/effective/-", "\"CAP_MKNOD\"")], &[]),
    ("AL023", &[("/process/capabilities/bounding/-", "\"CAP_KILL\"")], &[]),
    (
        "AL024",
        &[
            ("/process/capabilities/bounding/-", "\"CAP_KILL\""),
            ("/process/capabilities/inheritable/-", "\"CAP_KILL\""),
        ],
        &[("/process/capabilities/bounding/-", "\"CAP_KILL\"")],
    ),
    (
        "AL030",
        &[bind(r#"{"source":"/etc/","destination":"/a","options":["bind","ro","nosuid","nodev"]}"#)],
        &[bind(r#"{"source":"/etc/hosts","destination":"/a","options":["bind","ro","nosuid","nodev"]}"#)],
    ),
    (
        "AL031",
        &[bind(
            r#"{"source":"/run/docker.sock","destination":"/a","options":["bind","ro","nosuid","nodev"]}"#,
        )],
        &[bind(r#"{"source":"/run/hosts","destination":"/a","options":["bind","ro","nosuid","nodev"]}"#)],
    ),
    (
        "AL032",
        &[bind(r#"{"source":"/run/user/1000","destination":"/a","options":["bind","ro","nosuid","nodev"]}"#)],
        &[bind(
            r#"{"source":"/run/user/1000/x","destination":"/a","options":["bind","ro","nosuid","nodev"]}"#,
        )],
    ),
    (
        "AL033",
        &[bind(r#"{"source":"/srv/a","destination":"/a","options":["rbind","ro"]}"#)],
        &[bind(r#"{"source":"/srv/a","destination":"/a","options":["rbind","rro","rnosuid","nodev"]}"#)],
    ),
    ("AL034", &[("/linux/rootfsPropagation", "\"rshared\"")], &[("/linux/rootfsPropagation", "\"private\"")]),
    ("AL035", &[("/linux/rootfsPropagation", "\"rslave\"")], &[("/linux/rootfsPropagation", "\"rprivate\"")]),
    ("AL036", &[("/hooks", r#"{"createRuntime":[{"path":"/usr/bin/hook"}]}"#)], &[("/hooks", "{}")]),
    (
        "AL040",
        &[bind(
            r#"{"source":"/usr/local/bin","destination":"/a","options":["bind","noexec","nosuid","nodev"]}"#,
        )],
        &[bind(r#"{"source":"/usr/local/bin","destination":"/a","options":["bind","ro","nosuid","nodev"]}"#)],
    ),
    (
        "AL041",
        &[bind(r#"{"source":"/srv/a","destination":"/a","options":["bind","rw","nosuid","nodev"]}"#)],
        &[bind(
            r#"{"source":"/srv/a","destination":"/a","options":["bind","rw","noexec","nosuid","nodev"]}"#,
        )],
    ),
    (
        "AL042",
        &[("/process/env/-", "\"LD_LIBRARY_PATH=/usr/lib:/dev/shm/lib\"")],
        &[("/process/env/-", "\"LD_LIBRARY_PATH=/usr/lib\"")],
    ),
    ("AL043", &[("/root/readonly", "false")], &[]),
    (
        "AL045",
        &[tmpfs(r#"{"type":"tmpfs","source":"t","destination":"/tmp","options":["size=1m"]}"#)],
        &[tmpfs(r#"{"type":"tmpfs","source":"t","destination":"/tmp","options":["noexec","size=1m"]}"#)],
    ),
    (
        "AL050",
        &[bind(r#"{"source":"/etc/shadow","destination":"/a","options":["bind","ro","nosuid","nodev"]}"#)],
        &[],
    ),
    (
        "AL051",
        &[("/process/env/-", "\"AWS_SECRET_ACCESS_KEY=x\"")],
        &[("/process/env/-", "\"SSL_KEYS_DIR=x\"")],
    ),
    ("AL060", &[("/linux/seccomp", "null")], &[]),
    (
        "AL061",
        &[("/linux/seccomp/defaultAction", "\"SCMP_ACT_ALLOW\"")],
        &[("/linux/seccomp/defaultAction", "\"SCMP_ACT_KILL_PROCESS\"")],
    ),
    (
        "AL062",
        &[("/linux/seccomp/architectures/-", "\"SCMP_ARCH_X32\"")],
        &[("/linux/seccomp/architectures/-", "\"SCMP_ARCH_X86_64\"")],
    ),
    (
        "AL063",
        &[calls(r#"{"names":["io_uring_enter"],"action":"SCMP_ACT_ALLOW"}"#)],
        &[calls(r#"{"names":["io_uring_enter"],"action":"SCMP_ACT_ERRNO"}"#)],
    ),
    (
        "AL064",
        &[
            ("/linux/seccomp/syscalls/1/names", "[\"x\"]"),
            calls(r#"{"names":["clone3"],"action":"SCMP_ACT_ALLOW"}"#),
        ],
        &[("/linux/seccomp/syscalls/1/names", "[\"x\"]")],
    ),
    (
        "AL065",
        &[calls(r#"{"names":["unshare"],"action":"SCMP_ACT_ALLOW"}"#)],
        &[calls(
            r#"{"names":["unshare"],"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":268435456,"valueTwo":0,"op":"SCMP_CMP_MASKED_EQ"}]}"#,
        )],
    ),
    ("AL070", &[calls(r#"{"names":["mount"],"action":"SCMP_ACT_ALLOW"}"#)], &[]),
    (
        "AL076",
        &[calls(r#"{"names":["mount"],"action":"SCMP_ACT_NOTIFY"}"#)],
        &[calls(r#"{"names":["mount"],"action":"SCMP_ACT_ERRNO"}"#)],
    ),
    (
        "AL077",
        &[calls(r#"{"names":["keyctrl"],"action":"SCMP_ACT_ERRNO"}"#)],
        &[calls(r#"{"names":["keyctl","socketcall","stat64"],"action":"SCMP_ACT_ERRNO"}"#)],
    ),
    ("AL090", &[without("user"), ("/linux/resources/devices", "[]")], &[without("user")]),
    (
        "AL091",
        &[rule(r#"{"allow":true,"type":"b","major":8,"minor":0,"access":"r"}"#)],
        &[rule(r#"{"allow":true,"type":"b","access":"m"}"#)],
    ),
    (
        "AL092",
        &[rule(r#"{"allow":true,"type":"c","major":10,"minor":229,"access":"rw"}"#)],
        &[rule(r#"{"allow":true,"type":"c","major":1,"minor":3,"access":"rw"}"#)],
    ),
    (
        "AL093",
        &[rule(r#"{"allow":true,"type":"c","major":195,"access":"rw"}"#)],
        &[rule(r#"{"allow":true,"type":"c","major":195,"minor":0,"access":"rw"}"#)],
    ),
    (
        "AL094",
        &[("/process/env/-", "\"NVIDIA_DRIVER_CAPABILITIES=compute,display\"")],
        &[("/process/env/-", "\"NVIDIA_DRIVER_CAPABILITIES=compute\"")],
    ),
    ("AL095", &[bind(r#"{"source":"/dev","destination":"/dev2","options":["rbind"]}"#)], &[]),
    (
        "AL097",
        &[bind(r#"{"source":"/dev/nvidia0","destination":"/dev/nvidia0","options":["bind"]}"#)],
        &[bind(r#"{"source":"/dev/null","destination":"/dev/null","options":["bind"]}"#)],
    ),
    ("AL100", &[("/linux/resources/memory/limit", "-1")], &[]),
    ("AL101", &[("/linux/resources/pids", "null")], &[]),
    ("AL103", &[("/linux/resources/cpu", "null")], &[]),
    ("AL104", &[("/linux/resources/memory/swap", "-1")], &[]),
    (
        "AL105",
        &[tmpfs(r#"{"type":"tmpfs","source":"t","destination":"/a","options":["noexec"]}"#)],
        &[tmpfs(r#"{"type":"tmpfs","source":"t","destination":"/a","options":["noexec","ro"]}"#)],
    ),
    ("AL107", &[("/process/rlimits/0/hard", "4096")], &[]),
    ("AL109", &[("/process/oomScoreAdj", "-100")], &[("/process/oomScoreAdj", "100")]),
    (
        "AL111",
        &[("/linux/sysctl", r#"{"net.ipv4.ip_unprivileged_port_start":"0"}"#)],
        &[("/linux/sysctl", "{}")],
    ),
    ("AL120", &[("/linux/maskedPaths", "[\"/proc/kcore\"]")], &[]),
    ("AL121", &[("/linux/readonlyPaths", "[\"/proc/sys\"]")], &[]),
    ("AL122", &[tmpfs(r#"{"type":"sysfs","source":"sysfs","destination":"/sys","options":["rw"]}"#)], &[]),
    ("AL123", &[tmpfs(r#"{"type":"sysfs","source":"sysfs","destination":"/sys","options":["ro"]}"#)], &[]),
    (
        "AL124",
        &[tmpfs(
            r#"{"type":"cgroup","source":"cgroup","destination":"/sys/fs/cgroup","options":["relatime"]}"#,
        )],
        &[tmpfs(r#"{"type":"cgroup","source":"cgroup","destination":"/sys/fs/cgroup","options":["ro"]}"#)],
    ),
    ("AL125", &[bind(r#"{"source":"/proc","destination":"/a","options":["rbind","ro"]}"#)], &[]),
    ("AL126", &[tmpfs(r#"{"type":"debugfs","source":"d","destination":"/a","options":["ro"]}"#)], &[]),
];

const fn bind(mount: &'static str) -> Edit {
    ("/mounts/-", mount)
}

const fn tmpfs(mount: &'static str) -> Edit {
    ("/mounts/-", mount)
}

const fn rule(rule: &'static str) -> Edit {
    ("/linux/resources/devices/-", rule)
}

const fn calls(entry: &'static str) -> Edit {
    ("/linux/seccomp/syscalls/-", entry)
}

/// Another kind in the place of this one.
const fn without(kind: &'static str) -> Edit {
    ("/without", kind)
}

/// Both can be done to one bundle: neither puts another value where the other does, or below.
pub(crate) fn may_meet(one: &[Edit], other: &[Edit]) -> bool {
    let places = |edit: &Edit| (edit.0 != "/without" && !edit.0.ends_with("/-")).then_some(edit.0);
    let below =
        |a: &str, b: &str| a.strip_prefix(b).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    one.iter().filter_map(places).all(|a| other.iter().all(|b| !below(a, b.0) && !below(b.0, a)))
        && other.iter().filter_map(places).all(|b| one.iter().all(|a| !below(a.0, b)))
}

/// What is found in the sound bundle with these changes.
pub(crate) fn findings(edits: &[Edit]) -> Vec<Finding> {
    let mut bundle = sound();
    for (pointer, value) in edits {
        if *pointer == "/without" {
            let namespaces = bundle["linux"]["namespaces"].as_array_mut().unwrap();
            namespaces.retain(|namespace| namespace["type"] != *value);
            continue;
        }
        let value: Value = serde_json::from_str(value).unwrap();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        match bundle.pointer_mut(parent).unwrap() {
            Value::Array(items) if name == "-" => items.push(value),
            Value::Array(items) => items[name.parse::<usize>().unwrap()] = value,
            Value::Object(fields) if value.is_null() => drop(fields.remove(name)),
            Value::Object(fields) => drop(fields.insert(name.into(), value)),
            other => panic!("{pointer}: {other}"),
        }
    }
    let text = serde_json::to_string_pretty(&bundle).unwrap();
    Subject::bundle_text("config.json", &text).unwrap().findings()
}

fn sound() -> Value {
    let namespaces =
        ["pid", "network", "mount", "ipc", "uts", "cgroup", "user"].map(|kind| json!({ "type": kind }));
    let map = json!([{ "containerID": 0, "hostID": 100_000, "size": 65_536 }]);
    let seccomp = airlock_runtime::seccomp::profile("default").unwrap();
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": { "uid": 1000, "gid": 1000 },
            "args": ["sh"],
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": "/",
            "capabilities": { "bounding": [], "effective": [], "permitted": [], "inheritable": [], "ambient": [] },
            "rlimits": [{ "type": "RLIMIT_CORE", "hard": 1, "soft": 1 }],
            "noNewPrivileges": true
        },
        "root": { "path": "rootfs", "readonly": true },
        "mounts": [
            { "destination": "/proc", "type": "proc", "source": "proc" },
            { "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "size=65536k"] },
            { "destination": "/dev/shm", "type": "tmpfs", "source": "shm",
              "options": ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"] }
        ],
        "linux": {
            "namespaces": namespaces,
            "uidMappings": map,
            "gidMappings": map,
            "resources": {
                "devices": [{ "allow": false, "access": "rwm" }],
                "memory": { "limit": 1_073_741_824, "swap": 1_073_741_824 },
                "cpu": { "quota": 100_000, "period": 100_000 },
                "pids": { "limit": 100 }
            },
            "seccomp": seccomp,
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/scsi"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
        }
    })
}

/// As `runc spec`, `runc spec --rootless` and `crun spec` write them, shortened to what differs.
#[test]
fn members_are_named_where_they_stand() {
    let text = "{\n  \"ociVersion\": \"1.0.2\",\n  \"process\": {\n    \"user\": {\"uid\": 0, \"gid\": 0},\n    \"cwd\": \"/\",\n\
                \x20   \"oomScoreAdj\": -7\n  }\n}\n";
    let found = Subject::bundle_text("c.json", text).unwrap().findings();
    let score = found.iter().find(|found| found.rule == "AL109").unwrap();
    assert_eq!((&*score.clause, score.line, score.column), ("process.oomScoreAdj", 6, 5));
}

#[test]
fn what_is_no_bundle_is_refused_with_its_place() {
    let error = Subject::bundle_text("c.json", "{\n \"ociVersion\": \"1\",\n \"mounts\": 7 }").unwrap_err();
    assert!(error.to_string().starts_with("c.json:3:"), "{error}");
    for text in ["[]", "[\"1.0.2\"]", "null", "7"] {
        let error = Subject::bundle_text("c.json", text).unwrap_err().to_string();
        assert!(
            error.starts_with("c.json:1:1: not an OCI runtime configuration: it is not an object"),
            "{error}"
        );
    }
}
