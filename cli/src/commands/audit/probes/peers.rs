//! Other launchers, with the same probes: bubblewrap, and OCI runtimes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use airlock_runtime::probe::{Kit, Outcome, Runner, answers, unlimited};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::audit_live_args::{Launcher, ProbeArgs};

/// Another launcher.
pub(super) enum Peer {
    /// bubblewrap with every namespace of its own and the host's programs read-only, as its manual shows.
    Bubblewrap,
    /// An OCI runtime with a bundle, or with the document of its own `spec` command.
    Oci { runtime: String, bundle: Option<PathBuf> },
}

type Outcomes = BTreeMap<&'static str, Outcome>;

impl Peer {
    pub(super) fn of(args: &ProbeArgs) -> Result<Option<Peer>> {
        Ok(match (&args.under, &args.runtime) {
            (Some(Launcher::Bwrap), None) => Some(Peer::Bubblewrap),
            (None, Some(runtime)) => {
                let bundle = args.bundle.as_ref().map(fs::canonicalize).transpose();
                let bundle = bundle.context("--bundle")?;
                Some(Peer::Oci { runtime: runtime.clone(), bundle })
            }
            (None, None) => None,
            (Some(_), Some(_)) => {
                bail!("--under and --runtime name two launchers; one is compared at a time")
            }
        })
    }

    pub(super) fn name(&self) -> String {
        match self {
            Peer::Bubblewrap => "bwrap".into(),
            Peer::Oci { runtime, bundle: None } => runtime.clone(),
            Peer::Oci { runtime, bundle: Some(bundle) } => format!("{runtime} of {}", bundle.display()),
        }
    }

    pub(super) fn run(&self, runner: &Runner) -> Result<Outcomes> {
        match self {
            Peer::Bubblewrap => Ok(runner.under(bubblewrap(runner.kit()))?),
            Peer::Oci { runtime, bundle } => oci(runtime, bundle.as_deref(), runner),
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

/// A directory that goes with its owner.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is left under a name that says what it was.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn oci(runtime: &str, bundle: Option<&Path>, runner: &Runner) -> Result<Outcomes> {
    let kit = runner.kit();
    let name = format!("airlock-audit-oci-{}", std::process::id());
    let folder = Folder(Path::new("/tmp").join(&name));
    fs::create_dir(&folder.0).with_context(|| format!("the directory {}", folder.0.display()))?;
    fs::create_dir(folder.0.join("rootfs"))?;
    let root = airlock_runtime::host::is_root();
    let mut document: Value = match bundle {
        Some(bundle) => {
            let path = bundle.join("config.json");
            let text = fs::read(&path).with_context(|| path.display().to_string())?;
            serde_json::from_slice(&text).with_context(|| path.display().to_string())?
        }
        None => {
            let mut spec = Command::new(runtime);
            spec.arg("spec").args((!root).then_some("--rootless")).current_dir(&folder.0);
            let made = spec.output().with_context(|| format!("{runtime} spec"))?;
            if !made.status.success() {
                bail!("{runtime} spec: {}", String::from_utf8_lossy(&made.stderr));
            }
            serde_json::from_slice(&fs::read(folder.0.join("config.json"))?)?
        }
    };
    if let Some(bundle) = bundle {
        let path = document["root"]["path"].as_str().unwrap_or("rootfs").to_owned();
        document["root"]["path"] = json!(bundle.join(path));
    }
    document["process"]["terminal"] = json!(false);
    let orders = unlimited().map(|probe| json!(kit.order(probe)));
    let program = json!(kit.program());
    document["process"]["args"] = std::iter::once(program).chain(orders).collect();
    if root {
        document["linux"]["cgroupsPath"] = json!(format!("/{name}"));
    }
    let mounts = document["mounts"].as_array_mut().context("config.json has no mounts")?;
    // An image has a /tmp; a runtime's own document has none.
    if bundle.is_none() {
        let options = ["nosuid", "nodev", "mode=1777"];
        mounts.push(json!({ "destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": options }));
    }
    for path in [kit.bin(), kit.data()] {
        mounts
            .push(json!({ "destination": path, "source": path, "type": "bind", "options": ["rbind", "ro"] }));
    }
    fs::write(folder.0.join("config.json"), serde_json::to_vec(&document)?)?;
    let state = folder.0.join("state");
    let mut command = without_unified(runtime);
    command.arg("--root").arg(&state).arg("run").arg("--bundle").arg(&folder.0).arg(&name);
    // The orders are in the document.
    let ended = command.stdin(std::process::Stdio::null()).output().with_context(|| runtime.to_owned())?;
    // A container whose start failed may be there still.
    let _ = Command::new(runtime).arg("--root").arg(&state).args(["delete", "--force", &name]).output();
    if !ended.status.success() {
        bail!("{runtime}: {}: {}", ended.status, String::from_utf8_lossy(&ended.stderr));
    }
    Ok(answers(&String::from_utf8_lossy(&ended.stdout)))
}

/// crun refuses a hybrid host, so it runs in a mount namespace without the version 2 tree there.
fn without_unified(runtime: &str) -> Command {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let unified =
        mounts.lines().find(|line| line.contains(" - cgroup2 ")).and_then(|line| line.split(' ').nth(4));
    let is_crun = Path::new(runtime).file_name().is_some_and(|name| name == "crun");
    match unified {
        Some(unified) if is_crun && mounts.contains(" - cgroup ") => {
            let mut command = Command::new("unshare");
            command.args([
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-c",
                "umount \"$0\" && exec \"$@\"",
                unified,
            ]);
            command.arg(runtime);
            command
        }
        _ => Command::new(runtime),
    }
}
