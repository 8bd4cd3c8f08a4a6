//! Compiles the two C programs of the tests: the probe, whose actions the denial tests try inside and outside,
//! and the shortest program, whose start the benchmark measures.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let [folder, target] = ["CARGO_MANIFEST_DIR", "OUT_DIR"].map(|name| match std::env::var(name) {
        Ok(folder) => PathBuf::from(folder),
        Err(error) => panic!("cargo sets {name}: {error}"),
    });
    println!("cargo::rerun-if-changed=probe");
    println!("cargo::rerun-if-changed=bench/true.c");
    let probe =
        ["main.c", "files.c", "ipc.c", "kernel.c", "life.c"].map(|name| folder.join("probe").join(name));
    compile(&["-pthread"], &probe, &target.join("probe"));
    compile(&["-nostdlib"], &[folder.join("bench/true.c")], &target.join("true"));
}

fn compile(flags: &[&str], sources: &[PathBuf], target: &Path) {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut command = Command::new(&compiler);
    command.args(["-static", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]).args(flags);
    command.arg("-o").arg(target).args(sources);
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{compiler} could not make {}: {status}", target.display()),
        Err(error) => panic!("the tests need a C compiler; {compiler}: {error}"),
    }
}
