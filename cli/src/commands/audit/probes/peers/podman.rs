//! podman, with what it does by itself.

use std::fs;
use std::path::Path;
use std::process::Command;

use airlock_runtime::probe::Runner;
use anyhow::Result;

use super::{Folder, Outcomes, unified};

/// A container of an empty root file system, with podman's own capabilities, filter, masks and mounts. Its state is
/// kept apart and goes with the audit. Three things are asked for: no network, since podman's bridge changes the
/// host's firewall; the caller's own limits, since raising them takes CAP_SYS_RESOURCE; and runc on a host of both
/// versions of control groups, which crun refuses.
pub(super) fn run(runner: &Runner) -> Result<Outcomes> {
    let kit = runner.kit();
    let name = format!("airlock-audit-podman-{}", std::process::id());
    let folder = Folder::new(&name)?;
    fs::write(folder.0.join(SETTINGS), "[containers]\ndefault_ulimits = []\n")?;
    let mut command = podman(&folder.0);
    if unified().is_some() {
        command.args(["--runtime", "runc"]);
    }
    command.args(["run", "--rm", "--name", &name, "--network", "none", "--ulimit", "host"]);
    if airlock_runtime::host::is_root() {
        command.args(["--cgroup-parent", &format!("/{name}")]);
    }
    for path in [kit.bin(), kit.data()] {
        command.arg("--volume").arg(format!("{0}:{0}:ro", path.display()));
    }
    command.arg("--rootfs").arg(folder.0.join("rootfs")).arg(kit.program());
    let outcomes = runner.under(command);
    // A container whose start failed may be there still.
    let _ = podman(&folder.0).args(["rm", "--force", "--ignore", &name]).output();
    if airlock_runtime::host::is_root() {
        forget(&name);
    } else {
        // Of an ordinary user podman leaves a process that keeps the user namespace; this command ends it, and with
        // a `--tmpdir` of its own no other audit's and not the user's own.
        let _ = podman(&folder.0).args(["system", "migrate"]).output();
    }
    Ok(outcomes?)
}

/// In place of the host's containers.conf(5): podman 4.3 sets limits of its own even with `--ulimit host`.
const SETTINGS: &str = "containers.conf";

fn podman(folder: &Path) -> Command {
    let mut command = Command::new("podman");
    command.env("CONTAINERS_CONF", folder.join(SETTINGS));
    command.args(["--cgroup-manager", "cgroupfs", "--storage-driver", "vfs"]);
    for (option, part) in [("--root", "storage"), ("--runroot", "run"), ("--tmpdir", "tmp")] {
        command.arg(option).arg(folder.join(part));
    }
    command
}

/// podman leaves the group that holds its containers' groups, in every tree.
fn forget(name: &str) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let trees = mounts.lines().filter(|line| line.contains(" - cgroup"));
    trees.filter_map(|line| line.split(' ').nth(4)).for_each(|tree| remove(&Path::new(tree).join(name)));
}

/// The groups below come first. Only an empty one can be removed, and not every tree has it.
fn remove(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    let _ = fs::remove_dir(group);
}
