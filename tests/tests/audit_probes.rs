//! `airlock audit --probe` and `--mutate`: what sandboxes let through, and that the audit can fail.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::Duration;

use airlock_tests::{Site, skip, within};
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

/// Every clause is proven, no probe is vacuous, and no clause less means less exposure.
fn prove(policy: &str) -> (Site, Value) {
    let site = Site::new();
    let ended = site.audit(["--json", "--mutate", policy]);
    let matrix = json(&ended.stdout);
    let clauses = matrix["clauses"].as_array().unwrap();
    for clause in clauses {
        assert!(!["none", "failed"].contains(&clause["proof"].as_str().unwrap()), "{clause}");
        let reach = clause["reach"].as_f64();
        assert!(reach.is_none_or(|reach| reach >= matrix["reach"].as_f64().unwrap()), "{clause} {matrix}");
    }
    assert_eq!(matrix["vacuous"], serde_json::json!([]), "{policy}");
    assert_eq!(ended.code, 0, "{policy}");
    let beyond: Vec<&Value> = clauses.iter().filter(|clause| clause["proof"] == "beyond").collect();
    assert_eq!(beyond.len(), usize::from(!site.caller().is_root()), "{policy}: {beyond:?}");
    (site, matrix)
}

#[test]
fn every_clause_of_base_is_proven_and_no_probe_is_vacuous() {
    let (_site, matrix) = prove("base");
    let clauses = matrix["clauses"].as_array().unwrap();
    let of = |name: &str| clauses.iter().find(|clause| clause["name"] == name).unwrap();
    assert_eq!(of("seccomp.profile")["proof"], "removed");
    assert!(of("seccomp.profile")["reach"].as_f64() > matrix["reach"].as_f64());
    assert_eq!(of("(PID namespace)")["proof"], "fixed");
    assert_eq!(
        of("(hidepid of /proc)")["probes"],
        serde_json::json!(["process.first-name", "process.first-state"])
    );
    // The filter refuses namespaces too, so the quota shows when it stands alone.
    assert_eq!(of("nesting")["proof"], "alone");
    assert!(matrix["overlaps"]["namespace.new-user"].as_array().unwrap().contains(&"seccomp.profile".into()));
}

#[test]
fn every_clause_of_candidate_is_proven() {
    prove("candidate");
}

#[test]
fn every_clause_of_grader_is_proven() {
    prove("grader");
}

#[test]
fn every_clause_of_replay_is_proven() {
    prove("replay");
}

#[test]
fn every_clause_of_research_is_proven() {
    prove("research");
}

#[test]
fn every_clause_of_scorer_is_proven() {
    prove("scorer");
}

#[test]
fn every_clause_of_strict_is_proven() {
    prove("strict");
}

/// Every launcher by one command: each has its column, and what a filter answers with ENOSYS counts as denied.
#[test]
fn launchers_stand_side_by_side() {
    let Some(site) = Site::root() else { skip!("an engine's document for an ordinary user names no cgroup") };
    let under: Vec<&str> = ["bwrap", "podman"].into_iter().filter(|program| is_there(program)).collect();
    let runtimes: Vec<&str> = ["runc", "crun"].into_iter().filter(|program| is_there(program)).collect();
    if under.is_empty() || runtimes.is_empty() {
        skip!("no two launchers are here");
    }
    // What an audit has left that was killed is not this one's.
    let before = audits_of_podman();
    let flags = ["--under", &under.join(","), "--runtime", &runtimes.join(",")].map(str::to_owned);
    let words = ["--probe", "base"].map(str::to_owned).into_iter().chain(flags);
    let ended = site.audit(words.clone().chain(["--json".to_owned()]));
    assert_eq!(ended.code, 0, "{ended}");
    let report = json(&ended.stdout);
    let launchers: Vec<&str> = [under, runtimes].concat();
    assert_eq!(report["launchers"], serde_json::json!(launchers));
    let rows = rows(&report);
    for launcher in &launchers {
        assert!(rows["file.hidden"]["under"][launcher].get("refused").is_some(), "{launcher}");
        assert!(rows["limit.files"]["under"][launcher].is_object(), "{launcher}");
    }
    let text = site.audit(words).stdout;
    let line = |id: &str| text.lines().find(|line| line.split_whitespace().any(|word| word == id)).unwrap();
    assert_eq!(line("file.hidden").matches("denied ENOENT").count(), launchers.len() + 1, "{text}");
    if launchers.contains(&"podman") {
        // Its filter is Docker's: bpf is refused, and what it does not name is unknown.
        assert_eq!(rows["kernel.bpf"]["under"]["podman"]["refused"], libc::EPERM);
        assert_eq!(rows["kernel.personality"]["under"]["podman"]["refused"], libc::ENOSYS);
        assert!(line("kernel.personality").contains("denied ENOSYS"), "{text}");
        // Another audit may be at work.
        let dead = |pid: &str| !std::path::Path::new("/proc").join(pid).exists();
        let mut left = audits_of_podman();
        left.retain(|name| !before.contains(name) && name.rsplit('-').next().is_some_and(dead));
        assert!(left.is_empty(), "{left:?}");
    }
}

/// The cgroups of all audits of podman, by name.
fn audits_of_podman() -> BTreeSet<String> {
    let trees = std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten();
    let groups = trees.flat_map(|tree| std::fs::read_dir(tree.path()).into_iter().flatten().flatten());
    let names = groups.map(|group| group.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("airlock-audit-podman-")).collect()
}

/// A launcher that is not there is told before anything is tried.
#[test]
fn a_launcher_that_is_not_there_is_named() {
    let ended = Site::new().audit(["--probe", "base", "--runtime", "nosuchruntime"]);
    assert_eq!(ended.code, 125, "{ended}");
    assert!(ended.stderr.contains("nosuchruntime: no such program is here"), "{ended}");
}

/// podman serves an ordinary user too, with ranges of ids in /etc/subuid or without, and leaves none of its processes.
#[test]
fn podman_stands_beside_an_ordinary_users_sandbox() {
    if !is_there("podman") {
        skip!("there is no podman");
    }
    let site = Site::user();
    let uid = site.caller().uid();
    // The process that keeps the user namespace; a dead one has no command line.
    let is_keeper = |process: &std::path::Path| {
        let is_podmans =
            std::fs::read_to_string(process.join("comm")).is_ok_and(|comm| comm.starts_with("podman"));
        is_podmans && std::fs::read(process.join("cmdline")).is_ok_and(|words| !words.is_empty())
    };
    let keepers = || -> BTreeSet<_> {
        let all = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
        let own = all.filter(|path| std::fs::metadata(path).is_ok_and(|process| process.uid() == uid));
        own.filter(|process| is_keeper(process)).collect()
    };
    let before = keepers();
    let ended = site.audit(["--json", "--probe", "base", "--under", "podman"]);
    assert_eq!(ended.code, 0, "{ended}");
    let rows = rows(&json(&ended.stdout));
    assert_eq!(rows["kernel.bpf"]["under"]["podman"]["refused"], libc::EPERM);
    assert!(rows["file.hidden"]["under"]["podman"].get("refused").is_some(), "{}", rows["file.hidden"]);
    assert!(within(Duration::from_secs(5), || keepers().is_subset(&before)), "{:?}", keepers());
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
    assert_eq!(report["launchers"], serde_json::json!(["bwrap"]));
    let rows = rows(&report);
    let denied = |id: &str| {
        rows[id]["under"]["bwrap"].get("refused").is_some()
            || rows[id]["under"]["bwrap"].get("absent").is_some()
    };
    for id in ["file.hidden", "process.see", "namespace.network", "host.log"] {
        assert!(denied(id), "{id}: {}", rows[id]);
    }
    for id in ["process.trace", "network.tcp", "limit.signals", "limit.files"] {
        assert!(rows[id]["under"]["bwrap"].get("done").is_some() || !denied(id), "{id}: {}", rows[id]);
    }
    assert!(
        rows["kernel.push-input"]["under"]["bwrap"]["refused"] == libc::EBADF,
        "{}",
        rows["kernel.push-input"]
    );
}

#[test]
fn the_same_probes_under_oci_runtimes() {
    let Some(site) = Site::root() else { skip!("an engine's document for an ordinary user names no cgroup") };
    for runtime in ["runc", "crun"].into_iter().filter(|runtime| is_there(runtime)) {
        let ended = site.audit(["--json", "--probe", "base", "--runtime", runtime]);
        assert_eq!(ended.code, 0, "{ended}");
        let rows = rows(&json(&ended.stdout));
        // Their own document has no filter and no user namespace, and does hide processes and files.
        assert_eq!(rows["kernel.push-input"]["under"][runtime]["refused"], libc::EBADF, "{runtime}");
        assert!(rows["namespace.user"]["under"][runtime].get("done").is_some(), "{runtime}");
        assert!(rows["process.see"]["under"][runtime].get("refused").is_some(), "{runtime}");
        assert!(rows["file.hidden"]["under"][runtime].get("refused").is_some(), "{runtime}");
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
    for id in ["namespace.network", "network.connect"] {
        let under = rows[id]["under"].as_object().unwrap();
        let (launcher, outcome) = under.iter().next().unwrap();
        assert!(launcher.starts_with("runc of ") && outcome.get("done").is_some(), "{}", rows[id]);
    }
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

/// The same words as of `airlock run`.
#[test]
fn a_policy_with_gpus_needs_a_host_with_gpus() {
    if std::path::Path::new("/proc/driver/nvidia").exists() {
        skip!("this host has NVIDIA's driver");
    }
    let site = Site::new();
    let policy = site.policy("[gpu]\ncount = 1\n");
    for what in ["--probe", "--mutate"] {
        let ended = site.audit([what, policy.to_str().unwrap()]);
        ended.refused(&["no NVIDIA driver on this host", "`nvidia-smi` must work on the host"]);
    }
}
