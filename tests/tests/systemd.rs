//! Where systemd runs on cgroup v2: sandboxes lie in a transient scope, root's of the system's manager and an ordinary
//! user's of that user's manager.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use airlock_tests::{Caller, Live, Site, reader::Reading, record_refusal, skip, within};
use nix::sys::signal::Signal;

const PROBE: &str = "/probe/probe";
const ROOT: &str = "/sys/fs/cgroup";
/// systemd, its tools and Airlock on an emulated processor.
const PATIENCE: Duration = Duration::from_secs(300);
const LIMITS: &str = "[limits]\nmemory = \"64MiB\"\npids = 64\ncpus = 0.5\n";

/// The scope in which a command runs, from the root of the hierarchy.
fn scope_of(live: &Live) -> String {
    let own = fs::read_to_string(format!("/proc/{}/cgroup", live.pid())).unwrap();
    let (scope, leaf) = own.trim().trim_start_matches("0::").rsplit_once('/').unwrap();
    assert_eq!(leaf, format!("supervisor-{}", live.pid()), "{own}");
    scope.to_owned()
}

/// The one sandbox below a scope.
fn sandbox_in(scope: &str) -> PathBuf {
    let below = fs::read_dir(format!("{ROOT}{scope}")).unwrap().flatten().map(|entry| entry.path());
    let mut sandboxes = below.filter(|path| {
        path.is_dir() && !path.file_name().unwrap().to_str().unwrap().starts_with("supervisor-")
    });
    let sandbox = sandboxes.next().expect("a sandbox");
    assert_eq!(sandboxes.next(), None);
    sandbox
}

/// A word of systemd's about a unit of the caller's manager.
fn systemctl(site: &Site, words: &[&str]) -> String {
    let mut command = Command::new("systemctl");
    if let Caller::Managed(uid) = site.caller() {
        command.arg("--user").env("XDG_RUNTIME_DIR", format!("/run/user/{uid}"));
    }
    site.caller().become_by(command.args(words));
    let output = command.output().unwrap();
    assert!(output.status.success(), "systemctl {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Sites of callers whom systemd's managers give scopes.
macro_rules! managed {
    () => {
        match Site::managed() {
            sites if sites.is_empty() => skip!("needs root, and systemd on cgroup v2"),
            sites => sites,
        }
    };
}

fn is_gone(site: &Site, scope: &str) -> bool {
    let unit = scope.rsplit('/').next().unwrap();
    !Path::new(ROOT).join(scope.trim_start_matches('/')).exists()
        && systemctl(site, &["show", "--property=LoadState", unit]) == "LoadState=not-found"
}

#[test]
fn a_sandbox_lies_in_a_scope_of_its_callers_manager_which_goes_with_it() {
    let sites = managed!();
    for site in &sites {
        let uid = site.caller().uid();
        let slice = match uid {
            0 => "/system.slice/".to_owned(),
            _ => format!("/user.slice/user-{uid}.slice/user@{uid}.service/app.slice/"),
        };
        let mut live = site.run().policy(site.policy(LIMITS)).limit(PATIENCE).start([PROBE, "rest", "300"]);
        live.printed("ready");
        let scope = scope_of(&live);
        assert!(scope.starts_with(&format!("{slice}airlock-{}-", live.pid())), "{scope}");
        let sandbox = sandbox_in(&scope);
        let setting = |file: &str| fs::read_to_string(sandbox.join(file)).unwrap().trim().to_owned();
        assert_eq!(
            [setting("memory.max"), setting("pids.max"), setting("cpu.max")],
            ["67108864", "64", "50000 100000"]
        );
        let unit = scope.rsplit('/').next().unwrap();
        for (property, value) in
            [("Delegate", "yes"), ("TasksMax", "infinity"), ("CollectMode", "inactive-or-failed")]
        {
            assert_eq!(
                systemctl(site, &["show", "--property", property, unit]),
                format!("{property}={value}")
            );
        }
        live.signal(Signal::SIGTERM);
        let ended = live.end();
        let enforced = ended.report().field("enforced").to_string();
        assert!(enforced.contains(&format!("in control group {}", sandbox.display())), "{enforced}");
        assert!(!ended.report().lowered().contains("\"limits\""), "{}", ended.report());
        assert!(within(Duration::from_secs(5), || is_gone(site, &scope)), "{scope} is left");
    }
}

#[test]
fn limits_hold_in_the_scope() {
    let sites = managed!();
    for site in &sites {
        let eat = |memory: &str| {
            let policy = site.policy(&format!("[limits]\nmemory = \"{memory}\"\n"));
            site.run().policy(policy).end([PROBE, "eat", "134217728"])
        };
        assert_eq!(eat("64MiB").report().reason(), "oom");
        eat("256MiB").succeeded();
    }
}

/// nvidia-container-toolkit#48, runc#3401, nvidia-docker#1730: with the next change of any unit, systemd writes the device
/// filter and the limits of all that it takes for its own.
#[test]
fn a_reload_of_systemd_changes_neither_limits_nor_the_device_filter() {
    let sites = managed!();
    for site in &sites {
        let data = site.folder("data");
        let mount = format!("[[mount]]\nsource = \"{}\"\ntarget = \"/data\"\n", data.display());
        let policy = site.policy(&format!("{LIMITS}\n{mount}"));
        let script = "exec 2>&1; echo ready; until [ -e /data/go ]; do sleep 0.1; done
            head -c 1 /dev/zero >/dev/null && echo opened; exec /probe/probe rest 300";
        let mut live = site.run().policy(policy).limit(PATIENCE).start(["/bin/sh", "-c", script]);
        live.printed("ready");
        let sandbox = sandbox_in(&scope_of(&live));
        systemctl(site, &["daemon-reload"]);
        // Of a unit beside it, which needs controllers.
        let slice = if site.caller().is_root() { "system.slice" } else { "app.slice" };
        systemctl(
            site,
            &["set-property", "--runtime", slice, "CPUWeight=50", "MemoryHigh=4G", "TasksMax=90%"],
        );
        systemctl(site, &["daemon-reload"]);
        site.file("data/go", "");
        live.printed("opened");
        // Of init and the payload, which came later.
        let pids = fs::read_to_string(sandbox.join("cgroup.procs")).unwrap();
        let payload = pids.lines().map(|pid| pid.parse::<i32>().unwrap()).max().unwrap();
        let reading = Reading::take(payload, [sandbox]);
        live.signal(Signal::SIGTERM);
        let ended = live.end();
        let list = ended.report().field("enforced").as_array().unwrap();
        let text = |line: &serde_json::Value, name: &str| line[name].as_str().unwrap().to_owned();
        let lines = list.iter().map(|line| (text(line, "clause"), text(line, "what")));
        let lines: Vec<_> = lines.filter(|(clause, _)| clause == "limits" || clause == "devices").collect();
        assert!(lines.iter().any(|(_, what)| what.contains("memory.max is 67108864")), "{lines:?}");
        assert_eq!(lines.iter().any(|(_, what)| what.starts_with("v1 list: ")), site.caller().is_root());
        let wrong: Vec<String> =
            lines.iter().filter_map(|(clause, what)| reading.confirms(clause, what).err()).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
        systemctl(site, &["revert", slice]);
    }
}

#[test]
fn a_killed_monitor_leaves_neither_processes_nor_its_scope() {
    let sites = managed!();
    for mut site in sites {
        site.leaves_something();
        let mut live = site.run().policy(site.policy(LIMITS)).limit(PATIENCE).start([PROBE, "rest", "300"]);
        live.printed("ready");
        let scope = scope_of(&live);
        live.signal(Signal::SIGKILL);
        live.end();
        assert!(within(Duration::from_secs(10), || is_gone(&site, &scope)), "{scope} is left");
        assert!(site.processes().is_empty(), "{:?}", site.processes());
        site.airlock_with(["gc"]).succeeded();
    }
}

#[test]
fn without_a_bus_the_remedies_are_named() {
    let sites = managed!();
    for site in &sites {
        let (hide, why) = match site.caller() {
            Caller::Managed(uid) => (format!("mount -t tmpfs hide /run/user/{uid}"), "connecting to the bus"),
            _ => ("mount -t tmpfs hide /run/dbus".to_owned(), "connecting to the bus"),
        };
        let policy = site.policy(LIMITS);
        let ended = site.run().policy(&policy).where_root_did(&hide).end(["true"]);
        let ended =
            ended.refused(&["is systemd's", why, "systemd-run", "--cgroup-parent", "--best-effort limits"]);
        record_refusal("systemd without a bus", &ended.stderr);
        let lowered =
            site.run().policy(&policy).flag("--best-effort", "limits,devices").where_root_did(&hide);
        let lowered = lowered.end(["true"]).succeeded();
        assert!(lowered.report().lowered().contains("connecting to the bus"), "{}", lowered.report());
        let doctor = site.airlock_where_root_did(&hide, ["doctor"]);
        assert!(doctor.stdout.contains("LACKING  cgroup manager"), "{doctor}");
    }
    let nobody = Site::user();
    let ended = nobody.run().policy(nobody.policy_extending("base", "")).end(["true"]).succeeded();
    assert!(ended.report().lowered().contains("DBUS_SESSION_BUS_ADDRESS"), "{}", ended.report());
}

#[test]
fn doctor_names_the_manager() {
    let sites = managed!();
    for site in &sites {
        let said = site.airlock_with(["doctor"]).stdout;
        let line = said.lines().find(|line| line.contains("cgroup manager")).unwrap();
        assert!(line.starts_with("ok") && line.contains("transient scope (airlock-"), "{line}");
        let memory = said.lines().find(|line| line.contains("memory limit")).unwrap();
        assert!(memory.starts_with("ok") && memory.contains(".scope"), "{memory}");
    }
}

/// Whoever is in a delegated cgroup already, or names one, is left there.
#[test]
fn a_delegated_cgroup_is_used_as_it_is() {
    let sites = managed!();
    for site in &sites {
        let mut words = vec!["--scope", "--quiet", "-p", "Delegate=yes", "--unit"];
        let unit = format!("airlock-test-{}-{}.scope", std::process::id(), site.caller().uid());
        words.push(&unit);
        if !site.caller().is_root() {
            words.push("--user");
        }
        let mut run = site.run().policy(site.policy(LIMITS)).in_program("/usr/bin/systemd-run", &words);
        if let Caller::Managed(uid) = site.caller() {
            run = run.caller_env("XDG_RUNTIME_DIR", &format!("/run/user/{uid}"));
        }
        let ended = run.end(["true"]).succeeded();
        let enforced = ended.report().field("enforced").to_string();
        // A user's manager does not mark what it delegates, so another scope is asked of it.
        let place = if site.caller().is_root() { unit } else { "airlock-".to_owned() };
        assert!(enforced.contains(&format!("/{place}")) && enforced.contains(".scope/"), "{enforced}");
    }
}
