//! Verification: the kernel's view of a built sandbox against its plan, before the payload is released.

mod mounts;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags};

use crate::cgroups::{Cgroup, CgroupTarget};
use crate::ids::{IdMapping, IdMaps};
use crate::launch::Probe;
use crate::live::Status;
use crate::network;
use crate::plan::{Action, Expectations, Namespace, Plan, limit_name};
use crate::report::{Evidence, EvidenceKind};
use crate::sys;

/// What is read back so far: evidence and differences.
#[derive(Debug)]
pub(crate) struct Verification {
    /// Init's directory in /proc.
    init: OwnedFd,
    /// The caller's namespaces, in the plan's order.
    own_namespaces: Vec<io::Result<CString>>,
    evidence: Vec<Evidence>,
    differences: Vec<String>,
}

impl Verification {
    /// Reads what is settled as soon as init has been cloned and its group is limited, while it still mounts.
    ///
    /// # Errors
    /// Init's directory in /proc cannot be opened: init is gone.
    pub(crate) fn begin(pid: i32, plan: &Plan, cgroup: Option<&Cgroup>) -> io::Result<Verification> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let init = rustix::fs::open(format!("/proc/{pid}"), flags, Mode::empty())?;
        let namespaces = plan.expect.namespaces.iter();
        let own_namespaces =
            namespaces.map(|namespace| namespace_of(CWD, "/proc/self/ns", *namespace)).collect();
        let mut check = Verification { init, own_namespaces, evidence: Vec::new(), differences: Vec::new() };
        check.maps(&plan.expect.maps);
        if let Some(group) = cgroup {
            check.cgroup_settings(plan, group);
        }
        Ok(check)
    }

    /// Reads the rest of the kernel's view when init has done all its steps, and lists the evidence clause by
    /// clause.
    ///
    /// # Errors
    /// Every difference, in words.
    pub(crate) fn finish(mut self, plan: &Plan, probes: Vec<Probe>) -> Result<Vec<Evidence>, Vec<String>> {
        let expect = &plan.expect;
        self.namespaces(expect);
        self.status(expect);
        self.limits(expect);
        self.mounts(expect);
        self.landlock(plan);
        self.network(expect);
        if let Some(target) = &expect.cgroup {
            self.cgroup_membership(target);
        }
        for Probe { clause, what } in probes {
            self.evidence.push(Evidence { clause, what, evidence: EvidenceKind::ChildProbe });
        }
        self.steps_without_readback(plan);
        self.every_promise_has_evidence(plan);
        if self.differences.is_empty() { Ok(self.evidence) } else { Err(self.differences) }
    }

    fn read(&mut self, file: &str) -> String {
        match sys::read_small(self.init.as_fd(), file) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => {
                self.differences.push(format!("init's {file} in /proc cannot be read: {error}"));
                String::new()
            }
        }
    }

    fn holds(&mut self, clause: &str, what: impl Into<String>) {
        self.evidence.push(Evidence {
            clause: clause.into(),
            what: what.into(),
            evidence: EvidenceKind::KernelRead,
        });
    }

    fn equal(&mut self, clause: &str, what: &str, expected: &str, found: &str) {
        if expected == found {
            self.holds(clause, format!("{what}: {found}"));
        } else {
            self.differences.push(format!("{clause}: {what} should be {expected:?}, is {found:?}"));
        }
    }

    fn namespaces(&mut self, expect: &Expectations) {
        let own = std::mem::take(&mut self.own_namespaces);
        for (namespace, own) in expect.namespaces.iter().zip(own) {
            let name = namespace.proc_name();
            let theirs = namespace_of(self.init.as_fd(), "ns", *namespace);
            match (own, theirs) {
                (Ok(own), Ok(theirs)) if own != theirs => {
                    self.holds("namespaces", format!("own {name} namespace: {}", theirs.to_string_lossy()));
                }
                (Ok(own), Ok(_)) => {
                    let own = own.to_string_lossy();
                    self.differences.push(format!("namespace {name}: init is in the host's own, {own}"));
                }
                (Err(error), _) | (_, Err(error)) => {
                    self.differences.push(format!("namespace {name} cannot be read: {error}"));
                }
            }
        }
    }

    fn maps(&mut self, maps: &IdMaps) {
        for (file, lines) in [("uid_map", &maps.uids), ("gid_map", &maps.gids)] {
            let found = parse_map(&self.read(file));
            self.equal("identity.ids", file, &map_words(lines), &map_words(&found));
        }
    }

    fn status(&mut self, expect: &Expectations) {
        let text = self.read("status");
        let status = Status::of(&text);
        let field = |key: &str| status.field(key).unwrap_or("absent");
        let (uid, gid) = expect.host_ids;
        self.equal("identity.user", "uids on the host", &words([uid; 4]), &words(status.numbers("Uid")));
        self.equal("identity.user", "gids on the host", &words([gid; 4]), &words(status.numbers("Gid")));
        match &expect.groups {
            Some(groups) => self.equal(
                "identity.groups",
                "supplementary groups on the host",
                &words(groups.clone()),
                &words(status.numbers("Groups")),
            ),
            None => self.holds(
                "identity.groups",
                format!("supplementary groups kept: {}", words(status.numbers("Groups"))),
            ),
        }
        let mask = expect.capabilities.iter().fold(0_u64, |mask, number| mask | 1 << number);
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            self.equal("capabilities.keep", set, &format!("{mask:016x}"), field(set));
        }
        self.equal("process", "NoNewPrivs", "1", field("NoNewPrivs"));
        if expect.seccomp {
            self.equal("seccomp.profile", "Seccomp mode", "2", field("Seccomp"));
        }
    }

    fn limits(&mut self, expect: &Expectations) {
        let text = self.read("limits");
        for limit in &expect.limits {
            let Some(name) = limit_name(limit.resource) else {
                continue;
            };
            let Some(line) = text.lines().find(|line| line.starts_with(name)) else {
                self.differences.push(format!("limits: no line {name:?} in /proc/PID/limits"));
                continue;
            };
            let found: Vec<&str> = line[name.len()..].split_whitespace().take(2).collect();
            let text = |value: u64| {
                if value == u64::MAX { "unlimited".to_string() } else { value.to_string() }
            };
            self.equal(
                "limits",
                name,
                &format!("{} {}", text(limit.soft), text(limit.hard)),
                &found.join(" "),
            );
        }
    }

    fn mounts(&mut self, expect: &Expectations) {
        let text = self.read("mountinfo");
        let (holds, differences) = mounts::compare(&expect.mounts, &expect.covered, &text);
        self.differences.extend(differences);
        holds.into_iter().for_each(|(clause, what)| self.holds(&clause, what));
    }

    /// What the ruleset does is shown by a probe; what this kernel's ABI leaves open, by its number.
    fn landlock(&mut self, plan: &Plan) {
        for step in &plan.child {
            if let Action::Landlock { abi, .. } = &step.action {
                self.holds("landlock.min_abi", landlock_abi(*abi));
            }
        }
    }

    fn network(&mut self, expect: &Expectations) {
        if expect.namespaces.contains(&Namespace::Network) {
            let text = self.read("net/dev");
            self.equal("network.mode", "interfaces", "lo", &network::interfaces(&text).join(" "));
        }
    }

    fn cgroup_membership(&mut self, target: &CgroupTarget) {
        let text = self.read("cgroup");
        for tree in &target.trees {
            let directory = tree.path();
            if tree.holds(&text) {
                self.holds("limits", format!("in control group {}", directory.display()));
            } else {
                self.differences.push(format!("limits: init is not in {}", directory.display()));
            }
        }
    }

    fn cgroup_settings(&mut self, plan: &Plan, group: &Cgroup) {
        if let Some(resources) = &plan.expect.resources {
            match group.read_limits(resources) {
                Ok(readings) => {
                    for reading in readings {
                        let what = format!("{} is {}", reading.path.display(), reading.found);
                        if reading.holds {
                            self.holds("limits", what);
                        } else {
                            self.differences.push(format!("limits: {what}, should be {}", reading.wanted));
                        }
                    }
                }
                Err(error) => self.differences.push(error.to_string()),
            }
        }
        for step in &plan.host {
            if let Action::FilterDevices { filter } = &step.action {
                match group.read_device_filter(filter) {
                    Ok(reading) if reading.holds => {
                        let lines = reading.v1.iter().flatten().cloned().collect::<Vec<_>>().join(", ");
                        let programs = reading.v2.iter().flatten().count();
                        self.holds("devices", format!("v1 list: {lines}; {programs} program(s) attached"));
                    }
                    Ok(reading) => self.differences.push(format!("devices: the filter reads {reading:?}")),
                    Err(error) => self.differences.push(format!("devices: {error}")),
                }
            }
        }
    }

    /// What the kernel shows nowhere: that the call succeeded is all there is.
    fn steps_without_readback(&mut self, plan: &Plan) {
        for step in &plan.child {
            let what = match &step.action {
                Action::Hostname { name } => format!("host name set to {name}"),
                Action::NewSession => "own session and anonymous session keyring".into(),
                Action::LoopbackUp => "loopback interface up".into(),
                Action::ForbidUserNamespaces => "no user namespace can be made inside".into(),
                Action::DieWithMonitor => "dies with the monitor".into(),
                Action::EnterWorkingDirectory { path } => {
                    format!("working directory {} lies inside", path.display())
                }
                Action::CloseDescriptors => "inherited descriptors are closed on exec".into(),
                _ => continue,
            };
            self.evidence.push(Evidence {
                clause: step.clause.clone(),
                what,
                evidence: EvidenceKind::StepOk,
            });
        }
    }

    /// A protection without evidence is a protection that nobody looked at.
    fn every_promise_has_evidence(&mut self, plan: &Plan) {
        for step in plan.host.iter().chain(&plan.child) {
            let promised = matches!(step.action, Action::Landlock { .. } | Action::FilterDevices { .. });
            if promised && !self.evidence.iter().any(|evidence| evidence.clause == step.clause) {
                self.differences.push(format!("{}: there is no evidence that it holds", step.clause));
            }
        }
    }
}

/// The link of namespaces(7) that names a namespace.
fn namespace_of(proc: BorrowedFd<'_>, directory: &str, namespace: Namespace) -> io::Result<CString> {
    let path = format!("{directory}/{}", namespace.proc_name());
    Ok(rustix::fs::readlinkat(proc, path, Vec::new())?)
}

/// Ids as /proc/PID/status lists them; an empty list is a word too.
fn words(ids: impl IntoIterator<Item = u32>) -> String {
    let words: Vec<String> = ids.into_iter().map(|id| id.to_string()).collect();
    if words.is_empty() { "none".into() } else { words.join(" ") }
}

/// A map as `inside -> outside, count`.
fn map_words(lines: &[IdMapping]) -> String {
    let line = |line: &IdMapping| format!("{} -> {}, {}", line.inside, line.outside, line.count);
    lines.iter().map(line).collect::<Vec<_>>().join("; ")
}

fn parse_map(text: &str) -> Vec<IdMapping> {
    text.lines()
        .filter_map(|line| {
            let mut numbers = line.split_whitespace().map(|number| number.parse().ok());
            Some(IdMapping { inside: numbers.next()??, outside: numbers.next()??, count: numbers.next()?? })
        })
        .collect()
}

/// What `abi` cannot restrict (Linux's Documentation/userspace-api/landlock.rst).
fn landlock_abi(abi: u8) -> String {
    let rights = [
        (3, "truncating files"),
        (5, "ioctl on devices"),
        (6, "signals and abstract sockets"),
        (9, "connecting to sockets in mounted directories"),
    ];
    let missing: Vec<String> = rights
        .iter()
        .filter(|(since, _)| abi < *since)
        .map(|(since, what)| format!("{what} (needs ABI {since})"))
        .collect();
    if missing.is_empty() {
        return format!("Landlock ABI {abi}");
    }
    format!("Landlock ABI {abi}, which cannot restrict {}", missing.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_landlock_abi_leaves_open_is_said() {
        assert_eq!(
            landlock_abi(8),
            "Landlock ABI 8, which cannot restrict connecting to sockets in mounted directories (needs ABI 9)"
        );
        assert!(landlock_abi(2).contains("truncating files (needs ABI 3), ioctl"));
        assert_eq!(landlock_abi(9), "Landlock ABI 9");
    }

    #[test]
    fn maps_are_read_as_the_kernel_pads_them() {
        let found = parse_map("         0 1879048192      65536\n");
        assert_eq!(found, [IdMapping { inside: 0, outside: 1_879_048_192, count: 65_536 }]);
    }
}
