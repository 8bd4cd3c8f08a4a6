//! Limits.

use std::os::unix::process::CommandExt;
use std::time::Duration;

use airlock_tests::{Caller, Outcome, Site, skip};
use nix::sys::resource::Resource;

use crate::refused_then_done;

/// A site whose caller may set limits by cgroup.
macro_rules! limited_site {
    () => {{
        let site = Site::new();
        if !site.limits() {
            skip!("needs cgroups of its own");
        }
        site
    }};
}

#[test]
fn memory() {
    let site = limited_site!();
    let eat = |limit: &str| {
        let policy = site.policy(&format!("[limits]\nmemory = \"{limit}\"\n"));
        site.run().policy(policy).end([Site::probe_inside(), "eat", "134217728"])
    };
    let small = eat("64MiB");
    assert_eq!((small.code, small.report().reason()), (137, "oom"), "{small}");
    assert!(small.report().number("oom_kills") >= 1, "{}", small.report());
    let large = eat("256MiB").succeeded();
    assert_eq!(large.report().reason(), "exited");
    let peak = large.report().number("memory_peak");
    assert!((128 << 20..=256 << 20).contains(&peak), "{peak}");
}

/// What is in `/tmp` and `/dev/shm` counts as memory of the sandbox.
#[test]
fn memory_in_files() {
    let site = limited_site!();
    let fill = |limit: &str| {
        let clauses = format!("[limits]\nmemory = \"{limit}\"\ntmp = \"512MiB\"\n");
        site.run().policy(site.policy(&clauses)).end([Site::probe_inside(), "fill", "/tmp/x", "134217728"])
    };
    assert_eq!(fill("64MiB").report().reason(), "oom");
    fill("256MiB").succeeded();
}

#[test]
fn pids() {
    let site = limited_site!();
    let action = ["children", "30"];
    site.inside("[limits]\npids = 16\n", action).refused(&["EAGAIN"]);
    site.inside("[limits]\npids = 64\n", action).done();
}

#[test]
fn cpus() {
    let site = limited_site!();
    let spin = |cpus: &str| -> u64 {
        site.inside(&format!("[limits]\ncpus = {cpus}\n"), ["spin", "2"]).done().parse().unwrap()
    };
    let (slow, fast) = (spin("0.1"), spin("1.0"));
    assert!(slow <= 400, "0.1 CPUs gave {slow} ms in 2 s");
    assert!(fast >= 2 * slow, "1 CPU gave {fast} ms, 0.1 gave {slow} ms");
}

#[test]
fn cpuset() {
    let site = limited_site!();
    let seen = |set: &str| {
        let status =
            site.inside(&format!("[limits]\ncpuset = \"{set}\"\n"), ["read", "/proc/self/status"]).done();
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        line.trim().to_owned()
    };
    assert_eq!(seen("0"), "0");
    if std::thread::available_parallelism().is_ok_and(|count| count.get() > 1) {
        assert_eq!(seen("0-1"), "0-1");
    }
}

/// The kernel's counter of version 1 holds memory and swap together.
#[test]
fn swap() {
    let site = limited_site!();
    let group = site.cgroups().unwrap();
    let seen = |swap: &str| -> Option<(u64, bool)> {
        let policy = site.policy(&format!("[limits]\nmemory = \"64MiB\"\nswap = \"{swap}\"\n"));
        let mut live = site.run().policy(policy).start([Site::probe_inside(), "rest", "30"]);
        live.printed("ready");
        let read = |name: &str| {
            let mut files = group.children().into_iter().map(|folder| folder.join(name));
            files.find_map(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok())
        };
        let both = read("memory.memsw.limit_in_bytes").map(|bytes| (bytes, true));
        let found = both.or_else(|| read("memory.swap.max").map(|bytes| (bytes, false)));
        live.signal(nix::sys::signal::Signal::SIGTERM);
        live.end();
        found
    };
    let Some((none, together)) = seen("0B") else {
        skip!("this kernel does not count swap");
    };
    let memory = if together { 64 << 20 } else { 0 };
    assert_eq!(none, memory);
    assert_eq!(seen("32MiB").unwrap().0, memory + (32 << 20));
}

#[test]
fn tmp() {
    refused_then_done(
        "[limits]\ntmp = \"1MiB\"\n",
        "[limits]\ntmp = \"16MiB\"\n",
        &["fill", "/tmp/x", "4194304"],
        &["ENOSPC"],
    );
}

#[test]
fn shm() {
    refused_then_done(
        "[limits]\nshm = \"1MiB\"\n",
        "[limits]\nshm = \"16MiB\"\n",
        &["fill", "/dev/shm/x", "4194304"],
        &["ENOSPC"],
    );
}

#[test]
fn open_files() {
    let action = ["open-many", "100"];
    refused_then_done("[limits]\nnofile = 64\n", "[limits]\nnofile = 256\n", &action, &["EMFILE"]);
}

/// None means a limit of 1: too small for a file, and the one value that a piped core pattern obeys (core(5)).
#[test]
fn core_files() {
    const RLIMIT_CORE: &str = "4";
    let site = Site::new();
    let seen = |clauses: &str| site.inside(clauses, ["limit", RLIMIT_CORE]).done();
    assert_eq!(seen("[limits]\ncore = \"0B\"\n"), "1 1");
    assert_eq!(seen(""), "1 1", "no core files unless asked for");
    assert_eq!(seen("[limits]\ncore = \"1MiB\"\n"), "1048576 1048576");
}

/// Memory of waiting signals is in no cgroup.
#[test]
fn pending_signals() {
    const RLIMIT_SIGPENDING: &str = "11";
    assert_eq!(Site::new().inside("", ["limit", RLIMIT_SIGPENDING]).done(), "1024 1024");
}

/// A caller whose hard limit is lower keeps it, as for open files: raising it would need CAP_SYS_RESOURCE.
#[test]
fn the_callers_own_limit_of_pending_signals_stays() {
    let site = Site::new();
    let seen = |limit: u64| {
        let lower = move |command: &mut std::process::Command| {
            let set = move || Ok(nix::sys::resource::setrlimit(Resource::RLIMIT_SIGPENDING, limit, limit)?);
            // SAFETY: the closure makes one system call and allocates nothing.
            unsafe { command.pre_exec(set) };
        };
        site.run().policy(site.policy("")).with(lower).probe(["limit", "11"]).done()
    };
    assert_eq!(seen(500), "500 500");
    assert_eq!(seen(5000), "1024 1024");
}

/// What is counted for the owner of the sandbox's user namespace too is bounded for each sandbox, or one would use up
/// the share of all.
#[test]
fn quotas_of_inotify() {
    let site = Site::new();
    site.inside("", ["watchers", "40"]).refused(&["EMFILE"]);
    site.inside("", ["watchers", "30"]).done();
    site.inside("", ["watches", "17000"]).refused(&["ENOSPC"]);
    site.inside("", ["watches", "16000"]).done();
}

#[test]
fn quotas_of_namespaces() {
    let site = Site::new();
    let inside =
        |count: &str| site.inside("nesting = true\n[seccomp]\nprofile = \"none\"\n", ["namespaces", count]);
    inside("70").refused(&["ENOSPC"]);
    inside("40").done();
}

/// Huge pages are no memory to the memory controller.
#[test]
fn no_huge_pages() {
    let site = limited_site!();
    let ended = site.run().policy(site.policy("")).end(["true"]).succeeded();
    let read = ended.report().field("enforced").to_string();
    let controller = |folder: &std::path::PathBuf| {
        std::fs::read_to_string(folder.join("cgroup.controllers")).is_ok_and(|text| text.contains("hugetlb"))
    };
    if !site.cgroups().is_some_and(|parent| parent.folders().iter().any(controller)) {
        skip!("no huge page controller in the version 2 tree");
    }
    let handed_down = |folder: &std::path::PathBuf| {
        std::fs::read_to_string(folder.join("cgroup.subtree_control"))
            .is_ok_and(|text| !text.trim().is_empty())
    };
    if site.caller() != Caller::Root && !site.cgroups().unwrap().folders().iter().any(handed_down) {
        skip!("the caller is in the version 2 cgroup, which cannot hand down controllers then");
    }
    for file in ["hugetlb.2MB.max is 0", "hugetlb.2MB.rsvd.max is 0"] {
        assert!(read.contains(file), "{read}");
    }
}

#[test]
fn wall_clock() {
    let site = Site::new();
    let rest = |wall: &str, seconds: &str| {
        let policy = site.policy(&format!("[limits]\nwall = \"{wall}\"\n"));
        site.run().policy(policy).end([Site::probe_inside(), "rest", seconds])
    };
    let short = rest("300ms", "60");
    assert_eq!(short.report().reason(), "wall-timeout", "{short}");
    assert!(short.code >= 128 && short.wall < Duration::from_secs(30), "{short}");
    assert_eq!(rest("60s", "0.5").succeeded().report().reason(), "exited");
}

#[test]
fn the_command_line_sets_limits_too() {
    let site = Site::new();
    let run = site.run().policy(site.policy("")).flag("--wall", "300ms");
    assert_eq!(run.end(["sleep", "20"]).report().reason(), "wall-timeout");
}

/// A limit that cannot be had is an error that names the remedy, unless the policy lowers it in words.
#[test]
fn a_limit_is_never_dropped_in_silence() {
    let site = Site::user();
    if site.caller() == Caller::Self_ {
        skip!("the user who runs the tests may have been given cgroups");
    }
    let policy = site.file(
        "strict.toml",
        "version = 1\nname = \"strict-limits\"\nextends = \"base\"\nbest_effort = [\"devices\"]\n\
         [limits]\nmemory = \"64MiB\"\n",
    );
    site.run().policy(&policy).end(["true"]).refused(&["limits", "best-effort"]);
    let lowered = site.run().policy(&policy).flag("--best-effort", "limits").end(["true"]).succeeded();
    assert!(lowered.report().lowered().contains("limits"), "{}", lowered.report());
}

#[test]
fn a_refused_fork_is_seen_in_the_report() {
    let site = limited_site!();
    let policy = site.policy("[limits]\npids = 16\n");
    let ended = site.run().policy(policy).end([Site::probe_inside(), "children", "30"]);
    assert_eq!(Outcome::of(&ended), Outcome::Refused("EAGAIN".into()));
    assert!(ended.report().number("pids_peak") <= 16, "{}", ended.report());
}
