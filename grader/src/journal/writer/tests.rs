use std::fs::{self, OpenOptions};
use std::io::{BufRead, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::super::{Outcome, verify};
use super::*;
use crate::Digest;

fn genesis() -> Genesis {
    Genesis { run_id: "soup-1".into(), run: Digest::of(b"run") }
}

fn request(ticket: u64) -> Event {
    Event::ValidationRequested { ticket, candidate: Digest::of(b"candidate"), items: None }
}

fn closed() -> Event {
    Event::Closed { outcome: Outcome::Scored }
}

/// A test of this file in a process of its own, which finds the directory in this variable.
const CHILD: &str = "AIRLOCK_JOURNAL_CHILD";

fn child(program: &[&str], test: &str, run: &Path) -> Command {
    let own = std::env::current_exe().unwrap();
    let mut words = program.iter().map(|word| word.to_string()).collect::<Vec<_>>();
    words.extend([own.to_str().unwrap().into(), "--ignored".into(), "--exact".into(), "--nocapture".into()]);
    words.push(format!("journal::writer::tests::{test}"));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env(CHILD, run);
    command
}

#[test]
fn events_are_there_when_it_is_opened_again() {
    let run = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(run.path(), &genesis()).unwrap();
    let first: Vec<_> = (0..3).map(|ticket| journal.append(request(ticket)).unwrap()).collect();
    let head = journal.head();
    drop(journal);
    let mut opened = Journal::open(run.path(), &genesis()).unwrap();
    assert_eq!(opened.records, first);
    assert_eq!(opened.journal.head(), head);
    let next = opened.journal.append(request(3)).unwrap();
    assert_eq!(next.seq, 3);
    let all = verify(run.path(), &genesis(), Some(&opened.journal.head())).unwrap();
    assert_eq!(all, [first, vec![next]].concat());
    assert!(verify(run.path(), &genesis(), Some(&head)).is_err());
}

#[test]
fn there_is_one_writer() {
    let run = tempfile::tempdir().unwrap();
    let journal = Journal::create(run.path(), &genesis()).unwrap();
    assert!(matches!(Journal::open(run.path(), &genesis()), Err(JournalError::Busy(_))));
    assert!(verify(run.path(), &genesis(), None).is_ok(), "reading needs no lock");
    drop(journal);
    assert!(Journal::open(run.path(), &genesis()).is_ok());
}

#[test]
fn a_journal_is_made_once() {
    let run = tempfile::tempdir().unwrap();
    drop(Journal::create(run.path(), &genesis()).unwrap());
    let error = Journal::create(run.path(), &genesis()).unwrap_err();
    assert!(matches!(error, JournalError::Io { step: "create", .. }), "{error}");
    std::os::unix::fs::symlink("/dev/null", run.path().join("link")).unwrap();
    fs::rename(run.path().join("link"), run.path().join(JOURNAL)).unwrap();
    let error = Journal::open(run.path(), &genesis()).unwrap_err();
    assert!(matches!(error, JournalError::Io { step: "open", .. }), "{error}");
}

#[test]
fn nothing_follows_the_end() {
    let run = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(run.path(), &genesis()).unwrap();
    journal.append(closed()).unwrap();
    assert!(matches!(journal.append(request(1)), Err(JournalError::Closed(_))));
    drop(journal);
    let mut opened = Journal::open(run.path(), &genesis()).unwrap();
    assert!(matches!(opened.journal.append(request(1)), Err(JournalError::Closed(_))));
}

#[test]
fn a_clock_that_runs_backwards_is_refused_and_another_boot_is_not() {
    let run = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(run.path(), &genesis()).unwrap();
    let moment = |boot_id: &str, boot_ns| Moment { boot_id: boot_id.into(), boot_ns, wall_ms: 9 };
    journal.append_at(request(1), moment("b1", 100)).unwrap();
    let error = journal.append_at(request(2), moment("b1", 99)).unwrap_err();
    assert!(matches!(error, JournalError::ClockBackwards(_)));
    journal.append_at(request(2), moment("b1", 100)).unwrap();
    journal.append_at(request(3), moment("b2", 1)).unwrap();
    drop(journal);
    assert_eq!(Journal::open(run.path(), &genesis()).unwrap().records.len(), 3);
}

#[test]
fn an_event_that_is_too_long_leaves_the_journal_as_it_was() {
    let run = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(run.path(), &genesis()).unwrap();
    let error = journal.append(Event::NoCandidate { reason: "x".repeat(MAX_LINE) }).unwrap_err();
    assert!(matches!(error, JournalError::LongEvent(_)));
    assert_eq!(journal.append(request(1)).unwrap().seq, 0);
}

#[test]
fn a_torn_line_is_removed_and_recorded() {
    let run = tempfile::tempdir().unwrap();
    let path = run.path().join(JOURNAL);
    let mut journal = Journal::create(run.path(), &genesis()).unwrap();
    journal.append(request(1)).unwrap();
    let kept = fs::read(&path).unwrap();
    let line = {
        journal.append(request(2)).unwrap();
        fs::read(&path).unwrap()[kept.len()..].to_vec()
    };
    drop(journal);
    for cut in 1..line.len() {
        fs::write(&path, [&kept, &line[..cut]].concat()).unwrap();
        let error = verify(run.path(), &genesis(), None).unwrap_err().to_string();
        assert!(error.contains(&format!("line 2, byte {}: {cut} bytes of a line", kept.len())), "{error}");
        let opened = Journal::open(run.path(), &genesis()).unwrap();
        let recovered = Event::Recovered { dropped_bytes: cut as u64 };
        assert_eq!(
            opened.records.iter().map(|record| record.event.clone()).collect::<Vec<_>>(),
            [request(1), recovered]
        );
        assert_eq!(verify(run.path(), &genesis(), Some(&opened.journal.head())).unwrap(), opened.records);
    }
}

#[test]
fn other_damage_is_an_error_and_stays() {
    let run = tempfile::tempdir().unwrap();
    let path = run.path().join(JOURNAL);
    let mut journal = Journal::create(run.path(), &genesis()).unwrap();
    journal.append(request(1)).unwrap();
    journal.append(request(2)).unwrap();
    drop(journal);
    let whole = fs::read(&path).unwrap();
    let mut flipped = whole.clone();
    flipped[20] ^= 1;
    for bad in
        [flipped, [&whole[..], b"\0\0\0"].concat(), [&whole[..], b"{}\n"].concat(), whole[1..].to_vec()]
    {
        fs::write(&path, &bad).unwrap();
        let error = Journal::open(run.path(), &genesis()).unwrap_err();
        assert!(matches!(error, JournalError::Damaged { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), bad);
    }
}

/// After SIGKILL at any moment the journal opens again and holds every event that was acknowledged.
#[test]
fn acknowledged_events_survive_kill_9() {
    let run = tempfile::tempdir().unwrap();
    drop(Journal::create(run.path(), &genesis()).unwrap());
    let mut least = 0;
    for round in 0..20u64 {
        let mut child =
            child(&[], "child_appends_for_ever", run.path()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        // Until it is at work; then some microseconds more.
        let mut line = String::new();
        while !line.starts_with("acknowledged") {
            line.clear();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "the child ended by itself");
        }
        std::thread::sleep(Duration::from_micros(round * 397 % 5_000));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut rest = line;
        output.read_to_string(&mut rest).unwrap();
        // The last line may be half of one.
        let whole = &rest[..rest.rfind('\n').unwrap()];
        let acknowledged: u64 = whole.rsplit_once(' ').unwrap().1.parse().unwrap();
        assert!(acknowledged >= least);
        let opened = Journal::open(run.path(), &genesis()).unwrap();
        let seen = opened.records.len() as u64;
        assert!(
            seen > acknowledged,
            "round {round}: {acknowledged} was acknowledged, and {seen} lines are there"
        );
        least = seen;
    }
}

#[test]
#[ignore = "the child of acknowledged_events_survive_kill_9"]
fn child_appends_for_ever() {
    let Some(run) = std::env::var_os(CHILD) else {
        return;
    };
    let mut journal = Journal::open(Path::new(&run), &genesis()).unwrap().journal;
    loop {
        let record = journal.append(request(7)).unwrap();
        println!("acknowledged {}", record.seq);
    }
}

/// In a mount namespace of its own, with a disk of its own to fill.
#[test]
fn the_reserve_serves_the_end_when_the_disk_is_full() {
    let run = tempfile::tempdir().unwrap();
    let unshare = ["unshare", "--user", "--map-root-user", "--mount"];
    if !Command::new(unshare[0]).args(&unshare[1..]).arg("true").status().is_ok_and(|status| status.success())
    {
        eprintln!("skipped: no user namespaces here");
        return;
    }
    let script = "mount -t tmpfs -o size=1536k none \"$AIRLOCK_JOURNAL_CHILD\" && exec \"$@\"";
    let program = [&unshare[..], &["sh", "-c", script, "sh"]].concat();
    let output = child(&program, "child_fills_the_disk", run.path()).output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("the disk was full"), "{said}");
}

#[test]
#[ignore = "the child of the_reserve_serves_the_end_when_the_disk_is_full"]
fn child_fills_the_disk() {
    let Some(run) = std::env::var_os(CHILD) else {
        return;
    };
    let run = Path::new(&run);
    let fill = || {
        let mut filler = OpenOptions::new().create(true).append(true).open(run.join("filler")).unwrap();
        while filler.write_all(&[1; 512]).is_ok() {}
    };
    let mut journal = Journal::create(run, &genesis()).unwrap();
    journal.append(request(1)).unwrap();
    fill();
    // What is left of the journal's last block may take some more.
    let tickets = 2..200;
    let refused = tickets.map(|ticket| journal.append(request(ticket))).find_map(Result::err).unwrap();
    assert!(matches!(refused, JournalError::DiskFull(_)), "{refused}");
    let head = journal.head();
    verify(run, &genesis(), Some(&head)).expect("a refused event leaves nothing");
    journal
        .append(Event::Interrupted { cause: "the disk is full".repeat(400) })
        .expect("the reserve is for this");
    drop(journal);
    fill();
    // Once more, with the reserve gone: the journal is whole and can be read to its end.
    let mut journal =
        Journal::open(run, &genesis()).expect("a full disk does not keep a run from being opened").journal;
    let last = (0..10_000).map(|_| journal.append(Event::Resumed {})).find_map(Result::err).unwrap();
    assert!(matches!(last, JournalError::DiskFull(_)), "{last}");
    let records = verify(run, &genesis(), Some(&journal.head())).unwrap();
    fs::remove_file(run.join("filler")).unwrap();
    let closed = journal.append(closed()).expect("there is room again");
    assert_eq!(closed.seq, records.len() as u64);
    println!("the disk was full");
}
