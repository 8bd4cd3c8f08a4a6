//! Compiles what the tests have in C: the probe, whose actions the denial tests try inside and outside, the shortest
//! program, whose start the benchmark measures, and the stand-in for NVIDIA's library.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Libraries of NVIDIA's driver that have nothing but their names.
const STUBS: [&str; 3] = ["libcuda.so.1", "libnvidia-ptxjitcompiler.so.1", "libnvidia-glcore.so.1"];

fn main() {
    let [folder, target] = ["CARGO_MANIFEST_DIR", "OUT_DIR"].map(|name| match std::env::var(name) {
        Ok(folder) => PathBuf::from(folder),
        Err(error) => panic!("cargo sets {name}: {error}"),
    });
    println!("cargo::rerun-if-changed=probe");
    println!("cargo::rerun-if-changed=bench/true.c");
    println!("cargo::rerun-if-changed=fakes/nvml");
    let probe =
        ["main.c", "files.c", "ipc.c", "kernel.c", "life.c"].map(|name| folder.join("probe").join(name));
    compile(&["-static", "-pthread"], &probe, &target.join("probe"));
    compile(&["-static", "-nostdlib"], &[folder.join("bench/true.c")], &target.join("true"));
    let nvml = ["nvml.c", "json.c"].map(|name| folder.join("fakes/nvml").join(name));
    library(&nvml, &target, "libnvidia-ml.so.1");
    compile(&["-ldl"], &[folder.join("fakes/nvml/count.c")], &target.join("nvml-count"));
    STUBS.iter().for_each(|name| library(&[folder.join("fakes/nvml/stub.c")], &target, name));
}

/// A shared library that shows its public calls only.
fn library(sources: &[PathBuf], folder: &Path, soname: &str) {
    let soname_flag = format!("-Wl,-soname,{soname}");
    compile(&["-shared", "-fPIC", "-fvisibility=hidden", &soname_flag], sources, &folder.join(soname));
}

fn compile(flags: &[&str], sources: &[PathBuf], target: &Path) {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let mut command = Command::new(&compiler);
    command.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]).args(flags);
    command.arg("-o").arg(target).args(sources);
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{compiler} could not make {}: {status}", target.display()),
        Err(error) => panic!("the tests need a C compiler; {compiler}: {error}"),
    }
}
