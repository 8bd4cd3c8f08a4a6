//! Many sandboxes at once share nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

use std::collections::BTreeSet;

use airlock_tests::{Live, Outcome, Site, skip};
use nix::sys::signal::Signal;

const SANDBOXES: usize = 64;
const IDS_EACH: u64 = 65_536;

/// The neighbour makes and searches keys, which the filter refuses otherwise.
const KEYS: &str = "[seccomp]\nallow = [\"add_key\", \"keyctl\"]\n[limits]\npids = 32\n";

/// The same names for all: whoever can see another's object is refused its own.
fn names() -> [String; 3] {
    let own = std::process::id();
    ["neighbour".into(), format!("airlock-test-{own}"), (0x0b00_0000 + own % 0x10_0000).to_string()]
}

#[test]
fn neighbours_share_no_names_processes_or_ids() {
    let site = Site::new();
    let policy = site.policy(KEYS);
    let action = || [Site::probe_inside().to_owned()].into_iter().chain(names());
    let mut all: Vec<Live> = (0..SANDBOXES).map(|_| site.run().policy(&policy).start(action())).collect();
    all.iter_mut().for_each(|live| live.printed("ready"));
    all.iter().for_each(|live| live.signal(Signal::SIGTERM));

    let mut bases = BTreeSet::new();
    for live in all {
        let ended = live.end();
        assert_eq!(ended.code, 0, "{ended}");
        let answer = ended.stdout.lines().find_map(|line| line.strip_prefix("ok ")).unwrap();
        let numbers: Vec<u64> = answer.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let [processes, _inside, base, count] = numbers[..] else { panic!("{answer}") };
        // The reaper, if it lets itself be seen, and the payload.
        assert!(processes <= 2, "{processes} processes in sight");
        if site.caller().is_root() {
            assert_eq!(count, IDS_EACH, "{answer}");
            bases.insert(base);
        }
    }
    if site.caller().is_root() {
        assert_eq!(bases.len(), SANDBOXES, "two sandboxes had the same ids");
        let far_apart = bases.iter().zip(bases.iter().skip(1)).all(|(one, next)| next - one >= IDS_EACH);
        assert!(far_apart, "ranges overlap: {bases:?}");
    }
}

/// The neighbour's test can fail: without sandboxes the second finds what the first has taken.
#[test]
fn without_sandboxes_neighbours_collide() {
    let site = Site::new();
    let mut first = site.start_outside(names());
    first.printed("ready");
    match site.outside(names()) {
        Outcome::Refused(errno) => assert!(["EADDRINUSE", "EEXIST"].contains(&errno.as_str()), "{errno}"),
        other => panic!("the second was not refused: {other:?}"),
    }
    first.signal(Signal::SIGTERM);
    assert_eq!(first.end().code, 0);
}

/// A range is given back when its sandbox ends, and taken again.
#[test]
fn ids_are_given_back() {
    let Some(site) = Site::root() else { skip!("needs root") };
    let base = || {
        let map = site.inside("", ["read", "/proc/self/uid_map"]).done();
        map.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let pool = 0x7000_0000;
    for _ in 0..20 {
        let base = base();
        assert!(base >= pool && (base - pool) % IDS_EACH == 0, "{base:#x}");
    }
}
