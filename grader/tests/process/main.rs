//! The grader process on the real kernel, in its sandbox, as root and as an ordinary user.
//!
//! Without the test harness, since a launcher is started only from a process with one thread. This very program is
//! also what attacks from a research sandbox, and what tries the grader's own sandbox in the grader's place.

#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

#[path = "../../../runtime/tests/launcher/child.rs"]
mod child;
mod fixture;
mod inside;
#[path = "../protocol/supervisor.rs"]
mod supervisor;

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use airlock_grader::protocol::SOCKET;
use airlock_grader::protocol::link::{Acts, LinkLimits};
use airlock_grader::protocol::process::Grader;
use airlock_runtime::launcher::{Launcher, LauncherError, Running};
use airlock_runtime::report::Reason;
use rustix::process::Signal;
use tokio::time::timeout;

use child::{PATIENCE, in_child, until};
use fixture::{Fixture, GRADER, children_of, ended, status_of};
use supervisor::{digest, supervise};

/// Longest time for an attack. Ten thousand connections take twenty seconds at the rate that a grader accepts.
const ATTACK: Duration = Duration::from_secs(75);

type Test = (&'static str, fn(&Fixture));

const TESTS: &[Test] = &[
    ("a_sandbox_asks_through_the_grader_process", a_sandbox_asks_through_the_grader_process),
    ("without_the_mount_nothing_leads_to_it", without_the_mount_nothing_leads_to_it),
    ("it_holds_its_sockets_and_nothing_else", it_holds_its_sockets_and_nothing_else),
    ("its_sandbox_has_nothing_to_open_or_to_connect_to", its_sandbox_has_nothing_to_open_or_to_connect_to),
    ("the_next_process_serves_what_waits_at_the_socket", the_next_process_serves_what_waits_at_the_socket),
    ("it_ends_when_the_supervisor_lets_go", it_ends_when_the_supervisor_lets_go),
    ("half_frames_do_not_bring_it_down", |fixture| it_survives(fixture, "half-frames")),
    ("ten_thousand_connections_do_not_bring_it_down", |fixture| it_survives(fixture, "connections")),
    ("descriptors_do_not_bring_it_down", |fixture| it_survives(fixture, "descriptors")),
    ("long_lines_do_not_bring_it_down", |fixture| it_survives(fixture, "long-lines")),
    ("a_flood_does_not_bring_it_down", |fixture| it_survives(fixture, "flood")),
    ("unread_replies_do_not_bring_it_down", |fixture| it_survives(fixture, "unread-replies")),
    ("what_cannot_start_says_why", what_cannot_start_says_why),
];

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        [name] if name.ends_with("/airlock-grader") => inside::try_the_graders_sandbox(),
        [_, "attack", what] => inside::attack(what),
        // What cargo-nextest asks of a test program without libtest ("Custom test harnesses" in its manual).
        [_, "--list", rest @ ..] => {
            let names = TESTS.iter().filter(|_| !rest.contains(&"--ignored"));
            names.for_each(|(name, _)| println!("{name}: test"));
        }
        // Cargo's own flags, and a filter.
        [_, rest @ ..] => {
            let filter = rest.iter().find(|word| !word.starts_with('-')).copied().unwrap_or_default();
            let passed = run(filter) && fixture::run_as_user(filter);
            std::process::exit(i32::from(!passed));
        }
        [] => {}
    }
}

/// True: all passed.
fn run(filter: &str) -> bool {
    let fixture = Fixture::new();
    let who = if fixture.root { "root" } else { "user" };
    let passed = TESTS.iter().filter(|(name, _)| name.contains(filter)).all(|(name, test)| {
        let passed = in_child(|| test(&fixture));
        println!("{name} ({who}) ... {}", if passed { "ok" } else { "FAILED" });
        passed
    });
    fixture.finish();
    passed
}

/// The launcher first, then an event loop in which a supervisor answers, and in it the test.
fn with_grader<T: Future<Output = ()>>(
    fixture: &Fixture,
    test: impl FnOnce(Arc<Launcher>, Grader, Running, UnixStream) -> T,
) {
    let launcher = Arc::new(Launcher::start().unwrap());
    let runtime = runtime();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let grader = fixture.grader(Path::new(GRADER)).unwrap();
            let (process, link) = fixture.start(&launcher, &grader, fixture.log().into()).unwrap();
            test(Arc::clone(&launcher), grader, process, link).await;
        });
    }));
    // Waits for no sandbox that goes on.
    runtime.shutdown_background();
    if let Err(failure) = outcome {
        resume_unwind(failure);
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn answer(link: UnixStream) -> tokio::task::JoinHandle<()> {
    tokio::spawn(supervise(Acts::new(link, LinkLimits::default()).unwrap()))
}

fn a_sandbox_asks_through_the_grader_process(fixture: &Fixture) {
    with_grader(fixture, async |launcher, _grader, _process, link| {
        answer(link);
        for (words, status, output) in [
            (&["/opt/harness/airlock-harness", "hello"][..], 0, "run          run-1\n"),
            (&["/opt/harness/airlock-harness", "status"], 0, "remaining    03:47:57\n"),
            (&["/opt/harness/timer.sh"], 0, "03:47:57 left, 00:12:03 used\n"),
            (&["/opt/harness/validate.sh", "out/my model"], 0, &format!("v-1 {}", digest())),
            (
                &["/opt/harness/validate.sh", "missing"],
                1,
                "the candidate is refused (-32012): nothing there\n",
            ),
            (&["/opt/harness/airlock-harness", "result", "v-1", "--wait"], 0, "graded       750\n"),
            (&["/opt/harness/fast_eval.sh", "ckpt"], 1, "this task has no proxy metric\n"),
            (&["/opt/harness/submit.sh", "out/my model"], 0, "accepted\n"),
            (&["/opt/harness/no_candidate.sh", "none"], 1, "the run has its final choice"),
        ] {
            let found = fixture.research(&launcher, words, true).await;
            assert!(found.0 == status && found.1.contains(output), "{words:?}: {found:?}");
        }
        let log = fs::read_to_string(fixture.log_file()).unwrap();
        assert_eq!(log.matches("INFO connection pid=").count(), 9, "{log}");
        assert!(log.contains("uid=") && log.contains("gid="), "{log}");
    });
}

fn without_the_mount_nothing_leads_to_it(fixture: &Fixture) {
    with_grader(fixture, async |launcher, _grader, _process, link| {
        answer(link);
        let socket = fixture.socket();
        let status = ["/opt/harness/airlock-harness", "status"];
        assert_eq!(fixture.research(&launcher, &status, true).await.0, 0);
        for path in [Path::new(SOCKET), &socket] {
            let words = [&status[..], &["--socket", path.to_str().unwrap()]].concat();
            let found = fixture.research(&launcher, &words, false).await;
            assert!(found.0 == 3 && found.1.contains("No such file or directory"), "{path:?}: {found:?}");
        }
    });
}

fn it_holds_its_sockets_and_nothing_else(fixture: &Fixture) {
    with_grader(fixture, async |launcher, _grader, process, link| {
        answer(link);
        fixture.research(&launcher, &["/opt/harness/airlock-harness", "status"], true).await;
        let pid = children_of(process.pid())[0];
        // The sandbox's filter, and its own.
        for (name, value) in [
            ("Seccomp", "2"),
            ("Seccomp_filters", "2"),
            ("NoNewPrivs", "1"),
            ("CapEff", "0000000000000000"),
            ("CapBnd", "0000000000000000"),
            ("Threads", "1"),
        ] {
            assert_eq!(status_of(pid, name), value, "{name}");
        }
        let held: BTreeSet<String> = fs::read_dir(format!("/proc/{pid}/fd"))
            .unwrap()
            .map(|entry| fs::read_link(entry.unwrap().path()).unwrap().display().to_string())
            .map(|name| name.split_once(":[").map_or(name.clone(), |(kind, _)| kind.to_owned()))
            .collect();
        let log = fixture.log_file().display().to_string();
        let expected = ["/dev/null", &log, "anon_inode", "socket"];
        assert_eq!(held, expected.map(String::from).into());
        let root = fs::read_dir(format!("/proc/{pid}/root")).unwrap();
        let mut names: Vec<_> = root.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["dev", "etc", "home", "opt", "proc", "run", "tmp", "var"]);
    });
}

fn its_sandbox_has_nothing_to_open_or_to_connect_to(fixture: &Fixture) {
    let launcher = Launcher::start().unwrap();
    runtime().block_on(async {
        let grader = fixture.grader(&fixture.probe()).unwrap();
        let (process, mut link) = fixture.start(&launcher, &grader, fixture.log().into()).unwrap();
        let mut found = String::new();
        link.read_to_string(&mut found).unwrap();
        let report = ended(process).await.unwrap();
        let log = fs::read_to_string(fixture.log_file()).unwrap();
        assert_eq!((report.reason, report.exit_code), (Reason::Exited, Some(0)), "{log}");
        let refused = |call: &str, error: &str| {
            let line =
                found.lines().find(|line| line.starts_with(&format!("{call}: "))).unwrap_or("not tried");
            assert!(line.ends_with(error), "{call} {error}: {found}");
        };
        for (call, error) in [
            ("accept4", "Resource temporarily unavailable (os error 11)"),
            ("socket unix", "Operation not permitted (os error 1)"),
            ("socket inet", "Operation not permitted (os error 1)"),
            ("connect", "Operation not permitted (os error 1)"),
            ("bind", "Operation not permitted (os error 1)"),
            ("listen", "Operation not permitted (os error 1)"),
            ("create /tmp/x", "Permission denied (os error 13)"),
            ("create /run/x", "Permission denied (os error 13)"),
            ("read /etc/shadow", "No such file or directory (os error 2)"),
            ("read /usr/bin/env", "No such file or directory (os error 2)"),
            ("list /usr", "No such file or directory (os error 2)"),
        ] {
            refused(call, error);
        }
        for clause in ["seccomp", "landlock", "root", "capabilities.keep", "identity"] {
            assert!(report.enforced.iter().any(|item| item.clause.starts_with(clause)), "{clause}");
        }
    });
}

fn the_next_process_serves_what_waits_at_the_socket(fixture: &Fixture) {
    with_grader(fixture, async |launcher, grader, process, link| {
        let mut acts = Acts::new(link, LinkLimits::default()).unwrap();
        let pid = children_of(process.pid())[0];
        fixture::kill(pid, Signal::KILL);
        let next = timeout(PATIENCE, acts.next()).await.unwrap();
        assert!(matches!(next, Ok(None) | Err(_)), "the link ends");
        let report = ended(process).await.unwrap();
        assert_eq!((report.reason, report.signal), (Reason::Signalled, Some(9)));

        // Nobody serves now; who connects waits.
        let asking = tokio::spawn({
            let (fixture, launcher) = (fixture.clone(), Arc::clone(&launcher));
            async move { fixture.research(&launcher, &["/opt/harness/airlock-harness", "hello"], true).await }
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!asking.is_finished());
        let (next, link) = fixture.start(&launcher, &grader, fixture.log().into()).unwrap();
        answer(link);
        let found = asking.await.unwrap();
        assert!(found.0 == 0 && found.1.contains("run-1"), "{found:?}");
        next.kill().unwrap();
        assert_eq!(ended(next).await.unwrap().signal, Some(9));
    });
}

fn it_ends_when_the_supervisor_lets_go(fixture: &Fixture) {
    with_grader(fixture, async |launcher, grader, process, link| {
        drop(link);
        let report = ended(process).await.unwrap();
        assert_eq!((report.reason, report.exit_code), (Reason::Exited, Some(0)));
        assert!(fs::read_to_string(fixture.log_file()).unwrap().ends_with("the supervisor has let go\n"));
        // One that dies takes the log's reader along.
        let (mut log, writer) = std::io::pipe().unwrap();
        let (process, link) = fixture.start(&launcher, &grader, writer.into()).unwrap();
        let mut line = [0; 4096];
        let length = log.read(&mut line).unwrap();
        assert!(String::from_utf8_lossy(&line[..length]).contains("serving"));
        drop((log, link));
        let report = ended(process).await.unwrap();
        assert_eq!((report.reason, report.exit_code), (Reason::Exited, Some(0)));
    });
}

/// herdr#3727, alien#390, lens-sandbox#69, from where it would come.
fn it_survives(fixture: &Fixture, attack: &str) {
    with_grader(fixture, async |launcher, _grader, process, link| {
        answer(link);
        let pid = children_of(process.pid())[0];
        let monitor = process.pid();
        let mut end = tokio::task::spawn_blocking(move || process.wait());
        for words in
            [&["/opt/harness/probe", "attack", attack][..], &["/opt/harness/airlock-harness", "hello"]]
        {
            let found = tokio::select! {
                found = timeout(ATTACK, fixture.research(&launcher, words, true)) => found,
                end = &mut end => panic!("{words:?}: the grader ended: {end:?}"),
            };
            let Ok(found) = found else {
                let log = fs::read_to_string(fixture.log_file()).unwrap();
                let end: Vec<&str> = log.lines().rev().take(5).collect();
                panic!("{words:?}: no end; {} threads; its log ends {end:#?}", status_of(pid, "Threads"));
            };
            assert_eq!(found.0, 0, "{words:?}: {found:?}");
            assert!(words.len() == 3 || found.1.contains("run-1"), "after {attack}: {found:?}");
        }
        assert_eq!(children_of(monitor), [pid]);
        until("the threads that closed sockets are gone", || status_of(pid, "Threads") == "1");
        let kib = |field| status_of(pid, field).split_whitespace().next().unwrap().parse::<u64>().unwrap();
        assert!(kib("VmHWM") < 64 * 1024, "{} KiB", kib("VmHWM"));
        // An arena reserves 64 MiB, a thread 2 MiB of stack. To shrink an arena is to die of the filter.
        assert!(kib("VmSize") < 64 * 1024, "{} KiB: an arena of a thread", kib("VmSize"));
        assert!(fs::metadata(fixture.log_file()).unwrap().len() < 17 << 20);
    });
}

fn what_cannot_start_says_why(fixture: &Fixture) {
    let start = |command: &mut Command| {
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, error) = start(&mut Command::new(GRADER));
    assert_eq!(status, Some(1));
    assert!(error.contains("descriptor 3 is not a listening Unix stream socket: Bad file"), "{error}");
    let (status, error) = start(Command::new("/bin/sh").args(["-c", "exec \"$0\" 3</dev/null", GRADER]));
    assert_eq!(status, Some(1));
    assert!(error.contains("descriptor 3 is not a listening Unix stream socket: invalid"), "{error}");

    let launcher = Launcher::start().unwrap();
    runtime().block_on(async {
        let missing = fixture.grader(Path::new("/nowhere/airlock-grader")).err().unwrap();
        assert!(missing.to_string().contains("the host has no /nowhere/airlock-grader"), "{missing}");
        let not_a_program = fixture.log();
        let grader = fixture.grader(&fixture.log_file()).unwrap();
        let (process, _link) = fixture.start(&launcher, &grader, not_a_program.into()).unwrap();
        let error = ended(process).await.unwrap_err();
        assert!(matches!(&error, LauncherError::Sandbox { status: 126, .. }), "{error}");
        // A log that a sandbox must not have.
        let (stream, _other) = UnixStream::pair().unwrap();
        let stream = stream.as_fd().try_clone_to_owned().unwrap();
        drop(grader);
        let grader = fixture.grader(Path::new(GRADER)).unwrap();
        let error = fixture.start(&launcher, &grader, stream).unwrap_err();
        assert!(error.to_string().contains("stderr is a socket"), "{error}");
    });
}
