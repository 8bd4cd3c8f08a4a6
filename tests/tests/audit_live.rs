//! `airlock audit --pid`: what confines processes that run, of any runtime.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use airlock_tests::{Site, skip, within};
use serde_json::{Value, json};

/// A process of the test's own, ended with it.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Process {
        Process(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn audit(site: &Site, words: &[&str]) -> (i32, Value) {
    let ended = site.airlock_with([&["audit", "--json"], words].concat());
    let report = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended}"));
    (ended.code, report)
}

fn shared(report: &Value, kind: &str) -> bool {
    let all = report["process"]["namespaces"].as_array().unwrap();
    all.iter().find(|namespace| namespace["kind"] == kind).unwrap()["shared"].as_bool().unwrap()
}

fn says(findings: &Value, what: &str, open: bool) -> bool {
    let mut all = findings.as_array().unwrap().iter();
    all.any(|finding| finding["what"].as_str().unwrap().contains(what) && finding["open"] == open)
}

/// A child of a process with this name, however deep.
fn descendant(of: i32, name: &str) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).ok()?;
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).find_map(|pid: i32| {
        let is =
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name);
        if is { Some(pid) } else { descendant(pid, name) }
    })
}

/// A sandbox in the background: its name.
fn sleeping(site: &Site, policy: &Path) -> String {
    let mut command = vec!["run", "-d", "--policy", policy.to_str().unwrap()];
    if let Some(parent) = site.cgroups() {
        command.extend(["--cgroup-parent", parent.name()]);
    }
    let started = site.airlock_with([&command[..], &["--", "sleep", "60"]].concat()).succeeded();
    started.stdout.trim().to_owned()
}

#[test]
fn a_sandbox_is_what_its_policy_says() {
    let site = Site::new();
    let policy = site.policy("");
    let id = &sleeping(&site, &policy);
    let (code, report) = audit(&site, &["--pid", id, "--against", policy.to_str().unwrap()]);
    assert_eq!(report["process"]["name"], "sleep");
    for kind in ["user", "mount", "pid", "network", "ipc", "uts"] {
        assert!(!shared(&report, kind), "{kind}");
    }
    assert_eq!(report["process"]["seccomp_mode"], 2);
    assert_eq!(report["process"]["capabilities"]["bounding"], serde_json::json!([]));
    assert!(report["process"]["environment"].as_array().unwrap().contains(&"HOME".into()));
    let missed = report["process"]["unseen"].as_array().unwrap();
    assert!(missed.iter().any(|one| one["what"] == "the filter's instructions"), "{missed:?}");
    if site.limits() {
        assert_eq!(code, 0, "{}", report["against"]);
        assert!(says(&report["exposure"], "4294967296", false), "{}", report["exposure"]);
    } else {
        // Best effort: the policy asks for limits that this caller cannot have, and the audit sees that they are not there.
        assert_eq!(code, 1);
        assert!(says(&report["against"], "memory: ", true), "{}", report["against"]);
    }
    let text = site.airlock_with(["audit", "--pid", id]).succeeded().stdout;
    assert!(text.contains("not seen") && text.contains("1 seccomp filter(s)"), "{text}");
    site.airlock_with(["kill", id]).succeeded();
    assert_eq!(site.airlock_with(["audit", "--pid", "nosuchsandbox"]).code, 125);
}

#[test]
fn a_bare_process_is_confined_by_nothing() {
    let site = Site::new();
    let started = site.start_outside(["rest", "60"]);
    let pid = started.pid().to_string();
    let (code, report) = audit(&site, &["--pid", &pid, "--against", "base"]);
    assert_eq!(code, 1);
    assert!(shared(&report, "user") && shared(&report, "network"));
    assert!(says(&report["against"], "is not filtered", true), "{}", report["against"]);
    assert!(says(&report["against"], "no_new_privs is not set", true));
    assert!(says(&report["exposure"], "no seccomp", true));
    nix::sys::signal::kill(started.pid(), nix::sys::signal::Signal::SIGKILL).unwrap();
    started.end();
}

/// A descriptor of a directory outside that was left open leads out of the root (CVE-2024-21626).
#[test]
fn a_directory_left_open_under_bubblewrap_is_found() {
    let site = Site::new();
    let bwrap = "exec bwrap --unshare-all --die-with-parent --ro-bind /usr /usr --symlink usr/lib64 /lib64 --symlink usr/lib /lib \
                 --proc /proc --dev /dev -- /usr/bin/sleep 60";
    let audited = |redirection: &str| {
        let process = Process::start(Command::new("sh").args(["-c", &format!("{bwrap} {redirection}")]));
        let mut found = None;
        let started = within(Duration::from_secs(5), || {
            found = descendant(process.pid(), "sleep");
            found.is_some()
        });
        started.then(|| audit(&site, &["--pid", &found.unwrap().to_string()]).1)
    };
    if site.caller() != airlock_tests::Caller::Root {
        skip!("bubblewrap is started by the tests themselves, whose processes this caller may not look into");
    }
    let Some(clean) = audited("") else { skip!("there is no bubblewrap") };
    assert!(!says(&clean["exposure"], "is a directory outside", true), "{}", clean["exposure"]);
    assert!(!shared(&clean, "network") && clean["process"]["seccomp_mode"] == 0);
    let leaky = audited("7</etc").unwrap();
    assert!(says(&leaky["exposure"], "descriptor 7 is a directory outside", true), "{}", leaky["exposure"]);
}

/// What this caller may not read is said, and nothing is made up in its place.
#[test]
fn what_cannot_be_seen_is_said() {
    let site = Site::user();
    let (code, report) = audit(&site, &["--pid", "1"]);
    assert_eq!(code, 0);
    let missed: Vec<&str> = report["process"]["unseen"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["what"].as_str().unwrap())
        .collect();
    if nix::unistd::geteuid().is_root() {
        assert!(missed.contains(&"the user namespace") && missed.contains(&"open descriptors"), "{missed:?}");
        assert_eq!(report["process"]["namespaces"], serde_json::json!([]));
    }
    assert!(missed.contains(&"Landlock's rules"));
}

/// A sandbox of the test's own: the filter that the kernel holds is the one of the policy.
#[test]
fn a_running_processs_filters_are_read_and_proven() {
    let Some(site) = Site::root() else { skip!("the kernel shows filters to root alone") };
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    if own.lines().any(|line| line.starts_with("Seccomp:") && !line.ends_with('0')) {
        skip!("a caller behind a filter is not shown another's");
    }
    let policy = site.policy("");
    let id = &sleeping(&site, &policy);
    let (_, report) = audit(&site, &["--pid", id]);
    let pid = report["process"]["pid"].to_string();
    let read = site.airlock_with(["audit", "seccomp", "--json", "--pid", &pid]).succeeded();
    assert_eq!(
        site.airlock_with(["audit", "seccomp", "--json", "--pid", id]).succeeded().stdout,
        read.stdout
    );
    let read: Value = serde_json::from_str(&read.stdout).unwrap();
    let filters = read.as_array().unwrap();
    let written = site.airlock_with(["audit", "seccomp", "--json", policy.to_str().unwrap()]).succeeded();
    let written: Value = serde_json::from_str(&written.stdout).unwrap();
    let same =
        filters.iter().find(|filter| filter["digest"] == written["digest"]).expect("the policy's own filter");
    assert_eq!(same["executed"], written["executed"]);
    assert_eq!(same["x32"], "kill process");
    let call = |filter: &Value, name: &str| {
        filter["calls"].as_array().unwrap().iter().find(|call| call["name"] == name).unwrap().clone()
    };
    assert_eq!(call(same, "keyctl"), call(&written, "keyctl"));
    let clone = &call(same, "clone")["rules"];
    assert_eq!(*clone, serde_json::json!([{ "when": "arg0.low & 0x7e020000 == 0x0", "verdict": "allow" }]));
    // It goes on as if nothing had been, and is not traced any more.
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(line("State:").contains("sleeping"), "{status}");
    assert!(line("TracerPid:").ends_with("\t0"), "{status}");
    site.airlock_with(["kill", id]).succeeded();

    let plain = Process::start(Command::new("sleep").arg("60"));
    let none = site.airlock_with(["audit", "seccomp", "--pid", &plain.pid().to_string()]);
    assert_eq!(none.code, 125, "{none}");
    assert!(none.stderr.contains("has no filter"), "{none}");
}

/// A profile that is made to be followed for ever: 150 rules of one call, each with a value of its own for every argument.
fn endless() -> Value {
    let conditions = |rule: u64| -> Vec<Value> {
        let value = |index: u64| (rule * 6 + index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (0..6).map(|index| json!({ "index": index, "value": value(index), "op": "SCMP_CMP_EQ" })).collect()
    };
    let rule = |rule| json!({ "names": ["keyctl"], "action": "SCMP_ACT_ERRNO", "args": conditions(rule) });
    let refused = json!({ "names": ["ptrace"], "action": "SCMP_ACT_ERRNO", "errnoRet": 7 });
    let rules: Vec<Value> = (0..150).map(rule).chain([refused]).collect();
    json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules })
}

/// What is said of a filter that is not decided within the steps: of each call by itself.
fn is_open_about_keyctl(ended: &airlock_tests::Ended) {
    assert_eq!(ended.code, 125, "{ended}");
    assert!(ended.stderr.contains(" calls, of all architectures, are not decided"), "{ended}");
    let line = |call: &str| {
        let mut lines = ended.stdout.lines();
        lines.find(|line| line.split_whitespace().nth(1) == Some(call)).unwrap_or_else(|| panic!("{ended}"))
    };
    assert!(line("keyctl").contains("not decided within 100000000 steps"), "{}", line("keyctl"));
    assert!(line("ptrace").ends_with(" errno 7") && line("read").ends_with(" allow"), "{ended}");
}

#[test]
fn a_filter_without_an_end_is_audited_as_far_as_its_steps_go() {
    let site = Site::new();
    let profile = site.file("endless.json", endless().to_string());
    let policy = site.policy(&format!("[seccomp]\nprofile = {profile:?}\n"));
    let bundle = site.folder("endless");
    let process = json!({ "user": { "uid": 0, "gid": 0 }, "cwd": "/" });
    let linux = json!({ "seccomp": endless() });
    let document = json!({ "ociVersion": "1.0.2", "process": process, "linux": linux });
    std::fs::write(bundle.join("config.json"), document.to_string()).unwrap();
    for name in [&policy, &bundle] {
        is_open_about_keyctl(&site.airlock_with(["audit", "seccomp", name.to_str().unwrap()]));
    }
    if site.caller() != airlock_tests::Caller::Root {
        skip!("the kernel shows the filters of what runs to root alone");
    }
    let id = &sleeping(&site, &policy);
    let json = site.airlock_with(["audit", "seccomp", "--json", "--call", "keyctl,ptrace", "--pid", id]);
    assert_eq!(json.code, 125, "{json}");
    let filters: Value = serde_json::from_str(&json.stdout).unwrap();
    let call = |at: usize| {
        let filters = filters.as_array().unwrap().iter();
        filters
            .map(|filter| filter["calls"][at].clone())
            .find(|call| call["otherwise"] != "allow" || call["undecided"] != Value::Null)
            .unwrap()
    };
    assert_eq!(call(0)["name"], "ptrace");
    assert_eq!(call(1)["otherwise"], Value::Null, "{filters}");
    assert!(call(1)["undecided"].as_str().unwrap().contains("not decided within"), "{filters}");
    site.airlock_with(["kill", id]).succeeded();
}

#[test]
fn who_may_not_read_filters_is_told_so() {
    let site = Site::user();
    let own = Process::start(Command::new("sleep").arg("60"));
    let refused = site.airlock_with(["audit", "seccomp", "--pid", &own.pid().to_string()]);
    assert_eq!(refused.code, 125, "{refused}");
    assert!(refused.stderr.contains("PTRACE_"), "{refused}");
}
