//! The built-in profiles.

use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArg, LinuxSeccompArgBuilder, LinuxSeccompOperator,
    LinuxSyscall,
};

use super::calls::{ABSENT, ALLOWED};

/// Names of the built-in profiles.
pub const PROFILES: &[&str] = &["default", "strict"];

/// A built-in profile as an OCI document, or `None` if there is none of that name.
///
/// Both are allow lists: what is not listed fails with EPERM, and numbers that the table does not know
/// with ENOSYS. [`REFUSED`](super::REFUSED) says why calls are left out.
///
/// `default` runs compilers, interpreters, databases and GPU frameworks.
///
/// `strict` is for a program that computes on files and descriptors it was given: of all sockets only
/// unconnected AF_UNIX pairs, no IPC objects, no asynchronous I/O, no change of owner, id, extended
/// attribute or scheduling class, no device nodes, and of ioctl only what terminals, pipes and
/// descriptors need.
///
/// Conditions of both:
///
/// | call | runs if | why |
/// | --- | --- | --- |
/// | clone | no namespace flag | as unshare. CLONE_NEWTIME lies in the byte that clone takes as exit signal |
/// | chmod family, creat, mkdir, open with O_CREAT or O_TMPFILE, mknod | no set-id bit in the mode | on an idmapped mount the file belongs to a user of the host |
/// | mknod | regular file, FIFO or socket | device nodes are the host's to give |
/// | renameat2 | not RENAME_WHITEOUT | it leaves a character device 0:0 behind, without any capability since Linux 5.8 |
/// | socket | unix; inet and inet6 with type stream, datagram or raw and the default protocol, TCP, UDP, ICMP or ICMPv6 | others are rarely used kernel code (MPTCP, SCTP, DCCP, L2TP), loaded on demand, or (vsock) a way out. Type SOCK_SEQPACKET is SCTP without saying so. Netlink gets EAFNOSUPPORT, the answer of a kernel without it: PAM goes on without audit while EPERM stops it, and the replies that wait in a route socket are memory that no cgroup is charged for. [`allow_netlink_route`] lets route sockets be made |
/// | socketpair | unix | same |
/// | ioctl | not TIOCSTI, TIOCLINUX, TIOCSETD | type into the caller's terminal (CVE-2017-5226); load line disciplines, rarely used kernel code (CVE-2017-2636). The kernel looks at the low 32 bits only, so the filter does (CVE-2019-10063) |
/// | personality | 0, ADDR_NO_RANDOMIZE, or the query | READ_IMPLIES_EXEC and the rest weaken the process; debuggers and some Lisps switch their own address randomisation off |
/// | prlimit64, migrate_pages, move_pages | process 0, the caller itself | PID 1 may share the payload's user id, and without descriptors it could not tell how the payload ended |
/// | prlimit64, setrlimit | reads, or sets anything but RLIMIT_CORE | the limit of 1 with which sandboxes start keeps their crashes from a program of the host (core(5)); a limit of 0 would not |
///
/// # Calls on other processes that stay
///
/// sched_setaffinity (glibc calls it with a thread's id), and in `default` sched_setattr, sched_setparam,
/// sched_setscheduler (same), setpriority and ioprio_set. They reach processes of the sandbox only, for a
/// process, a group and a user alike, and can make PID 1 slow but not wrong: limits are kept by cgroups and
/// by the monitor outside. kill and its like reach the same processes; the kernel shields PID 1 from signals
/// that it has no handler for.
///
/// # Beside the default profiles of Docker and podman
///
/// `default` lets through what they refuse to a container without capabilities, or do not know:
///
/// | call | why here |
/// | --- | --- |
/// | get_mempolicy, mbind, set_mempolicy, set_mempolicy_home_node | NUMA placement of the program's own memory, which training uses; within the cpuset's nodes |
/// | migrate_pages, move_pages | the same, for the caller itself |
/// | personality(ADDR_NO_RANDOMIZE) | see above; it weakens the caller alone |
/// | cachestat, membarrier, memfd_secret, landlock | podman alone refuses them: the cache's state is as well known from timing; language runtimes need membarrier; the others protect |
/// | file_getattr, file_setattr | as their ioctl forms, which all three allow |
/// | lsm_get_self_attr, lsm_list_modules | read what /proc/self/attr shows |
/// | uprobe | as uretprobe, which Docker allows: SIGILL outside of a tracer's trampoline |
pub fn profile(name: &str) -> Option<LinuxSeccomp> {
    match name {
        "default" => Some(build(false)),
        "strict" => Some(build(true)),
        _ => None,
    }
}

/// Lets `default` make NETLINK_ROUTE sockets, by which programs list the network's interfaces (getifaddrs(3)).
///
/// The replies that wait in them are charged to no memory cgroup, so a sandbox can hold more memory of the host than
/// its limit says. `strict` has no sockets of families and needs none of this. To be called before [`set_action`].
pub fn allow_netlink_route(document: &mut LinuxSeccomp) {
    let mut entries = document.syscalls().clone().unwrap_or_default();
    // The first rule that holds decides, and one of the profile refuses the family.
    entries.insert(0, allow(&["socket"], vec![equal(0, libc::AF_NETLINK), equal(2, libc::NETLINK_ROUTE)]));
    document.set_syscalls(Some(entries));
}

/// Gives `call` one unconditional action in place of all that the document says about it.
///
/// This is what a policy's `allow`, `deny` and `log` lists mean. `errno` is for `SCMP_ACT_ERRNO`.
pub fn set_action(document: &mut LinuxSeccomp, call: &str, action: LinuxSeccompAction, errno: Option<u32>) {
    let mut entries = document.syscalls().clone().unwrap_or_default();
    for entry in &mut entries {
        let names = entry.names().iter().filter(|name| *name != call).cloned().collect();
        entry.set_names(names);
    }
    entries.retain(|entry| !entry.names().is_empty());
    entries.push(rule(&[call], action, errno, Vec::new()));
    document.set_syscalls(Some(entries));
}

const ALLOW: LinuxSeccompAction = LinuxSeccompAction::ScmpActAllow;
const ERRNO: LinuxSeccompAction = LinuxSeccompAction::ScmpActErrno;

/// Every `CLONE_NEW*` flag that clone(2) looks at.
const NAMESPACES: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;

/// `S_ISUID | S_ISGID`
const SET_ID: u64 = 0o6000;

/// `O_CREAT | __O_TMPFILE`: open looks at the mode only with one of them (`O_TMPFILE` itself also
/// contains `O_DIRECTORY`).
const CREATES: u64 = 0o100 | 0o20_000_000;

/// `ADDR_NO_RANDOMIZE`
const ADDR_NO_RANDOMIZE: u64 = 0x004_0000;

/// Bits that the kernel looks at where it takes an `int`.
const INT: u64 = 0xffff_ffff;

/// As a process id: the caller.
const OWN_PROCESS: i32 = 0;

/// Every resource limit (0 to 15) but `RLIMIT_CORE` (4), as masks and what is left under them: a list of what
/// is allowed, since OCI has no "masked and not equal".
const NOT_CORE: [(u64, u64); 4] = [(INT & !0b11, 0), (INT, 5), (INT & !0b1, 6), (INT & !0b111, 8)];

/// Protocols of the internet families.
const PROTOCOLS: [i32; 5] =
    [libc::IPPROTO_IP, libc::IPPROTO_ICMP, libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_ICMPV6];

/// Bits of a socket's type that no stream, datagram or raw socket (1 to 3) has; above them are its flags.
const ODD_TYPE: u64 = 0b1100;

fn build(strict: bool) -> LinuxSeccomp {
    let allowed = ALLOWED.iter().filter(|group| group.strict || !strict);
    let names: Vec<&str> = allowed.flat_map(|group| group.calls).copied().collect();
    let mut rules = vec![rule(&names, ALLOW, None, Vec::new()), errno(ABSENT, libc::ENOSYS)];
    rules.push(allow(&["clone"], vec![masked(0, u64::from(NAMESPACES.unsigned_abs()), 0)]));
    rules.push(allow(&["chmod", "creat", "fchmod", "mkdir"], vec![masked(1, SET_ID, 0)]));
    rules.push(allow(&["fchmodat", "mkdirat"], vec![masked(2, SET_ID, 0)]));
    for (call, flags) in [("open", 1), ("openat", 2)] {
        rules.push(allow(&[call], vec![masked(flags, CREATES, 0)]));
        rules.push(allow(&[call], vec![masked(flags + 1, SET_ID, 0)]));
    }
    if strict {
        let requests = TERMINAL.iter().chain(DESCRIPTOR);
        rules.extend(requests.map(|request| allow(&["ioctl"], vec![masked(1, INT, *request)])));
    } else {
        rules.extend(wide());
    }
    rules.push(allow(&["socketpair"], vec![equal(0, libc::AF_UNIX)]));
    rules.push(allow(&["renameat2"], vec![masked(4, libc::RENAME_WHITEOUT.into(), 0)]));
    rules.push(allow(&["prlimit64"], vec![equal(0, OWN_PROCESS), masked(2, u64::MAX, 0)]));
    for (mask, resource) in NOT_CORE {
        rules.push(allow(&["prlimit64"], vec![equal(0, OWN_PROCESS), masked(1, mask, resource)]));
        rules.push(allow(&["setrlimit"], vec![masked(0, mask, resource)]));
    }

    let mut document = LinuxSeccomp::default();
    document
        .set_default_action(ERRNO)
        .set_default_errno_ret(Some(libc::EPERM.unsigned_abs()))
        .set_architectures(Some(vec![Arch::ScmpArchNative]))
        .set_syscalls(Some(rules));
    document
}

/// Conditions of `default` where `strict` has narrower ones or none.
fn wide() -> Vec<LinuxSyscall> {
    let mut rules = Vec::new();
    for kind in [0, libc::S_IFREG, libc::S_IFIFO, libc::S_IFSOCK] {
        for (call, mode) in [("mknod", 1), ("mknodat", 2)] {
            rules.push(allow(&[call], vec![masked(mode, u64::from(libc::S_IFMT) | SET_ID, u64::from(kind))]));
        }
    }
    for request in [libc::TIOCSTI, libc::TIOCLINUX, libc::TIOCSETD] {
        rules.push(rule(&["ioctl"], ERRNO, Some(libc::EPERM.unsigned_abs()), vec![masked(1, INT, request)]));
    }
    rules.push(allow(&["ioctl"], Vec::new()));
    for persona in [0, ADDR_NO_RANDOMIZE, INT] {
        rules.push(allow(&["personality"], vec![masked(0, INT, persona)]));
    }
    rules.push(allow(&["migrate_pages", "move_pages"], vec![equal(0, OWN_PROCESS)]));
    rules.push(allow(&["socket"], vec![equal(0, libc::AF_UNIX)]));
    for family in [libc::AF_INET, libc::AF_INET6] {
        let socket = |protocol| vec![equal(0, family), masked(1, ODD_TYPE, 0), equal(2, protocol)];
        rules.extend(PROTOCOLS.map(|protocol| allow(&["socket"], socket(protocol))));
    }
    rules.push(rule(
        &["socket"],
        ERRNO,
        Some(libc::EAFNOSUPPORT.unsigned_abs()),
        vec![equal(0, libc::AF_NETLINK)],
    ));
    rules
}

/// Requests of terminals that `strict` allows.
const TERMINAL: &[u64] = &[
    libc::TCGETS,
    libc::TCSETS,
    libc::TCSETSW,
    libc::TCSETSF,
    libc::TIOCSCTTY,
    libc::TIOCGPGRP,
    libc::TIOCSPGRP,
    libc::TIOCGWINSZ,
    libc::TIOCSWINSZ,
];

/// Requests of any descriptor that `strict` allows.
const DESCRIPTOR: &[u64] = &[libc::FIONREAD, libc::FIONBIO, libc::FIOCLEX, libc::FIONCLEX];

fn allow(calls: &[&str], conditions: Vec<LinuxSeccompArg>) -> LinuxSyscall {
    rule(calls, ALLOW, None, conditions)
}

fn errno(calls: &[&str], errno: i32) -> LinuxSyscall {
    rule(calls, ERRNO, Some(errno.unsigned_abs()), Vec::new())
}

fn rule(
    calls: &[&str],
    action: LinuxSeccompAction,
    errno: Option<u32>,
    conditions: Vec<LinuxSeccompArg>,
) -> LinuxSyscall {
    let mut rule = LinuxSyscall::default();
    rule.set_names(calls.iter().map(ToString::to_string).collect())
        .set_action(action)
        .set_errno_ret(errno)
        .set_args((!conditions.is_empty()).then_some(conditions));
    rule
}

fn masked(index: usize, mask: u64, value: u64) -> LinuxSeccompArg {
    let arg = LinuxSeccompArgBuilder::default()
        .index(index)
        .op(LinuxSeccompOperator::ScmpCmpMaskedEq)
        .value(mask)
        .value_two(value);
    // A builder whose fields all have defaults has nothing to refuse.
    arg.build().unwrap_or_default()
}

/// The low 32 bits are `value`: the kernel takes these arguments as `int`.
fn equal(index: usize, value: i32) -> LinuxSeccompArg {
    masked(index, INT, u64::from(value.unsigned_abs()))
}
