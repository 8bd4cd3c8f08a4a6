//! Compiles the probe: the static C program whose actions the denial tests try inside and outside.

use std::path::Path;
use std::process::Command;

const SOURCES: [&str; 5] = ["main.c", "files.c", "ipc.c", "kernel.c", "life.c"];

fn main() {
    let [folder, target] = ["CARGO_MANIFEST_DIR", "OUT_DIR"].map(|name| match std::env::var(name) {
        Ok(folder) => Path::new(&folder).join("probe"),
        Err(error) => panic!("cargo sets {name}: {error}"),
    });
    println!("cargo::rerun-if-changed=probe");

    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(&compiler)
        .args([
            "-static",
            "-std=gnu11",
            "-O1",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pthread",
            "-o",
        ])
        .arg(&target)
        .args(SOURCES.map(|source| folder.join(source)))
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{compiler} could not compile the probe: {status}"),
        Err(error) => panic!("the probe needs a C compiler; {compiler}: {error}"),
    }
}
