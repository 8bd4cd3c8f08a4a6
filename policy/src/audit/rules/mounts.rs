//! What of the host is mounted, and how mounts spread.

use super::super::document::{Mount, below};
use super::super::rule::{Area, Check, Rule, Severity};

/// Trees of the host that hold what belongs to somebody, or to everybody.
const WHOLE: [&str; 11] =
    ["/", "/boot", "/etc", "/home", "/root", "/var", "/var/lib", "/var/log", "/mnt", "/media", "/srv"];

/// Sockets whose listener does as root what it is told.
const ENGINES: [&str; 8] = [
    "docker.sock",
    "containerd.sock",
    "crio.sock",
    "podman.sock",
    "buildkitd.sock",
    "system_bus_socket",
    "/run/systemd/private",
    "/run/systemd/notify",
];

/// Directories in which services have their sockets.
const SOCKETS: [&str; 7] =
    ["/run", "/var/run", "/run/systemd", "/run/dbus", "/run/docker", "/run/containerd", "/run/user"];

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "AL030",
        area: Area::Mounts,
        severity: Severity::High,
        title: "a whole tree of the host",
        why: "settings, logs, keys and data of everyone on the host are in it, readable even where it is read-only",
        reference: "greywall#55, greywall#32",
        remedy: "mount the directory that is needed",
        check: Check::Sandbox(|subject, hits| {
            for mount in subject.document().mounts().filter(Mount::is_bind) {
                if WHOLE.contains(&trimmed(mount.source)) {
                    hits.member(format!("{}/source", mount.at), format!("the host's {}", mount.source));
                }
            }
        }),
    },
    Rule {
        id: "AL031",
        area: Area::Mounts,
        severity: Severity::High,
        title: "the socket of a container engine or of the service manager",
        why: "whoever connects to it starts processes on the host as root; read-only does not hinder connecting",
        reference: "greywall#55, landrun#43",
        remedy: "leave it out",
        check: Check::Sandbox(|subject, hits| {
            for mount in subject.document().mounts().filter(Mount::is_bind) {
                if ENGINES.iter().any(|engine| mount.source.ends_with(engine)) {
                    hits.member(format!("{}/source", mount.at), format!("{} is in reach", mount.source));
                }
            }
        }),
    },
    Rule {
        id: "AL032",
        area: Area::Mounts,
        severity: Severity::Medium,
        title: "a socket of the host",
        why: "what listens on it does work outside for the code inside, and is as trusted as its parser is",
        reference: "landrun#43, greywall#32",
        remedy: "mount a socket that serves this sandbox alone, or none",
        check: Check::Sandbox(|subject, hits| {
            for mount in subject.document().mounts().filter(Mount::is_bind) {
                let source = trimmed(mount.source);
                let socket = mount.has("socket") || source.ends_with(".sock") || source.ends_with(".socket");
                let user = source.strip_prefix("/run/user/").is_some_and(|rest| !rest.contains('/'));
                let engine = ENGINES.iter().any(|engine| source.ends_with(engine));
                if (socket || user || SOCKETS.contains(&source)) && !engine {
                    hits.member(format!("{}/source", mount.at), format!("{source} is in reach"));
                }
            }
        }),
    },
    Rule {
        id: "AL033",
        area: Area::Mounts,
        severity: Severity::Low,
        title: "set-user-ID files and device nodes of a mount count",
        why: "a node or a set-user-ID program in the mounted tree keeps its meaning inside",
        reference: "mount(8), nvidia-docker#1405",
        remedy: "mount it with `nosuid` and `nodev`",
        check: Check::Sandbox(|subject, hits| {
            for mount in subject.document().mounts().filter(Mount::is_bind) {
                let kernel = below(mount.source, "/dev")
                    || below(mount.source, "/sys")
                    || below(mount.source, "/proc");
                let lacks: Vec<&str> =
                    ["nosuid", "nodev"].into_iter().filter(|option| !mount.has(option)).collect();
                if !lacks.is_empty() && !kernel {
                    hits.member(mount.at.clone(), format!("{} has no {}", mount.target, lacks.join(", no ")));
                }
            }
        }),
    },
    Rule {
        id: "AL034",
        area: Area::Mounts,
        severity: Severity::High,
        title: "mounts spread to the host",
        why: "with shared propagation a mount made inside appears on the host, over whatever lies there",
        reference: "mount_namespaces(7), youki#3621",
        remedy: "`private`, `rprivate`, or leave it out",
        check: Check::Sandbox(|subject, hits| {
            let document = subject.document();
            if matches!(document.text("/linux/rootfsPropagation"), "shared" | "rshared") {
                hits.member("/linux/rootfsPropagation", document.text("/linux/rootfsPropagation"));
            }
            for mount in document.mounts().filter(|mount| mount.has("shared")) {
                hits.member(mount.at.clone(), format!("{} is shared", mount.target));
            }
        }),
    },
    Rule {
        id: "AL035",
        area: Area::Mounts,
        severity: Severity::Low,
        title: "the host's mounts appear inside",
        why: "what the host mounts later below it is seen inside without anybody having asked for that",
        reference: "mount_namespaces(7)",
        remedy: "`private` or `rprivate`",
        check: Check::Sandbox(|subject, hits| {
            let document = subject.document();
            if matches!(document.text("/linux/rootfsPropagation"), "slave" | "rslave") {
                hits.member("/linux/rootfsPropagation", document.text("/linux/rootfsPropagation"));
            }
            for mount in document.mounts().filter(|mount| mount.has("slave")) {
                hits.member(mount.at.clone(), format!("{} follows the host", mount.target));
            }
        }),
    },
    Rule {
        id: "AL036",
        area: Area::Mounts,
        severity: Severity::Low,
        title: "hooks run programs on the host",
        why: "hooks run outside, mostly as root, with what the container's author could name; some took the \
              container's environment with them",
        reference: "CVE-2025-23266",
        remedy: "leave hooks to the engine, with absolute paths, an empty environment and nothing of the image",
        check: Check::Sandbox(|subject, hits| {
            for kind in
                ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"]
            {
                for (at, hook) in subject.document().items(&format!("/hooks/{kind}")) {
                    hits.member(at, format!("{kind} runs {}", hook["path"].as_str().unwrap_or_default()));
                }
            }
        }),
    },
];

/// A path without the slash at its end.
fn trimmed(path: &str) -> &str {
    match path.trim_end_matches('/') {
        "" if !path.is_empty() => "/",
        path => path,
    }
}
