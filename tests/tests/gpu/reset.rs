//! Resetting GPUs between two tenants, with a stand-in for `nvidia-smi`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use airlock_tests::{Ended, Gpus, Site};
use serde_json::{Value, json};

use crate::{end, report, resting, run, uuid};

/// A host whose `nvidia-smi` writes down what it is asked and in which environment, and does as it is told.
struct Smi {
    log: PathBuf,
    script: String,
}

impl Smi {
    fn new(site: &Site, gpus: &Gpus, does: &str) -> Smi {
        let (place, log) = (site.folder("smi"), site.path("smi.log"));
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
    let without = Smi { script: gpus.script().to_owned(), ..smi };
    if !std::path::Path::new("/usr/bin/nvidia-smi").exists() {
        without.end(&site, &[uuid(1)]).refused(&["/usr/bin/nvidia-smi is not there", "leave `reset` out"]);
    }
    assert_eq!(without.asked(), "");
}
