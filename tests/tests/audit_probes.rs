//! `airlock audit --probe` and `--mutate`: what sandboxes let through, and that the audit can fail.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::collections::BTreeMap;
use std::process::Command;

use airlock_tests::{Site, skip};
use serde_json::Value;

const BUILT_IN: [&str; 7] = ["base", "candidate", "grader", "replay", "research", "scorer", "strict"];

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Probes by name.
fn rows(report: &Value) -> BTreeMap<String, Value> {
    let rows = report["probes"].as_array().unwrap().iter();
    rows.map(|row| (row["id"].as_str().unwrap().to_owned(), row.clone())).collect()
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|ended| ended.status.success())
}

#[test]
fn built_in_policies_let_through_what_they_say_and_no_more() {
    let site = Site::new();
    for policy in BUILT_IN {
        let ended = site.audit(["--json", "--probe", policy]);
        let report = json(&ended.stdout);
        let unexpected: Vec<Value> =
            rows(&report).into_values().filter(|row| row["result"] == "unexpected").collect();
        assert_eq!(unexpected, [Value::Null; 0], "{policy}");
        assert_eq!(ended.code, 0, "{policy}");
        assert!(report["probes"].as_array().unwrap().len() > 250, "{policy}");
    }
}

/// What is expected follows from the policy, and what is observed follows the kernel: without a filter both change.
#[test]
fn a_looser_policy_is_seen_to_be_looser() {
    let site = Site::new();
    let observed = |clauses: &str| {
        let policy = site.policy(clauses);
        let ended = site.audit(["--json", "--probe", policy.to_str().unwrap()]);
        assert_eq!(ended.code, 0, "{ended}");
        rows(&json(&ended.stdout))
    };
    let (base, loose) = (observed(""), observed("[seccomp]\nprofile = \"none\"\n"));
    for id in ["kernel.push-input", "process.trace", "ipc.keyring", "kernel.x32"] {
        assert_eq!(
            (&base[id]["expected"], &base[id]["observed"]),
            (&"denied".into(), &"denied".into()),
            "{id}"
        );
        assert_eq!(
            (&loose[id]["expected"], &loose[id]["observed"]),
            (&"allowed".into(), &"allowed".into()),
            "{id}"
        );
    }
    // Another layer stops it still.
    assert_eq!(loose["namespace.new-user"]["observed"], "denied");
    assert_eq!(loose["namespace.new-user"]["clauses"], serde_json::json!(["nesting"]));
}

/// The standard library listens with setsockopt(2), which the table does not count among what listening takes.
#[test]
fn something_unexpected_fails_the_audit() {
    let site = Site::new();
    let policy = site.policy("[seccomp]\ndeny = [\"setsockopt\"]\n");
    let ended = site.audit(["--json", "--probe", policy.to_str().unwrap()]);
    assert_eq!(ended.code, 1, "{ended}");
    let rows = rows(&json(&ended.stdout));
    let row = &rows["network.listen"];
    assert_eq!((&row["expected"], &row["observed"]), (&"allowed".into(), &"denied".into()), "{row}");
    assert_eq!(row["result"], "unexpected");
    let text = site.audit(["--probe", policy.to_str().unwrap()]).stdout;
    assert!(text.lines().any(|line| line.starts_with("! network.listen")), "{text}");
}

#[test]
fn every_clause_of_base_is_proven_and_no_probe_is_vacuous() {
    let site = Site::new();
    let ended = site.audit(["--json", "--mutate", "base"]);
    let matrix = json(&ended.stdout);
    let clauses = matrix["clauses"].as_array().unwrap();
    let of = |name: &str| clauses.iter().find(|clause| clause["name"] == name).unwrap();
    for clause in clauses {
        assert!(!["none", "failed"].contains(&clause["proof"].as_str().unwrap()), "{clause}");
    }
    assert_eq!(matrix["vacuous"], serde_json::json!([]));
    assert_eq!(ended.code, 0);
    let beyond: Vec<&Value> = clauses.iter().filter(|clause| clause["proof"] == "beyond").collect();
    assert_eq!(beyond.len(), usize::from(!site.caller().is_root()), "{beyond:?}");
    assert_eq!(of("seccomp.profile")["proof"], "removed");
    assert_eq!(of("(PID namespace)")["proof"], "fixed");
    // The filter refuses namespaces too, so the quota shows when it stands alone.
    assert_eq!(of("nesting")["proof"], "alone");
    assert!(matrix["overlaps"]["namespace.new-user"].as_array().unwrap().contains(&"seccomp.profile".into()));
}

/// What bubblewrap is not asked to do, it does not do; what it is, it does.
#[test]
fn the_same_probes_under_bubblewrap() {
    if !is_there("bwrap") {
        skip!("there is no bubblewrap");
    }
    let site = Site::new();
    let ended = site.audit(["--json", "--probe", "base", "--under", "bwrap"]);
    let report = json(&ended.stdout);
    assert_eq!(report["launcher"], "bwrap");
    let rows = rows(&report);
    let denied =
        |id: &str| rows[id]["under"].get("refused").is_some() || rows[id]["under"].get("absent").is_some();
    for id in ["file.hidden", "process.see", "namespace.network", "host.log"] {
        assert!(denied(id), "{id}: {}", rows[id]);
    }
    for id in ["process.trace", "network.tcp", "limit.signals", "limit.files"] {
        assert!(rows[id]["under"].get("done").is_some() || !denied(id), "{id}: {}", rows[id]);
    }
    assert!(rows["kernel.push-input"]["under"]["refused"] == libc::EBADF, "{}", rows["kernel.push-input"]);
}

#[test]
fn the_same_probes_under_oci_runtimes() {
    let Some(site) = Site::root() else { skip!("an engine's document for an ordinary user names no cgroup") };
    for runtime in ["runc", "crun"].into_iter().filter(|runtime| is_there(runtime)) {
        let ended = site.audit(["--json", "--probe", "base", "--runtime", runtime]);
        assert_eq!(ended.code, 0, "{ended}");
        let rows = rows(&json(&ended.stdout));
        // Their own document has no filter and no user namespace, and does hide processes and files.
        assert_eq!(rows["kernel.push-input"]["under"]["refused"], libc::EBADF, "{runtime}");
        assert!(rows["namespace.user"]["under"].get("done").is_some(), "{runtime}");
        assert!(rows["process.see"]["under"].get("refused").is_some(), "{runtime}");
        assert!(rows["file.hidden"]["under"].get("refused").is_some(), "{runtime}");
    }
}

/// A bundle's own document decides, not the runtime's.
#[test]
fn a_bundle_is_probed_as_it_is() {
    let Some(site) = Site::root().filter(|_| is_there("runc")) else { skip!("there is no runc, or no root") };
    let bundle = site.folder("bundle");
    let made = Command::new("runc").arg("spec").current_dir(&bundle).status().unwrap();
    assert!(made.success());
    let path = bundle.join("config.json");
    let mut document = json(&std::fs::read_to_string(&path).unwrap());
    site.folder("bundle/rootfs");
    site.folder("bundle/rootfs/tmp");
    document["linux"]["namespaces"]
        .as_array_mut()
        .unwrap()
        .retain(|namespace| namespace["type"] != "network");
    std::fs::write(&path, document.to_string()).unwrap();
    let words = ["--json", "--probe", "base", "--runtime", "runc", "--bundle", bundle.to_str().unwrap()];
    let rows = rows(&json(&site.audit(words).stdout));
    assert!(rows["namespace.network"]["under"].get("done").is_some(), "{}", rows["namespace.network"]);
    assert!(rows["network.connect"]["under"].get("done").is_some(), "{}", rows["network.connect"]);
}

/// By an ordinary user whom nobody else is: another audit may be at work.
#[test]
fn nothing_of_the_kit_is_left() {
    use std::os::unix::fs::MetadataExt;
    let site = Site::user();
    if !nix::unistd::geteuid().is_root() {
        skip!("the user's other audits cannot be told from this one");
    }
    site.audit(["--probe", "strict"]).succeeded();
    let entries = ["/tmp", "/dev/shm"].iter().flat_map(|place| std::fs::read_dir(place).unwrap().flatten());
    let left: Vec<_> = entries
        .filter(|entry| entry.metadata().is_ok_and(|metadata| metadata.uid() == site.caller().uid()))
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("airlock-audit-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    let segments = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
    let owner = site.caller().uid().to_string();
    assert!(!segments.lines().any(|line| line.split_whitespace().nth(7) == Some(&owner)), "{segments}");
}
