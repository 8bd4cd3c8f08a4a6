use std::process::Command;

use proptest::prelude::*;

use super::super::{CandidateKind, Event, Moment, Outcome, SealedFor};
use super::*;
use crate::Digest;
use crate::score::{Counts, Score};

fn genesis() -> Genesis {
    Genesis { run_id: "soup-1".into(), run: Digest::of(b"run") }
}

fn events() -> Vec<Event> {
    let digest = Digest::of(b"candidate");
    let counts = Counts { planned: 512, ok: 87, wrong: 420, timeout: 5, ..Counts::default() };
    let score = Score { sum: 87u64.into(), n: 512.try_into().unwrap() };
    vec![
        Event::RunCreated { run_id: "soup-1".into(), run: digest },
        Event::PhaseStarted { phase: 0, name: "explore".into(), spec: digest, deadline_ns: Some(u64::MAX) },
        Event::CandidateSealed {
            candidate: digest,
            kind: CandidateKind::Patch,
            sealed_for: SealedFor::Validation,
            files: 3,
            bytes: 0,
        },
        Event::ValidationRequested { ticket: 1, candidate: digest, items: None },
        Event::ValidationResult { ticket: 1, phase: 1, score: Some(score), counts, verdict: digest },
        Event::NoCandidate { reason: "\"gave up\"\n\u{1b}[2J é\u{2028}".into() },
        Event::Resumed {},
        Event::Closed { outcome: Outcome::NoCandidate },
    ]
}

fn lines(events: Vec<Event>) -> Vec<Vec<u8>> {
    let mut head = genesis().head().unwrap();
    let mut next = |(event, boot_ns)| {
        let moment = Moment { boot_id: "b1".into(), boot_ns, wall_ms: 1_700_000_000_000 };
        let line = head.next(moment, event).line().unwrap();
        head = head.after(&line);
        line
    };
    events.into_iter().zip((0..).step_by(1000)).map(&mut next).collect()
}

fn check_all(bytes: &[u8]) -> Result<Contents, Damage> {
    match read(bytes, &genesis(), Path::new("journal.jsonl")) {
        Ok(contents) => Ok(contents),
        Err(JournalError::Damaged { damage, .. }) => Err(*damage),
        Err(error) => panic!("{error}"),
    }
}

/// As `verify` does with the head of a receipt.
fn check_against(bytes: &[u8], head: Head) -> Result<(), Damage> {
    match end_at(check_all(bytes)?, Some(&head), Path::new("journal.jsonl")) {
        Ok(_) => Ok(()),
        Err(JournalError::Damaged { damage, .. }) => Err(*damage),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn what_was_written_is_read() {
    let lines = lines(events());
    let contents = check_all(&lines.concat()).unwrap();
    assert_eq!(contents.records.into_iter().map(|record| record.event).collect::<Vec<_>>(), events());
    assert_eq!(contents.head.lines, 8);
    assert_eq!(contents.head.bytes, lines.concat().len() as u64);
    assert_eq!(contents.head.digest, Digest::of(lines.last().unwrap()));
    assert_eq!(contents.torn, None);
}

#[test]
fn every_flipped_bit_is_found_where_it_is_or_by_the_next_line() {
    let lines = lines(events());
    let bytes = lines.concat();
    let head = check_all(&bytes).unwrap().head;
    let mut start = 0;
    for (number, line) in (1..).zip(&lines) {
        for at in start..start + line.len() {
            for bit in [0x01, 0x20, 0x80] {
                let mut bad = bytes.clone();
                bad[at] ^= bit;
                let damage = check_against(&bad, head).expect_err("found");
                // An escape such as \u001b is one character, and its place is that of the backslash.
                assert!(damage.offset + 5 >= at as u64, "byte {at} bit {bit}: {damage}");
                assert!(damage.line == number || damage.line == number + 1, "byte {at} bit {bit}: {damage}");
            }
        }
        start += line.len();
    }
}

#[test]
fn a_dropped_line_is_found_at_the_next_lines_link() {
    let all = lines(events());
    let head = check_all(&all.concat()).unwrap().head;
    for dropped in 0..all.len() {
        let mut lines = all.clone();
        lines.remove(dropped);
        let damage = check_against(&lines.concat(), head).expect_err("found");
        assert_eq!(damage.line, dropped as u64 + 1, "{damage}");
        if dropped + 1 < all.len() {
            let next = &all[dropped + 1];
            let link = next.windows(15).position(|window| window == b"\"prev\":\"sha256:").unwrap() + 15;
            let in_line = usize::try_from(damage.offset).unwrap() - all[..dropped].concat().len();
            // Equal digits at the beginning of two digests may push it on.
            assert!((link..link + 4).contains(&in_line), "{damage}");
            assert!(matches!(damage.kind, DamageKind::Chain { .. }), "{damage}");
        } else {
            assert!(matches!(damage.kind, DamageKind::Head { .. }), "{damage}");
        }
    }
}

#[test]
fn swapped_and_repeated_lines_are_found() {
    let all = lines(events());
    let head = check_all(&all.concat()).unwrap().head;
    for (a, b) in (0..all.len()).flat_map(|a| (a + 1..all.len()).map(move |b| (a, b))) {
        let mut lines = all.clone();
        lines.swap(a, b);
        let damage = check_against(&lines.concat(), head).expect_err("found");
        assert_eq!(damage.line, a as u64 + 1, "{damage}");
        assert!(matches!(damage.kind, DamageKind::Chain { .. }), "{damage}");
    }
    let mut lines = all.clone();
    lines.insert(3, all[2].clone());
    assert_eq!(check_against(&lines.concat(), head).expect_err("found").line, 4);
}

/// Whoever rewrites the tail with right links makes a journal; only the receipt's head shows it.
#[test]
fn a_rewritten_tail_is_found_by_the_head() {
    let all = lines(events());
    let head = check_all(&all.concat()).unwrap().head;
    let mut events = events();
    events[4] = Event::ValidationCancelled { ticket: 1 };
    let forged = lines(events).concat();
    assert!(check_all(&forged).is_ok());
    let damage = check_against(&forged, head).expect_err("found");
    assert!(matches!(damage.kind, DamageKind::Head { .. }), "{damage}");
}

#[test]
fn another_runs_journal_is_refused() {
    let bytes = lines(events()).concat();
    let other = Genesis { run_id: "soup-2".into(), ..genesis() };
    let Err(JournalError::Damaged { damage, .. }) = read(&bytes[..], &other, Path::new("j")) else {
        panic!()
    };
    assert_eq!(damage.line, 1);
    assert!(damage.to_string().contains("this run begins with"), "{damage}");
}

#[test]
fn lines_that_are_no_records_are_refused() {
    let line = String::from_utf8(lines(events())[0].clone()).unwrap();
    for (bad, kind) in [
        (line.replace("\"seq\":0", "\"seq\":0,\"seq\":0"), "duplicate field `seq`"),
        (line.replace("\"seq\":0", "\"seq\":0,\"sequel\":0"), "unknown field `sequel`"),
        (line.replace("\"type\"", "\"note\":1,\"type\""), "unknown field `note`"),
        (line.replace("\"type\"", "\"run_id\":\"soup-1\",\"type\""), "duplicate field `run_id`"),
        (line.replace("run_created", "run_invented"), "unknown variant `run_invented`"),
        (line.replace("\"run_id\":\"soup-1\",", ""), "missing field `run_id`"),
        (line.replace("\"seq\":0", "\"seq\":0.0"), "floating point"),
        (line.replace("\"seq\":0", "\"seq\":-1"), "-1"),
        (line.replace("\"seq\":0", "\"seq\":NaN"), "expected value"),
        (line.replace("\"seq\":0", "\"seq\":00"), "invalid number"),
        (line.replace(",\"seq\"", ", \"seq\""), "not canonical JSON"),
        (line.replace("soup", "s\\u006fup"), "not canonical JSON"),
        (line.replace('\n', "\r\n"), "not canonical JSON"),
        (line.replace('\n', " {}\n"), "trailing characters"),
        (line.replace("\"seq\":0", "\"seq\":1"), "it is number 1, but number 0 comes here"),
        ("\n".into(), "EOF"),
        ("null\n".into(), "invalid type: null"),
        (format!("{}\n", "[".repeat(200)), "invalid type"),
        (line.replace("soup-1", &"x".repeat(MAX_LINE)), "longer than"),
    ] {
        assert_ne!(bad, line, "{kind}");
        let damage = check_all(bad.as_bytes()).expect_err(kind);
        assert_eq!(damage.line, 1);
        assert!(damage.to_string().contains(kind), "{kind}: {damage}");
    }
}

#[test]
fn time_that_runs_backwards_is_refused() {
    let mut head = genesis().head().unwrap();
    let mut bytes = Vec::new();
    for (boot_id, boot_ns) in [("b1", 50), ("b1", 50), ("b2", 3), ("b2", 2)] {
        let moment = Moment { boot_id: boot_id.into(), boot_ns, wall_ms: 0 };
        let line = head.next(moment, Event::Resumed {}).line().unwrap();
        head = head.after(&line);
        bytes.extend(line);
    }
    let damage = check_all(&bytes).expect_err("found");
    assert_eq!((damage.line, damage.kind), (4, DamageKind::ClockBackwards));
    assert_eq!(bytes[usize::try_from(damage.offset).unwrap()], b'2');
}

#[test]
fn a_cut_is_torn_only_in_the_last_line() {
    let lines = lines(events());
    let bytes = lines.concat();
    let last = bytes.len() - lines.last().unwrap().len();
    for cut in last + 1..bytes.len() {
        let contents = check_all(&bytes[..cut]).unwrap();
        assert_eq!((contents.head.bytes, contents.torn), (last as u64, Some((cut - last) as u64)));
    }
    for junk in
        [&b"\0"[..], b"\0\0\0\0", b"x", b"{\"boot_id\":7", b"{\"oops\"", b"{\"boot_id\":\"a\x00", b"\xff"]
    {
        let damage = check_all(&[&bytes, junk].concat()).expect_err("no beginning of a line");
        assert_eq!(damage.line, 9, "{damage}");
    }
    // A whole line of another run, but for its newline.
    let stray = &self::lines(events())[7];
    let damage = check_all(&[&bytes, &stray[..stray.len() - 1]].concat()).expect_err("no next line");
    assert_eq!(damage.line, 9, "{damage}");
}

/// The program of FORMATS.md, which shares nothing with this crate.
#[test]
fn python_verifies_a_journal_too() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let lines = lines(events());
    std::fs::write(at("run.json"), b"run").unwrap();
    let python = |journal: &[u8]| {
        std::fs::write(at("journal"), journal).unwrap();
        Command::new("python3")
            .args(["-I", "-c", &crate::formats_program("journal.py"), "soup-1", "run.json", "journal"])
            .current_dir(folder.path())
            .output()
    };
    let Ok(output) = python(&lines.concat()) else {
        eprintln!("skipped: python3 is not installed");
        return;
    };
    let head = check_all(&lines.concat()).unwrap().head;
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{} {}\n", head.lines, head.digest));
    let bad = [&lines[..2], &lines[3..]].concat().concat();
    assert!(!python(&bad).unwrap().status.success());
}

proptest! {
    #[test]
    fn no_edit_passes(at in 0..2000usize, length in 0..40usize, with in proptest::collection::vec(any::<u8>(), 0..40)) {
        let bytes = lines(events()).concat();
        let head = check_all(&bytes).unwrap().head;
        let at = at % bytes.len();
        let end = (at + length).min(bytes.len());
        let bad = [&bytes[..at], &with, &bytes[end..]].concat();
        prop_assume!(bad != bytes);
        let first = bad.iter().zip(&bytes).take_while(|(a, b)| a == b).count() as u64;
        let damage = check_against(&bad, head).expect_err("found");
        prop_assert!(damage.offset + 5 >= first || matches!(damage.kind, DamageKind::Torn { .. }), "{} before {}", damage, first);
    }
}
