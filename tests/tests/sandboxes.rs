//! Running sandboxes are listed and ended by name; one sandbox may start another if the policy says so.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::time::Duration;

use airlock_tests::{Ended, Live, Site, within};
use nix::sys::signal::Signal;
use serde_json::Value;

const PROBE: &str = "/probe/probe";

/// Starts a sandbox that stays, and finds its record by a word that no other command has.
fn started(site: &Site, action: &str) -> (Live, Value) {
    let word = site.path("").display().to_string();
    let mut live = site.run().policy(site.policy("")).start([PROBE, action, "60", &word]);
    live.printed("ready");
    let record = listed(site).into_iter().find(|record| text(record, "command").contains(&word));
    (live, record.expect("it is listed"))
}

fn listed(site: &Site) -> Vec<Value> {
    let list = site.airlock_with(["list", "--json"]).succeeded().stdout;
    serde_json::from_str(&list).unwrap_or_else(|error| panic!("{error}: {list}"))
}

fn text<'a>(record: &'a Value, field: &str) -> &'a str {
    record[field].as_str().unwrap_or_else(|| panic!("{field}: {record}"))
}

#[test]
fn a_sandbox_is_listed_while_it_runs() {
    let site = Site::new();
    let (live, record) = started(&site, "rest");
    let id = text(&record, "id").to_owned();
    assert_eq!(text(&record, "policy"), "test-0");
    for process in ["monitor", "init"] {
        let pid = record[process]["pid"].as_i64().unwrap();
        assert!(site.processes().contains_key(&i32::try_from(pid).unwrap()), "{record}");
    }
    assert_eq!(record["cgroup"].is_object(), site.limits(), "{record}");
    let lines = site.airlock_with(["list"]).succeeded().stdout;
    assert!(lines.lines().any(|line| line.starts_with(&id) && line.contains(PROBE)), "{lines}");
    live.signal(Signal::SIGTERM);
    assert_eq!(text(&serde_json::json!({ "id": live.end().report().text("id") }), "id"), id);
    assert!(!listed(&site).iter().any(|record| text(record, "id") == id));
}

#[test]
fn a_sandbox_is_ended_by_name() {
    let site = Site::new();
    let end = |action: &str, words: &[&str]| -> Ended {
        let (live, record) = started(&site, action);
        site.airlock_with(["kill"].iter().chain(words).copied().chain([text(&record, "id")])).succeeded();
        live.end()
    };
    assert_eq!(end("stay", &[]).code, 137);
    // The command decides what it does when it is asked.
    assert_eq!(end("wait-signal", &["--term"]).code, Signal::SIGTERM as i32);
    let (mut live, record) = started(&site, "stay");
    site.airlock_with(["kill", "--term", text(&record, "id")]).succeeded();
    assert!(!within(Duration::from_millis(300), || !live.runs()));
    site.airlock_with(["kill", text(&record, "id")]).succeeded();
    live.end();
}

#[test]
fn an_unknown_sandbox_is_named() {
    let site = Site::new();
    for name in ["feedfacecafe", "../../etc/passwd", "no\u{1b}[31m"] {
        let ended = site.airlock_with(["kill", name]);
        assert_eq!(ended.code, 125, "{ended}");
        assert!(ended.stderr.contains(&name[..2]) && !ended.stderr.contains('\u{1b}'), "{ended}");
    }
}

/// One user does not see or end what another runs.
#[test]
fn sandboxes_of_another_user_are_out_of_reach() {
    let (first, second) = (Site::user(), Site::user());
    if first.caller() == second.caller() {
        airlock_tests::skip!("needs root, to be two users");
    }
    let (mut live, record) = started(&first, "rest");
    let id = text(&record, "id");
    assert!(!listed(&second).iter().any(|record| text(record, "id") == id));
    assert_eq!(second.airlock_with(["kill", id]).code, 125);
    assert!(live.runs());
    first.airlock_with(["kill", id]).succeeded();
    live.end();
}

/// Airlock in Airlock is refused in words, even where namespaces may be made inside: the filter hides clone3, which
/// alone starts a process in a control group.
#[test]
fn a_sandbox_in_a_sandbox_is_refused() {
    let site = Site::new();
    for clauses in ["", "nesting = true\n"] {
        let clauses = format!(
            "{clauses}[env]\nset = {{ XDG_RUNTIME_DIR = \"/tmp\" }}\n\
             [[mount]]\nsource = {:?}\ntarget = \"/airlock\"\nexec = true\n",
            site.path("bin")
        );
        let inner = ["/airlock/airlock", "run", "--best-effort", "limits,devices", "--", "true"];
        let run = site.run().policy(site.policy(&clauses));
        run.end(inner).refused(&["clone", "outside of that container or sandbox"]);
    }
}
