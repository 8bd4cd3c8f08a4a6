//! The target that the program is named after, for libFuzzer.
#![no_main]

use airlock_tests::fuzz::{Meter, Target};

#[global_allocator]
static METER: Meter = Meter;

libfuzzer_sys::fuzz_target!(|data: &[u8]| Target::named(env!("CARGO_BIN_NAME")).run(data));
