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
/// | socket | unix, inet, inet6, netlink route | others are rarely used kernel code, or (vsock) a way out. Netlink audit gets EAFNOSUPPORT, the answer of a kernel without audit, with which PAM goes on while EPERM stops it |
/// | socketpair | unix | same |
/// | ioctl | not TIOCSTI, TIOCLINUX | type into the caller's terminal (CVE-2017-5226). The kernel looks at the low 32 bits only, so the filter does (CVE-2019-10063) |
/// | personality | 0, ADDR_NO_RANDOMIZE, or the query | READ_IMPLIES_EXEC and the rest weaken the process; debuggers and some Lisps switch their own address randomisation off |
pub fn profile(name: &str) -> Option<LinuxSeccomp> {
    match name {
        "default" => Some(build(false)),
        "strict" => Some(build(true)),
        _ => None,
    }
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
    for request in [libc::TIOCSTI, libc::TIOCLINUX] {
        rules.push(rule(&["ioctl"], ERRNO, Some(libc::EPERM.unsigned_abs()), vec![masked(1, INT, request)]));
    }
    rules.push(allow(&["ioctl"], Vec::new()));
    for persona in [0, ADDR_NO_RANDOMIZE, INT] {
        rules.push(allow(&["personality"], vec![masked(0, INT, persona)]));
    }
    for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6] {
        rules.push(allow(&["socket"], vec![equal(0, family)]));
    }
    rules.push(allow(&["socket"], vec![equal(0, libc::AF_NETLINK), equal(2, libc::NETLINK_ROUTE)]));
    rules.push(rule(
        &["socket"],
        ERRNO,
        Some(libc::EAFNOSUPPORT.unsigned_abs()),
        vec![equal(0, libc::AF_NETLINK), equal(2, libc::NETLINK_AUDIT)],
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
