//! OCI runtimes, with a bundle or with the document that they write themselves.

use std::fs;
use std::path::Path;
use std::process::Command;

use airlock_runtime::probe::{Runner, answers, unlimited};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{Folder, Outcomes, unified};

pub(super) fn run(runtime: &str, bundle: Option<&Path>, runner: &Runner) -> Result<Outcomes> {
    let kit = runner.kit();
    let name = format!("airlock-audit-oci-{}", std::process::id());
    let folder = Folder::new(&name)?;
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
            let made = spec.output().with_context(|| format!("starting `{runtime} spec`"))?;
            if !made.status.success() {
                let said = String::from_utf8_lossy(&made.stderr);
                bail!(
                    "`{runtime} spec`, which writes a runtime's own document, {}: {}",
                    made.status,
                    said.trim()
                );
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
    let ended =
        command.stdin(std::process::Stdio::null()).output().with_context(|| format!("starting {runtime}"))?;
    // A container whose start failed may be there still.
    let _ = Command::new(runtime).arg("--root").arg(&state).args(["delete", "--force", &name]).output();
    if !ended.status.success() {
        bail!("{runtime}: {}: {}", ended.status, String::from_utf8_lossy(&ended.stderr));
    }
    Ok(answers(&String::from_utf8_lossy(&ended.stdout)))
}

/// crun refuses a host of both versions, so it runs in a mount namespace without the version 2 tree there.
fn without_unified(runtime: &str) -> Command {
    let is_crun = Path::new(runtime).file_name().is_some_and(|name| name == "crun");
    let Some(unified) = unified().filter(|_| is_crun) else { return Command::new(runtime) };
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", "umount \"$0\" && exec \"$@\""]);
    command.arg(unified).arg(runtime);
    command
}
