//! Other launchers, with the same probes: bubblewrap, podman, and OCI runtimes.

mod oci;
mod podman;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use airlock_runtime::probe::{Kit, Outcome, Runner};
use anyhow::{Context, Result, bail};

use crate::audit_live_args::{Launcher, ProbeArgs};

/// Another launcher.
pub(super) enum Peer {
    /// bubblewrap with every namespace of its own and the host's programs read-only, as its manual shows.
    Bubblewrap,
    /// podman with its own defaults and an empty root.
    Podman,
    /// An OCI runtime with a bundle, or with the document of its own `spec` command.
    Oci { runtime: String, bundle: Option<PathBuf> },
}

type Outcomes = BTreeMap<&'static str, Outcome>;

impl Peer {
    pub(super) fn all(args: &ProbeArgs) -> Result<Vec<Peer>> {
        let bundle = args.bundle.as_ref().map(fs::canonicalize).transpose().context("--bundle")?;
        let under = args.under.iter().map(|launcher| match launcher {
            Launcher::Bwrap => Peer::Bubblewrap,
            Launcher::Podman => Peer::Podman,
        });
        let runtimes = args
            .runtimes
            .iter()
            .map(|runtime| Peer::Oci { runtime: runtime.clone(), bundle: bundle.clone() });
        let peers: Vec<Peer> = under.chain(runtimes).collect();
        peers.iter().try_for_each(|peer| installed(peer.program()))?;
        Ok(peers)
    }

    fn program(&self) -> &str {
        match self {
            Peer::Bubblewrap => "bwrap",
            Peer::Podman => "podman",
            Peer::Oci { runtime, .. } => runtime,
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Peer::Oci { runtime, bundle: Some(bundle) } => format!("{runtime} of {}", bundle.display()),
            other => other.program().to_owned(),
        }
    }

    pub(super) fn run(&self, runner: &Runner) -> Result<Outcomes> {
        match self {
            Peer::Bubblewrap => Ok(runner.under(bubblewrap(runner.kit()))?),
            Peer::Podman => podman::run(runner),
            Peer::Oci { runtime, bundle } => oci::run(runtime, bundle.as_deref(), runner),
        }
    }
}

fn bubblewrap(kit: &Kit) -> Command {
    let mut command = Command::new("bwrap");
    command.args(["--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]);
    command.args(["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]);
    for link in ["bin", "sbin", "lib", "lib64"] {
        command.args(["--symlink", &format!("usr/{link}"), &format!("/{link}")]);
    }
    for path in [kit.bin(), kit.data()] {
        command.arg("--ro-bind").arg(&path).arg(&path);
    }
    command.arg("--").arg(kit.program());
    command
}

/// Checks that a launcher can be started, before anything is tried.
fn installed(launcher: &str) -> Result<()> {
    let there = if launcher.contains('/') {
        Path::new(launcher).is_file()
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|directory| directory.join(launcher).is_file())
    };
    if !there {
        bail!("{launcher}: no such program is here; install it, or leave it out of the comparison");
    }
    Ok(())
}

/// A directory that goes with its owner.
struct Folder(PathBuf);

impl Folder {
    /// Below /tmp, with an empty root file system in it.
    fn new(name: &str) -> Result<Folder> {
        let folder = Folder(Path::new("/tmp").join(name));
        fs::create_dir(&folder.0).with_context(|| format!("the directory {}", folder.0.display()))?;
        fs::create_dir(folder.0.join("rootfs"))?;
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is left under a name that says what it was.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The mount point of the version 2 tree of a host that has both versions of control groups.
fn unified() -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let unified = mounts.lines().find(|line| line.contains(" - cgroup2 "))?.split(' ').nth(4)?;
    mounts.contains(" - cgroup ").then(|| unified.to_owned())
}
