//! The commands beside `run`, and what `run` tells its caller.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::time::Duration;

use airlock_tests::{Report, Site, schema, within};
use serde_json::Value;

const BUILT_IN: [&str; 7] = ["base", "candidate", "grader", "replay", "research", "scorer", "strict"];

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn the_status_is_the_commands_own() {
    let site = Site::new();
    for status in [0, 1, 7, 124, 255] {
        let ended = site.run().policy(site.policy("")).end(["/bin/sh", "-c", &format!("exit {status}")]);
        assert_eq!(ended.code, status, "{ended}");
        assert_eq!(ended.report().number("exit_code"), u64::try_from(status).unwrap());
    }
}

#[test]
fn every_built_in_policy_runs_a_program() {
    let site = Site::new();
    for name in BUILT_IN {
        let workspace = site.folder(&format!("workspace-{name}"));
        // A root may be empty.
        let probe = format!("{}:/probe:exec", site.path("probe").display());
        let run = site.run().built_in(name).workspace(&workspace).flag("--mount", probe);
        let ended = run.end(["/probe/probe", "cwd"]);
        assert_eq!(ended.code, 0, "{name}: {ended}");
        assert_eq!(ended.report().text("policy"), name);
    }
}

#[test]
fn the_default_policy_is_base() {
    let site = Site::new();
    let run = site.run();
    let run = if site.limits() { run } else { run.flag("--best-effort", "limits") };
    let run = if site.caller().is_root() { run } else { run.flag("--best-effort", "devices") };
    assert_eq!(run.end(["/bin/true"]).succeeded().report().text("policy"), "base");
}

#[test]
fn policies_are_listed_shown_and_checked() {
    let site = Site::new();
    let list = site.airlock_with(["policy", "list"]).succeeded().stdout;
    for name in BUILT_IN {
        assert!(list.contains(name), "{list}");
        let shown = site.airlock_with(["policy", "show", name]).succeeded().stdout;
        let copy = site.file(&format!("{name}.toml"), shown);
        site.airlock_with([std::ffi::OsStr::new("policy"), "check".as_ref(), copy.as_ref()]).succeeded();
    }
    let broken = site.file("broken.toml", "version = 1\n[limits]\nwall = \"soon\"\n");
    let ended = site.airlock_with([std::ffi::OsStr::new("policy"), "check".as_ref(), broken.as_ref()]);
    assert!(ended.code != 0 && ended.stderr.contains("broken.toml:3"), "{ended}");
    // What is shown says where it comes from.
    let shown = site.airlock_with(["policy", "show", "replay"]).succeeded().stdout;
    let line = |key: &str| shown.lines().find(|line| line.starts_with(key)).unwrap();
    assert!(line("hostname").contains("built-in replay:"), "{shown}");
    assert!(line("memory").contains("built-in research:"), "{shown}");
    assert!(line("swap").contains("built-in base:"), "{shown}");
}

#[test]
fn all_mistakes_of_a_policy_are_named() {
    let site = Site::new();
    let text = "version = 1\n[limits]\nwall = \"soon\"\nmemory = \"1 gallon\"\npids = 0\n";
    let policy = site.file("mistakes.toml", text);
    let ended = site.airlock_with([std::ffi::OsStr::new("policy"), "check".as_ref(), policy.as_ref()]);
    ended.refused(&["mistakes.toml:3:", "mistakes.toml:4:", "mistakes.toml:5:"]);
}

#[test]
fn schemas_are_json() {
    let site = Site::new();
    for (words, fields) in [
        (vec!["policy", "schema"], ["version", "root", "mount", "identity", "seccomp", "limits"]),
        (vec!["report-schema"], ["version", "id", "reason", "wall_ms", "enforced", "lowered"]),
    ] {
        let schema = json(&site.airlock_with(&words).succeeded().stdout);
        let described = schema["properties"].as_object().unwrap();
        assert!(fields.iter().all(|field| described.contains_key(*field)), "{words:?}: {schema}");
        assert_eq!(schema["additionalProperties"], false, "{words:?}");
    }
}

/// Reports of a run, a signal and a failed launch.
#[test]
fn a_report_is_what_its_schema_says() {
    let site = Site::new();
    let schema = json(&site.airlock_with(["report-schema"]).succeeded().stdout);
    for (script, reason) in [("exit 3", "exited"), ("kill -9 $$", "signalled")] {
        let ended = site.run().policy(site.policy("")).end(["/bin/sh", "-c", script]);
        assert_eq!(ended.report().reason(), reason);
        schema::check(&schema, &json(&ended.report().to_string())).unwrap();
    }
    let ended = site.run().policy("./missing.toml").end(["true"]);
    assert_eq!(ended.report().reason(), "setup-failed");
    schema::check(&schema, &json(&ended.report().to_string())).unwrap();
}

#[test]
fn a_plan_is_printed_without_being_done() {
    let site = Site::new();
    let mut words = vec!["plan", "base"];
    if !site.limits() {
        words.extend(["--best-effort", "limits,devices"]);
    }
    let with = |more: &[&'static str]| {
        let words = words.iter().chain(more);
        site.airlock_with(words).succeeded().stdout
    };
    let text = with(&["--", "true"]);
    for word in ["seccomp", "landlock", "network", "mount"] {
        assert!(text.contains(word), "no `{word}` in the plan: {text}");
    }
    let plan = json(&with(&["--json", "--", "true"]));
    assert!(plan.is_object(), "{plan}");
    assert!(site.processes().is_empty());
}

#[test]
fn the_doctor_answers() {
    let site = Site::new();
    let said = site.airlock_with(["doctor"]);
    let found = json(&site.airlock_with(["doctor", "--json"]).stdout);
    let checks = found.as_array().unwrap();
    let mut whole = true;
    for check in checks {
        let text = |field: &str| check[field].as_str().unwrap_or_else(|| panic!("{field}: {check}"));
        assert!(said.stdout.contains(text("title")), "{check}: {said}");
        match text("status") {
            "ok" => assert!(!text("found").is_empty(), "{check}"),
            "advice" => assert!(!text("remedy").is_empty(), "{check}"),
            "lacking" => {
                assert!(!text("remedy").is_empty(), "{check}");
                whole &= !check["needed_for_research"].as_bool().unwrap();
            }
            _ => panic!("{check}"),
        }
    }
    assert!(checks.len() >= 10, "{found}");
    // Status 0 means that `research` can be had whole, 1 that it cannot.
    assert_eq!(said.code, if whole { 0 } else { 1 }, "{said}");
}

#[test]
fn the_command_line_mounts() {
    let site = Site::new();
    let (one, two) = (site.folder("one"), site.folder("two"));
    site.file("one/x", "hello");
    let script = "cat /one/x && echo more > /two/y && ! echo no > /one/z";
    site.run()
        .policy(site.policy(""))
        .flag("--mount", format!("{}:/one", one.display()))
        .flag("--mount", format!("{}:/two:rw", two.display()))
        .end(["/bin/sh", "-c", script])
        .succeeded();
    assert_eq!(std::fs::read_to_string(two.join("y")).unwrap(), "more\n");
}

#[test]
fn a_detached_sandbox_lives_on() {
    let site = Site::new();
    let report = site.path("detached.json");
    let run = site.run_reporting_to(&report).policy(site.policy("")).with(|command| {
        command.arg("--detach");
    });
    let ended = run.end(["/probe/probe", "rest", "3"]).succeeded();
    assert!(Report::read(&report).is_none(), "it waited: {ended}");
    assert!(!ended.stdout.trim().is_empty(), "it names the sandbox: {ended}");
    assert!(within(Duration::from_secs(20), || Report::read(&report).is_some()), "no report came");
    assert_eq!(Report::read(&report).unwrap().reason(), "exited");
}

/// Nobody reads a detached sandbox's errors: that the command cannot be executed is told at once.
#[test]
fn a_detached_command_that_cannot_be_executed_is_told() {
    let site = Site::new();
    let detached = |command: &str| {
        let run = site.run().policy(site.policy("")).with(|airlock| {
            airlock.arg("--detach");
        });
        run.end([command])
    };
    for (command, status, reason) in [
        ("/no/such/program", 127, "No such file"),
        ("no-such-program", 127, "No such file"),
        ("/etc/services", 126, "Permission denied"),
    ] {
        let ended = detached(command);
        assert_eq!((ended.code, ended.stdout.as_str()), (status, ""), "{ended}");
        assert!(ended.stderr.contains(command) && ended.stderr.contains(reason), "{ended}");
        assert!(within(Duration::from_secs(5), || site.processes().is_empty()), "{:?}", site.processes());
    }
    assert!(detached("true").succeeded().stdout.trim().len() >= 12);
}

/// The report of what never ran has a name too, so that it can be told from others.
#[test]
fn a_report_of_a_failed_set_up_has_an_id() {
    let site = Site::new();
    let run = || site.run();
    let ended = [
        run().policy("./missing.toml").end(["true"]),
        run().policy(site.policy("")).end(["/no/such/program"]),
        run().policy(site.policy("[process]\ncwd = \"/no/such/place\"\n")).end(["true"]),
    ];
    let mut ids: Vec<&str> = ended.iter().map(|ended| ended.report().text("id")).collect();
    assert!(ids.iter().all(|id| id.len() == 12), "{ids:?}");
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3, "each its own");
}

#[test]
fn a_plan_tells_the_values_of_limits() {
    let site = Site::root();
    let Some(site) = site else { airlock_tests::skip!("needs root, for limits") };
    let Some(parent) = site.cgroups() else { airlock_tests::skip!("needs cgroups of its own") };
    let words = ["plan", "base", "--cgroup-parent", parent.name(), "--memory", "1GiB", "--pids", "77"];
    let text = site.airlock_with(words.iter().chain(&["--", "true"])).succeeded().stdout;
    for value in ["= 1073741824", "pids.max = 77", "open files ", "pending signals 1024", "core file size 1"]
    {
        assert!(text.contains(value), "no `{value}` in the plan: {text}");
    }
}

/// A misspelt flag is not taken for the command.
#[test]
fn a_misspelt_flag_is_named() {
    let site = Site::new();
    for (flag, meant) in [("--best-efort", "--best-effort"), ("--memry", "--memory"), ("--wal", "--wall")] {
        for words in [["--", "true"].as_slice(), &["true"]] {
            let words = [&["run", flag, "x"], words].concat();
            site.airlock_with(words).refused(&[flag, &format!("'{meant}'")]);
        }
    }
    // What follows the command is the command's.
    let ended = site.run().policy(site.policy("")).with(|command| {
        command.args(["echo", "--best-efort"]);
    });
    assert_eq!(ended.end(["x"]).succeeded().stdout, "--best-efort -- x\n");
}

#[test]
fn a_mount_of_the_command_line_may_be_optional() {
    let site = Site::new();
    let source = site.path("missing");
    let run = |options: &str| {
        let mount = format!("{}:/data{options}", source.display());
        site.run().policy(site.policy("")).flag("--mount", mount).end(["test", "-d", "/data"])
    };
    run("").refused(&["the host has no", source.to_str().unwrap(), "`:optional` after --mount"]);
    assert_eq!(run(":optional").code, 1);
    site.folder("missing");
    run(":optional").succeeded();
}

/// A caller's own cgroup is where a sandbox goes unless told otherwise.
#[test]
fn the_default_parent_is_the_callers_own_cgroup() {
    let Some(site) = Site::root() else { airlock_tests::skip!("needs root") };
    let Some(parent) = site.cgroups() else { airlock_tests::skip!("needs cgroups of its own") };
    if !parent.folders().iter().any(|folder| folder.join("tasks").exists()) {
        airlock_tests::skip!("a version 2 cgroup with processes may have no children with controllers");
    }
    let joins: Vec<String> =
        parent.folders().iter().map(|folder| folder.join("cgroup.procs").display().to_string()).collect();
    let script = "for file in $JOIN; do echo $$ > $file; done; exec \"$@\"";
    let mut shell = std::process::Command::new("/bin/sh");
    shell.args(["-c", script, "sh"]).arg(site.airlock()).args(["run", "--policy"]).arg(site.policy(""));
    shell.args(["--", "/probe/probe", "rest", "20"]).env("JOIN", joins.join(" "));
    shell.stdout(std::process::Stdio::null());
    let mut child = shell.spawn().unwrap();
    let inside = within(Duration::from_secs(5), || {
        parent.children().iter().any(|folder| {
            std::fs::read_to_string(folder.join("cgroup.procs")).is_ok_and(|text| !text.trim().is_empty())
        })
    });
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(child.id().cast_signed()),
        nix::sys::signal::Signal::SIGTERM,
    )
    .unwrap();
    child.wait().unwrap();
    assert!(inside, "no sandbox below {}", parent.name());
}
