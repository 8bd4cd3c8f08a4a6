//! `airlock audit` as its users run it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use airlock_tests::{Site, schema};
use serde_json::Value;

const BUILT_IN: [&str; 7] = ["base", "candidate", "grader", "replay", "research", "scorer", "strict"];

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Ids of what was found, of `medium` and above.
fn grave(report: &Value) -> BTreeSet<String> {
    let findings =
        report["audited"].as_array().unwrap().iter().flat_map(|one| one["findings"].as_array().unwrap());
    let grave = findings.filter(|finding| matches!(finding["severity"].as_str(), Some("high" | "medium")));
    grave.map(|finding| finding["rule"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_status_says_whether_something_grave_was_found() {
    let site = Site::new();
    let weak = site.file("weak.toml", "version = 1\n[seccomp]\nallow = [\"keyctl\"]\n");
    let weak = weak.to_str().unwrap();
    assert_eq!(site.airlock_with(["audit", weak]).code, 0);
    let failed = site.airlock_with(["audit", "--fail-on", "medium", weak]);
    assert_eq!(failed.code, 1, "{failed}");
    assert!(failed.stdout.contains("AL066") && failed.stdout.contains("weak.toml:3:9"), "{failed}");
    assert_eq!(site.airlock_with(["audit", "no-such-policy"]).code, 125);
    assert_eq!(site.airlock_with(["audit", site.folder("empty").to_str().unwrap()]).code, 125);
    let clean = [&["audit", "--fail-on", "low"][..], &BUILT_IN].concat();
    site.airlock_with(clean).succeeded();
}

#[test]
fn what_cannot_be_read_hides_nothing_else() {
    let site = Site::new();
    let page = site.path("page.html");
    let some = ["audit", "base", "no-such-policy", "strict", "--html", page.to_str().unwrap()];
    let some = site.airlock_with(some);
    assert_eq!(some.code, 125, "{some}");
    assert!(some.stdout.contains("base: exposure") && some.stdout.contains("strict: exposure"), "{some}");
    assert!(some.stderr.contains("audit no-such-policy") && !some.stderr.contains("audit base"), "{some}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("Not audited") && page.contains("exposure of strict"), "{page}");

    let report = json(&site.airlock_with(["audit", "--json", "no-such-policy", "base"]).stdout);
    assert_eq!(report["audited"].as_array().unwrap().len(), 1);
    assert_eq!(report["unread"][0]["name"], "no-such-policy");
    let missing = site.path("missing.json");
    let report = json(&site.airlock_with(["audit", "--json", missing.to_str().unwrap()]).stdout);
    let why = format!("read {}: No such file or directory (os error 2)", missing.display());
    assert_eq!(report["unread"][0]["why"], why, "each cause once");
    let log = json(&site.airlock_with(["audit", "--sarif", "-", "no-such-policy", "base"]).stdout);
    assert_eq!(log["runs"][0]["invocations"][0]["executionSuccessful"], false);
    let log = json(&site.airlock_with(["audit", "--sarif", "-", "base"]).succeeded().stdout);
    assert_eq!(log["runs"][0]["invocations"][0]["executionSuccessful"], true);
}

#[test]
fn what_the_flags_cannot_mean_together_is_refused() {
    let site = Site::new();
    let refused = |words: &[&str], said: &str| {
        let refused = site.airlock_with([&["audit"], words].concat());
        assert_eq!(refused.code, 125, "{refused}");
        assert!(refused.stdout.is_empty() && refused.stderr.contains(said), "{refused}");
    };
    refused(&["base", "--json", "--html", "-"], "--json and --html - write to standard output");
    refused(&["base", "--html", "-", "--sarif", "-"], "--html - and --sarif - write to standard output");
    refused(&["base", "--html", "x", "--sarif", "x"], "the same file");
    refused(&["base", "--html", "x", "--sarif", "./x"], "the same file");
    let folder = site.folder("folder");
    for (named, name) in
        [(Some(&folder), "folder/config.json"), (Some(&folder), "folder/task.toml"), (None, "audited.toml")]
    {
        let read = site.file(name, "version = 1\n");
        let named = named.unwrap_or(&read);
        for flag in ["--html", "--sarif"] {
            let words = [named.to_str().unwrap(), flag, read.to_str().unwrap()];
            refused(&words, &format!("{flag} would overwrite {}, which is audited", read.display()));
        }
        assert_eq!(std::fs::read_to_string(&read).unwrap(), "version = 1\n");
    }
    for [flag, value] in [["--probe", "base"], ["--mutate", "base"], ["--pid", "1"]] {
        refused(&[flag, value, "--fail-on", "low"], "--fail-on");
    }
    refused(&["--rules", "base"], "--rules");
    refused(&["--schema", "--json"], "--schema");
    refused(&["seccomp", "--diff", "base", "strict", "--disassemble"], "--disassemble");
}

/// An audit that takes a minute does not end in a file that was never to be had.
#[test]
fn a_file_that_cannot_be_written_is_known_before_the_audit() {
    let site = Site::new();
    let nowhere = site.path("nowhere/page.html");
    let early =
        site.airlock_with(["audit", "--probe", "no-such-policy", "--html", nowhere.to_str().unwrap()]);
    assert_eq!(early.code, 125, "{early}");
    assert!(early.stderr.contains("write ") && early.stderr.contains("nowhere/page.html"), "{early}");
    assert!(!early.stderr.contains("no-such-policy"), "{early}");
    // And one that fails leaves nothing of its own, and what was there as it was.
    let (new, old) = (site.path("new.html"), site.path("old.html"));
    let ended = site.airlock_with(["audit", "base", "--html", old.to_str().unwrap()]).succeeded();
    assert!(!ended.stdout.is_empty());
    let before = std::fs::read_to_string(&old).unwrap();
    for page in [&new, &old] {
        let failed =
            site.airlock_with(["audit", "--probe", "no-such-policy", "--html", page.to_str().unwrap()]);
        assert_eq!(failed.code, 125, "{failed}");
    }
    assert!(!new.exists());
    assert_eq!(std::fs::read_to_string(&old).unwrap(), before);
    site.airlock_with(["audit", "strict", "--html", old.to_str().unwrap()]).succeeded();
    let after = std::fs::read_to_string(&old).unwrap();
    assert!(after.contains("Audit: strict") && after.ends_with("</html>\n"), "{after}");
}

#[test]
fn json_has_the_published_shape() {
    let site = Site::new();
    let published = json(&site.airlock_with(["audit", "--schema"]).succeeded().stdout);
    let report = json(&site.airlock_with(["audit", "--json", "base", "strict"]).succeeded().stdout);
    schema::check(&published, &report).unwrap();
    assert_eq!(report["audited"].as_array().unwrap().len(), 2);
    assert!(site.airlock_with(["audit", "--rules"]).succeeded().stdout.lines().count() > 60);
}

#[test]
fn a_task_is_audited_with_the_policies_of_its_phases() {
    let site = Site::new();
    let tasks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/tasks");
    for name in ["digits-soup", "digits-direct"] {
        let copy = site.path(name);
        copy_tree(&tasks.join(name), &copy);
        let report = site.airlock_with(["audit", "--json", "--fail-on", "low", copy.to_str().unwrap()]);
        let report = json(&report.succeeded().stdout);
        assert!(report["audited"].as_array().unwrap().len() >= 4, "{report}");
        // What a scorer's policy lets it write of the host is there for its next run. (A policy that shows the task's
        // own directory does not even load.)
        let policy = copy.join("scorer.toml");
        let text = "version = 1\nextends = \"scorer\"\n[[mount]]\nsource = \"/srv/x\"\ntarget = \"/x\"\nmode = \"rw\"\n";
        std::fs::write(&policy, text).unwrap();
        let manifest = copy.join("task.toml");
        let text = std::fs::read_to_string(&manifest).unwrap();
        let text = text.replacen("name = \"score\"\n", "name = \"score\"\npolicy = \"./scorer.toml\"\n", 1);
        std::fs::write(&manifest, text).unwrap();
        let report = site.airlock_with(["audit", "--json", copy.to_str().unwrap()]);
        assert_eq!(
            (report.code, grave(&json(&report.stdout))),
            (1, BTreeSet::from(["AL132".into()])),
            "{report}"
        );
    }
}

/// The documents that engines write when they are asked for one, and what is true of them: neither runc nor crun
/// limits anything or filters calls by itself.
#[test]
fn engines_own_bundles_are_read() {
    let site = Site::new();
    let common = ["AL001", "AL011", "AL060", "AL100", "AL101"];
    let rootless = ["AL002", "AL060", "AL100", "AL101"];
    let mut seen = 0;
    for (engine, flags, expected) in
        [("runc", &[][..], &common[..]), ("crun", &[], &common), ("runc", &["--rootless"], &rootless)]
    {
        let bundle = site.folder(&format!("{engine}{}", flags.len()));
        let Ok(written) = Command::new(engine).arg("spec").args(flags).current_dir(&bundle).status() else {
            continue;
        };
        assert!(written.success(), "{engine}");
        let report = site.airlock_with(["audit", "--json", bundle.to_str().unwrap()]);
        assert_eq!(report.code, 1, "{report}");
        let mut found = grave(&json(&report.stdout));
        // As root, runc maps the host's root into its rootless document, where no device can be filtered.
        found.retain(|rule| !matches!(rule.as_str(), "AL010" | "AL090") || flags.is_empty());
        assert_eq!(found, expected.iter().map(ToString::to_string).collect(), "{engine} {flags:?}");
        seen += 1;
    }
    if seen == 0 {
        eprintln!("neither runc nor crun is here");
    }
}

#[test]
fn filters_are_shown_and_compared() {
    let site = Site::new();
    let shown = site.airlock_with(["audit", "seccomp", "base"]).succeeded().stdout;
    assert!(shown.lines().count() > 370, "{shown}");
    let line = |call: &str| shown.lines().find(|line| line.split_whitespace().nth(1) == Some(call)).unwrap();
    assert!(line("read").ends_with("allow") && line("keyctl").ends_with("errno 1"), "{shown}");
    assert!(line("socket").contains("allow if arg0 & 0xffffffff == 0x1;"), "{shown}");
    let one = ["audit", "seccomp", "--json", "--call", "clone3", "base"];
    let one = json(&site.airlock_with(one).succeeded().stdout);
    assert_eq!((&one["calls"][0]["otherwise"], &one["x32"]), (&"errno 38".into(), &"kill process".into()));
    assert!(one["executed"].as_u64() > Some(20_000), "{one}");
    let listing = site.airlock_with(["audit", "seccomp", "--disassemble", "--call", "read", "strict"]);
    assert!(listing.succeeded().stdout.contains("if == 0xc000003e"));

    assert_eq!(site.airlock_with(["audit", "seccomp", "--diff", "base", "research"]).code, 0);
    let more = site.file("more.toml", "version = 1\n[seccomp]\nallow = [\"keyctl\"]\ndeny = [\"bind\"]\n");
    let changed = site.airlock_with(["audit", "seccomp", "--json", "--diff", "base", more.to_str().unwrap()]);
    assert_eq!(changed.code, 1, "{changed}");
    let changed = json(&changed.stdout);
    let kinds: Vec<_> =
        changed.as_object().unwrap().iter().map(|(call, change)| (&**call, &change["what"])).collect();
    assert_eq!(kinds, [("bind", &"impossible".into()), ("keyctl", &"possible".into())]);
    let none = site.file("none.toml", "version = 1\n[seccomp]\nprofile = \"none\"\n");
    assert_eq!(site.airlock_with(["audit", "seccomp", none.to_str().unwrap()]).code, 125);
}

#[test]
fn policies_are_compared_in_words() {
    let site = Site::new();
    let told = site.airlock_with(["policy", "diff", "base", "strict"]).succeeded().stdout;
    assert!(told.contains("becomes impossible\n") && told.contains("running programs from /tmp"), "{told}");
    assert_eq!(site.airlock_with(["policy", "diff", "base", "base"]).succeeded().stdout, "");
}

fn copy_tree(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-r").arg(from).arg(to).status().unwrap();
    let opened = Command::new("chmod").args(["-R", "a+rX"]).arg(to).status().unwrap();
    assert!(copied.success() && opened.success());
}
