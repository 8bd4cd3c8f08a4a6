//! Who gets which GPU, and in which state it is handed on.

use std::time::Duration;

use airlock_tests::{Ended, Graded, Site, within};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::{end, report, resting, run, uuid};

/// Names of the GPUs' nodes that a shell sees, and what opening each gives.
const LOOK: &str = "for node in /dev/nvidia[0-9]*; do echo $node; done; for n in 0 1 2 3 4 5 6 7; do \
                    (: </dev/nvidia$n) 2>&1 | sed \"s/^.*: /$n: /\"; done; ls /proc/driver/nvidia/gpus";

#[test]
fn one_of_eight_is_all_that_there_is_inside() {
    let (site, gpus) = (root!(), host!("eight"));
    // `3` is a count; one is named by its UUID.
    let three = run(&site, &gpus, "3").end(["sh", "-c", LOOK]).succeeded();
    assert!(
        three.stdout.starts_with("/dev/nvidia0\n/dev/nvidia1\n/dev/nvidia2\n0: No such device"),
        "{three}"
    );
    let ended = run(&site, &gpus, &uuid(3)).end(["sh", "-c", LOOK]).succeeded();
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines[0], "/dev/nvidia3", "{ended}");
    assert!(lines.contains(&"3: No such device or address"), "{ended}");
    assert_eq!(lines.iter().filter(|line| line.ends_with("No such file")).count(), 7, "{ended}");
    assert_eq!(lines.last(), Some(&"0000:5d:00.0"), "{ended}");
}

#[test]
fn two_at_once_never_share_one() {
    let (site, gpus) = (root!(), host!("bridged"));
    let one = resting(&site, &gpus, "1");
    let two = resting(&site, &gpus, "1");
    let third = run(&site, &gpus, &format!("{},1", uuid(0))).end(["true"]);
    let third =
        third.refused(&["GPU 0", "is held by sandbox ", "wait until it is given back, or choose another"]);
    drop(third);
    run(&site, &gpus, "3").end(["true"]).refused(&["3 GPUs asked for, at most 2 can be had"]);
    let devices =
        |ended: &Ended| ended.report().field("gpus")["devices"][0]["uuid"].as_str().unwrap().to_owned();
    let (one, two) = (end(one), end(two));
    assert_ne!(devices(&one), devices(&two));
    run(&site, &gpus, "4").end(["true"]).succeeded();
}

/// The lock is the kernel's: what `kill -9` ends holds nothing.
#[test]
fn a_holder_that_was_killed_holds_nothing() {
    let (mut site, gpus) = (root!(), host!("busy"));
    site.leaves_something();
    gpus.change(|host| host["gpus"].as_array_mut().unwrap().truncate(1));
    gpus.change(|host| host["gpus"][0]["processes"] = json!([]));
    gpus.change(|host| host["gpus"][0]["used"] = 0.into());
    let holder = resting(&site, &gpus, "1");
    run(&site, &gpus, "1").end(["true"]).refused(&["is held by sandbox "]);
    holder.signal(Signal::SIGKILL);
    holder.end();
    assert!(within(Duration::from_secs(5), || run(&site, &gpus, "1").end(["true"]).code == 0));
}

#[test]
fn slices_of_one_card_go_to_two_sandboxes() {
    let (site, gpus) = (root!(), host!("mig"));
    let one = resting(&site, &gpus, "1g.10gb");
    let two = resting(&site, &gpus, "1g.10gb");
    run(&site, &gpus, "1g.10gb").end(["true"]).refused(&["1 of \"1g.10gb\" asked for, at most 0 can be had"]);
    let slice = |ended: &Ended| ended.report().field("gpus")["devices"][0].clone();
    let (one, two) = (slice(&end(one)), slice(&end(two)));
    assert_ne!(one["uuid"], two["uuid"]);
    assert_eq!((&one["slice_of"], &two["slice_of"]), (&uuid(0).into(), &uuid(0).into()));
}

#[test]
fn what_is_busy_lost_or_unsound_is_refused_in_words() {
    let site = root!();
    let gpus = host!("busy");
    run(&site, &gpus, &format!("{},{}", uuid(0), uuid(1)))
        .end(["true"])
        .refused(&["GPU 0", "in use by processes 4711, 4712, which are not of this sandbox"]);
    gpus.become_("lost");
    run(&site, &gpus, &format!("{},{}", uuid(0), uuid(1))).end(["true"]).refused(&["is not sound: lost"]);
    gpus.become_("ecc");
    run(&site, &gpus, "2")
        .end(["true"])
        .refused(&["2 GPUs asked for, at most 1 can be had", "3 uncorrected ECC errors"]);
    run(&site, &gpus, "A100,A100")
        .end(["true"])
        .refused(&["there is no \"A100\" on this host; it has 0 NVIDIA H100"]);
    gpus.become_("not-loaded");
    run(&site, &gpus, "1").end(["true"]).refused(&["no NVIDIA driver on this host"]);
    gpus.become_("mismatch");
    run(&site, &gpus, "1").end(["true"]).refused(&["reboot, or unload and load its modules"]);
}

#[test]
fn the_end_report_says_what_was_used_and_left() {
    let (site, gpus) = (root!(), host!("eight"));
    let live = resting(&site, &gpus, "1");
    gpus.change(|host| {
        let gpu = &mut host["gpus"][0];
        gpu["used"] = (20_u64 << 30).into();
        gpu["utilisation"] = 90.into();
        gpu["xid"] = 31.into();
    });
    std::thread::sleep(Duration::from_millis(1800));
    gpus.change(|host| {
        host["gpus"][0]["used"] = 0.into();
        host["gpus"][0]["utilisation"] = 0.into();
    });
    let ended = end(live);
    let report = report(&ended);
    assert_eq!(
        (&report["driver"], &report["cuda"], &report["left"]),
        (&"550.54.15".into(), &"12.4".into(), &json!([]))
    );
    let device = &report["devices"][0];
    assert_eq!((&device["uuid"], &device["memory_peak"]), (&uuid(0).into(), &(20_u64 << 30).into()));
    let share = device["utilisation"].as_f64().unwrap();
    assert!((20.0..90.0).contains(&share), "{share}");
    assert!(device["energy"].as_u64().unwrap() > 70_000, "more than a second at 70 W: {device}");
    assert_eq!(device["xids"], json!([31]));
    assert_eq!(
        (&device["before"]["ecc_uncorrected"], &device["after"]["sm_clock"]),
        (&0.into(), &345.into())
    );
}

/// What runs on a GPU can make errors as fast as it likes (XID 13, 31), for as long as it runs.
#[test]
fn endless_errors_keep_nobody_waiting() {
    let (site, gpus) = (root!(), host!("eight"));
    let live = resting(&site, &gpus, "1");
    gpus.change(|host| {
        host["gpus"][0]["xid"] = 13.into();
        host["gpus"][0]["xid_events"] = 1_000_000_000.into();
    });
    std::thread::sleep(Duration::from_millis(1800));
    let report = report(&end(live));
    assert_eq!(report["devices"][0]["xids"], json!(vec![13; 100]));
}

#[test]
fn what_a_phase_leaves_behind_is_told() {
    let (site, gpus) = (root!(), host!("eight"));
    let live = resting(&site, &gpus, "1");
    gpus.change(|host| {
        let gpu = &mut host["gpus"][0];
        gpu["used"] = (1_u64 << 30).into();
        gpu["processes"] = json!([{ "pid": 4711, "memory": 1, "kind": "compute" }]);
        gpu["ecc"]["uncorrected"] = 2.into();
    });
    let ended = end(live);
    let uuid = uuid(0);
    let expected = [
        format!("{uuid} is in use by process 4711"),
        format!("{uuid} has 1024 MiB more in use than before"),
        format!("{uuid} has 2 new uncorrected ECC errors"),
    ];
    assert_eq!(report(&ended)["left"], json!(expected));
    assert!(expected.iter().all(|left| ended.stderr.contains(left)), "{ended}");
    // Neither is it given to the next.
    run(&site, &gpus, &uuid).end(["true"]).refused(&["is not sound: 2 uncorrected ECC errors"]);
}

/// A detached monitor holds them as long as its sandbox runs, not as long as its caller.
#[test]
fn a_sandbox_in_the_background_holds_its_gpus() {
    let (site, gpus) = (root!(), host!("mixed"));
    let wait = site.file("go", "");
    let shell = format!("while [ -e {} ]; do sleep 0.05; done", "/data/go");
    let mount = format!("{}:/data/go", wait.display());
    let detached = run(&site, &gpus, "H100").flag("--mount", mount).with(|command| {
        command.arg("--detach");
    });
    let report = detached.end(["sh", "-c", &shell]).succeeded();
    run(&site, &gpus, "H100")
        .end(["true"])
        .refused(&["\"h100\" asked for, at most 0 can be had", "is held by sandbox "]);
    let id = report.stdout.trim().to_owned();
    site.airlock_with(["kill", &id]).succeeded();
    assert!(within(Duration::from_secs(5), || run(&site, &gpus, "H100").end(["true"]).code == 0));
}

/// The supervisor holds the GPUs of a phase that asks for some, and of no other.
#[test]
fn a_phase_of_a_task_has_its_gpus_and_gives_them_back() {
    let (site, gpus) = (root!(), host!("mixed"));
    let task = Graded::of("digits-direct").edit(
        "task.toml",
        "[[airlock.phase]]\nname = \"explore\"\n",
        "[[airlock.phase]]\nname = \"explore\"\ngpus = 2\n",
    );
    let live = task
        .shell("ls -d /dev/nvidia[0-9]*; sleep 4; echo done >done; /opt/harness/submit.sh")
        .where_root_did(gpus.script())
        .start();
    live.until(|run| run.printed("explore").contains("/dev/nvidia1"));
    let refused = run(&site, &gpus, "H100").end(["true"]);
    refused.refused(&[
        "GPU 1",
        "is held by run digits-direct-",
        ", phase explore; wait until it is given back",
    ]);
    let ended = live.end();
    let report = |phase| {
        let text = std::fs::read_to_string(ended.phases(phase)[0].join("end.json")).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["gpus"].clone()
    };
    let had = report("explore");
    let uuids: Vec<_> = had["devices"].as_array().unwrap().iter().map(|device| &device["uuid"]).collect();
    assert_eq!((uuids, &had["left"]), (vec![&uuid(0).into(), &uuid(1).into()], &json!([])));
    assert_eq!(report("grader"), Value::Null);
    run(&site, &gpus, "3").end(["true"]).succeeded();
    // The run says beforehand which they may be, and its receipt which they were and in which state.
    let host = [0, 1, 2].map(uuid);
    assert_eq!(ended.json("run.json")["gpus"], json!(host));
    let receipt = ended.receipt();
    let of = |name: &str| {
        let phases = receipt["phases"].as_array().unwrap();
        phases.iter().find(|phase| phase["name"] == name).unwrap()["gpus"].clone()
    };
    let gpu = &of("explore")["devices"][1];
    assert_eq!(gpu["uuid"], uuid(1));
    for (key, value) in [("sm_clock", json!(345)), ("ecc_uncorrected", json!(0)), ("ecc_corrected", json!(0))]
    {
        assert_eq!((&gpu["before"][key], &gpu["after"][key]), (&value, &value), "{key}");
    }
    assert_eq!((&gpu["xids"], &of("explore")["driver"]), (&json!([]), &"550.54.15".into()));
    assert_eq!(of("grader"), Value::Null);
    let page = std::fs::read_to_string(ended.path.join("report.html")).unwrap();
    assert!(page.contains(&uuid(1)) && page.contains("345 → 345"), "the page has the GPUs of each phase");
    let key = task.site().path("private/signing.pub");
    let (run, key) = (ended.path.to_str().unwrap(), key.to_str().unwrap());
    let verified = task.site().airlock_with(["task", "verify", run, "--key", key]);
    assert!(verified.succeeded().stdout.starts_with("verified: digits-direct-"));
}

/// What a run will never get is said before there is a run directory, as the phase's own mistake.
#[test]
fn a_task_that_asks_for_more_than_the_host_has_is_refused_at_once() {
    let (_, gpus) = (root!(), host!("mixed"));
    let task = Graded::of("digits-direct").edit(
        "task.toml",
        "[[airlock.phase]]\nname = \"explore\"\n",
        "[[airlock.phase]]\nname = \"explore\"\ngpus = 4\n",
    );
    let refused = |pieces: &[&str]| {
        let ended = task.shell("true").where_root_did(gpus.script()).end();
        assert!(!ended.path.exists(), "{}", ended.ended);
        ended.ended.refused(pieces);
    };
    refused(&["the phase `explore` asks for 4 GPUs", "at most 3 can be had", "see `airlock gpu list`"]);
    gpus.become_("not-loaded");
    refused(&[
        "the phase `explore` asks for 4 GPUs",
        "no NVIDIA driver on this host",
        "`nvidia-smi` must work",
    ]);
}

/// Its logs are empty and whole: nothing waits for what nobody writes.
#[test]
fn a_phase_whose_gpus_are_held_fails_at_once_and_says_why() {
    let (site, gpus) = (root!(), host!("mixed"));
    let holder = resting(&site, &gpus, "3");
    let task = Graded::of("digits-direct").edit(
        "task.toml",
        "[[airlock.phase]]\nname = \"explore\"\n",
        "[[airlock.phase]]\nname = \"explore\"\ngpus = 1\n",
    );
    let run = task.shell("true").where_root_did(gpus.script()).end();
    assert!(run.ended.stdout.contains("is held by sandbox "), "{}", run.ended);
    assert!(!run.ended.stderr.contains("not whole"), "{}", run.ended);
    assert!(run.ended.wall < Duration::from_secs(30), "{}", run.ended);
    end(holder);
}

/// The probes' sandboxes have the GPUs that `airlock run` would have, held as long as the audit takes.
#[test]
fn an_audit_by_probes_has_the_gpus_of_its_policy() {
    let (site, gpus) = (root!(), host!("mixed"));
    let policy = site.policy("[gpu]\ncount = 1\n");
    let policy = policy.to_str().unwrap();
    let audit = || site.audit_where_root_did(gpus.script(), ["--json", "--probe", policy]);
    let ended = audit();
    assert_eq!(ended.code, 0, "{ended}");
    let ended = site.audit_where_root_did(gpus.script(), ["--json", "--mutate", policy]);
    assert_eq!(ended.code, 0, "{ended}");
    let holder = resting(&site, &gpus, "3");
    audit().refused(&["1 GPUs asked for, at most 0 can be had", "is held by sandbox "]);
    end(holder);
    gpus.become_("not-loaded");
    audit().refused(&["no NVIDIA driver on this host", "`nvidia-smi` must work"]);
}
