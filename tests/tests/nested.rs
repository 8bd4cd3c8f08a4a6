//! Airlock inside of another sandbox: it works there, or says what hinders it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use airlock_tests::{Ended, Run, Site, record_refusal, skip};

#[test]
fn inside_airlock_the_surrounding_filter_is_named() {
    let site = Site::new();
    let inner = |clauses: &str| {
        let program = site.path("bin");
        let clauses = format!(
            "{clauses}\n[env]\nset = {{ XDG_RUNTIME_DIR = \"/tmp\" }}\n\
             [[mount]]\nsource = \"{}\"\ntarget = \"/inner\"\nexec = true\n",
            program.display()
        );
        let words = ["/inner/airlock", "run", "--best-effort", "limits,devices", "--", "true"];
        site.run().policy(site.policy(&clauses)).end(words)
    };
    for clauses in ["", "nesting = true"] {
        let ended = inner(clauses).refused(&["clone init", "a surrounding seccomp filter hides clone3"]);
        record_refusal("inside Airlock", &ended.stderr);
    }
    // Without the filter the next layer is named.
    inner("nesting = true\nseccomp = { profile = \"none\" }").refused(&["/proc", "partly covered"]);
}

/// runc by way of a script that drops the resource limits from its document: podman 4 raises the one of processes
/// beyond what a root without CAP_SYS_RESOURCE may set.
const RUNTIME: &str = r#"#!/usr/bin/python3
import json, os, sys
words = sys.argv[1:]
if "create" in words:
    path = words[words.index("--bundle") + 1] + "/config.json"
    with open(path) as file:
        document = json.load(file)
    document["process"].pop("rlimits", None)
    with open(path, "w") as file:
        json.dump(document, file)
os.execv("/usr/sbin/runc", ["runc"] + words)
"#;

/// podman with storage, runtime and cgroups of the site's own, and this host's own tree as the container's root.
struct Podman<'a> {
    site: &'a Site,
    words: Vec<String>,
    /// Not in the site's directory, which containers have as a volume: a container that saw its own root there would
    /// see its /proc as it was before it was masked.
    _storage: tempfile::TempDir,
}

impl Podman<'_> {
    fn new(site: &Site) -> Podman<'_> {
        let runtime = site.file("runc", RUNTIME);
        fs::set_permissions(&runtime, fs::Permissions::from_mode(0o755)).unwrap();
        let storage = tempfile::Builder::new().prefix("airlock-test-").tempdir_in("/tmp").unwrap();
        let place = |name: &str| storage.path().join(name).display().to_string();
        let folder = site.path("").display().to_string();
        let folder = folder.trim_end_matches('/');
        let parent = site.cgroups().map(|parent| parent.name().to_owned()).unwrap_or_default();
        let words = format!(
            "--root {} --runroot {} --tmpdir {} --cgroup-manager cgroupfs --events-backend none --runtime {} run --rm \
             --log-driver none --network none --cgroup-parent {parent} --tmpfs /xdg:mode=1777 \
             --env XDG_RUNTIME_DIR=/xdg --volume {folder}:{folder}",
            place("pods"),
            place("running"),
            place("state"),
            runtime.display(),
        );
        Podman { site, words: words.split_whitespace().map(String::from).collect(), _storage: storage }
    }

    /// Runs Airlock in a container with these flags.
    fn end(&self, flags: &[&str], run: Run<'_>) -> Ended {
        let words: Vec<&str> = self.words.iter().map(String::as_str).chain(flags.iter().copied()).collect();
        let ended = run.in_program("podman", &[&words[..], &["--rootfs", "/:O"]].concat()).end(["true"]);
        // conmon's cgroups stay.
        if let Some(parent) = self.site.cgroups() {
            parent.clear();
        }
        ended
    }
}

/// podman's defaults are a masked /proc and a filter that goes by the container's capabilities; podman shows no
/// writable cgroups but to a privileged container.
#[test]
fn inside_podman_what_hinders_is_named_and_the_remedy_helps() {
    let Some(site) = Site::root() else { skip!("podman is started by root here") };
    for program in ["podman", "/usr/sbin/runc"] {
        if Command::new(program).arg("--version").output().is_err() {
            skip!("{program} is not installed");
        }
    }
    let podman = Podman::new(&site);
    let lowered = || site.run_without_parent().policy("base").flag("--best-effort", "limits,devices");
    let (whole, capable) = (["--security-opt", "unmask=ALL"], ["--cap-add", "SYS_ADMIN"]);
    let remedies = ["unmask=ALL", "--cap-add SYS_ADMIN"];
    podman.end(&[], lowered()).refused(&remedies);
    for (lack, flags, cause) in [
        ("inside podman, its filter", whole, "a surrounding seccomp filter"),
        ("inside podman, its /proc", capable, "the visible one is partly covered"),
    ] {
        let ended = podman.end(&flags, lowered()).refused(&remedies).refused(&[cause]);
        record_refusal(lack, &ended.stderr);
    }
    podman.end(&[whole, capable].concat(), lowered()).succeeded();
    let privileged = podman.end(&["--privileged"], site.run_without_parent().policy(site.policy("")));
    let report = privileged.succeeded();
    assert!(
        report.report().field("enforced").to_string().contains("in control group "),
        "{}",
        report.report()
    );
}
