//! What is expected of a probe: a pure function of the spec, what the host lowers, and the filter.

use std::path::Path;

use oci_spec::runtime::{LinuxNamespaceType, LinuxPids, PosixRlimitBuilder, PosixRlimitType};

use super::clause::Clause;
use super::kit::Kit;
use super::run::ProbeError;
use super::spec::{self, Place};
use super::{Probe, Verdict};
use crate::gpu::Selection;
use crate::host::{HostFacts, is_root};
use crate::ids::HostIds;
use crate::plan::{Placement, plan};
use crate::seccomp::{self, Program, SeccompData, syscall_number};
use crate::spec::{Spec, Writable};

/// What the probes of limits try is a little more than this, so a limit is lowered to it. The policy's own number is
/// read back by the launch.
const MEMORY: i64 = 96 << 20;
const PROCESSES: i64 = 64;
const TMPFS: u64 = 8 << 20;
const FILES: u64 = 128;
/// Milliseconds, and microseconds in each tenth of a second, for the probes of time: they are launched apart.
const WALL_MS: u64 = 600;
const QUOTA_US: i64 = 15_000;
const PERIOD_US: u64 = 100_000;
/// What the probes try.
const SIGNALS_TRIED: u64 = 1100;

/// A spec, and what decides over a probe's end besides.
#[derive(Debug)]
pub struct Setting {
    pub(super) spec: Spec,
    /// The GPUs that were chosen for it.
    pub(super) gpu: Option<Selection>,
    filter: Option<Program>,
    root: bool,
    landlock_abi: u8,
    /// What the host cannot do and the policy does not insist on, in the plan's words.
    lowered: Vec<String>,
    /// The policy limits CPU time and wall-clock time, so that it is worth the wait to try.
    timed: [bool; 2],
}

impl Setting {
    /// A policy's spec, made ready for the probes: their program mounted, limits lowered to what they try. `gpu` is what
    /// was chosen for it, which the caller holds leases of.
    ///
    /// # Errors
    /// The plan's, if this host cannot build it.
    pub fn of(
        mut spec: Spec,
        gpu: Option<Selection>,
        kit: &Kit,
        placement: &Placement,
    ) -> Result<Setting, ProbeError> {
        scale(&mut spec);
        kit.mount(&mut spec);
        let resources = spec.oci.linux().as_ref().and_then(|linux| linux.resources().as_ref());
        let cpus = resources.and_then(|resources| resources.cpu().as_ref()?.quota()).is_some();
        let timed = [cpus, spec.airlock.wall_ms.is_some()];
        Setting::ready(spec, gpu, timed, placement)
    }

    fn ready(
        spec: Spec,
        gpu: Option<Selection>,
        timed: [bool; 2],
        placement: &Placement,
    ) -> Result<Setting, ProbeError> {
        let root = is_root();
        // No range is taken: nothing is launched by this.
        let ids = HostIds::planned(root, spec.airlock.ids)?;
        let facts = HostFacts::read(&spec, ids)?.settle(placement.cgroup_parent.as_ref())?;
        let facts = facts.with_gpu(&spec, gpu.clone())?;
        let lowered = plan(&spec, &facts, placement)?.lowered.into_iter();
        let lowered = lowered.map(|lowered| format!("{}: {}", lowered.clause, lowered.what)).collect();
        let document = spec.oci.linux().as_ref().and_then(|linux| linux.seccomp().as_ref());
        let filter = document.map(seccomp::compile).transpose()?;
        Ok(Setting { filter, root, landlock_abi: facts.landlock_abi, lowered, timed, gpu, spec })
    }

    /// The setting without some clauses.
    pub(super) fn without(
        &self,
        clauses: impl IntoIterator<Item = Clause>,
        kit: &Kit,
        placement: &Placement,
    ) -> Result<Setting, ProbeError> {
        let mut spec = self.spec.clone();
        clauses.into_iter().for_each(|clause| clause.remove(&mut spec, kit));
        Setting::ready(spec, self.gpu.clone(), self.timed, placement)
    }

    /// Whether a probe is tried: those of time are where the policy limits it, with its clauses or without.
    pub fn tries(&self, probe: &Probe) -> bool {
        let [cpus, wall] = self.timed;
        (cpus || probe.clauses != [Clause::Cpus]) && (wall || probe.clauses != [Clause::WallClock])
    }

    /// What should become of a probe.
    pub fn expects(&self, probe: &Probe, kit: &Kit) -> Verdict {
        match self.stopped_by(probe, kit).is_empty() {
            true => Verdict::Allowed,
            false => Verdict::Denied,
        }
    }

    /// Clauses in force that should stop a probe.
    pub fn stopped_by(&self, probe: &Probe, kit: &Kit) -> Vec<Clause> {
        let listed = probe.clauses.iter().copied().filter(|clause| self.stops(*clause, probe, kit));
        let filter = self.filtered(probe, kit).then_some(Clause::Seccomp);
        listed.chain(filter).collect()
    }

    /// Whether a clause is part of the setting at all.
    pub fn has(&self, clause: Clause, kit: &Kit) -> bool {
        match clause {
            Clause::Seccomp => self.filter.is_some(),
            // No spec keeps CAP_SYS_ADMIN (21), so that tells nothing of the policy's own capabilities.
            clause => super::table().any(|probe| {
                probe.clauses.contains(&clause)
                    && probe.capability != Some(21)
                    && self.stops(clause, probe, kit)
            }),
        }
    }

    fn stops(&self, clause: Clause, probe: &Probe, kit: &Kit) -> bool {
        use Clause::*;
        let spec = &self.spec;
        let linux = spec.oci.linux().as_ref();
        let resources = linux.and_then(|linux| linux.resources().as_ref());
        match clause {
            UserNamespace | MountNamespace | PidNamespace | NoNewPrivileges | Session | Descriptors
            | NoSetId | FirstProcess | HiddenProcesses => true,
            NetworkNamespace => spec::has_namespace(spec, LinuxNamespaceType::Network),
            IpcNamespace => spec::has_namespace(spec, LinuxNamespaceType::Ipc),
            UtsNamespace => spec::has_namespace(spec, LinuxNamespaceType::Uts),
            CgroupNamespace => {
                spec::has_namespace(spec, LinuxNamespaceType::Cgroup)
                    && resources.is_some()
                    && self.has_group()
            }
            Nesting => !spec.airlock.nesting,
            Seccomp => self.filtered(probe, kit),
            Landlock => self.restricts(probe),
            Capabilities => probe.capability.is_some_and(|number| !spec::keeps_capability(spec, number)),
            UserId => spec.oci.process().as_ref().is_some_and(|process| process.user().uid() != 0),
            Root => self.hides(probe, kit),
            RootReadOnly => spec.airlock.writable == Writable::None,
            MountReadOnly => spec::has_option(spec, Place::Path(&kit.data()), "rro"),
            NoExecData => spec::has_option(spec, Place::Path(&kit.data()), "rnoexec"),
            NoExecShm => spec::has_option(spec, Place::Shm, "noexec"),
            NoExecTmp => spec::has_option(spec, Place::Tmp, "noexec"),
            NoDevices => spec::has_option(spec, Place::Path(&kit.data()), "rnodev"),
            Masked => self.covers(probe, linux.and_then(|linux| linux.masked_paths().as_ref())),
            ReadOnlyPaths => self.covers(probe, linux.and_then(|linux| linux.readonly_paths().as_ref())),
            DeviceNodes => !spec::has_device(spec, Path::new(&kit.word(probe.action[1]))),
            DeviceFilter => {
                self.root && resources.is_some_and(spec::has_device_filter) && !self.lacks("device")
            }
            Environment => !spec::has_variable(spec, kit.variable()),
            OpenFiles => spec::limit(spec, PosixRlimitType::RlimitNofile).is_some_and(|limit| limit <= FILES),
            CoreFiles => spec::limit(spec, PosixRlimitType::RlimitCore).is_some_and(|limit| limit <= 1),
            PendingSignals => spec::limit(spec, PosixRlimitType::RlimitSigpending)
                .is_some_and(|limit| limit < SIGNALS_TRIED),
            TmpSize => spec::size(spec, Place::Tmp).is_some_and(|size| size <= TMPFS),
            ShmSize => spec::size(spec, Place::Shm).is_some_and(|size| size <= TMPFS),
            Processes => resources.is_some_and(|one| one.pids().is_some()) && !self.lacks("pids"),
            Memory => resources.is_some_and(|one| one.memory().is_some()) && !self.lacks("memory"),
            Cpus => {
                resources.and_then(|one| one.cpu().as_ref()?.quota()).is_some() && !self.lacks("cpu limit")
            }
            WallClock => spec.airlock.wall_ms.is_some(),
        }
    }

    /// What Landlock refuses of its own accord. Rights to files follow from the mounts, so for those it is asked only
    /// where the policy narrows them.
    fn restricts(&self, probe: &Probe) -> bool {
        let Some(landlock) = &self.spec.airlock.landlock else { return false };
        match probe.action[0] {
            // The scope of abstract sockets came with ABI 6.
            "connect-unix" => self.landlock_abi >= 6,
            "tmpfile" => {
                let path = Path::new(probe.action[1]);
                let narrowed = landlock.write.as_ref();
                self.landlock_abi >= 1
                    && narrowed.is_some_and(|places| !places.iter().any(|place| path.starts_with(place)))
            }
            _ => self.landlock_abi >= 1,
        }
    }

    fn lacks(&self, word: &str) -> bool {
        self.lowered.iter().any(|lowered| lowered.contains(word))
    }

    /// Some limit is kept by a control group of the sandbox's own.
    fn has_group(&self) -> bool {
        !(self.lacks("memory") && self.lacks("pids"))
    }

    /// The probe names a path of the host that no mount shows.
    fn hides(&self, probe: &Probe, kit: &Kit) -> bool {
        let path = kit.word(probe.action[1]);
        !spec::shows(&self.spec, Path::new(&path))
    }

    fn covers(&self, probe: &Probe, paths: Option<&Vec<String>>) -> bool {
        let path = Path::new(probe.action[1]);
        paths.into_iter().flatten().any(|covered| path.starts_with(covered))
    }

    /// The filter refuses a call that the probe needs. It is executed, so this holds for any profile.
    fn filtered(&self, probe: &Probe, kit: &Kit) -> bool {
        let Some(filter) = &self.filter else { return false };
        calls(probe, kit).into_iter().any(|(name, args)| {
            let data = syscall_number(name).and_then(|number| SeccompData::native(number, args).ok());
            let verdict = data.and_then(|data| seccomp::run(filter, &data).ok());
            !matches!(verdict, Some(seccomp::Verdict::Allow | seccomp::Verdict::Log))
        }) || matches!(probe.action[0], "x32" | "int80")
    }
}

/// Lowers the limits that a policy sets to what the probes try.
fn scale(spec: &mut Spec) {
    spec::resources(spec, |resources| {
        if let Some(mut memory) = *resources.memory()
            && let Some(limit) = memory.limit().filter(|limit| *limit > MEMORY)
        {
            // Memory and swap together; less than nothing is no limit.
            let both = memory.swap().map(|both| if both < limit { both } else { both - limit + MEMORY });
            memory.set_limit(Some(MEMORY)).set_swap(both);
            resources.set_memory(Some(memory));
        }
        if resources.pids().is_some_and(|pids| pids.limit() > PROCESSES) {
            let mut pids = LinuxPids::default();
            pids.set_limit(PROCESSES);
            resources.set_pids(Some(pids));
        }
    });
    for place in [Place::Tmp, Place::Shm] {
        if spec::size(spec, place).is_some_and(|size| size > TMPFS) {
            spec::set_size(spec, place, &format!("size={TMPFS}"));
        }
    }
    if let Some(process) = spec.oci.process_mut() {
        let mut limits = process.rlimits().clone().unwrap_or_default();
        for limit in limits.iter_mut().filter(|limit| limit.typ() == PosixRlimitType::RlimitNofile) {
            let lower = PosixRlimitBuilder::default().typ(limit.typ()).soft(limit.soft().min(FILES));
            if let Ok(lower) = lower.hard(limit.hard().min(FILES)).build() {
                *limit = lower;
            }
        }
        process.set_rlimits(Some(limits));
    }
}

/// Lowers the limit of time that a probe is about, where there is one.
pub(super) fn shorten(spec: &mut Spec, probe: &Probe) {
    if probe.clauses == [Clause::WallClock] {
        spec.airlock.wall_ms = spec.airlock.wall_ms.map(|wall| wall.min(WALL_MS));
        return;
    }
    spec::resources(spec, |resources| {
        if let Some(mut cpu) = resources.cpu().clone().filter(|cpu| cpu.quota().is_some()) {
            cpu.set_quota(Some(QUOTA_US)).set_period(Some(PERIOD_US));
            resources.set_cpu(Some(cpu));
        }
    });
}

/// The calls without which a probe cannot do what it tries, with their arguments; pointers as 8.
fn calls<'a>(probe: &Probe, kit: &Kit) -> Vec<(&'a str, [u64; 6])>
where
    'static: 'a,
{
    let action = probe.action;
    let value = |place: usize| argument(action.get(place).copied().unwrap_or("0"), kit);
    let plain = |name, first: u64| (name, [first, 0, 0, 0, 0, 0]);
    match action[0] {
        "call" => {
            let mut args = [0; 6];
            args.iter_mut().enumerate().for_each(|(at, arg)| *arg = value(at + 2));
            vec![(action[1], args)]
        }
        "clone" => vec![plain("clone", value(1) | 17)],
        "socket" => vec![("socket", [value(1), value(2), value(3), 0, 0, 0])],
        // SOCK_STREAM | SOCK_CLOEXEC, as the standard library makes them.
        "connect-tcp" => vec![("socket", [2, 0x80001, 0, 0, 0, 0]), plain("connect", 3)],
        "listen-tcp" => {
            vec![("socket", [2, 0x80001, 0, 0, 0, 0]), plain("bind", 3), plain("listen", 3)]
        }
        "connect-unix" => vec![("socket", [1, 0x80001, 0, 0, 0, 0]), plain("connect", 3)],
        "find-segment" => vec![plain("shmget", 1)],
        "find-queue" => vec![plain("mq_open", 8)],
        "find-key" => vec![("keyctl", [10, u64::MAX - 2, 8, 8, 0, 0])],
        "map-ids" => vec![plain("unshare", 0x1000_0000)],
        "enter" => vec![plain("setns", 3)],
        "trace" => vec![plain("ptrace", 0x4206)],
        "trace-me" => vec![plain("ptrace", 0)],
        "read-memory" => vec![plain("process_vm_readv", 2)],
        "take-descriptor" => vec![plain("pidfd_open", 2), plain("pidfd_getfd", 3)],
        "handle" => vec![plain("pidfd_open", 2)],
        "signal" => vec![plain("kill", 2)],
        "limit-other" => vec![("prlimit64", [2, 7, 8, 0, 0, 0])],
        "set-uid" => vec![plain("setuid", value(1))],
        "set-gid" => vec![plain("setgid", value(1))],
        "set-groups" => vec![plain("setgroups", 0)],
        // fchmodat(AT_FDCWD, path, 06700), or chmod.
        "set-id-bits" => vec![("chmod", [8, 0o6700, 0, 0, 0, 0])],
        "mknod" => vec![("mknodat", [u64::MAX - 99, 8, 0o020_400, value(2) << 8 | value(3), 0, 0])],
        "queue-signals" => vec![plain("rt_sigqueueinfo", 1)],
        _ => Vec::new(),
    }
}

/// A word of an action as the kernel gets it.
fn argument(word: &str, kit: &Kit) -> u64 {
    let word = kit.word(word);
    let signed = |text: &str| text.parse::<i64>().ok().map(i64::cast_unsigned);
    let hex = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    // What is no number is a pointer.
    signed(&word).or_else(|| hex(&word)).unwrap_or(8)
}
