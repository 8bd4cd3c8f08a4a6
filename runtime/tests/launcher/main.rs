//! The launcher on the real kernel, as root and as an ordinary user.
//!
//! Without the test harness, since a launcher is started only from a process with one thread. This very program is
//! also what runs in the sandboxes (`inside`), and the supervisor that gets killed.

#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod child;
mod fixture;
mod inside;
mod soak;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;
use std::time::{Duration, Instant};

use airlock_runtime::Spec;
use airlock_runtime::cgroups::{CgroupFacts, CgroupPath};
use airlock_runtime::launch::{LaunchError, LaunchOptions, Sandbox};
use airlock_runtime::launcher::{Launcher, LauncherError, Request, Running};
use airlock_runtime::report::{EndReport, EvidenceKind, Reason};
use airlock_runtime::state::Sandboxes;

use child::{in_child, until};
use fixture::{Fixture, alive, open_descriptors, readable};

type Test = (&'static str, fn(&Fixture));

const TESTS: &[Test] = &[
    ("ends_are_reported", ends_are_reported),
    ("signals_reach_the_payload", signals_reach_the_payload),
    ("a_frozen_sandbox_stands_and_still_ends", a_frozen_sandbox_stands_and_still_ends),
    ("a_dropped_sandbox_ends", a_dropped_sandbox_ends),
    (
        "what_a_monitor_holds_is_let_go_of_with_its_last_word",
        what_a_monitor_holds_is_let_go_of_with_its_last_word,
    ),
    ("streams_and_descriptors_arrive", streams_and_descriptors_arrive),
    ("descriptors_have_numbers_of_their_own", descriptors_have_numbers_of_their_own),
    ("an_init_that_hangs_is_ended", an_init_that_hangs_is_ended),
    ("nothing_of_the_supervisor_is_left_in_the_launcher", nothing_of_the_supervisor_is_left_in_the_launcher),
    ("sixteen_at_once_from_threads", sixteen_at_once_from_threads),
    ("a_spec_may_be_larger_than_a_packet", a_spec_may_be_larger_than_a_packet),
    ("bad_orders_fail_and_the_launcher_goes_on", bad_orders_fail_and_the_launcher_goes_on),
    (
        "no_descriptor_or_process_is_left_after_many_launches",
        no_descriptor_or_process_is_left_after_many_launches,
    ),
    ("many_launches_leave_nothing", soak::many_launches_leave_nothing),
    ("a_killed_supervisor_takes_its_sandboxes_along", a_killed_supervisor_takes_its_sandboxes_along),
    ("a_killed_launcher_leaves_its_sandboxes_running", a_killed_launcher_leaves_its_sandboxes_running),
    ("a_killed_monitor_takes_its_sandbox_along", a_killed_monitor_takes_its_sandbox_along),
];

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = args.iter().skip(1).map(String::as_str).collect();
    match words.as_slice() {
        ["inside", rest @ ..] => inside::main(rest),
        ["supervisor"] => supervisor(),
        // What cargo-nextest asks of a test program without libtest ("Custom test harnesses" in its manual).
        ["--list", rest @ ..] => {
            let names = TESTS.iter().filter(|_| !rest.contains(&"--ignored"));
            names.for_each(|(name, _)| println!("{name}: test"));
        }
        // Cargo's own flags, and a filter.
        rest => {
            let filter = rest.iter().find(|word| !word.starts_with('-')).copied().unwrap_or_default();
            let passed = run(filter) && fixture::run_as_user(filter);
            std::process::exit(i32::from(!passed));
        }
    }
}

/// True: all passed.
fn run(filter: &str) -> bool {
    let fixture = Fixture::new();
    let who = if fixture.root { "root" } else { "user" };
    for (name, test) in TESTS {
        if name.contains(filter) {
            let passed = in_child(|| test(&fixture));
            println!("{name} ({who}) ... {}", if passed { "ok" } else { "FAILED" });
            if !passed {
                return false;
            }
        }
    }
    true
}

fn finished(launcher: &Launcher, fixture: &Fixture, args: &[&str]) -> EndReport {
    launcher.launch(&fixture.spec(args), fixture.request()).unwrap().wait().unwrap()
}

fn start(launcher: &Launcher, fixture: &Fixture, args: &[&str]) -> Running {
    launcher.launch(&fixture.spec(args), fixture.request()).unwrap()
}

fn ends_are_reported(fixture: &Fixture) {
    let launcher = Launcher::start().unwrap();
    let spec = fixture.spec(&["exit", "0"]);
    let report_file = fixture.scratch().join("end.json");
    let request = Request { report: Some(report_file.clone()), ..fixture.request() };
    let running = launcher.launch(&spec, request).unwrap();
    let id = running.id().to_string();
    let report = running.wait().unwrap();
    assert_eq!((report.reason, report.exit_code, report.signal), (Reason::Exited, Some(0), None));
    assert_eq!(report.id, id);
    assert_eq!(report.spec_digest, spec.digest().unwrap());
    assert_eq!(report.left_behind, None);
    for clause in ["identity", "root", "seccomp.profile", "capabilities.keep"] {
        assert!(report.enforced.iter().any(|item| item.clause.starts_with(clause)), "{clause}: {report:#?}");
    }
    assert!(report.enforced.iter().any(|item| item.evidence == EvidenceKind::KernelRead));
    let written: EndReport = serde_json::from_reader(File::open(report_file).unwrap()).unwrap();
    assert_eq!(written, report);

    assert_eq!(finished(&launcher, fixture, &["exit", "7"]).exit_code, Some(7));
    let killed = finished(&launcher, fixture, &["raise", "9"]);
    assert_eq!((killed.reason, killed.signal), (Reason::Signalled, Some(9)));

    let missing = fixture.spec_of(&["/missing"]);
    let report_file = fixture.scratch().join("missing.json");
    let request = Request { report: Some(report_file.clone()), ..fixture.request() };
    let running = launcher.launch(&missing, request).unwrap();
    let id = running.id().to_string();
    match running.wait().unwrap_err() {
        LauncherError::Sandbox { message, status: 127 } => assert!(message.contains("/missing"), "{message}"),
        error => panic!("{error:?}"),
    }
    let written: EndReport = serde_json::from_reader(File::open(report_file).unwrap()).unwrap();
    assert_eq!((written.reason, written.id), (Reason::SetupFailed, id));
}

fn signals_reach_the_payload(fixture: &Fixture) {
    let launcher = Launcher::start().unwrap();
    let (mut output, stdout) = std::io::pipe().unwrap();
    let request = Request { stdio: Some(streams(stdout.into())), ..fixture.request() };
    let running = launcher.launch(&fixture.spec(&["exit-on-usr1", "5"]), request).unwrap();
    output.read_exact(&mut [0]).unwrap();
    assert!(!readable(&running));
    running.signal(libc::SIGUSR1).unwrap();
    assert_eq!(running.wait().unwrap().exit_code, Some(5));

    let running = start(&launcher, fixture, &["sleep", "1000"]);
    assert!(alive(running.pid()));
    running.kill().unwrap();
    until("the descriptor is readable", || readable(&running));
    assert_eq!(running.wait().unwrap().signal, Some(libc::SIGKILL));
}

/// An ordinary user without a control group of the sandbox's own is told so.
fn a_frozen_sandbox_stands_and_still_ends(fixture: &Fixture) {
    let launcher = Launcher::start().unwrap();
    let ticking = || {
        let (mut ticks, stdout) = std::io::pipe().unwrap();
        let request = Request { stdio: Some(streams(stdout.into())), ..fixture.request() };
        let running = launcher.launch(&fixture.spec(&["tick"]), request).unwrap();
        ticks.read_exact(&mut [0]).unwrap();
        (running, ticks)
    };
    let (running, mut ticks) = ticking();
    let frozen = running.freeze().unwrap().wait();
    if !fixture.root {
        assert!(matches!(frozen, Err(LauncherError::Freeze(_))), "{frozen:?}");
        return ticks.read_exact(&mut [0; 20]).unwrap();
    }
    frozen.unwrap();
    while has_more(&ticks) {
        assert!(ticks.read(&mut [0; 4096]).unwrap() > 0);
    }
    std::thread::sleep(Duration::from_millis(200));
    assert!(!has_more(&ticks));
    running.thaw().unwrap();
    ticks.read_exact(&mut [0; 20]).unwrap();
    // Twice is once.
    running.freeze().unwrap().wait().unwrap();
    running.freeze().unwrap().wait().unwrap();
    running.kill().unwrap();
    assert_eq!(running.wait().unwrap().signal, Some(libc::SIGKILL));

    let (running, _ticks) = ticking();
    running.freeze().unwrap().wait().unwrap();
    let pid = running.pid();
    drop(running);
    until("the frozen sandbox is gone", || !alive(pid));
}

fn has_more(pipe: &impl AsFd) -> bool {
    let now = rustix::event::Timespec::default();
    let mut fds = [rustix::event::PollFd::new(pipe, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&now)).unwrap() > 0
}

fn a_dropped_sandbox_ends(fixture: &Fixture) {
    let launcher = Launcher::start().unwrap();
    for payload in [["sleep", "1000"], ["ignore-term", "1000"]] {
        let report = fixture.scratch().join(payload[0]);
        let request = Request { report: Some(report.clone()), ..fixture.request() };
        let running = launcher.launch(&fixture.spec(&payload), request).unwrap();
        let pid = running.pid();
        assert!(alive(pid));
        drop(running);
        until("the sandbox is gone", || !alive(pid));
        until("the report is there", || report.exists());
        let report: EndReport = serde_json::from_reader(File::open(report).unwrap()).unwrap();
        assert_eq!(report.reason, Reason::SupervisorLost);
        assert_eq!(report.left_behind, None);
    }
}

/// The lock of a supervisor that is to know when a sandbox, and its monitor's report, can come no more.
fn what_a_monitor_holds_is_let_go_of_with_its_last_word(fixture: &Fixture) {
    let launcher = Launcher::start().unwrap();
    let (path, report) = (fixture.scratch().join("lock"), fixture.scratch().join("held.json"));
    let lock = File::create(&path).unwrap();
    lock.lock().unwrap();
    let free = || File::open(&path).unwrap().try_lock().is_ok();
    let request = Request { hold: Some(lock.into()), report: Some(report.clone()), ..fixture.request() };
    let running = launcher.launch(&fixture.spec(&["sleep", "60"]), request).unwrap();
    assert!(!free());
    // As if the supervisor had died.
    drop(running);
    until("the lock is free", free);
    assert!(report.exists(), "the report was written before");
}

fn streams_and_descriptors_arrive(fixture: &Fixture) {
    let launcher = Launcher::start().unwrap();
    let (input, mut to_payload) = std::io::pipe().unwrap();
    let (mut from_payload, output) = std::io::pipe().unwrap();
    let (mut verdict, passed) = std::io::pipe().unwrap();
    let null = || File::options().read(true).write(true).open("/dev/null").unwrap();
    let request = Request {
        stdio: Some([input.into(), output.into(), null().into()]),
        pass: vec![(passed.into(), 7)],
        ..fixture.request()
    };
    let running = launcher.launch(&fixture.spec(&["copy", "7"]), request).unwrap();
    to_payload.write_all(b"from outside").unwrap();
    drop(to_payload);
    assert_eq!(running.wait().unwrap().exit_code, Some(0));
    let mut text = String::new();
    from_payload.read_to_string(&mut text).unwrap();
    assert_eq!(text, "from outside");
    text.clear();
    verdict.read_to_string(&mut text).unwrap();
    assert_eq!(text, "verdict");

    let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let request = Request { stdio: Some(streams(socket.into())), ..fixture.request() };
    let error = launcher.launch(&fixture.spec(&["exit", "0"]), request).unwrap_err();
    assert!(error.to_string().contains("stdout is a socket"), "{error}");
}

fn descriptors_have_numbers_of_their_own(fixture: &Fixture) {
    let launcher = Launcher::start().unwrap();
    let null = || OwnedFd::from(File::open("/dev/null").unwrap());
    let with = |spec: &Spec, numbers: &[i32]| {
        let pass = numbers.iter().map(|number| (null(), *number)).collect();
        launcher.launch(spec, Request { pass, ..fixture.request() })
    };
    let spec = fixture.spec(&["exit", "0"]);
    for numbers in [&[2][..], &[-1], &[1024], &[5, 5]] {
        let error = with(&spec, numbers).unwrap_err().to_string();
        assert!(error.contains("is not a number of its own from 3 to 1023"), "{numbers:?}: {error}");
    }
    // Whatever the numbers, the pipe by which init learns that a command cannot be executed is none of them.
    let missing = fixture.spec_of(&["/missing"]);
    let many: Vec<i32> = (3..40).collect();
    for numbers in [&[3, 1023][..], &many] {
        assert_eq!(with(&spec, numbers).unwrap().wait().unwrap().exit_code, Some(0));
        let error = with(&missing, numbers).unwrap().wait().unwrap_err();
        assert!(matches!(error, LauncherError::Sandbox { status: 127, .. }), "{numbers:?}: {error:?}");
    }
}

/// A frozen control group: init exists and never says a word.
fn an_init_that_hangs_is_ended(fixture: &Fixture) {
    let Some(tree) = CgroupFacts::read().unwrap().v2.filter(|_| fixture.root) else {
        println!("skipped: needs root and a v2 tree");
        return;
    };
    let name = format!("airlock-test-{}-frozen", std::process::id());
    let parent = tree.mount.join(&name);
    std::fs::create_dir(&parent).unwrap();
    let options = || LaunchOptions {
        cgroup_parent: Some(CgroupPath::new(format!("/{name}")).unwrap()),
        build_timeout: Some(Duration::from_millis(500)),
        ..LaunchOptions::default()
    };
    let spec = fixture.spec(&["exit", "0"]);
    drop(Sandbox::launch(&spec, options()).unwrap());
    std::fs::write(parent.join("cgroup.freeze"), "1").unwrap();
    let started = Instant::now();
    let error = Sandbox::launch(&spec, options()).unwrap_err();
    let waited = started.elapsed();
    assert!(matches!(error, LaunchError::InitHangs { .. }), "{error:?}");
    let text = error.to_string();
    for word in ["unshare net", "process ", "help: ", "frozen control group"] {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
    assert!((500..5000).contains(&waited.as_millis()), "{waited:?}");
    let own = std::process::id().cast_signed();
    assert!(fixture::children_of(own).is_empty());
    let records = Sandboxes::open().unwrap().list().unwrap();
    assert!(records.iter().all(|record| record.monitor.pid != own));
    // With the last directory of a sandbox gone, so is its parent's last child.
    std::fs::remove_dir(&parent).unwrap();
}

fn nothing_of_the_supervisor_is_left_in_the_launcher(fixture: &Fixture) {
    let _held = File::open("/proc/self/status").unwrap();
    let launcher = Launcher::start().unwrap();
    finished(&launcher, fixture, &["exit", "0"]);
    let of_process = |file: &str| std::fs::read(format!("/proc/{}/{file}", launcher.pid())).unwrap();
    let marker = |text: &[u8]| text.windows(6).any(|window| window == b"SECRET");
    assert!(marker(&std::fs::read("/proc/self/environ").unwrap()), "the supervisor has it");
    assert!(!marker(&of_process("environ")));
    assert_eq!(of_process("comm"), b"airlock-launch\n");
    let links = open_descriptors(launcher.pid());
    assert!(links.iter().all(|link| !link.contains("status")), "{links:?}");
    assert_eq!(links.iter().filter(|link| link.starts_with("socket:")).count(), 1, "{links:?}");

    let running = start(&launcher, fixture, &["sleep", "1000"]);
    let monitor = fixture::parent_of(running.pid());
    assert_eq!(fixture::parent_of(monitor), launcher.pid());
    let environment = std::fs::read(format!("/proc/{monitor}/environ")).unwrap();
    assert!(!marker(&environment));
    let resident = fixture::resident_kib(monitor);
    println!("  resident memory of a waiting monitor: {resident} KiB");
}

fn sixteen_at_once_from_threads(fixture: &Fixture) {
    let launcher = Launcher::start().unwrap();
    let ids: Vec<String> = std::thread::scope(|scope| {
        let work = |code: usize| {
            let launcher = &launcher;
            move || {
                let running = start(launcher, fixture, &["exit", &code.to_string()]);
                let id = running.id().to_string();
                assert_eq!(running.wait().unwrap().exit_code, i32::try_from(code).ok());
                id
            }
        };
        let threads: Vec<_> = (0..16).map(|code| scope.spawn(work(code))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), 16);
    std::thread::scope(|scope| {
        let error = scope.spawn(|| Launcher::start().unwrap_err()).join().unwrap();
        assert!(matches!(error, LauncherError::Threads(_)), "{error}");
    });
}

fn a_spec_may_be_larger_than_a_packet(fixture: &Fixture) {
    let launcher = Launcher::start().unwrap();
    let mut spec = fixture.spec(&["count-env"]);
    let process = spec.oci.process_mut().as_mut().unwrap();
    process.set_env(Some((0..100).map(|n| format!("V{n}={}", "x".repeat(4096))).collect()));
    assert!(serde_json::to_vec(&spec).unwrap().len() > 300_000);
    let report = launcher.launch(&spec, fixture.request()).unwrap().wait().unwrap();
    assert_eq!(report.exit_code, Some(100));
}

fn bad_orders_fail_and_the_launcher_goes_on(fixture: &Fixture) {
    let launcher = Launcher::start().unwrap();
    let refused = |spec: &Spec, request| match launcher.launch(spec, request).unwrap_err() {
        LauncherError::Sandbox { message, status: 125 } => message,
        error => panic!("{error:?}"),
    };
    let mut spec = fixture.spec(&["exit", "0"]);
    spec.oci.set_process(None);
    let report = fixture.scratch().join("failed.json");
    let message = refused(&spec, Request { report: Some(report.clone()), ..fixture.request() });
    assert!(message.contains("process"), "{message}");
    let written: EndReport = serde_json::from_reader(File::open(report).unwrap()).unwrap();
    assert_eq!((written.reason, written.error), (Reason::SetupFailed, Some(message)));

    let spec = fixture.spec(&["exit", "0"]);
    let message = refused(&spec, Request { cgroup_parent: Some("/a/../b".into()), ..fixture.request() });
    assert!(message.contains("/a/../b"), "{message}");
    let mut seccomp = fixture.spec(&["exit", "0"]);
    let filter = seccomp.oci.linux_mut().as_mut().unwrap().seccomp_mut();
    filter.as_mut().unwrap().set_default_errno_ret(Some(1 << 20));
    assert!(refused(&seccomp, fixture.request()).starts_with("seccomp.profile"));

    let null = File::open("/dev/null").unwrap();
    let many = (0..249).map(|n| (null.as_fd().try_clone_to_owned().unwrap(), 3 + n)).collect();
    let error = launcher.launch(&spec, Request { pass: many, ..fixture.request() }).unwrap_err();
    assert!(matches!(error, LauncherError::Descriptors(249)), "{error}");
    assert_eq!(finished(&launcher, fixture, &["exit", "3"]).exit_code, Some(3));
}

fn no_descriptor_or_process_is_left_after_many_launches(fixture: &Fixture) {
    let launcher = Launcher::start().unwrap();
    finished(&launcher, fixture, &["exit", "0"]);
    let count =
        || (open_descriptors(launcher.pid()).len(), open_descriptors(std::process::id().cast_signed()).len());
    let before = count();
    let mut bad = fixture.spec(&["exit", "0"]);
    bad.oci.set_process(None);
    for _ in 0..25 {
        finished(&launcher, fixture, &["exit", "0"]);
        assert!(launcher.launch(&bad, fixture.request()).is_err());
    }
    // The launcher answers before it has let go of the last order.
    until("no descriptor is left", || count() == before);
    until("no monitor and no zombie is left", || fixture::children_of(launcher.pid()).is_empty());
    let pid = launcher.pid();
    drop(launcher);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "the launcher ended and was reaped");
}

/// The supervisor that gets killed: tells the pids of what it started, and waits.
fn supervisor() {
    let fixture = Fixture::from_environment();
    let launcher = Launcher::start().unwrap();
    let sandboxes =
        [["sleep", "1000"], ["ignore-term", "1000"]].map(|args| start(&launcher, &fixture, &args));
    let pids = sandboxes.iter().flat_map(|sandbox| {
        let init = sandbox.pid();
        [fixture::payload_of(init), init, fixture::parent_of(init)]
    });
    let pids: Vec<String> = pids.chain([launcher.pid()]).map(|pid| pid.to_string()).collect();
    println!("{}", pids.join(" "));
    std::thread::sleep(Duration::from_secs(1000));
}

fn a_killed_supervisor_takes_its_sandboxes_along(fixture: &Fixture) {
    let mut supervisor = fixture.command("supervisor").stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut output = std::io::BufReader::new(supervisor.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    let pids: Vec<i32> = line.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 7, "{line}");
    assert!(pids.iter().all(|pid| alive(*pid)));
    supervisor.kill().unwrap();
    let killed = Instant::now();
    supervisor.wait().unwrap();
    until("nothing of it lives", || !pids.iter().any(|pid| alive(*pid)));
    assert!(killed.elapsed() < Duration::from_secs(2), "{:?}", killed.elapsed());
}

fn a_killed_launcher_leaves_its_sandboxes_running(fixture: &Fixture) {
    let launcher = Launcher::start().unwrap();
    let running = start(&launcher, fixture, &["sleep", "1000"]);
    fixture::kill(launcher.pid());
    until("new orders are refused", || {
        let order = launcher.launch(&fixture.spec(&["exit", "0"]), fixture.request());
        matches!(order, Err(LauncherError::Ended))
    });
    assert!(alive(running.pid()) && !readable(&running));
    running.signal(libc::SIGTERM).unwrap();
    assert_eq!(running.wait().unwrap().signal, Some(libc::SIGTERM));
}

fn a_killed_monitor_takes_its_sandbox_along(fixture: &Fixture) {
    let launcher = Launcher::start().unwrap();
    let running = start(&launcher, fixture, &["ignore-term", "1000"]);
    let (init, payload) = (running.pid(), fixture::payload_of(running.pid()));
    fixture::kill(fixture::parent_of(init));
    assert!(matches!(running.wait().unwrap_err(), LauncherError::MonitorLost));
    until("the sandbox is gone", || !alive(init) && !alive(payload));
    fixture::sweep();
}

/// Standard streams of which only the output is looked at.
fn streams(output: OwnedFd) -> [OwnedFd; 3] {
    let null = || OwnedFd::from(File::options().read(true).write(true).open("/dev/null").unwrap());
    [null(), output, null()]
}
