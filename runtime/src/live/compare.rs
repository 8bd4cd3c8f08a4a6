//! A process compared with the host, and with a spec.

use oci_spec::runtime::LinuxNamespaceType;
use serde::Serialize;

use super::Live;
use crate::plan::{Namespace, limit_name};
use crate::spec::Spec;

/// Something that a comparison found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The clause that it is about.
    pub clause: &'static str,
    /// In words.
    pub what: String,
    /// It confines less than it might, or less than the policy says.
    pub open: bool,
}

/// File systems by which the host's kernel is steered, where they are writable.
const STEERING: [&str; 8] =
    ["bpf", "cgroup", "cgroup2", "configfs", "debugfs", "securityfs", "sysfs", "tracefs"];
/// Words in names of variables that often hold secrets.
const SECRETS: [&str; 5] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL"];

/// What confines a process, compared with the host, clause by clause.
pub fn exposure(live: &Live) -> Vec<Finding> {
    let mut found = Found(Vec::new());
    for namespace in &live.namespaces {
        let name = namespace.kind.proc_name();
        let words = if namespace.shared { "shares the host's" } else { "has its own" };
        found.add("namespaces", namespace.shared, format!("{words} {name} namespace ({})", namespace.id));
    }
    let root = live.uids.contains(&0);
    let ids = format!("uids on the host {:?}, gids {:?}, groups {:?}", live.uids, live.gids, live.groups);
    found.add("identity.ids", root, ids);
    let effective = live.capabilities.get("effective").map_or(&[][..], |names| names);
    let bounding = live.capabilities.get("bounding").map_or(0, Vec::len);
    let own_user = live.shares(Namespace::User) == Some(false);
    let held = if effective.is_empty() { "none".into() } else { effective.join(" ") };
    let whose = if own_user { "over its own user namespace" } else { "over the host" };
    let capabilities = format!("effective: {held} ({whose}); {bounding} in the bounding set");
    found.add("capabilities.keep", !effective.is_empty() && !own_user, capabilities);
    match live.no_new_privileges {
        Some(set) => {
            found.add("process", !set, format!("no_new_privs is {}", if set { "set" } else { "not set" }))
        }
        None => found.add("process", true, "no_new_privs is not shown".into()),
    }
    let mode = match live.seccomp_mode {
        Some(0) => "no seccomp".into(),
        Some(1) => "seccomp strict".into(),
        Some(2) => match live.seccomp_filters {
            Some(filters) => format!("{filters} seccomp filter(s)"),
            None => "a seccomp filter".into(),
        },
        _ => "seccomp is not shown".into(),
    };
    found.add("seccomp.profile", !matches!(live.seccomp_mode, Some(1 | 2)), mode);
    match live.label.as_deref() {
        None => found.add("lsm", false, "no security module labels it".into()),
        Some("unconfined") => found.add("lsm", true, "AppArmor lets it do everything".into()),
        Some(label) => found.add("lsm", false, format!("label {label}")),
    }
    for mount in &live.mounts {
        if STEERING.contains(&&*mount.kind) && !mount.has("ro") {
            found.add("root", true, format!("{} is a writable {}", mount.target, mount.kind));
        }
        if mount.propagates && live.shares(Namespace::Mount) == Some(false) {
            found.add("root", true, format!("{} exchanges mount events with the host", mount.target));
        }
    }
    for descriptor in live.descriptors.iter().filter(|descriptor| descriptor.outside) {
        let what = if descriptor.directory { "is a directory" } else { "lies" };
        let words =
            format!("descriptor {} {what} outside of its mounts: {}", descriptor.number, descriptor.target);
        found.add("process", descriptor.directory, words);
    }
    for (file, what) in [("memory", "memory"), ("pids", "number of processes")] {
        found.limits(live, file, what);
    }
    for name in &live.environment {
        let upper = name.to_uppercase();
        if SECRETS.iter().any(|word| upper.contains(word)) {
            found.add("env", true, format!("the name of {name} is that of a secret"));
        }
    }
    found.0
}

/// What a process should have by a spec, and has or has not. A clause that the kernel does not show is left out; see
/// [`Live::unseen`].
pub fn against(live: &Live, spec: &Spec) -> Vec<Finding> {
    let mut found = Found(Vec::new());
    let linux = spec.oci.linux().as_ref();
    let process = spec.oci.process().as_ref();
    for namespace in linux.and_then(|linux| linux.namespaces().as_ref()).into_iter().flatten() {
        let Some(kind) = kind(namespace.typ()) else { continue };
        if let Some(shared) = live.shares(kind) {
            let words = if shared { "is the host's" } else { "is its own" };
            found.add("namespaces", shared, format!("{} namespace {words}", kind.proc_name()));
        }
    }
    let kept = process.and_then(|process| process.capabilities().as_ref()?.permitted().as_ref());
    let kept: Vec<String> = kept.into_iter().flatten().map(|one| format!("CAP_{one}")).collect();
    for (set, names) in &live.capabilities {
        let more: Vec<&str> = names.iter().filter(|name| !kept.contains(name)).map(String::as_str).collect();
        let words = if more.is_empty() {
            "as the policy says".into()
        } else {
            format!("has {} more", more.join(" "))
        };
        found.add("capabilities.keep", !more.is_empty(), format!("{set} set {words}"));
    }
    if process.and_then(oci_spec::runtime::Process::no_new_privileges) == Some(true) {
        let set = live.no_new_privileges == Some(true);
        found.add("process", !set, format!("no_new_privs is {}", if set { "set" } else { "not set" }));
    }
    if linux.is_some_and(|linux| linux.seccomp().is_some()) {
        let filtered = live.seccomp_mode == Some(2);
        found.add(
            "seccomp.profile",
            !filtered,
            if filtered { "is filtered" } else { "is not filtered" }.into(),
        );
    }
    for limit in process.and_then(|process| process.rlimits().as_ref()).into_iter().flatten() {
        let name = limit_name(crate::plan::rlimit_number(limit.typ()));
        let line = live.limits.iter().find(|[found, ..]| Some(found.as_str()) == name);
        if let Some([name, _, hard]) = line {
            let wider = hard.parse::<u64>().map_or(hard == "unlimited", |hard| hard > limit.hard());
            found.add("limits", wider, format!("{name}: {hard}, by the policy {}", limit.hard()));
        }
    }
    let resources = linux.and_then(|linux| linux.resources().as_ref());
    let memory = resources.and_then(|resources| resources.memory().as_ref()?.limit());
    let pids =
        resources.and_then(|resources| resources.pids().as_ref()).map(oci_spec::runtime::LinuxPids::limit);
    for (wanted, files, what) in [
        (memory, ["memory.max", "memory.limit_in_bytes"], "memory"),
        (pids, ["pids.max", "pids.max"], "processes"),
    ] {
        let Some(wanted) = wanted else { continue };
        let mut settings = live.cgroups.iter().flat_map(|group| &group.settings);
        let setting = settings.find(|setting| files.contains(&&*setting.file));
        let value = setting.map_or("without a limit", |setting| &setting.value);
        let holds = value.parse::<i64>().is_ok_and(|value| value <= wanted);
        found.add("limits", !holds, format!("{what}: {value}, by the policy {wanted}"));
    }
    found.0
}

fn kind(of: LinuxNamespaceType) -> Option<Namespace> {
    Some(match of {
        LinuxNamespaceType::User => Namespace::User,
        LinuxNamespaceType::Mount => Namespace::Mount,
        LinuxNamespaceType::Pid => Namespace::Pid,
        LinuxNamespaceType::Network => Namespace::Network,
        LinuxNamespaceType::Ipc => Namespace::Ipc,
        LinuxNamespaceType::Uts => Namespace::Uts,
        LinuxNamespaceType::Cgroup => Namespace::Cgroup,
        LinuxNamespaceType::Time => return None,
    })
}

struct Found(Vec<Finding>);

impl Found {
    fn add(&mut self, clause: &'static str, open: bool, what: String) {
        self.0.push(Finding { clause, what, open });
    }

    fn limits(&mut self, live: &Live, controller: &str, what: &str) {
        let files = [format!("{controller}.max"), format!("{controller}.limit_in_bytes")];
        let mut settings = live.cgroups.iter().flat_map(|group| &group.settings);
        match settings.find(|setting| files.contains(&setting.file)) {
            // Version 1 says "no limit" by the largest multiple of a page.
            Some(setting) if setting.value != "max" && setting.value != "9223372036854771712" => {
                self.add("limits", false, format!("{} is {}", setting.file, setting.value));
            }
            _ => self.add("limits", true, format!("no limit of {what}")),
        }
    }
}
