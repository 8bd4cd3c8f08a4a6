//! What a sandbox gets on the host of each scenario, to the last node and variable, and what is then seen in it.
//!
//! With `AIRLOCK_BLESS` set the files beside this one are written.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

use airlock_tests::{Site, skip};

use crate::Place;

/// Everything of GPUs that a payload can find by looking.
const LOOK: &str = "cd /; ls -d dev/nvidia* dev/nvidia-caps/* dev/dri/* 2>/dev/null; find proc/driver -type f | sort; \
                    env | grep -E '^(CUDA|NVIDIA)_' | sort; grep Minor proc/driver/nvidia/gpus/*/information";

/// What a plan has beyond that of the same policy without GPUs.
fn gives(place: &Place, wish: &str) -> String {
    let policy = place.site.policy("");
    let plan = |flags: &[&str]| {
        let words = ["plan", policy.to_str().unwrap()].into_iter().chain(flags.iter().copied());
        let ended = place.site.airlock_where_root_did(&place.script, words.chain(["--", "true"]));
        let plan = ended.succeeded().stdout;
        // Without its number, and without numbers of mounts.
        let lines = plan.lines().filter_map(|line| Some(line.trim_start().split_once("  ")?.1.trim()));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let before: BTreeSet<String> = plan(&[]).into_iter().collect();
    let new = plan(&["--gpus", wish]).into_iter().filter(|line| !before.contains(line));
    let of_gpus = new.filter(|line| line.starts_with("gpu ") || line.starts_with("devices "));
    of_gpus.fold(String::new(), |text, line| text + &line + "\n")
}

fn snapshot(scenario: &str, shown: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/gpu_pass/scenarios/{scenario}.txt"));
    if std::env::var_os("AIRLOCK_BLESS").is_some() {
        std::fs::write(&file, shown).unwrap();
    }
    assert_eq!(shown, std::fs::read_to_string(&file).unwrap_or_default(), "{scenario}\n{shown}");
}

/// Numbers that a kernel gives out are written as words; mounts have numbers that depend on the host's other mounts.
fn named(place: &Place, text: &str) -> String {
    let (uvm, caps) = (place.gpus.uvm_major(), place.gpus.caps_major());
    let mount = |word: &str| {
        let end = word.strip_prefix('m')?.trim_start_matches(|digit: char| digit.is_ascii_digit());
        (end.is_empty() || end.starts_with(':')).then(|| format!("m{end}"))
    };
    let line = |line: &str| {
        let words = line.split(' ').map(|word| mount(word).unwrap_or_else(|| word.to_owned()));
        words.collect::<Vec<_>>().join(" ") + "\n"
    };
    let text: String = text.lines().map(line).collect();
    text.replace(&format!("{uvm}:"), "UVM:").replace(&format!("{caps}:"), "CAPS:")
}

#[test]
fn each_host_gives_what_is_written_down() {
    if Site::root().is_none() {
        skip!("an ordinary user's plan has the host's own nodes");
    }
    for (scenario, wish) in [
        ("eight", "2"),
        ("bridged", "2"),
        ("mig", "1g.10gb"),
        ("mixed", "H100,L4"),
        ("busy", "1"),
        ("lost", "1"),
        ("ecc", "1"),
    ] {
        let place = match Place::new(scenario) {
            Ok(place) => place,
            Err(why) => skip!("{why}"),
        };
        let mut shown = format!("--gpus {wish}\n\n{}\n", named(&place, &gives(&place, wish)));
        let _ = write!(shown, "{}", place.run(wish, "").end(["/bin/sh", "-c", LOOK]).stdout);
        snapshot(scenario, &shown);
    }
}

/// `hang` is another test's, for it takes half a minute.
#[test]
fn a_host_whose_driver_does_not_answer_gives_nothing() {
    for scenario in ["mismatch", "not-loaded", "no-permission", "crash"] {
        let place = match Place::new(scenario) {
            Ok(place) => place,
            Err(why) => skip!("{why}"),
        };
        let policy = place.site.policy("[gpu]\ncount = 1\n");
        let run = place.site.run().policy(policy).where_root_did(&place.script);
        let ended = run.end(["/bin/true"]).refused(&[]);
        snapshot(scenario, ended.stderr.lines().next().unwrap_or_default());
    }
}
