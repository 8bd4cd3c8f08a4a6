//! Limits of what may be used of a GPU end the sandbox that exceeds one, and no other.

use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

use airlock_tests::{Gpus, Graded, Live, Site};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::{end, report, uuid};

/// More than two looks.
const LOOKS: Duration = Duration::from_millis(1300);
const CLAUSES: &str = "[gpu]\ncount = 1\nmemory = \"4GiB\"\n";

fn begin(site: &Site, gpus: &Gpus, clauses: &str, words: [&str; 3]) -> Live {
    let mut live = site.run().policy(site.policy(clauses)).where_root_did(gpus.script()).start(words);
    live.printed("ready");
    live
}

/// So much memory of the first GPU is in use from now on, in MiB.
fn uses(gpus: &Gpus, memory: u64) {
    sets(gpus, "used", memory << 20);
}

/// The first GPU is so from now on.
fn sets(gpus: &Gpus, key: &str, value: u64) {
    gpus.change(|host| host["gpus"][0][key] = value.into());
}

/// The first GPU says nothing of it from now on.
fn conceals(gpus: &Gpus, key: &str) {
    gpus.change(|host| drop(host["gpus"][0].as_object_mut().unwrap().remove(key)));
}

#[test]
fn what_grows_beyond_the_limit_is_ended_with_a_reason_of_its_own() {
    let (site, gpus) = (root!(), host!("eight"));
    // What others left there is not the sandbox's.
    uses(&gpus, 512);
    let mut live = begin(&site, &gpus, CLAUSES, ["/probe/probe", "rest", "60"]);
    for memory in [2048, 512 + 4096] {
        uses(&gpus, memory);
        thread::sleep(LOOKS);
        assert!(live.runs(), "{memory} MiB are allowed");
    }
    uses(&gpus, 6144);
    let ended = live.end();
    assert_eq!((ended.report().reason(), ended.code), ("gpu-limit", 128 + 15), "{ended}");
    let said = format!("{} had 5632 MiB more in use than before, which gpu.memory forbids", uuid(0));
    assert_eq!(report(&ended)["exceeded"], said);
    assert!(ended.stderr.contains(&said), "{ended}");
    // Without the limit as much is nobody's business.
    uses(&gpus, 0);
    let mut free = begin(&site, &gpus, "[gpu]\ncount = 1\n", ["/probe/probe", "rest", "60"]);
    uses(&gpus, 6144);
    thread::sleep(LOOKS);
    assert!(free.runs());
    uses(&gpus, 0);
    assert_eq!(report(&end(free))["exceeded"], json!(null));
}

#[test]
fn energy_and_time_are_limited_likewise() {
    let (site, gpus) = (root!(), host!("eight"));
    let mut live =
        begin(&site, &gpus, "[gpu]\ncount = 1\nenergy = \"1kJ\"\n", ["/probe/probe", "rest", "60"]);
    thread::sleep(LOOKS);
    assert!(live.runs(), "70 J in a second");
    sets(&gpus, "power", 1_000_000_000);
    let ended = live.end();
    assert_eq!(ended.report().reason(), "gpu-limit", "{ended}");
    let said = report(&ended)["exceeded"].as_str().unwrap().to_owned();
    assert!(said.starts_with(&format!("{} had taken ", uuid(0))), "{said}");
    assert!(said.ends_with(" J, which gpu.energy forbids"), "{said}");

    sets(&gpus, "power", 70_000);
    let clauses = "[gpu]\ncount = 1\nutilisation = \"5%\"\n";
    let mut live = begin(&site, &gpus, clauses, ["/probe/probe", "rest", "60"]);
    sets(&gpus, "utilisation", 100);
    thread::sleep(LOOKS);
    assert!(live.runs(), "it is the mean of a minute");
    let ended = live.end();
    assert_eq!(ended.report().reason(), "gpu-limit", "{ended}");
    let said = format!("{} was busy for 6% of a minute, which gpu.utilisation forbids", uuid(0));
    assert_eq!(report(&ended)["exceeded"], said);
}

/// A command that ends by itself has not escaped its limit, however late it exceeded it.
#[test]
fn what_was_used_is_judged_at_the_end_too() {
    let (site, gpus) = (root!(), host!("eight"));
    let run = |clauses: &str| {
        let (end, say) = io::pipe().unwrap();
        let run = site.run().policy(site.policy(clauses)).where_root_did(gpus.script()).stdin(end);
        let mut live = run.start(["sh", "-c", "echo ready; read _; exit 0"]);
        live.printed("ready");
        sets(&gpus, "power", 1_000_000_000);
        drop(say);
        let ended = live.end();
        sets(&gpus, "power", 70_000);
        ended
    };
    let ended = run("[gpu]\ncount = 1\nenergy = \"1kJ\"\n");
    assert_eq!((ended.report().reason(), ended.code), ("gpu-limit", 125), "{ended}");
    assert!(report(&ended)["exceeded"].as_str().unwrap().ends_with("which gpu.energy forbids"), "{ended}");
    run("[gpu]\ncount = 1\n").succeeded();
}

/// Sight that is lost later takes nothing back.
#[test]
fn an_excess_that_was_seen_stays_one() {
    let (site, gpus) = (root!(), host!("eight"));
    let deaf = "trap '' TERM; echo ready; while :; do sleep 1; done";
    let live = begin(&site, &gpus, CLAUSES, ["sh", "-c", deaf]);
    let watch = helper(live.pid());
    uses(&gpus, 8192);
    thread::sleep(LOOKS);
    kill(watch, Signal::SIGKILL).unwrap();
    let ended = live.end();
    assert_eq!(ended.report().reason(), "gpu-limit", "{ended}");
    let report = report(&ended);
    assert!(report["exceeded"].as_str().unwrap().contains("8192 MiB more in use"), "{report}");
    assert!(report["left"][0].as_str().unwrap().starts_with("not known: "), "{report}");
}

#[test]
fn a_driver_that_fails_under_a_limit_ends_the_sandbox() {
    let (site, gpus) = (root!(), host!("eight"));
    let ends = |clauses: &str, key: &str, value: u64| {
        let live = begin(&site, &gpus, clauses, ["/probe/probe", "rest", "60"]);
        sets(&gpus, key, value);
        let ended = live.end();
        assert_eq!(ended.report().reason(), "supervisor-lost", "it exceeded nothing: {ended}");
        gpus.change(|host| host["gpus"][0]["lost"] = 0.into());
        report(&ended)["left"].to_string()
    };
    let lost = ends(CLAUSES, "lost", 1);
    assert!(lost.contains(&format!("{} is lost", uuid(0))), "{lost}");
    assert!(lost.contains("does not tell its memory"), "{lost}");
    let energy = "[gpu]\ndevices = [\"0\"]\nenergy = \"1MJ\"\n";
    let back = ends(energy, "power", 1);
    assert!(
        back.contains("does not tell its energy"),
        "a counter that goes back counts something else: {back}"
    );
    sets(&gpus, "power", 70_000);
    let hung = ends(energy, "hang", 1);
    assert!(hung.contains("it has not answered for 10 s"), "{hung}");
}

#[test]
fn what_a_gpu_does_not_tell_cannot_be_limited() {
    let (site, gpus) = (root!(), host!("mig"));
    for key in ["energy = \"1MJ\"", "utilisation = \"5%\""] {
        let policy = |gpus: &str| site.policy(&format!("[gpu]\n{gpus}\n{key}\n"));
        let run = |policy| site.run().policy(policy).where_root_did(gpus.script()).end(["true"]);
        let word = key.split(' ').next().unwrap();
        run(policy("devices = [\"1g.10gb\"]"))
            .refused(&[&format!("gpu.{word}: MIG-"), "is a slice, and only whole GPUs tell their"]);
    }
    let gpus = host!("eight");
    let clauses = "[gpu]\ndevices = [\"0\"]\nutilisation = \"5%\"\n";
    let mut live = begin(&site, &gpus, clauses, ["/probe/probe", "rest", "60"]);
    // For a moment nobody minds.
    conceals(&gpus, "utilisation");
    thread::sleep(LOOKS);
    assert!(live.runs());
    sets(&gpus, "utilisation", 1);
    thread::sleep(LOOKS);
    conceals(&gpus, "utilisation");
    let ended = live.end();
    assert_eq!(ended.report().reason(), "supervisor-lost", "it exceeded nothing: {ended}");
    assert!(ended.stderr.contains(&format!("{} does not tell its utilisation", uuid(0))), "{ended}");
    for (key, hidden) in [("energy = \"1MJ\"", "power"), ("utilisation = \"5%\"", "utilisation")] {
        conceals(&gpus, hidden);
        let policy = site.policy(&format!("[gpu]\ndevices = [\"0\"]\n{key}\n"));
        let word = key.split(' ').next().unwrap();
        site.run().policy(&policy).where_root_did(gpus.script()).end(["true"]).refused(&[
            &format!("{} does not tell its {word}", uuid(0)),
            "leave the limit of it out of [gpu], or ask for other GPUs",
        ]);
    }
    let policy = site.policy("[gpu]\ndevices = [\"0\"]\nmemory = \"5GiB\"\n");
    site.run().policy(policy).where_root_did(gpus.script()).end(["true"]).succeeded();
}

#[test]
fn a_payload_that_does_not_listen_is_killed() {
    let (site, gpus) = (root!(), host!("eight"));
    let deaf = "trap '' TERM; echo ready; while :; do sleep 1; done";
    let live = begin(&site, &gpus, CLAUSES, ["sh", "-c", deaf]);
    uses(&gpus, 8192);
    let ended = live.end();
    assert_eq!((ended.report().reason(), ended.code), ("gpu-limit", 128 + 9), "{ended}");
}

/// Nobody can tell any more whether the limit is kept.
#[test]
fn a_sandbox_whose_use_cannot_be_watched_is_ended() {
    let (site, gpus) = (root!(), host!("eight"));
    let watched = |clauses: &str| {
        let live = begin(&site, &gpus, clauses, ["/probe/probe", "rest", "60"]);
        kill(helper(live.pid()), Signal::SIGKILL).unwrap();
        live
    };
    let mut free = watched("[gpu]\ncount = 1\n");
    thread::sleep(LOOKS);
    assert!(free.runs());
    end(free);
    let ended = watched(CLAUSES).end();
    assert_eq!(ended.report().reason(), "supervisor-lost", "it exceeded nothing: {ended}");
    let left = report(&ended)["left"][0].as_str().unwrap().to_owned();
    assert!(left.starts_with("not known: gpu: discovery helper: it ended without an answer"), "{left}");
}

/// The child of a run, of whichever thread, that looks at its GPUs: the last one that was started.
fn helper(run: Pid) -> Pid {
    let threads = fs::read_dir(format!("/proc/{run}/task")).unwrap();
    let children =
        |thread: io::Result<fs::DirEntry>| fs::read_to_string(thread.unwrap().path().join("children"));
    let children: String = threads.flat_map(children).collect();
    let named = |pid: &i32| {
        let name = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        name.starts_with("airlock-nvml\0watch")
    };
    let mut children = children.split_whitespace().filter_map(|pid| pid.parse().ok());
    Pid::from_raw(children.rfind(named).expect("a helper that watches"))
}

#[test]
fn a_phase_of_a_task_is_ended_likewise() {
    let (_, gpus) = (root!(), host!("mixed"));
    let policy = format!("version = 1\nname = \"watched\"\nextends = \"research\"\n{CLAUSES}");
    let task = Graded::of("digits-direct").file("watched.toml", policy).edit(
        "task.toml",
        "[[airlock.phase]]\nname = \"explore\"\n",
        "[[airlock.phase]]\nname = \"explore\"\npolicy = \"watched.toml\"\n",
    );
    let live = task.shell("echo begun; sleep 60").where_root_did(gpus.script()).start();
    live.until(|run| run.printed("explore").contains("begun"));
    uses(&gpus, 8192);
    let run = live.end();
    assert_eq!(run.end_of("explore")["reason"], "gpu-limit");
    let phase = run.receipt()["phases"][1]["gpus"].clone();
    assert!(phase["exceeded"].as_str().unwrap().contains("8192 MiB more in use"), "{phase}");
    // Whose watch is lost has exceeded nothing: he goes on where he was.
    uses(&gpus, 0);
    let twice = "test -e again && exit 0; touch again; echo begun; sleep 60";
    let live = task.shell(twice).where_root_did(gpus.script()).start();
    live.until(|run| run.printed("explore").contains("begun"));
    kill(helper(live.live().pid()), Signal::SIGKILL).unwrap();
    let run = live.end();
    let ends =
        run.phases("explore").into_iter().map(|phase| fs::read_to_string(phase.join("end.json")).unwrap());
    let ends: Vec<Value> = ends.map(|end| serde_json::from_str(&end).unwrap()).collect();
    let reasons: Vec<&Value> = ends.iter().map(|end| &end["reason"]).collect();
    assert_eq!(reasons, ["supervisor-lost", "exited"]);
    assert!(ends[0]["error"].as_str().unwrap().starts_with("the watch over its GPUs ended: "), "{}", ends[0]);
}
