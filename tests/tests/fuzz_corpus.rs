//! Every fuzz target over its corpus, and over what becomes of each file of it by small changes: what libFuzzer does
//! for as long as one likes (tests/fuzz), in the time that a test has and on the stable toolchain.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use airlock_tests::fuzz::{GREEDY, Meter, TARGETS, Target, mutants};

#[global_allocator]
static METER: Meter = Meter;

macro_rules! replayed {
    ($($name:ident)*) => {
        const REPLAYED: &[&str] = &[$(stringify!($name)),*];

        $(#[test]
        fn $name() {
            replay(Target::named(stringify!($name)));
        })*
    };
}

replayed! {
    zip safetensors pickle artifact policy oci_config task verdict cdi ldcache filter mountinfo status patch changeset
    protocol journal receipt run_json tree manifest
}

fn replay(target: &Target) {
    let corpus = target.corpus();
    assert!(corpus.len() >= 5, "{}: {} files", target.name, corpus.len());
    for (index, (path, file)) in corpus.iter().enumerate() {
        hold(target, path, file);
        let (_, other) = &corpus[(index + 1) % corpus.len()];
        mutants(file, other).for_each(|mutant| hold(target, path, &mutant));
    }
}

fn hold(target: &Target, path: &Path, data: &[u8]) {
    let held = catch_unwind(AssertUnwindSafe(|| target.run(data)));
    assert!(held.is_ok(), "{}, of {}: b\"{}\"", target.name, path.display(), data.escape_ascii());
}

#[test]
fn every_target_is_replayed_and_can_be_fuzzed() {
    let targets: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(targets, REPLAYED);
    let manifest = include_str!("../fuzz/Cargo.toml");
    let fuzzed: Vec<&str> = manifest
        .lines()
        .filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'))
        .skip(1)
        .collect();
    assert_eq!(fuzzed, targets);
}

/// The limit on memory holds of a program that does not count, too.
#[test]
fn memory_is_counted() {
    assert!(catch_unwind(|| GREEDY.run(&[0; 1 << 10])).is_ok());
    assert!(catch_unwind(|| GREEDY.run(&[0; 1 << 20])).is_err());
}
