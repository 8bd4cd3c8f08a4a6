//! System calls: what the compiled filter answers when it is run.

use super::super::filter::{CREATE, Filter, NEW_USER, SET_ID};
use super::super::rule::{Area, Check, Hits, Rule, Severity};
use super::super::subject::Subject;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "AL060",
        area: Area::Seccomp,
        severity: Severity::High,
        title: "no system call is filtered",
        why: "the whole kernel is in reach: keyrings, io_uring, BPF, old protocols, and whatever is found next",
        reference: "seccomp(2), CVE-2022-0185",
        remedy: "a profile that allows what is needed",
        check: Check::Sandbox(|subject, hits| {
            if subject.filter().is_none() {
                hits.member("/linux/seccomp", "there is no filter");
            }
        }),
    },
    Rule {
        id: "AL061",
        area: Area::Seccomp,
        severity: Severity::High,
        title: "what the filter does not name is allowed",
        why: "a deny list lets through each call that a newer kernel adds, and every number of another ABI",
        reference: "seccompiler#74, kafel#19",
        remedy: "`\"defaultAction\": \"SCMP_ACT_ERRNO\"` and a list of what is allowed",
        check: Check::Sandbox(|subject, hits| {
            let action = subject.document().text("/linux/seccomp/defaultAction");
            if matches!(action, "SCMP_ACT_ALLOW" | "SCMP_ACT_LOG") {
                hits.member("/linux/seccomp/defaultAction", action);
            }
        }),
    },
    Rule {
        id: "AL062",
        area: Area::Seccomp,
        severity: Severity::Low,
        title: "other ABIs are admitted",
        why: "i386 and x32 are a second and third way into the kernel with numbers and argument layouts of their own; \
              few programs need them, and exploits like them",
        reference: "elastic/go-seccomp-bpf#5, firejail#87, CVE-2016-4997",
        remedy: "list the native architecture alone",
        check: Check::Sandbox(|subject, hits| {
            for (at, arch) in subject.document().texts("/linux/seccomp/architectures") {
                if matches!(arch, "SCMP_ARCH_X86" | "SCMP_ARCH_X32") {
                    hits.member(at, format!("{arch} is admitted beside x86_64"));
                }
            }
        }),
    },
    Rule {
        id: "AL063",
        area: Area::Seccomp,
        severity: Severity::Medium,
        title: "io_uring is allowed",
        why: "it opens, connects and sends in the kernel where the filter does not see it, and was the ground of most \
              kernel exploits of its years",
        reference: "isolate NEWS 2.6, CVE-2022-29582",
        remedy: "refuse io_uring_setup, io_uring_enter and io_uring_register",
        check: Check::Sandbox(|subject, hits| first(subject, hits, &["io_uring_setup", "io_uring_enter"])),
    },
    Rule {
        id: "AL064",
        area: Area::Seccomp,
        severity: Severity::Medium,
        title: "clone3 undoes what is refused to clone and unshare",
        why: "its flags lie in memory, where no filter reads: whoever may call it makes the namespaces that the filter \
              refuses to clone and unshare",
        reference: "moby#42680, clone(2)",
        remedy: "answer clone3 with ENOSYS; the C library falls back to clone",
        check: Check::Sandbox(|subject, hits| {
            if filter(subject).is_some_and(|filter| !filter.lets_namespaces() && filter.lets("clone3", &[])) {
                hits.spot(
                    &subject.allows("clone3"),
                    "clone3 runs, clone and unshare with CLONE_NEWUSER do not",
                );
            }
        }),
    },
    Rule {
        id: "AL065",
        area: Area::Seccomp,
        severity: Severity::Medium,
        title: "the filter lets user namespaces be made",
        why: "in one the code has every capability over kernel code that it cannot reach otherwise",
        reference: "CVE-2022-0185, CVE-2023-0386",
        remedy: "refuse unshare, and clone with CLONE_NEW* flags",
        check: Check::Sandbox(|subject, hits| {
            // `nesting` asks for it, and AL009 says so.
            if nests(subject) {
                return;
            }
            if let Some(call) = ["unshare", "clone"].into_iter().find(|call| lets(subject, call, &[NEW_USER]))
            {
                hits.spot(&subject.allows(call), format!("{call} runs with CLONE_NEWUSER"));
            }
        }),
    },
    Rule {
        id: "AL066",
        area: Area::Seccomp,
        severity: Severity::Medium,
        title: "keyrings are in reach",
        why: "keys belong to a user, not to a namespace: sandboxes of one uid share them",
        reference: "isolate NEWS 2.4, CVE-2016-0728",
        remedy: "refuse add_key, keyctl and request_key",
        check: Check::Sandbox(|subject, hits| first(subject, hits, &["keyctl", "add_key", "request_key"])),
    },
    Rule {
        id: "AL067",
        area: Area::Seccomp,
        severity: Severity::Medium,
        title: "sockets of rare families",
        why: "AF_VSOCK talks to the hypervisor past the network namespace; AF_ALG, AF_PACKET and their like are kernel \
              code with a history, loaded on demand",
        reference: "isolate NEWS 2.6, CVE-2026-31431, CVE-2020-14386",
        remedy: "allow socket for AF_UNIX, AF_INET and AF_INET6 alone",
        check: Check::Sandbox(|subject, hits| {
            // AF_PACKET, AF_ALG, AF_VSOCK of linux/socket.h.
            let families = [("AF_PACKET", 17), ("AF_ALG", 38), ("AF_VSOCK", 40)];
            let open = families.iter().filter(|(_, family)| lets(subject, "socket", &[*family, 1]));
            let open: Vec<&str> = open.map(|(name, _)| *name).collect();
            if !open.is_empty() {
                hits.spot(&subject.allows("socket"), format!("socket makes {}", open.join(", ")));
            }
        }),
    },
    Rule {
        id: "AL068",
        area: Area::Seccomp,
        severity: Severity::Low,
        title: "other processes can be read or steered",
        why: "what shares the sandbox has no secrets from the code inside, its first process among it",
        reference: "inflexa#88, METR 2025",
        remedy: "refuse ptrace, process_vm_readv, process_vm_writev, pidfd_getfd and kcmp",
        check: Check::Sandbox(|subject, hits| {
            first(subject, hits, &["ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd"]);
        }),
    },
    Rule {
        id: "AL069",
        area: Area::Seccomp,
        severity: Severity::Medium,
        title: "input can be pushed into the caller's terminal",
        why: "TIOCSTI types into a terminal that came in by a descriptor; the caller's shell runs it afterwards",
        reference: "CVE-2017-5226, bubblewrap#142",
        remedy: "refuse ioctl with TIOCSTI and TIOCLINUX in the low 32 bits of its second argument",
        check: Check::Sandbox(|subject, hits| {
            // A pseudo-terminal of its own is all that the sandbox can type into.
            let own = subject.document().flag("/process/terminal");
            if !own && lets(subject, "ioctl", &[0, 0x5412]) {
                hits.spot(&subject.allows("ioctl"), "ioctl runs with TIOCSTI");
            }
        }),
    },
    Rule {
        id: "AL070",
        area: Area::Seccomp,
        severity: Severity::Medium,
        title: "mounts can be changed",
        why: "with a capability or a user namespace at hand, masks and read-only parts are lifted; Landlock does not \
              cover mount_setattr",
        reference: "mount_setattr(2), Documentation/userspace-api/landlock.rst",
        remedy: "refuse the calls of mount(2) and of the new mount API",
        check: Check::Sandbox(|subject, hits| {
            if !nests(subject) {
                let calls =
                    ["mount", "umount2", "mount_setattr", "move_mount", "open_tree", "fsopen", "pivot_root"];
                first(subject, hits, &calls);
            }
        }),
    },
    Rule {
        id: "AL071",
        area: Area::Seccomp,
        severity: Severity::Medium,
        title: "files can be opened by handle",
        why: "a handle names a file of a file system past every mount and directory; with CAP_DAC_READ_SEARCH it is \
              the way to the host's files",
        reference: "open_by_handle_at(2), Docker's shocker exploit of 2014",
        remedy: "refuse open_by_handle_at",
        check: Check::Sandbox(|subject, hits| first(subject, hits, &["open_by_handle_at"])),
    },
    Rule {
        id: "AL072",
        area: Area::Seccomp,
        severity: Severity::Medium,
        title: "programs can be loaded into the kernel, or held in it",
        why: "BPF, perf and userfaultfd are what kernel exploits are made with",
        reference: "CVE-2021-3490, userfaultfd(2)",
        remedy: "refuse bpf, perf_event_open and userfaultfd",
        check: Check::Sandbox(|subject, hits| {
            first(subject, hits, &["bpf", "perf_event_open", "userfaultfd"]);
        }),
    },
    Rule {
        id: "AL073",
        area: Area::Seccomp,
        severity: Severity::High,
        title: "the running kernel can be replaced",
        why: "only a capability stands between the code and a module or a new kernel",
        reference: "init_module(2), kexec_load(2)",
        remedy: "refuse init_module, finit_module, delete_module, kexec_load, kexec_file_load and reboot",
        check: Check::Sandbox(|subject, hits| {
            first(subject, hits, &["init_module", "finit_module", "kexec_load", "kexec_file_load", "reboot"]);
        }),
    },
    Rule {
        id: "AL074",
        area: Area::Seccomp,
        severity: Severity::Medium,
        title: "a call whose arguments no filter sees does what another is refused",
        why: "openat2 takes its mode in memory, and fchmodat2 is fchmodat by another number: set-user-ID files, which \
              on an idmapped mount belong to a user of the host, can be made past the condition",
        reference: "openat2(2), fchmodat2(2)",
        remedy: "answer openat2 and fchmodat2 with ENOSYS",
        check: Check::Sandbox(|subject, hits| {
            let open = lets(subject, "openat", &[0, 0, CREATE, 0o644])
                && !lets(subject, "openat", &[0, 0, CREATE, SET_ID]);
            let change =
                lets(subject, "fchmodat", &[0, 0, 0o644]) && !lets(subject, "fchmodat", &[0, 0, SET_ID]);
            for (refused, call) in [(open, "openat2"), (change, "fchmodat2")] {
                if refused && lets(subject, call, &[0, 0, SET_ID]) {
                    hits.spot(
                        &subject.allows(call),
                        format!("{call} runs; set-id modes are refused elsewhere"),
                    );
                }
            }
        }),
    },
    Rule {
        id: "AL075",
        area: Area::Seccomp,
        severity: Severity::Low,
        title: "set-id files can be made",
        why: "in a read-write mount such a file belongs to a user of the host, who gives his id to whoever runs it",
        reference: "Documentation/filesystems/idmappings.rst",
        remedy: "refuse modes with S_ISUID or S_ISGID to the chmod family, open, mkdir and mknod",
        check: Check::Sandbox(|subject, hits| {
            let shared = subject.document().mounts().any(|mount| mount.is_bind() && mount.is_writable());
            let policy = subject.policy().is_some();
            let call = ["chmod", "fchmod"].into_iter().find(|call| lets(subject, call, &[0, SET_ID]));
            if let Some(call) = call.filter(|_| shared || policy) {
                hits.spot(&subject.allows(call), format!("{call} runs with S_ISUID"));
            }
        }),
    },
    Rule {
        id: "AL076",
        area: Area::Seccomp,
        severity: Severity::Low,
        title: "another process decides on calls",
        why: "a listener or tracer that looks at memory and then lets the call go on decides about what was there \
              before; and without it the calls hang",
        reference: "sandlock#27, runc#4328",
        remedy: "decide in the filter where that is possible",
        check: Check::Sandbox(|subject, hits| {
            let entries = subject.document().items("/linux/seccomp/syscalls");
            for (at, entry) in entries {
                if let Some(action @ ("SCMP_ACT_NOTIFY" | "SCMP_ACT_TRACE")) = entry["action"].as_str() {
                    hits.member(format!("{at}/action"), action);
                }
            }
        }),
    },
    Rule {
        id: "AL077",
        area: Area::Seccomp,
        severity: Severity::Low,
        title: "a refusal names no system call",
        why: "engines skip names that they do not know: what was to be refused follows the default",
        reference: "runc#2750",
        remedy: "correct the name",
        check: Check::Sandbox(|subject, hits| {
            let document = subject.document();
            for (at, entry) in document.items("/linux/seccomp/syscalls") {
                let refuses = !matches!(entry["action"].as_str(), Some("SCMP_ACT_ALLOW" | "SCMP_ACT_LOG"));
                for (at, name) in document.texts(&format!("{at}/names")).filter(|_| refuses) {
                    let foreign = OTHERS.contains(&name) || name.ends_with("32") || name.ends_with("64");
                    if airlock_runtime::seccomp::syscall_number(name).is_none() && !foreign {
                        hits.member(at, format!("`{name}` is no system call of x86_64"));
                    }
                }
            }
        }),
    },
];

/// Calls that other architectures have, and that profiles for all of them name.
const OTHERS: [&str; 9] =
    ["bdflush", "socketcall", "ipc", "stime", "umount", "vm86", "vm86old", "subpage_prot", "oldolduname"];

fn filter(subject: &Subject) -> Option<&Filter> {
    // Of a filter that allows by default, AL061 says all.
    let action = subject.document().text("/linux/seccomp/defaultAction");
    subject.filter().filter(|_| !matches!(action, "SCMP_ACT_ALLOW" | "SCMP_ACT_LOG"))
}

fn lets(subject: &Subject, call: &str, args: &[u64]) -> bool {
    filter(subject).is_some_and(|filter| filter.lets(call, args))
}

fn nests(subject: &Subject) -> bool {
    subject.policy().is_some_and(|policy| policy.nesting)
}

/// A finding at what allows the first of these calls that runs; the others are named with it.
fn first(subject: &Subject, hits: &mut Hits<'_>, calls: &[&str]) {
    let open: Vec<&str> = calls.iter().copied().filter(|call| lets(subject, call, &[])).collect();
    if let Some(call) = open.first() {
        hits.spot(&subject.allows(call), format!("{} let through", open.join(", ")));
    }
}
