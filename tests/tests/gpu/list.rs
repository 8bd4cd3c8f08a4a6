//! What `airlock gpu list` says of a host.

use std::time::Duration;

use airlock_tests::{Ended, Gpus, Site};
use serde_json::Value;

use crate::{end, resting};

/// What to do where there is no driver.
const REMEDY: &str = "install the driver and load its modules: `nvidia-smi` must work on the host";

/// `airlock gpu list` on this host.
fn list(gpus: &Gpus, flags: &[&str]) -> Ended {
    let words = ["gpu", "list"].into_iter().chain(flags.iter().copied());
    Site::new().airlock_where_root_did(&gpus.library_script(), words)
}

fn json(gpus: &Gpus) -> Value {
    serde_json::from_str(&list(gpus, &["--json"]).succeeded().stdout).unwrap()
}

/// What others cannot be given at this moment, though no process is on it.
#[test]
fn who_holds_a_gpu_is_listed() {
    let (site, gpus) = (root!(), host!("mig"));
    let list = |flags: &[&str]| {
        let words = ["gpu", "list"].into_iter().chain(flags.iter().copied());
        site.airlock_where_root_did(gpus.script(), words).succeeded().stdout
    };
    let json = || serde_json::from_str::<Value>(&list(&["--json"])).unwrap()["held"].clone();
    assert_eq!(json(), serde_json::json!({}));
    let held = resting(&site, &gpus, "1g.10gb");
    let by = json();
    let by: Vec<(&str, &str)> =
        by.as_object().unwrap().iter().map(|(uuid, by)| (uuid.as_str(), by.as_str().unwrap())).collect();
    let [(gpu, others), (slice, one)] = by[..] else { panic!("the slice, and its GPU: {by:?}") };
    assert!(gpu.starts_with("GPU-") && slice.starts_with("MIG-"), "{by:?}");
    assert!(one.starts_with("sandbox "), "{by:?}");
    assert_eq!(others, format!("sandboxes that share it (the last to begin: {one})"));
    let text = list(&[]);
    for (uuid, by) in by {
        assert!(text.lines().any(|line| line.contains(uuid) && line.ends_with(&format!("  {by}"))), "{text}");
    }
    end(held);
    assert_eq!(json(), serde_json::json!({}));
    let lines = list(&[]);
    assert!(lines.lines().filter(|line| line.contains("GPU-")).all(|line| line.ends_with("  -")), "{lines}");
}

#[test]
fn eight_gpus_and_how_they_are_connected() {
    let gpus = host!("eight");
    let found = json(&gpus);
    assert_eq!(found["driver"]["version"], "550.54.15");
    assert_eq!(found["driver"]["cuda"], serde_json::json!([12, 4]));
    let all = found["gpus"].as_array().unwrap();
    assert_eq!(all.len(), 8);
    assert_eq!(all[2]["uuid"], "GPU-00000002-aaaa-bbbb-cccc-000000000002");
    assert_eq!((&all[2]["pci"], &all[2]["minor"]), (&"0000:4c:00.0".into(), &2.into()));
    assert_eq!(all[2]["memory_total"], 85_520_809_984_u64);
    assert_eq!((&all[2]["mig"], &all[2]["health"]["ecc"]), (&Value::Null, &true.into()));
    let links = found["links"].as_array().unwrap();
    assert_eq!(links.len(), 28);
    assert!(links.iter().all(|link| link["nvlinks"] == 18), "{links:?}");
    let path = |a, b| &links.iter().find(|link| link["a"] == a && link["b"] == b).unwrap()["path"];
    assert_eq!((path(0, 1), path(0, 2), path(3, 4)), (&"switch".into(), &"node".into(), &"system".into()));
    let text = list(&gpus, &[]).succeeded().stdout;
    assert!(text.starts_with("NVIDIA driver 550.54.15, CUDA 12.4, NVML 12.550.54.15\n"), "{text}");
    assert!(text.contains("0000:db:00.0  0 of 79 GiB  -          GPU-00000007-"), "{text}");
}

/// A bridge joins two cards; there is no switch that joins all.
#[test]
fn bridges_join_pairs() {
    let gpus = host!("bridged");
    let found = json(&gpus);
    let links: Vec<_> =
        found["links"].as_array().unwrap().iter().map(|link| link["nvlinks"].as_u64()).collect();
    // 0-1, 0-2, 0-3, 1-2, 1-3, 2-3
    assert_eq!(links, [Some(0), Some(12), Some(0), Some(0), Some(12), Some(0)]);
}

#[test]
fn slices_are_listed_with_their_ids() {
    let gpus = host!("mig");
    let found = json(&gpus);
    let slices = found["gpus"][0]["mig"].as_array().unwrap();
    let shown: Vec<_> =
        slices.iter().map(|slice| (&slice["gi"], &slice["ci"], slice["profile"].as_str().unwrap())).collect();
    let (zero, ids) = (0.into(), [2, 7, 8].map(Value::from));
    assert_eq!(
        shown,
        [(&ids[0], &zero, "3g.40gb"), (&ids[1], &zero, "1g.10gb"), (&ids[2], &zero, "1g.10gb")]
    );
    assert_eq!(found["gpus"][1]["mig"], Value::Null);
    let text = list(&gpus, &[]).succeeded().stdout;
    assert!(text.contains("0:1    slice 1g.10gb"), "{text}");
}

#[test]
fn who_uses_a_gpu_is_named() {
    let gpus = host!("busy");
    let found = json(&gpus);
    let processes = &found["gpus"][0]["processes"];
    assert_eq!(
        *processes,
        serde_json::json!([
            { "pid": 4711, "memory": 4_294_967_296_u64, "kind": "compute", "gi": null },
            { "pid": 4712, "memory": 1_048_576, "kind": "graphics", "gi": null },
        ])
    );
    assert!(list(&gpus, &[]).succeeded().stdout.contains("4 of 79 GiB  4711 4712  GPU-00000000-"));
}

/// One that fell off the bus answers GPU_IS_LOST to everything; one that was lost before has no handle (XID 79).
#[test]
fn a_lost_gpu_is_listed_as_lost() {
    let gpus = host!("lost");
    let found = json(&gpus);
    let lost: Vec<_> = found["gpus"].as_array().unwrap().iter().map(|gpu| &gpu["health"]["lost"]).collect();
    assert_eq!(lost, [&Value::from(true), &false.into(), &true.into()]);
    assert_eq!(found["gpus"][0]["uuid"], "GPU-00000000-aaaa-bbbb-cccc-000000000000");
    assert!(list(&gpus, &[]).succeeded().stdout.contains("lost: it does not answer any more"));
}

#[test]
fn memory_errors_are_told() {
    let gpus = host!("ecc");
    let text = list(&gpus, &[]).succeeded().stdout;
    for words in
        ["3 uncorrected ECC errors", "waits to be repaired by a reset", "worn out", "cccc-000000000003  ok"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn no_driver_is_an_answer() {
    let ended = Site::new().airlock_with(["gpu", "list"]);
    // A machine with a driver has nothing to say here.
    if !std::path::Path::new("/proc/driver/nvidia").exists() {
        let text = ended.succeeded().stdout;
        assert!(
            text.starts_with("no NVIDIA driver: libnvidia-ml.so.1: cannot open shared object file"),
            "{text}"
        );
        assert!(text.contains(REMEDY), "{text}");
        let site = Site::new();
        site.airlock_with(["gpu", "cdi"]).refused(&["no NVIDIA driver: libnvidia-ml.so.1", REMEDY]);
        site.run().policy(site.policy("")).flag("--gpus", "1").end(["true"]).refused(&[REMEDY]);
    }
    let gpus = host!("not-loaded");
    let text = list(&gpus, &[]).succeeded().stdout;
    assert!(text.starts_with("no NVIDIA driver: NVIDIA driver is not loaded\n"), "{text}");
    assert!(text.contains(REMEDY), "{text}");
    assert_eq!(json(&gpus)["driver"], Value::Null);
}

#[test]
fn a_driver_that_fails_is_named_with_a_remedy() {
    for (scenario, pieces) in [
        ("mismatch", ["library", "the driver was updated and the old one is still loaded: reboot"]),
        ("no-permission", ["permission", "may not open /dev/nvidiactl"]),
        ("crash", ["discovery helper", "it ended without an answer"]),
    ] {
        let gpus = host!(scenario);
        list(&gpus, &[]).refused(&pieces);
    }
}

/// nvidia-smi that hangs took its callers with it (Slurm prologs, kubelet's plugin); the helper is given up.
#[test]
fn a_driver_that_hangs_is_given_up() {
    let gpus = host!("hang");
    let ended = list(&gpus, &[]).refused(&["does not answer within 30 s", "reset the GPU or reboot"]);
    assert!(ended.wall < Duration::from_secs(50), "{ended}");
}

/// A library that a payload planted where the environment points to is not loaded.
#[test]
fn the_callers_environment_does_not_reach_the_loader() {
    let gpus = host!("eight");
    let site = Site::new();
    let planted = site.folder("planted");
    std::fs::write(planted.join("libnvidia-ml.so.1"), "not a library").unwrap();
    let script =
        format!("{}\nexport LD_LIBRARY_PATH={} LD_PRELOAD=", gpus.library_script(), planted.display());
    site.airlock_where_root_did(&script, ["gpu", "list"]).succeeded();
}
