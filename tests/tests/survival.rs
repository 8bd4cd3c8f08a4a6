//! Payloads that do not behave, and an Airlock that is killed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::fs::File;
use std::time::{Duration, Instant};

use airlock_tests::{Live, Run, Site, skip, within};
use nix::sys::signal::Signal;

const PROBE: &str = "/probe/probe";

fn run(site: &Site) -> Run<'_> {
    site.run().policy(site.policy(""))
}

fn started(site: &Site, action: &[&str]) -> Live {
    let mut live = run(site).start([PROBE].iter().chain(action));
    live.printed("ready");
    live
}

#[test]
fn signals_are_forwarded() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let site = Site::new();
        let live = started(&site, &["wait-signal"]);
        live.signal(signal);
        let ended = live.end();
        assert_eq!(ended.code, signal as i32, "{signal}: {ended}");
        assert_eq!(ended.report().reason(), "exited", "{signal}: {ended}");
    }
}

#[test]
fn an_unhandled_signal_is_passed_through() {
    let site = Site::new();
    for signal in [Signal::SIGTERM, Signal::SIGSEGV, Signal::SIGKILL, Signal::SIGABRT] {
        let ended = run(&site).end([PROBE, "die-by", &(signal as i32).to_string()]);
        assert_eq!(ended.code, 128 + signal as i32, "{ended}");
        assert_eq!(ended.report().reason(), "signalled", "{ended}");
        assert_eq!(ended.report().number("signal"), signal as u64, "{ended}");
    }
}

#[test]
fn orphans_are_reaped() {
    assert_eq!(Site::new().inside("", ["orphans", "50"]).done(), "0");
}

#[test]
fn a_daemon_does_not_outlive_its_sandbox() {
    let site = Site::new();
    let ended = run(&site).end([PROBE, "daemonize", "60"]).succeeded();
    assert!(ended.wall < Duration::from_secs(5), "{ended}");
    assert!(within(Duration::from_secs(1), || site.processes().is_empty()), "{:?}", site.processes());
}

/// The daemon holds the pipe: the reader must still see its end.
#[test]
fn a_grandchild_does_not_hold_the_pipe() {
    let site = Site::new();
    let started = Instant::now();
    let ended = run(&site).end(["/bin/sh", "-c", "sleep 60 & echo begun"]).succeeded();
    assert_eq!(ended.stdout, "begun\n");
    assert!(started.elapsed() < Duration::from_secs(2), "{ended}");
}

#[test]
fn ignored_signals_do_not_stop_the_clock() {
    let site = Site::new();
    let ended = run(&site).flag("--wall", "500ms").end([PROBE, "stay"]);
    assert_eq!(ended.report().reason(), "wall-timeout", "{ended}");
    assert!(ended.wall < Duration::from_secs(10), "{ended}");
}

#[test]
fn a_stopped_payload_does_not_stop_the_clock() {
    let site = Site::new();
    let ended = run(&site).flag("--wall", "500ms").end([PROBE, "stop-self"]);
    assert_eq!(ended.report().reason(), "wall-timeout", "{ended}");
    assert!(ended.wall < Duration::from_secs(10), "{ended}");
}

/// A stopped init reads nothing: signals to be forwarded must not keep the monitor from its clock.
#[test]
fn a_stopped_init_and_a_flood_of_signals_do_not_stop_the_clock() {
    let site = Site::new();
    let report = site.path("report.json");
    let mut live = site
        .run_reporting_to(&report)
        .policy(site.policy(""))
        .flag("--wall", "3s")
        .limit(Duration::from_secs(20))
        .start([PROBE, "stay"]);
    live.printed("ready");
    let init = child_of(live.pid().as_raw());
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(init), Signal::SIGSTOP).unwrap();
    let kinds = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2];
    // Each is seen on its own: the queue of the channel holds some hundred.
    for signal in kinds.iter().cycle().take(4000) {
        live.signal(*signal);
        std::thread::sleep(Duration::from_micros(200));
    }
    let ended = live.end();
    assert_eq!(ended.report().reason(), "wall-timeout", "{ended}");
    assert!(ended.wall < Duration::from_secs(15), "{ended}");
}

/// The only child of a process.
fn child_of(pid: i32) -> i32 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.trim().parse().unwrap_or_else(|_| panic!("one child: {children:?}"))
}

#[test]
fn a_full_tmp_harms_nobody_else() {
    let site = Site::new();
    let policy = site.policy("[limits]\ntmp = \"4MiB\"\n");
    let script = "cat /dev/zero > /tmp/a 2> /dev/null; echo still here";
    let ended = site.run().policy(policy).end(["/bin/sh", "-c", script]).succeeded();
    assert_eq!(ended.stdout, "still here\n");
}

#[test]
fn a_fork_bomb_is_bounded() {
    let site = Site::new();
    if !site.limits() {
        skip!("needs cgroups of its own");
    }
    let policy = site.policy("[limits]\npids = 64\nwall = \"1s\"\n");
    let ended = site.run().policy(policy).end([PROBE, "bomb"]);
    assert!(["wall-timeout", "pids-limit-hit"].contains(&ended.report().reason()), "{ended}");
    assert!(ended.report().number("pids_peak") <= 64, "{}", ended.report());
    assert!(ended.wall < Duration::from_secs(15), "{ended}");
}

/// One greedy child of many: the whole sandbox is told apart from a payload that failed on its own.
#[test]
fn memory_eaten_by_a_child_is_reported() {
    let site = Site::new();
    if !site.limits() {
        skip!("needs cgroups of its own");
    }
    let policy = site.policy("[limits]\nmemory = \"64MiB\"\n");
    let script = "/probe/probe eat 134217728; exit 3";
    let ended = site.run().policy(policy).end(["/bin/sh", "-c", script]);
    assert!(ended.report().number("oom_kills") >= 1, "{}", ended.report());
    assert_eq!(ended.report().reason(), "oom", "{ended}");
}

#[test]
fn a_gigabyte_of_output_passes() {
    let site = Site::new();
    let ended = run(&site).end([PROBE, "pour", "1073741824"]).succeeded();
    assert_eq!(ended.stdout_bytes, 1 << 30);
}

#[test]
fn a_reader_that_goes_away_ends_the_writer() {
    let site = Site::new();
    let (reader, writer) = nix::unistd::pipe().unwrap();
    drop(reader);
    let ended = run(&site).stdout(writer).end(["/bin/sh", "-c", "trap - PIPE; yes"]);
    assert_eq!(ended.code, 128 + Signal::SIGPIPE as i32, "{ended}");
}

#[test]
fn closed_streams_do_not_end_the_sandbox() {
    let site = Site::new();
    let ended = run(&site).end([PROBE, "close-all", "7"]);
    assert_eq!((ended.code, ended.report().reason()), (7, "exited"), "{ended}");
}

#[test]
fn closed_streams_of_the_caller_are_replaced() {
    let site = Site::new();
    let close = "exec \"$0\" \"$@\" 0<&- 1>&- 2>&-";
    let run = run(&site).in_program("/bin/sh", &["-c", close]);
    let ended = run.end([PROBE, "descriptors"]).succeeded();
    let report = ended.report();
    assert_eq!(report.reason(), "exited", "{report}");
}

/// The monitor's parent or the monitor itself is gone: nothing of the sandbox may live 2 s later.
#[test]
fn killing_airlock_kills_the_sandbox() {
    let mut site = Site::new();
    site.leaves_something();
    let live = started(&site, &["stay"]);
    assert!(site.processes().len() >= 3, "{:?}", site.processes());
    live.signal(Signal::SIGKILL);
    let gone = within(Duration::from_secs(2), || site.processes().is_empty());
    assert!(gone, "still there: {:?}", site.processes());
    live.end();
    site.airlock_with(["gc"]).succeeded();
    assert_eq!(site.cgroups().map(|parent| parent.children().len()).unwrap_or(0), 0);
}

#[test]
fn the_next_run_removes_what_a_killed_one_left() {
    let mut site = Site::new();
    site.leaves_something();
    let live = started(&site, &["stay"]);
    live.signal(Signal::SIGKILL);
    live.end();
    assert!(within(Duration::from_secs(2), || site.processes().is_empty()));
    run(&site).end(["true"]).succeeded();
    assert_eq!(site.cgroups().map(|parent| parent.children().len()).unwrap_or(0), 0);
}

/// Every process of Airlock may be the one that is killed; the caller learns of it.
#[test]
fn killing_any_process_of_airlock_kills_the_sandbox() {
    let first = Site::new();
    let live = started(&first, &["stay"]);
    let ours = first.processes();
    let count = ours.len();
    live.signal(Signal::SIGTERM);
    live.signal(Signal::SIGKILL);
    live.end();
    for victim in 0..count {
        let mut site = Site::new();
        site.leaves_something();
        let mut live = started(&site, &["stay"]);
        let pids: Vec<i32> = site.processes().into_keys().collect();
        let Some(pid) = pids.get(victim) else { continue };
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(*pid), Signal::SIGKILL).unwrap();
        let gone = within(Duration::from_secs(2), || site.processes().is_empty() && !live.runs());
        assert!(gone, "killed process {victim}; still there: {:?}", site.processes());
        let ended = live.end();
        assert!(ended.code > 0, "{ended}");
        site.airlock_with(["gc"]).succeeded();
    }
    first.airlock_with(["gc"]).succeeded();
}

/// A caller's choice, which a program inherits: the kernel would take init away before its monitor has asked, and the
/// payload before init has (wait(2)).
#[test]
fn a_caller_that_ignores_its_children_learns_how_the_command_ended() {
    let site = Site::new();
    let ignoring = "trap '' CHLD; exec \"$0\" \"$@\"";
    for status in [0, 7] {
        let run = run(&site).in_program("/bin/bash", &["-c", ignoring]);
        let ended = run.end(["/bin/sh", "-c", &format!("exit {status}")]);
        assert_eq!((ended.code, ended.report().reason()), (status, "exited"), "{ended}");
    }
}

/// Input reaches the payload, and its end too.
#[test]
fn input_is_passed_and_ends() {
    let site = Site::new();
    let input = File::open(site.file("input", "one\ntwo\n")).unwrap();
    let ended = run(&site).stdin(input).end(["wc", "-l"]).succeeded();
    assert_eq!(ended.stdout.trim(), "2");
}

#[test]
fn a_payload_that_ends_at_once_is_no_error() {
    let site = Site::new();
    for _ in 0..20 {
        let ended = run(&site).end([PROBE, "cwd"]).succeeded();
        assert_eq!(ended.report().reason(), "exited");
    }
}
