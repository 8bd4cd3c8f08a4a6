//! Builds `airlock-nvml`, the helper that asks NVIDIA's library, for this crate to carry inside.
//!
//! Airlock is linked statically (`.cargo/config.toml`), and a static glibc program cannot load a library safely. Cargo
//! has no way to link one program of a workspace otherwise than the rest, so the helper is built by a cargo of its own
//! with other flags, in a target directory of its own, with the workspace's lock file.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Set by the cargo that runs this script for its own crates.
const OTHERS: [&str; 4] =
    ["RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_RUSTFLAGS", "RUSTFLAGS", "__CARGO_FIX_PLZ"];

fn main() {
    let [cargo, folder, out, target] = ["CARGO", "CARGO_MANIFEST_DIR", "OUT_DIR", "TARGET"].map(variable);
    println!("cargo::rerun-if-changed=build.rs");
    for path in ["nvml", "src/gpu/facts.rs", "src/gpu/wire.rs", "../Cargo.lock", "../Cargo.toml"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let built = Path::new(&out).join("nvml");
    let mut command = Command::new(cargo);
    command.current_dir(Path::new(&folder).join("nvml"));
    command.args(["build", "--release", "--locked", "--quiet", "--package", "airlock-nvml"]);
    command.args(["--target", &target, "--target-dir"]).arg(&built);
    for name in OTHERS {
        command.env_remove(name);
    }
    command.env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=-crt-static");
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("building airlock-nvml: cargo ended with {status}"),
        Err(error) => panic!("building airlock-nvml: starting cargo: {error}"),
    }
    let program: PathBuf =
        [built.as_path(), Path::new(&target), Path::new("release/airlock-nvml")].iter().collect();
    println!("cargo::rustc-env=AIRLOCK_NVML={}", program.display());
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|error| panic!("cargo sets {name}: {error}"))
}
