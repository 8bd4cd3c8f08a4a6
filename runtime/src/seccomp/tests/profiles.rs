//! The built-in profiles, executed over all numbers.

use super::*;

#[test]
fn the_programs_do_what_the_documents_say() {
    for name in PROFILES {
        let document = profile(name).unwrap();
        let program = compile(&document).unwrap();
        assert!(program.instructions.len() < 300, "{name}: {} instructions", program.instructions.len());
        assert_eq!(unknown_names(&document), Vec::<&str>::new());
        evaluate::compare(&document, &program, &[]);
        program.check_launch_set().unwrap();
        assert_eq!(compile(&profile(name).unwrap()).unwrap().digest(), program.digest());
    }
    assert!(profile("Default").is_none());
}

/// Where the refusals must hold whatever the document says.
#[test]
fn refused_calls_fail_with_eperm_and_absent_ones_with_enosys() {
    for name in PROFILES {
        let program = compile(&profile(name).unwrap()).unwrap();
        for args in [[0; 6], [u64::MAX; 6]] {
            for call in REFUSED.iter().flat_map(|group| group.calls) {
                let verdict = answer(&program, syscall_number(call).unwrap(), args);
                assert_eq!(verdict, Verdict::Errno(1), "{name}: {call}");
            }
            for call in ["clone3", "openat2", "fchmodat2"] {
                assert_eq!(answer(&program, syscall_number(call).unwrap(), args), Verdict::NO_SUCH_CALL);
            }
        }
    }
    assert!(refusal("keyctl").unwrap().contains("keyrings"));
    assert_eq!(refusal("read"), None);
}

/// Facts about `default`, written out by hand.
#[test]
fn conditions_of_default() {
    let program = compile(&profile("default").unwrap()).unwrap();
    let verdict = |call: &str, args: &[u64]| {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        answer(&program, syscall_number(call).unwrap(), all)
    };
    let (yes, eperm, family) = (Verdict::Allow, Verdict::Errno(1), Verdict::Errno(97));
    for (call, args, want) in [
        ("clone", &[0x0120_0011][..], yes),
        ("clone", &[0x003d_0f00], yes),
        ("clone", &[0x1000_0011], eperm),
        ("clone", &[0x4000_0011], eperm),
        ("clone", &[0x0200_0011], eperm),
        ("chmod", &[0, 0o755], yes),
        ("chmod", &[0, 0o1777], yes),
        ("chmod", &[0, 0o4755], eperm),
        ("fchmod", &[0, 0o2755], eperm),
        ("fchmodat", &[0, 0, 0o6755], eperm),
        ("fchmodat", &[0, 0, 0xffff_ffff_0000_01ff], yes),
        ("creat", &[0, 0o4755], eperm),
        ("mkdir", &[0, 0o2755], eperm),
        ("mkdirat", &[0, 0, 0o2755], eperm),
        ("mkdirat", &[0, 0, 0o755], yes),
        // Without O_CREAT the mode is whatever lay in the register.
        ("open", &[0, 0, 0o6000], yes),
        ("open", &[0, 0o101, 0o644], yes),
        ("open", &[0, 0o101, 0o4755], eperm),
        ("openat", &[0, 0, 0o101, 0o4755], eperm),
        ("openat", &[0, 0, 0o20_200_002, 0o4755], eperm),
        ("openat", &[0, 0, 0o20_200_002, 0o600], yes),
        // O_DIRECTORY, which O_TMPFILE contains, creates nothing.
        ("openat", &[0, 0, 0o200_000, 0o6000], yes),
        ("mknod", &[0, 0o644], yes),
        ("mknod", &[0, 0o100_644], yes),
        ("mknod", &[0, 0o010_644], yes),
        ("mknod", &[0, 0o140_644], yes),
        ("mknod", &[0, 0o020_644], eperm),
        ("mknod", &[0, 0o060_644], eperm),
        ("mknod", &[0, 0o104_755], eperm),
        ("mknodat", &[0, 0, 0o020_644], eperm),
        ("mknodat", &[0, 0, 0o010_600], yes),
        ("socket", &[1, 1, 0], yes),
        ("socket", &[2, 2, 17], yes),
        ("socket", &[10, 1, 6], yes),
        ("socket", &[16, 3, 0], family),
        ("socket", &[16, 2, 9], family),
        ("socket", &[0xffff_ffff_0000_0010, 3, 15], family),
        ("socket", &[17, 3, 0], eperm),
        ("socket", &[38, 5, 0], eperm),
        ("socket", &[40, 1, 0], eperm),
        // The kernel takes an int: high bits do not make AF_ALG of anything else, nor hide it.
        ("socket", &[0x1_0000_0026, 5, 0], eperm),
        // The internet families: streams (with SOCK_CLOEXEC), datagrams and pings.
        ("socket", &[2, 0x8_0001, 0], yes),
        ("socket", &[2, 0x8_0801, 6], yes),
        ("socket", &[2, 2, 1], yes),
        ("socket", &[10, 2, 58], yes),
        ("socket", &[2, 3, 1], yes),
        // MPTCP, SCTP, UDP-Lite, L2TP; SCTP by its type, and DCCP by its own.
        ("socket", &[2, 1, 262], eperm),
        ("socket", &[10, 1, 132], eperm),
        ("socket", &[2, 2, 136], eperm),
        ("socket", &[2, 2, 115], eperm),
        ("socket", &[2, 5, 0], eperm),
        ("socket", &[10, 0x8_0005, 0], eperm),
        ("socket", &[2, 6, 0], eperm),
        ("socket", &[2, 6, 33], eperm),
        ("socket", &[2, 1, 0xffff_ffff_0000_0106], eperm),
        ("socket", &[1, 5, 0], yes),
        ("socketpair", &[1, 1, 0], yes),
        ("socketpair", &[2, 1, 0], eperm),
        ("ioctl", &[0, 0x5401], yes),
        ("ioctl", &[0, 0x5412], eperm),
        ("ioctl", &[0, 0x541c], eperm),
        ("ioctl", &[0, 0x5423], eperm),
        ("ioctl", &[0, 0xdead_beef_0000_5412], eperm),
        ("ioctl", &[0, 0xdead_beef_0000_5423], eperm),
        ("migrate_pages", &[0], yes),
        ("migrate_pages", &[1], eperm),
        ("move_pages", &[0xffff_ffff_0000_0000], yes),
        ("move_pages", &[2], eperm),
        ("personality", &[0], yes),
        ("personality", &[0xffff_ffff], yes),
        ("personality", &[u64::MAX], yes),
        ("personality", &[0x004_0000], yes),
        ("personality", &[0x040_0000], eperm),
        ("personality", &[0x008], eperm),
    ] {
        assert_eq!(verdict(call, args), want, "{call} {args:x?}");
    }
}

/// Of limits, a process may read its own and set all but RLIMIT_CORE; of another process, none.
#[test]
fn limits_are_a_process_s_own() {
    const RLIMIT_CORE: u64 = 4;
    const NEW: u64 = 0x7fff_0000_0000;
    for name in PROFILES {
        let program = compile(&profile(name).unwrap()).unwrap();
        let verdict = |call: &str, args| answer(&program, syscall_number(call).unwrap(), args);
        for resource in 0..16 {
            let own = if resource == RLIMIT_CORE { Verdict::Errno(1) } else { Verdict::Allow };
            for high in [0, 1 << 32, 0xffff_ffff << 32] {
                assert_eq!(verdict("prlimit64", [high, resource | high, NEW, 0, 0, 0]), own, "{resource}");
                assert_eq!(verdict("setrlimit", [resource | high, NEW, 0, 0, 0, 0]), own, "{resource}");
            }
            assert_eq!(verdict("prlimit64", [0, resource, 0, NEW, 0, 0]), Verdict::Allow);
            for (pid, new) in [(1, NEW), (1, 0), (0xffff_ffff, NEW)] {
                assert_eq!(verdict("prlimit64", [pid, resource, new, NEW, 0, 0]), Verdict::Errno(1));
            }
        }
    }
}

/// RENAME_WHITEOUT (4) makes a device; RENAME_NOREPLACE (1) and RENAME_EXCHANGE (2) do not.
#[test]
fn no_whiteouts() {
    for name in PROFILES {
        let program = compile(&profile(name).unwrap()).unwrap();
        let verdict = |flags| answer(&program, syscall_number("renameat2").unwrap(), [0, 0, 0, 0, flags, 0]);
        for flags in [0, 1, 2] {
            assert_eq!(verdict(flags), Verdict::Allow);
        }
        for flags in [4, 5, 0x1_0000_0004] {
            assert_eq!(verdict(flags), Verdict::Errno(1));
        }
    }
}

#[test]
fn strict_is_narrower_than_default_everywhere() {
    let [default, strict] = ["default", "strict"].map(|name| compile(&profile(name).unwrap()).unwrap());
    let document = profile("default").unwrap();
    let mut narrower = 0;
    for (name, number) in all() {
        for value in evaluate::corners(&document, name, 1) {
            let args = [value; 6];
            let (wide, narrow) = (answer(&default, *number, args), answer(&strict, *number, args));
            assert!(wide.lets_through() || !narrow.lets_through(), "{name} {value:#x}");
            narrower += usize::from(wide.lets_through() && !narrow.lets_through());
        }
    }
    assert!(narrower > 100);
}

#[test]
fn an_override_replaces_everything_said_about_a_call() {
    let mut document = profile("default").unwrap();
    set_action(&mut document, "ptrace", ScmpActAllow, None);
    set_action(&mut document, "clone3", ScmpActAllow, None);
    set_action(&mut document, "socket", ScmpActErrno, Some(13));
    set_action(&mut document, "chmod", ScmpActAllow, None);
    let program = compile(&document).unwrap();
    evaluate::compare(&document, &program, &[]);
    let verdict = |call: &str, args| answer(&program, syscall_number(call).unwrap(), args);
    assert_eq!(verdict("ptrace", [0; 6]), Verdict::Allow);
    assert_eq!(verdict("clone3", [0; 6]), Verdict::Allow);
    assert_eq!(verdict("socket", [1; 6]), Verdict::Errno(13));
    assert_eq!(verdict("chmod", [0o6777; 6]), Verdict::Allow);
    assert_eq!(verdict("fchmod", [0o6777; 6]), Verdict::Errno(1));
}

/// Of netlink, route alone, and nothing of other families.
#[test]
fn netlink_route_can_be_allowed() {
    let plain = compile(&profile("default").unwrap()).unwrap();
    let mut document = profile("default").unwrap();
    allow_netlink_route(&mut document);
    let program = compile(&document).unwrap();
    evaluate::compare(&document, &program, &[]);
    let socket = syscall_number("socket").unwrap();
    for kind in [2, 3, 0x8_0003] {
        assert_eq!(answer(&program, socket, [16, kind, 0, 0, 0, 0]), Verdict::Allow);
        assert_eq!(answer(&plain, socket, [16, kind, 0, 0, 0, 0]), Verdict::Errno(97));
        for protocol in [1, 4, 9, 15, 16] {
            assert_eq!(answer(&program, socket, [16, kind, protocol, 0, 0, 0]), Verdict::Errno(97));
        }
        assert_eq!(answer(&program, socket, [17, kind, 0, 0, 0, 0]), Verdict::Errno(1));
    }
    set_action(&mut document, "socket", ScmpActErrno, Some(1));
    assert_eq!(answer(&compile(&document).unwrap(), socket, [16, 3, 0, 0, 0, 0]), Verdict::Errno(1));
}

#[test]
fn nesting_allows_namespaces_and_mounts() {
    let mut document = profile("default").unwrap();
    for call in NESTING {
        set_action(&mut document, call, ScmpActAllow, None);
    }
    let program = compile(&document).unwrap();
    for call in NESTING {
        assert_eq!(answer(&program, syscall_number(call).unwrap(), [u64::MAX; 6]), Verdict::Allow, "{call}");
    }
    assert_eq!(answer(&program, syscall_number("keyctl").unwrap(), [0; 6]), Verdict::Errno(1));
}

#[test]
fn a_profile_without_a_call_of_the_launch_set_is_refused_by_name() {
    for (call, _) in LAUNCH_SET {
        let mut document = profile("default").unwrap();
        set_action(&mut document, call, ScmpActErrno, None);
        let error = check_launch_set(&document).unwrap_err();
        assert!(matches!(error, SeccompError::LaunchSet { call: named, .. } if named == *call), "{error}");
    }
}

#[test]
fn the_filter_of_pid_1_kills_all_else() {
    let program = own::init_filter().unwrap();
    let verdict = |call: &str, args| answer(&program, syscall_number(call).unwrap(), args);
    for call in ["read", "write", "wait4", "waitid", "kill", "ppoll", "exit_group", "rt_sigreturn", "mmap"] {
        assert_eq!(verdict(call, [0; 6]), Verdict::Allow, "{call}");
    }
    for call in ["execve", "execveat", "openat", "open", "fork", "clone", "ptrace", "socket", "mprotect"] {
        assert_eq!(verdict(call, [0; 6]), Verdict::KillProcess, "{call}");
    }
    assert_eq!(verdict("ioctl", [0, libc::TIOCSWINSZ, 0, 0, 0, 0]), Verdict::Allow);
    assert_eq!(verdict("ioctl", [0, libc::TIOCSTI, 0, 0, 0, 0]), Verdict::KillProcess);
    let allowed = (0..1024).filter(|number| answer(&program, *number, [0; 6]) == Verdict::Allow).count();
    assert_eq!(allowed, own::INIT.len());
    let launch: Vec<&str> = LAUNCH_SET.iter().map(|(call, _)| *call).collect();
    assert!(own::INIT.iter().all(|call| launch.contains(call)), "PID 1 lives under the payload's filter too");
    // seccompiler#74: read and write of the x32 ABI share the architecture's audit value.
    for number in [1 << 30, (1 << 30) + 1, u32::MAX] {
        assert_eq!(answer(&program, number, [0; 6]), Verdict::KillProcess);
    }
    let foreign = SeccompData { arch: 0x4000_0003, ..data(0, [0; 6]) };
    assert_eq!(run(&program, &foreign).unwrap(), Verdict::KillProcess);
}
