//! Resetting GPUs between two tenants, with a stand-in for `nvidia-smi`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use airlock_tests::{Ended, Gpus, Graded, Site, within};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::{end, report, resting, run, uuid};

/// A host whose `nvidia-smi` writes down what it is asked and in which environment, and does as it is told.
struct Smi {
    log: PathBuf,
    script: String,
}

impl Smi {
    fn new(site: &Site, gpus: &Gpus, does: &str) -> Smi {
        let (place, log) = (site.path("smi"), site.path("smi.log"));
        fs::create_dir_all(&place).unwrap();
        let program = place.join("nvidia-smi");
        let text = format!("#!/bin/sh\necho \"$* ${{HOME:-empty}}\" >> {}\n{does}\n", log.display());
        fs::write(&program, text).unwrap();
        for path in [&program, &place] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
            std::os::unix::fs::chown(path, Some(0), Some(0)).unwrap();
        }
        let overlay =
            format!("mount -t overlay -o ro,lowerdir={}:/usr/bin overlay /usr/bin", place.display());
        Smi { log, script: format!("{}\n{overlay}", gpus.script()) }
    }

    fn end(&self, site: &Site, devices: &[String]) -> Ended {
        let clauses = format!("[gpu]\ndevices = {}\nreset = true\n", json!(devices));
        site.run().policy(site.policy(&clauses)).where_root_did(&self.script).end(["true"])
    }

    fn asked(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// A task whose research has this GPU.
fn task(device: &str, reset: bool) -> Graded {
    let policy = format!(
        "version = 1\nname = \"reset\"\nextends = \"research\"\n[gpu]\ndevices = [\"{device}\"]\nreset = {reset}\n"
    );
    Graded::of("digits-direct").file("reset.toml", policy).edit(
        "task.toml",
        "[[airlock.phase]]\nname = \"explore\"\n",
        "[[airlock.phase]]\nname = \"explore\"\npolicy = \"reset.toml\"\n",
    )
}

#[test]
fn the_drivers_own_tool_resets_what_the_sandbox_had() {
    let (site, gpus) = (root!(), host!("mixed"));
    let smi = Smi::new(&site, &gpus, "exit 0");
    let ended = smi.end(&site, &[uuid(1), uuid(2)]).succeeded();
    assert_eq!((&report(&ended)["reset"], &report(&ended)["left"]), (&json!(true), &json!([])));
    assert_eq!(smi.asked(), format!("--gpu-reset -i {},{} empty\n", uuid(1), uuid(2)));
    // Nobody asked for it: nothing is run.
    let plain = run(&site, &gpus, "1").end(["true"]).succeeded();
    assert_eq!((&report(&plain)["reset"], smi.asked().lines().count()), (&Value::Null, 1));
}

#[test]
fn a_reset_that_fails_is_told() {
    let (site, gpus) = (root!(), host!("mixed"));
    let smi = Smi::new(&site, &gpus, "echo 'GPU 0 is currently being used by other processes.'; exit 19");
    let ended = smi.end(&site, &[uuid(0)]);
    let said = "not reset: /usr/bin/nvidia-smi --gpu-reset ended with exit status: 19: GPU 0 is currently being used \
                by other processes.";
    assert_eq!((&report(&ended)["reset"], &report(&ended)["left"]), (&json!(false), &json!([said])));
    assert!(ended.stderr.contains(said), "{ended}");
}

/// Who holds the GPUs is killed while the driver's tool is at work on them, and on those that NVLinks lead to.
#[test]
fn nobody_gets_a_gpu_that_is_being_reset() {
    let (mut site, gpus) = (root!(), host!("bridged"));
    site.leaves_something();
    let (begun, gone_on) = (site.path("begun"), site.path("gone-on"));
    let goes_on = format!("[ -e {} ] && [ ! -e {} ]", begun.display(), gone_on.display());
    let does = format!("touch {}; while {goes_on}; do sleep 0.1; done", begun.display());
    let smi = Smi::new(&site, &gpus, &does);
    let clauses = format!("[gpu]\ndevices = [\"{}\"]\nreset = true\n", uuid(1));
    let first = site.run().policy(site.policy(&clauses)).where_root_did(&smi.script).start(["true"]);
    assert!(within(Duration::from_secs(20), || begun.exists()));
    first.signal(Signal::SIGKILL);
    first.end();
    let next = |index| run(&site, &gpus, &uuid(index)).end(["true"]);
    next(1).refused(&["is held by sandbox ", "which is ending"]);
    next(3).refused(&["is held by a reset, which is ending"]);
    next(0).succeeded();
    fs::write(gone_on, "").unwrap();
    for index in [1, 3] {
        assert!(within(Duration::from_secs(10), || next(index).code == 0));
    }
}

/// A phase that left its GPUs as they were, against its policy, is not said to have been as strict as asked.
#[test]
fn a_receipt_says_that_a_reset_failed() {
    let (site, gpus) = (root!(), host!("mixed"));
    for (does, said) in [("exit 19", true), ("exit 0", false)] {
        let smi = Smi::new(&site, &gpus, does);
        let task = task(&uuid(1), true);
        let run = task.shell("true").where_root_did(&smi.script).end();
        let weaker = run.receipt()["weaker"].to_string();
        assert_eq!(weaker.contains("explore: gpu.reset: the GPUs were not reset"), said, "{weaker}");
    }
}

/// A reset takes the GPUs along that NVLinks lead to.
#[test]
fn a_peer_that_somebody_has_is_not_reset() {
    let (site, gpus) = (root!(), host!("bridged"));
    let smi = Smi::new(&site, &gpus, "exit 0");
    // 0 and 2 are bridged, and so are 1 and 3.
    let holder = resting(&site, &gpus, &uuid(2));
    let ended = smi.end(&site, &[uuid(0)]);
    let left = report(&ended)["left"][0].as_str().unwrap().to_owned();
    assert!(
        left.starts_with(&format!("not reset: connected by NVLink: {} is held by sandbox ", uuid(2))),
        "{left}"
    );
    let ended = smi.end(&site, &[uuid(1)]);
    assert_eq!(report(&ended)["reset"], true, "{ended}");
    end(holder);
    gpus.change(|host| {
        host["gpus"][2]["processes"] = json!([{ "pid": 4711, "memory": 1, "kind": "compute" }])
    });
    let ended = smi.end(&site, &[uuid(0)]);
    let left = format!("not reset: {}, connected by NVLink, is in use by process 4711", uuid(2));
    assert_eq!(report(&ended)["left"], json!([left]));
    gpus.change(|host| host["gpus"][2]["processes"] = json!([]));
    assert_eq!(report(&smi.end(&site, &[uuid(0)]))["reset"], true);
    assert_eq!(smi.asked().lines().count(), 2);
}

#[test]
fn what_cannot_be_reset_is_refused_at_once() {
    let (site, gpus) = (root!(), host!("mig"));
    let smi = Smi::new(&site, &gpus, "exit 0");
    smi.end(&site, &["1g.10gb".into()])
        .refused(&["gpu.reset: MIG-", "is a slice, and a reset takes the whole GPU"]);
    // Nor is it planned, or a run of a task made.
    let plan = |device: &str, reset: bool| {
        let policy = site.policy(&format!("[gpu]\ndevices = [\"{device}\"]\nreset = {reset}\n"));
        site.airlock_where_root_did(&smi.script, ["plan", policy.to_str().unwrap(), "true"])
    };
    plan("1g.10gb", true).refused(&["MIG-", "is a slice, and a reset takes the whole GPU"]);
    plan("1g.10gb", false).succeeded();
    plan(&uuid(1), true).succeeded();
    let lead = |reset| {
        let task = task("1g.10gb", reset);
        let run = task.shell("true").where_root_did(&smi.script).end();
        (run.path.exists(), run.ended)
    };
    let (made, ended) = lead(true);
    ended.refused(&["the phase `explore`: gpu.reset: MIG-", "is a slice, and a reset takes the whole GPU"]);
    assert!(!made);
    let (made, ended) = lead(false);
    assert!(made, "{ended}");
    let without = Smi { script: gpus.script().to_owned(), ..smi };
    if !std::path::Path::new("/usr/bin/nvidia-smi").exists() {
        without.end(&site, &[uuid(1)]).refused(&["/usr/bin/nvidia-smi is not there", "leave `reset` out"]);
    }
    assert_eq!(without.asked(), "");
}
