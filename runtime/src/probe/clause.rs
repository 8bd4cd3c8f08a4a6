//! The clauses that probes prove, and how each is taken out of a spec.

use oci_spec::runtime::{LinuxNamespaceType, PosixRlimitType};
use serde::Serialize;

use super::kit::Kit;
use super::spec::{self, Place};
use crate::spec::{Spec, Writable};

/// The clauses, each with what it is, and the list of them all.
macro_rules! clauses {
    ($($(#[$what:meta])* $name:ident,)*) => {
        /// What stops a probe.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Clause {
            $($(#[$what])* $name,)*
        }

        impl Clause {
            /// All of them.
            pub const ALL: &[Clause] = &[$(Clause::$name,)*];
        }
    };
}

clauses! {
    /// A user namespace of its own, with ids of its own.
    UserNamespace,
    /// A mount namespace of its own.
    MountNamespace,
    /// A PID namespace of its own.
    PidNamespace,
    /// no_new_privs.
    NoNewPrivileges,
    /// A session and a session keyring of its own.
    Session,
    /// Nothing inherited stays open.
    Descriptors,
    /// Mounts are nosuid.
    NoSetId,
    /// PID 1 is Airlock's own and not dumpable.
    FirstProcess,
    /// /proc shows no process that the payload may not trace.
    HiddenProcesses,
    /// A network namespace of its own.
    NetworkNamespace,
    /// An IPC namespace of its own.
    IpcNamespace,
    /// A UTS namespace of its own.
    UtsNamespace,
    /// A cgroup namespace of its own.
    CgroupNamespace,
    /// No user namespaces inside.
    Nesting,
    /// The system call filter.
    Seccomp,
    /// Landlock, by what the mounts do not do already: abstract sockets, queues, kinds of files.
    Landlock,
    /// No capabilities.
    Capabilities,
    /// The payload is not uid 0.
    UserId,
    /// The root shows what is mounted and no more.
    Root,
    /// `/` is read-only.
    RootReadOnly,
    /// A mount is read-only.
    MountReadOnly,
    /// No programs on a mount.
    NoExecData,
    /// No programs on /dev/shm.
    NoExecShm,
    /// No programs on /tmp.
    NoExecTmp,
    /// No device nodes on a mount.
    NoDevices,
    /// Covered paths of /proc.
    Masked,
    /// Read-only paths of /proc.
    ReadOnlyPaths,
    /// The nodes in /dev.
    DeviceNodes,
    /// The device filter of the control group.
    DeviceFilter,
    /// The caller's environment stays out.
    Environment,
    /// Open files.
    OpenFiles,
    /// Core files.
    CoreFiles,
    /// Waiting signals.
    PendingSignals,
    /// Size of /tmp.
    TmpSize,
    /// Size of /dev/shm.
    ShmSize,
    /// Number of processes.
    Processes,
    /// Memory.
    Memory,
    /// CPU time.
    Cpus,
    /// Wall-clock time.
    WallClock,
}

use Clause::*;

impl Clause {
    /// The clause of a policy, as a person would look for it there; in parentheses what no policy can lower.
    pub fn name(self) -> &'static str {
        match self {
            UserNamespace => "(user namespace)",
            MountNamespace => "(mount namespace)",
            PidNamespace => "(PID namespace)",
            NoNewPrivileges => "(no_new_privs)",
            Session => "(session and keyring)",
            Descriptors => "(descriptors)",
            NoSetId => "(nosuid)",
            FirstProcess => "(PID 1 is closed)",
            HiddenProcesses => "(hidepid of /proc)",
            NetworkNamespace => "network.mode",
            IpcNamespace => "namespaces: ipc",
            UtsNamespace => "namespaces: uts",
            CgroupNamespace => "namespaces: cgroup",
            Nesting => "nesting",
            Seccomp => "seccomp.profile",
            Landlock => "landlock",
            Capabilities => "capabilities.keep",
            UserId => "identity.user",
            Root => "root.kind",
            RootReadOnly => "root.writable",
            MountReadOnly => "[[mount]] mode",
            NoExecData => "[[mount]] exec",
            NoExecShm => "noexec of /dev/shm",
            NoExecTmp => "root.tmp_exec",
            NoDevices => "nodev of mounts",
            Masked => "masked paths of /proc",
            ReadOnlyPaths => "read-only paths of /proc",
            DeviceNodes => "nodes of /dev",
            DeviceFilter => "device filter",
            Environment => "env",
            OpenFiles => "limits.nofile",
            CoreFiles => "limits.core",
            PendingSignals => "limit of waiting signals",
            TmpSize => "limits.tmp",
            ShmSize => "limits.shm",
            Processes => "limits.pids",
            Memory => "limits.memory",
            Cpus => "limits.cpus",
            WallClock => "limits.wall",
        }
    }

    /// The runtime builds no sandbox without it, whatever the spec says.
    pub fn is_fixed(self) -> bool {
        matches!(
            self,
            UserNamespace
                | MountNamespace
                | PidNamespace
                | NoNewPrivileges
                | Session
                | Descriptors
                | NoSetId
                | FirstProcess
                | HiddenProcesses
        )
    }

    /// Takes it out of a spec, if it can be.
    pub(super) fn remove(self, spec: &mut Spec, kit: &Kit) {
        match self {
            UserNamespace | MountNamespace | PidNamespace | NoNewPrivileges | Session | Descriptors
            | NoSetId | FirstProcess | HiddenProcesses => {}
            NetworkNamespace => {
                spec::share(spec, LinuxNamespaceType::Network);
                spec.airlock.network = crate::spec::Network::None;
            }
            IpcNamespace => spec::share(spec, LinuxNamespaceType::Ipc),
            UtsNamespace => {
                spec::share(spec, LinuxNamespaceType::Uts);
                spec.oci.set_hostname(None);
            }
            CgroupNamespace => spec::share(spec, LinuxNamespaceType::Cgroup),
            Nesting => spec.airlock.nesting = true,
            Seccomp => spec::linux(spec, |linux| {
                linux.set_seccomp(None);
            }),
            Landlock => spec.airlock.landlock = None,
            Capabilities => spec::keep_capabilities(spec),
            UserId => spec::become_root(spec),
            Root => spec::show(spec, &kit.hidden()),
            RootReadOnly => {
                spec.airlock.writable = Writable::Tmpfs { size: 64 << 20 };
                if let Some(root) = spec.oci.root_mut() {
                    root.set_readonly(Some(false));
                }
            }
            MountReadOnly => spec::option(spec, Place::Path(&kit.data()), "rro", "rrw"),
            NoExecData => spec::option(spec, Place::Path(&kit.data()), "rnoexec", "rexec"),
            NoExecShm => spec::option(spec, Place::Shm, "noexec", "exec"),
            NoExecTmp => spec::option(spec, Place::Tmp, "noexec", "exec"),
            NoDevices => spec::option(spec, Place::Path(&kit.data()), "rnodev", "rdev"),
            Masked => spec::linux(spec, |linux| {
                linux.set_masked_paths(None);
            }),
            ReadOnlyPaths => spec::linux(spec, |linux| {
                linux.set_readonly_paths(None);
            }),
            DeviceNodes => spec::add_device(spec, kit.device()),
            DeviceFilter => spec::open_device_filter(spec),
            Environment => spec::set_variable(spec, &format!("{}=1", kit.variable())),
            OpenFiles => spec::unlimit(spec, PosixRlimitType::RlimitNofile),
            CoreFiles => spec::unlimit(spec, PosixRlimitType::RlimitCore),
            PendingSignals => spec::unlimit(spec, PosixRlimitType::RlimitSigpending),
            TmpSize => spec::resize(spec, Place::Tmp),
            ShmSize => spec::resize(spec, Place::Shm),
            Processes => spec::resources(spec, |resources| {
                resources.set_pids(None);
            }),
            Memory => spec::resources(spec, |resources| {
                resources.set_memory(None);
            }),
            Cpus => spec::resources(spec, |resources| {
                resources.set_cpu(None);
            }),
            WallClock => spec.airlock.wall_ms = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_have_one_name() {
        let names: std::collections::BTreeSet<&str> =
            Clause::ALL.iter().map(|clause| clause.name()).collect();
        assert_eq!(names.len(), Clause::ALL.len());
    }

    #[test]
    fn each_has_a_probe() {
        for clause in Clause::ALL.iter().copied().filter(|clause| *clause != Seccomp) {
            assert!(super::super::table().any(|probe| probe.clauses.contains(&clause)), "{clause:?}");
        }
    }
}
