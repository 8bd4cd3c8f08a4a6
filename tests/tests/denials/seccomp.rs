//! The system call filter.
//!
//! A refused call fails with EPERM before the kernel looks at its arguments. So a call with senseless
//! arguments tells who answered: EPERM is the filter; once the call is allowed, the kernel says EFAULT, EBADF
//! or the like, without doing anything.

use airlock_tests::{Outcome, Site, skip};

use crate::refused_then_done;

/// Signal that ends a call by the wrong architecture or ABI.
const SIGSYS: i32 = 31;

#[track_caller]
fn filter_answers(call: &str, arguments: &[&str]) {
    let site = Site::new();
    let action: Vec<&str> = ["call", call].into_iter().chain(arguments.iter().copied()).collect();
    site.inside("", &action).refused(&["EPERM"]);
    let answer = site.inside(&format!("[seccomp]\nallow = [\"{call}\"]\n"), &action);
    if answer == Outcome::Refused("EPERM".into()) && Site::user().outside(&action) == answer {
        skip!("this kernel refuses {call} by itself to whoever has no capability");
    }
    assert_ne!(answer, Outcome::Refused("EPERM".into()), "{call} is still refused once it is allowed");
}

macro_rules! filter_refuses {
    ($($test:ident: $call:ident $($argument:literal)*;)+) => {$(
        #[test]
        fn $test() {
            filter_answers(stringify!($call), &[$($argument),*]);
        }
    )+};
}

filter_refuses! {
    refuses_add_key: add_key "nowhere" "nowhere" "0" "0" "0";
    refuses_bpf: bpf "0" "nowhere" "0";
    refuses_clock_settime: clock_settime "0" "nowhere";
    refuses_finit_module: finit_module "-1" "nowhere" "0";
    refuses_init_module: init_module "nowhere" "0" "nowhere";
    refuses_io_setup: io_setup "0" "nowhere";
    refuses_io_uring_enter: io_uring_enter "-1" "0" "0" "0" "0" "0";
    refuses_io_uring_register: io_uring_register "-1" "0" "0" "0";
    refuses_io_uring_setup: io_uring_setup "0" "nowhere";
    refuses_kexec_load: kexec_load "0" "32" "0" "0";
    refuses_keyctl: keyctl "0" "-3" "0";
    refuses_migrate_pages_of_others: migrate_pages "2147483647" "0" "0" "0";
    refuses_mount: mount "nowhere" "nowhere" "nowhere" "0" "0";
    refuses_mount_setattr: mount_setattr "-1" "nowhere" "0" "nowhere" "0";
    refuses_move_pages_of_others: move_pages "2147483647" "0" "0" "0" "0" "0";
    refuses_open_by_handle_at: open_by_handle_at "-1" "nowhere" "0";
    refuses_open_tree: open_tree "-1" "nowhere" "0";
    refuses_perf_event_open: perf_event_open "nowhere" "0" "0" "0" "0";
    // READ_IMPLIES_EXEC
    refuses_personality: personality "0x0400000";
    refuses_quotactl: quotactl "0" "0" "0" "0";
    refuses_request_key: request_key "nowhere" "nowhere" "nowhere" "0";
    refuses_setns: setns "-1" "0";
    refuses_settimeofday: settimeofday "nowhere" "0";
    refuses_umount: umount2 "nowhere" "0";
    refuses_unshare_of_a_user_namespace: unshare "0x10000000";
    refuses_userfaultfd: userfaultfd "0xffff";
    refuses_vmsplice: vmsplice "-1" "nowhere" "0" "0";
    // TIOCSTI pushes input into the caller's terminal (CVE-2017-5226), TIOCLINUX pastes into a console.
    refuses_tiocsti: ioctl "-1" "0x5412" "0";
    refuses_tioclinux: ioctl "-1" "0x541c" "0";
    // TIOCSETD loads line disciplines (CVE-2017-2636).
    refuses_tiocsetd: ioctl "-1" "0x5423" "0";
    // The kernel reads the low 32 bits of the request alone.
    refuses_tiocsti_with_high_bits: ioctl "-1" "0x100005412" "0";
}

/// ptrace and process_vm_* are as the policy says, whatever the profile's own choice.
#[test]
fn the_policys_lists_decide_over_ptrace() {
    let deny = "[seccomp]\ndeny = [\"ptrace\"]\n";
    let allow = "[seccomp]\nallow = [\"ptrace\"]\n";
    refused_then_done(deny, allow, &["trace"], &["EPERM"]);
}

#[test]
fn the_policys_lists_decide_over_process_vm_readv() {
    let deny = "[seccomp]\ndeny = [\"process_vm_readv\"]\n";
    let allow = "[seccomp]\nallow = [\"process_vm_readv\"]\n";
    let action = ["call", "process_vm_readv", "-1", "0", "0", "0", "0", "0"];
    refused_then_done(deny, allow, &action, &["EPERM"]);
}

/// PID 1 may share the payload's user id. Without descriptors it could not tell the end as it was.
#[test]
fn limits_of_another_process_are_not_to_be_set() {
    refused_then_done("", "[seccomp]\nallow = [\"prlimit64\"]\n", &["limit-other"], &["EPERM"]);
    // RLIMIT_NOFILE
    Site::new().inside("", ["limit-own", "7", "64"]).done();
}

/// A limit of 0 would let a crash start the host's program behind a piped core pattern; the 1 that sandboxes start
/// with does not.
#[test]
fn the_core_limit_stays() {
    const RLIMIT_CORE: &str = "4";
    let loose = "[seccomp]\nallow = [\"prlimit64\", \"setrlimit\"]\n";
    refused_then_done("", loose, &["limit-own", RLIMIT_CORE, "0"], &["EPERM"]);
}

/// A whiteout is a device node, which the payload could leave on the host.
#[test]
fn no_whiteouts() {
    let loose = "[seccomp]\nallow = [\"renameat2\"]\n";
    refused_then_done("", loose, &["whiteout", "/tmp/x"], &["EPERM"]);
}

/// glibc falls back to clone, whose flags the filter can see, if it is told ENOSYS and nothing else.
#[test]
fn clone3_is_unknown() {
    let site = Site::new();
    let action = ["call", "clone3", "buffer", "0"];
    site.inside("", action).refused(&["ENOSYS"]);
    site.inside("[seccomp]\nallow = [\"clone3\"]\n", action).refused(&["EINVAL"]);
}

#[test]
fn clone_makes_no_user_namespace() {
    let action = ["clone-with", "0x10000000"];
    refused_then_done("", "nesting = true\n", &action, &["EPERM"]);
    // Without the filter's mask, the sandbox's own limit of user namespaces is left.
    let unmasked = "[seccomp]\nallow = [\"clone\"]\n";
    Site::new().inside(unmasked, action).refused(&["ENOSPC"]);
}

#[test]
fn clone_makes_processes() {
    Site::new().inside("", ["clone-with", "0"]).done();
}

#[test]
fn an_unknown_number_is_unknown() {
    Site::new().inside("", ["call", "1000"]).refused(&["ENOSYS"]);
}

#[test]
fn the_x32_table_kills() {
    let site = Site::new();
    site.inside("", ["x32"]).killed(SIGSYS);
    // Most kernels have no x32 table and say so; what counts is that they are asked.
    assert_ne!(site.inside("[seccomp]\nprofile = \"none\"\n", ["x32"]), Outcome::Killed(SIGSYS));
}

#[test]
fn the_i386_table_kills() {
    let site = Site::new();
    if matches!(site.outside(["int80"]), Outcome::Killed(_)) {
        skip!("this kernel has no 32-bit system calls");
    }
    site.inside("", ["int80"]).killed(SIGSYS);
    site.inside("[seccomp]\nprofile = \"none\"\n", ["int80"]).done();
}

#[track_caller]
fn family_refused(family: &str, kind: &str, protocol: &str) {
    let site = Site::new();
    let action = ["socket", family, kind, protocol];
    site.inside("", action).refused(&["EPERM"]);
    // Done, or EAFNOSUPPORT where the kernel has no such sockets.
    let loose = site.inside("[seccomp]\nallow = [\"socket\"]\n", action);
    assert_ne!(loose, Outcome::Refused("EPERM".into()), "the filter made no difference");
}

/// Page-cache writes past read-only mounts went through AF_ALG (runc#5272).
#[test]
fn no_crypto_sockets() {
    family_refused("38", "5", "0");
}

#[test]
fn no_vsock() {
    family_refused("40", "1", "0");
}

/// Code that a socket call alone loads. SCTP comes by its protocol or by its type.
#[test]
fn no_rare_protocols_of_the_internet() {
    for (kind, protocol) in [("1", "262"), ("1", "132"), ("5", "0"), ("2", "136"), ("2", "115"), ("6", "33")]
    {
        for family in ["2", "10"] {
            family_refused(family, kind, protocol);
        }
    }
    for (family, kind, protocol) in [("2", "1", "0"), ("2", "2", "17"), ("10", "1", "6"), ("10", "2", "0")] {
        Site::new().inside("", ["socket", family, kind, protocol]).done();
    }
}

/// Replies that wait in a route socket are memory that no cgroup is charged for, so the family is there only where
/// programs must list interfaces. PAM takes EPERM for a failure of the audit system (9), and EAFNOSUPPORT for a kernel
/// without one.
#[test]
fn no_netlink_but_route_for_a_loopback() {
    const LOOPBACK: &str = "[network]\nmode = \"loopback\"\n";
    let site = Site::new();
    let absent = Outcome::Refused("EAFNOSUPPORT".into());
    for protocol in ["0", "9", "15"] {
        let action = ["socket", "16", "3", protocol];
        assert_eq!(site.inside("", action), absent, "{protocol}");
        let loose = site.inside("[seccomp]\nallow = [\"socket\"]\n", action);
        assert_ne!(loose, absent, "{protocol}: the filter made no difference");
        let loopback = site.inside(LOOPBACK, action);
        assert_eq!(loopback == absent, protocol != "0", "{protocol}: {loopback:?}");
    }
}

#[test]
fn no_packet_sockets_even_with_the_capability() {
    let keep = "[capabilities]\nkeep = [\"CAP_NET_RAW\"]\n";
    let loose = format!("{keep}[seccomp]\nallow = [\"socket\"]\n");
    let site = Site::new();
    let action = ["socket", "17", "3", "0"];
    site.inside(keep, action).refused(&["EPERM"]);
    match site.inside(&loose, action) {
        Outcome::Done(_) => {}
        // This kernel has none.
        absent => absent.refused(&["EAFNOSUPPORT"]),
    }
}

/// Landlock does not cover mount_setattr.
#[test]
fn mount_setattr_is_the_filters_to_refuse() {
    let strict = "nesting = true\n[seccomp]\ndeny = [\"mount_setattr\"]\n";
    let action = ["nested", "set-read-only", "/tmp"];
    refused_then_done(strict, "nesting = true\n", &action, &["EPERM"]);
}

#[test]
fn no_set_id_bits_by_chmod() {
    let loose = "[seccomp]\nallow = [\"chmod\", \"fchmod\", \"fchmodat\"]\n";
    for mode in ["04755", "02755", "06755"] {
        refused_set_id(loose, "chmod", mode);
    }
}

#[test]
fn no_set_id_bits_by_open() {
    let loose = "[seccomp]\nallow = [\"open\", \"openat\", \"creat\"]\n";
    refused_set_id(loose, "create", "04755");
}

#[track_caller]
fn refused_set_id(loose: &str, action: &str, mode: &str) {
    let site = Site::new();
    let data = site.folder("data");
    if action == "chmod" {
        site.file("data/program", "#!/bin/sh\n");
    }
    let mount = format!("\n[[mount]]\nsource = \"{}\"\ntarget = \"/data\"\nmode = \"rw\"\n", data.display());
    let attempt = [action, "/data/program", mode];
    site.inside(&mount, attempt).refused(&["EPERM"]);
    site.inside(&format!("{loose}{mount}"), attempt).done();
}

#[test]
fn ordinary_modes_may_be_set() {
    let site = Site::new();
    let script = "touch /tmp/x && chmod 755 /tmp/x && mkdir -m 1777 /tmp/y";
    site.run().policy(site.policy("")).end(["/bin/sh", "-c", script]).succeeded();
}

#[test]
fn nesting_is_a_clause_of_its_own() {
    refused_then_done("", "nesting = true\n", &["call", "unshare", "0x10000000"], &["EPERM"]);
}

/// Law: a profile that cannot be read is an error, not an unfiltered sandbox.
#[test]
fn a_missing_profile_is_an_error() {
    let site = Site::new();
    let policy = site.policy("[seccomp]\nprofile = \"./no-such-profile.json\"\n");
    site.run().policy(policy).end(["true"]).refused(&["no-such-profile.json"]);
}
