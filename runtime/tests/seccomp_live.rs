//! Filters on the real kernel.
//!
//! A filter belongs to a thread and is inherited by what the thread starts, so each test confines a
//! thread of its own and leaves the others alone.

#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;

use airlock_runtime::seccomp::{Flags, compile, install, own, profile, syscall_number};

/// Runs `work` in a thread confined by a built-in profile.
fn confined<T: Send>(name: &str, work: impl FnOnce() -> T + Send) -> T {
    let program = compile(&profile(name).unwrap()).unwrap();
    thread::scope(|scope| {
        let thread = scope.spawn(move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            install(&program, Flags::default()).unwrap();
            work()
        });
        thread.join().unwrap()
    })
}

/// A raw call; its result, or minus its errno.
fn call(name: &str, args: [u64; 6]) -> i64 {
    let number = i64::from(syscall_number(name).unwrap());
    let [a, b, c, d, e, f] = args;
    // SAFETY: callers pass null pointers or pointers to live C strings.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result == -1 { -i64::from(std::io::Error::last_os_error().raw_os_error().unwrap()) } else { result }
}

const EPERM: i64 = -1;
const ENOSYS: i64 = -38;
const EAFNOSUPPORT: i64 = -97;
const BAD: u64 = u64::MAX;
const CWD: u64 = (-100_i64).cast_unsigned();

/// Calls that `default` refuses, with arguments that get another answer from the kernel, for any user.
const REFUSED: &[(&str, [u64; 6], i64)] = &[
    ("unshare", [0; 6], EPERM),
    ("setns", [BAD, 0, 0, 0, 0, 0], EPERM),
    // CLONE_NEWNS | CLONE_FS: EINVAL.
    ("clone", [0x0002_0200, 0, 0, 0, 0, 0], EPERM),
    ("clone3", [0; 6], ENOSYS),
    ("openat2", [0; 6], ENOSYS),
    ("mount_setattr", [BAD, 0, 0, 0, 0, 0], EPERM),
    ("open_tree", [BAD, 0, 0, 0, 0, 0], EPERM),
    ("chroot", [0; 6], EPERM),
    ("keyctl", [0, (-3_i64).cast_unsigned(), 0, 0, 0, 0], EPERM),
    ("add_key", [0; 6], EPERM),
    ("request_key", [0; 6], EPERM),
    ("perf_event_open", [0; 6], EPERM),
    ("ptrace", [2, 0, 0, 0, 0, 0], EPERM),
    ("process_vm_readv", [BAD, 0, 0, 0, 0, 0], EPERM),
    ("pidfd_getfd", [BAD, 0, 0, 0, 0, 0], EPERM),
    ("name_to_handle_at", [BAD, 0, 0, 0, 0, BAD], EPERM),
    ("adjtimex", [0; 6], EPERM),
    ("modify_ldt", [0; 6], EPERM),
    ("personality", [0x002_0000, 0, 0, 0, 0, 0], EPERM),
    ("ioctl", [BAD, libc::TIOCSTI, 0, 0, 0, 0], EPERM),
    ("ioctl", [BAD, libc::TIOCSTI | 1 << 40, 0, 0, 0, 0], EPERM),
    ("ioctl", [BAD, libc::TIOCLINUX, 0, 0, 0, 0], EPERM),
    ("ioctl", [BAD, libc::TIOCSETD, 0, 0, 0, 0], EPERM),
    // No such process: ESRCH.
    ("prlimit64", [0x7fff_ffff, 7, 0, 0, 0, 0], EPERM),
    ("migrate_pages", [0x7fff_ffff, 0, 0, 0, 0, 0], EPERM),
    ("move_pages", [0x7fff_ffff, 0, 0, 0, 0, 0], EPERM),
    // Own limit, from a bad address: EFAULT.
    ("prlimit64", [0, 4, 8, 0, 0, 0], EPERM),
    ("setrlimit", [4, 8, 0, 0, 0, 0], EPERM),
    ("io_setup", [0; 6], EPERM),
    ("vmsplice", [BAD, 0, 0, 0, 0, 0], EPERM),
    // RENAME_WHITEOUT from a bad address: EFAULT.
    ("renameat2", [CWD, 8, CWD, 8, 4, 0], EPERM),
    // Of a type that no family has, beyond SOCK_PACKET: EINVAL. MPTCP: a socket, or EPROTONOSUPPORT.
    ("socket", [2, 13, 0, 0, 0, 0], EPERM),
    ("socket", [2, 1, 262, 0, 0, 0], EPERM),
    // NETLINK_ROUTE, NETLINK_KOBJECT_UEVENT: sockets.
    ("socket", [16, 3, 0, 0, 0, 0], EAFNOSUPPORT),
    ("socket", [16, 3, 15, 0, 0, 0], EAFNOSUPPORT),
    ("socketpair", [2, 1, 0, 0, 0, 0], EPERM),
];

#[test]
fn refused_calls_fail_under_default_and_get_further_without_it() {
    for (name, args, refusal) in REFUSED {
        let free = thread::scope(|scope| scope.spawn(|| call(name, *args)).join().unwrap());
        assert_ne!(free, *refusal, "{name}: the kernel answers alike without the filter");
    }
    confined("default", || {
        for (name, args, refusal) in REFUSED {
            assert_eq!(call(name, *args), *refusal, "{name} {args:x?}");
        }
    });
}

#[test]
fn set_id_bits_are_refused_wherever_a_mode_is_given() {
    let attempts = |directory: &Path, set_id: u64| -> Vec<(&str, i64)> {
        let path = |name: &str| std::ffi::CString::new(directory.join(name).to_str().unwrap()).unwrap();
        let (file, made, dir, node) = (path("file"), path("made"), path("dir"), path("node"));
        let at = |path: &std::ffi::CString| path.as_ptr().addr() as u64;
        std::fs::File::create(directory.join("file")).unwrap();
        vec![
            ("chmod", call("chmod", [at(&file), 0o755 | set_id, 0, 0, 0, 0])),
            ("fchmodat", call("fchmodat", [CWD, at(&file), 0o755 | set_id, 0, 0, 0])),
            ("openat", call("openat", [CWD, at(&made), 0o102, 0o755 | set_id, 0, 0]).min(0)),
            ("creat", call("creat", [at(&made), 0o755 | set_id, 0, 0, 0, 0]).min(0)),
            ("mkdirat", call("mkdirat", [CWD, at(&dir), 0o755 | set_id, 0, 0, 0])),
            ("mknodat", call("mknodat", [CWD, at(&node), 0o100_755 | set_id, 0, 0, 0])),
        ]
    };
    let directory = || tempfile::tempdir().unwrap();
    for set_id in [0, 0o4000, 0o2000] {
        assert!(attempts(directory().path(), set_id).iter().all(|(_, result)| *result == 0), "{set_id:o}");
    }
    confined("default", || {
        assert!(attempts(directory().path(), 0).iter().all(|(_, result)| *result == 0));
        for set_id in [0o4000, 0o2000, 0o6000] {
            for (name, result) in attempts(directory().path(), set_id) {
                assert_eq!(result, EPERM, "{name} {set_id:o}");
            }
        }
    });
}

/// Ends a forked child of this thread in `work` and returns its wait status.
fn child(work: impl FnOnce()) -> i32 {
    // SAFETY: the child makes raw calls and leaves by _exit.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        work();
        // SAFETY: ends the child without running the test harness's exit handlers.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: `status` is a live integer; `pid` is our child.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}

fn killed_by(status: i32) -> Option<i32> {
    libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status))
}

/// getpid by the 32-bit entry.
fn int_0x80() {
    // SAFETY: call 20 of the 32-bit table takes no argument and touches no memory.
    unsafe {
        std::arch::asm!("int 0x80", inlateout("eax") 20 => _, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
}

/// getpid with the x32 bit.
fn x32() {
    // SAFETY: the call takes no argument; kernels without x32 answer ENOSYS.
    unsafe { libc::syscall(0x4000_0000 + libc::SYS_getpid) };
}

/// elastic/go-seccomp-bpf#5, firejail#87, seccompiler#74.
#[test]
fn foreign_abis_kill() {
    assert_eq!(child(x32), 0);
    // A kernel without the 32-bit entry answers with SIGSEGV.
    let entry = killed_by(child(int_0x80));
    assert!(entry.is_none() || entry == Some(libc::SIGSEGV));
    for name in ["default", "strict"] {
        confined(name, || {
            assert_eq!(killed_by(child(x32)), Some(libc::SIGSYS));
            assert_eq!(killed_by(child(int_0x80)), entry.or(Some(libc::SIGSYS)));
            assert_eq!(child(|| ()), 0);
        });
    }
}

#[test]
fn pid_1s_own_filter_lets_it_report_and_kills_an_open() {
    let program = own::init_filter().unwrap();
    let confine = || {
        rustix::thread::set_no_new_privs(true).unwrap();
        install(&program, Flags::default()).unwrap();
    };
    let open = || drop(std::fs::File::open("/dev/null"));
    assert_eq!(child(open), 0);
    assert_eq!(child(confine), 0);
    let open_confined = || {
        confine();
        open();
    };
    assert_eq!(killed_by(child(open_confined)), Some(libc::SIGSYS));
}

#[test]
fn without_no_new_privs_an_ordinary_user_is_refused() {
    let program = compile(&profile("default").unwrap()).unwrap();
    let denied = || {
        // SAFETY: changes the ids of this child only; raw, since glibc's wrapper would signal threads.
        unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
        if !matches!(install(&program, Flags::default()), Err(error) if error.to_string().contains("installing"))
        {
            // SAFETY: as in `child`.
            unsafe { libc::_exit(1) };
        }
    };
    assert_eq!(child(denied), 0);
}

fn output(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {status}\n{text}");
    String::from_utf8(stdout).unwrap()
}

fn shell(directory: &Path, script: &str) -> String {
    output(Command::new("sh").args(["-euc", script]).current_dir(directory).env("HOME", directory))
}

fn installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        let _ = writeln!(std::io::stderr(), "skipped: {program} is not installed");
    }
    found
}

const POOL: &str = r#"
import multiprocessing as m, multiprocessing.shared_memory as s, subprocess, tempfile, threading, socket, select, os
def square(n): return n * n
def fill(name):
    memory = s.SharedMemory(name); memory.buf[0] = 7; memory.close()
if __name__ == "__main__":
    total = 0
    for way in ("fork", "spawn", "forkserver"):
        with m.get_context(way).Pool(2) as pool: total += sum(pool.map(square, range(10)))
    memory = s.SharedMemory(create=True, size=4096)
    p = m.Process(target=fill, args=(memory.name,)); p.start(); p.join()
    total += memory.buf[0]; memory.close(); memory.unlink()
    lock = m.Lock(); queue = m.Queue(); queue.put(total)
    thread = threading.Thread(target=lock.acquire); thread.start(); thread.join()
    assert subprocess.run(["true"]).returncode == 0
    listener = socket.create_server(("127.0.0.1", 0)) if os.environ.get("NET") else None
    print(queue.get())
"#;

/// What real programs need of `default`.
#[test]
fn real_software_runs_under_default() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path();
    std::fs::write(directory.join("pool.py"), POOL).unwrap();
    std::fs::write(directory.join("main.c"), "#include <stdio.h>\nint main(void) { puts(\"compiled\"); }\n")
        .unwrap();
    confined("default", || {
        assert_eq!(shell(directory, "seq 1000 | sort -rn | head -n 3 | tr '\\n' ' '"), "1000 999 998 ");
        if installed("python3") {
            assert_eq!(shell(directory, "NET=1 python3 pool.py"), "862\n");
        }
        if installed("gcc") {
            assert_eq!(shell(directory, "gcc -O2 -pipe -o main main.c && ./main"), "compiled\n");
        }
        if installed("git") {
            let script = "git init -q one && cd one && git config user.email a@b.c && git config user.name a
                echo text > file && git add file && git commit -qm one && git gc -q && cd ..
                git clone -q one two && git clone -q file://$PWD/one three && cat two/file three/file";
            assert_eq!(shell(directory, script), "text\ntext\n");
        }
        if installed("node") {
            let script = "node -e '
                const { Worker } = require(\"worker_threads\"), { execSync } = require(\"child_process\");
                new Worker(\"require(\\\"fs\\\").writeFileSync(\\\"out\\\", \\\"thread\\\")\", { eval: true })
                    .on(\"exit\", () => console.log(execSync(\"cat out\").toString()))'";
            assert_eq!(shell(directory, script), "thread\n");
        }
    });
}

#[test]
fn strict_runs_programs_but_gives_no_network() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path();
    std::fs::write(directory.join("pool.py"), POOL).unwrap();
    let socket = || call("socket", [2, 1, 0, 0, 0, 0]);
    assert!(socket() >= 0);
    confined("strict", || {
        assert_eq!(socket(), EPERM);
        assert_eq!(shell(directory, "/bin/true; seq 3 | wc -l"), "3\n");
        if installed("python3") {
            let script = "python3 -c 'import json, hashlib, subprocess, tempfile
print(len(json.dumps(list(range(10)))), subprocess.run([\"true\"]).returncode)'";
            assert_eq!(shell(directory, script), "30 0\n");
        }
    });
}
