use super::*;
use crate::journal::{CandidateKind, SealedFor};

/// Events as a journal would hold them, one a second.
#[derive(Clone)]
struct Story {
    records: Vec<Record>,
    boot: &'static str,
}

const A: &[u8] = b"a";
const B: &[u8] = b"b";
const SECOND: u64 = 1_000_000_000;

impl Story {
    fn new() -> Story {
        let mut story = Story { records: Vec::new(), boot: "one" };
        story.tell(Event::RunCreated { run_id: "r".into(), run: Digest::of(b"run") });
        story
    }

    fn tell(&mut self, event: Event) -> &mut Story {
        let seq = self.records.len() as u64;
        let boot_id = self.boot.to_owned();
        let prev = Digest::of(b"");
        self.records.push(Record { seq, prev, boot_id, boot_ns: seq * SECOND, wall_ms: 0, event });
        self
    }

    fn start(&mut self, name: &str) -> u32 {
        let phase = self.state().next_phase();
        let spec = Digest::of(b"spec");
        self.tell(Event::PhaseStarted { phase, name: name.into(), spec, deadline_ns: None });
        phase
    }

    fn end(&mut self, phase: u32, reason: Reason) -> &mut Story {
        let exit_code = (reason == Reason::Exited).then_some(0);
        self.tell(Event::PhaseEnded { phase, reason, exit_code, signal: None, report: Digest::of(b"end") })
    }

    fn run(&mut self, name: &str) -> &mut Story {
        let phase = self.start(name);
        self.end(phase, Reason::Exited)
    }

    /// What the next supervisor journals of the phases of a dead one.
    fn crash(&mut self) -> &mut Story {
        self.tell(Event::Resumed {});
        let lost: Vec<u32> = self.state().unended().map(|(number, _)| number).collect();
        for phase in lost {
            self.end(phase, Reason::SupervisorLost);
        }
        self
    }

    fn choose(&mut self) -> &mut Story {
        self.tell(Event::Chosen { name: ".".into() })
    }

    fn submit(&mut self, candidate: &[u8]) -> &mut Story {
        let (candidate, sealed_for) = (Digest::of(candidate), SealedFor::Submission);
        let kind = CandidateKind::Patch;
        self.tell(Event::CandidateSealed { candidate, kind, sealed_for, files: 1, bytes: 1 });
        self.tell(Event::Submitted { candidate })
    }

    fn gate(&mut self, candidate: &[u8], passed: bool) -> &mut Story {
        let (candidate, report) = (Digest::of(candidate), Digest::of(b"gate"));
        self.tell(Event::GateResult { gate: "submission".into(), candidate, passed, report })
    }

    fn claim(&mut self, candidate: &[u8]) -> u32 {
        let phase = self.state().next_phase();
        self.tell(Event::FinalClaimed { candidate: Digest::of(candidate), phase });
        phase
    }

    fn verdict(&mut self, phase: u32, candidate: &[u8], sum: &str) -> &mut Story {
        let score = Some(sum.parse::<crate::score::Decimal>().unwrap().into());
        let (candidate, verdict) = (Digest::of(candidate), Digest::of(b"verdict"));
        self.tell(Event::Verdict { phase, candidate, score, counts: Counts::default(), verdict })
    }

    fn state(&self) -> State {
        State::of(&self.records)
    }

    fn next(&self, lifecycle: Lifecycle) -> Next {
        self.state().next(lifecycle, true)
    }

    fn cut_off(&self, lifecycle: Lifecycle) -> bool {
        self.state().cut_off(lifecycle).is_some()
    }
}

/// A run whose submission has passed the gates.
fn selected() -> Story {
    let mut story = Story::new();
    let explore = story.start(names::EXPLORE);
    story.choose().end(explore, Reason::Signalled).submit(A).gate(A, true);
    story
}

#[test]
fn a_direct_run_goes_from_research_to_its_end() {
    let direct = Lifecycle::Direct;
    let mut story = Story::new();
    assert_eq!(story.next(direct), Next::Research);
    let explore = story.start(names::EXPLORE);
    assert_eq!(story.next(direct), Next::Research);
    assert_eq!(story.choose().next(direct), Next::Seal);
    story.end(explore, Reason::Signalled);
    assert_eq!(story.next(direct), Next::Seal);
    assert_eq!(story.submit(A).next(direct), Next::Gate);
    assert_eq!(story.gate(A, true).next(direct), Next::Score(Digest::of(A)));
    let phase = story.claim(A);
    story.run(names::SCORE);
    assert_eq!(story.verdict(phase, A, "0.5").next(direct), Next::Conclude);
    let score = story.state().verdict(Digest::of(A)).unwrap().0;
    story.tell(Event::Scored { candidate: Some(Digest::of(A)), score, sigma: None });
    assert_eq!(story.next(direct), Next::Close(Outcome::Scored));
    story.tell(Event::Closed { outcome: Outcome::Scored });
    assert_eq!(story.next(direct), Next::Nothing);
}

#[test]
fn a_replay_run_scores_each_selected_checkpoint() {
    let replay = Lifecycle::Replay;
    let mut story = selected();
    assert_eq!(story.next(replay), Next::Replay);
    assert_eq!(story.run(names::REPLAY).next(replay), Next::Checkpoints);
    for (bytes, progress) in [(A, 2), (B, 1)] {
        let (checkpoint, name) = (Digest::of(bytes), format!("step-{progress}"));
        story.tell(Event::CheckpointValidated { checkpoint, name, progress, valid: true });
    }
    story.tell(Event::CheckpointsSelected { checkpoints: vec![Digest::of(A), Digest::of(B)] });
    assert_eq!(story.next(replay), Next::Score(Digest::of(A)));
    let phase = story.claim(A);
    story.run(names::SCORE).verdict(phase, A, "0.25");
    assert_eq!(story.next(replay), Next::Score(Digest::of(B)));
    let phase = story.claim(B);
    story.run(names::SCORE).verdict(phase, B, "0.5");
    assert_eq!(story.next(replay), Next::Conclude);
    let progress: Vec<u64> =
        story.state().scored_checkpoints().iter().map(|(_, checkpoint)| checkpoint.progress).collect();
    assert_eq!(progress, [2, 1]);
}

#[test]
fn nothing_selected_is_nothing_valid() {
    let mut story = selected();
    story.run(names::REPLAY).tell(Event::CheckpointsSelected { checkpoints: Vec::new() });
    assert_eq!(story.next(Lifecycle::Replay), Next::Conclude);
    story.tell(Event::Scored { candidate: None, score: None, sigma: None });
    assert_eq!(story.next(Lifecycle::Replay), Next::Close(Outcome::NothingValid));
}

#[test]
fn what_a_gate_refuses_is_not_run() {
    for lifecycle in [Lifecycle::Direct, Lifecycle::Replay] {
        let mut story = Story::new();
        story.run(names::EXPLORE).choose().submit(A).gate(A, false);
        assert_eq!(story.next(lifecycle), Next::Conclude);
        story.tell(Event::Scored { candidate: None, score: None, sigma: None });
        assert_eq!(story.next(lifecycle), Next::Close(Outcome::GateFailed));
    }
    let mut story = Story::new();
    story.run(names::EXPLORE).choose().tell(Event::ChoiceRefused { cause: "a link".into() });
    assert_eq!(story.next(Lifecycle::Direct), Next::Conclude);
}

#[test]
fn research_without_a_choice_ends_by_how_it_ended() {
    let mut story = Story::new();
    let explore = story.start(names::EXPLORE);
    let mut silent = story.clone();
    assert_eq!(silent.end(explore, Reason::Exited).next(Lifecycle::Direct), Next::Capture);
    silent.tell(Event::DeadlineCapture { candidate: None, early: true });
    assert_eq!(silent.next(Lifecycle::Direct), Next::Close(Outcome::NothingSubmitted));
    let mut late = story.clone();
    late.end(explore, Reason::WallTimeout).tell(Event::DeadlineCapture { candidate: None, early: false });
    assert_eq!(late.next(Lifecycle::Direct), Next::Close(Outcome::DeadlinePassed));
    story.tell(Event::NoCandidate { reason: "nothing helped".into() });
    assert_eq!(story.next(Lifecycle::Direct), Next::Close(Outcome::NoCandidate));
}

#[test]
fn a_baseline_has_no_research() {
    let mut story = Story::new();
    assert_eq!(story.state().next(Lifecycle::Direct, false), Next::Seal);
    story.submit(A);
    assert_eq!(story.state().next(Lifecycle::Direct, false), Next::Gate);
}

/// The table in the module's documentation, row by row.
#[test]
fn a_crash_means_what_the_table_says() {
    let replay = Lifecycle::Replay;
    let goes_on = |story: &Story, lifecycle, next: Next| {
        assert!(!story.cut_off(lifecycle));
        assert_eq!(story.next(lifecycle), next);
    };
    goes_on(Story::new().crash(), replay, Next::Research);

    let mut story = Story::new();
    story.start(names::EXPLORE);
    story.tell(Event::ValidationRequested { ticket: 1, candidate: Digest::of(A), items: None });
    story.start(names::VALIDATE);
    goes_on(story.crash(), replay, Next::Research);
    assert_eq!(story.state().open_tickets().count(), 1);

    let mut story = Story::new();
    story.start(names::EXPLORE);
    goes_on(story.choose().crash(), replay, Next::Seal);
    goes_on(story.submit(A).crash(), replay, Next::Gate);
    goes_on(story.gate(A, true).crash(), replay, Next::Replay);

    let mut cut = selected();
    cut.start(names::REPLAY);
    assert!(cut.crash().cut_off(replay));

    let mut story = selected();
    story.run(names::REPLAY);
    story.start(names::CHECKPOINT);
    goes_on(story.crash(), replay, Next::Checkpoints);

    let mut story = selected();
    story.claim(A);
    // Claimed, and nothing has run.
    goes_on(story.clone().crash(), Lifecycle::Direct, Next::Score(Digest::of(A)));
    story.start(names::SCORE);
    assert!(story.clone().crash().cut_off(Lifecycle::Direct));
    // The scorer has ended, and its word is lost.
    let phase = story.state().next_phase() - 1;
    story.end(phase, Reason::Exited);
    assert!(story.clone().crash().cut_off(Lifecycle::Direct));
    goes_on(story.verdict(phase, A, "1").crash(), Lifecycle::Direct, Next::Conclude);
}

#[test]
fn an_interrupted_run_waits_for_an_operator() {
    let direct = Lifecycle::Direct;
    let mut story = selected();
    story.claim(A);
    story.start(names::SCORE);
    story.crash().tell(Event::Interrupted { cause: "cut off".into() });
    assert_eq!(story.next(direct), Next::Decide);
    let mut closed = story.clone();
    closed.tell(Event::Decided { decision: Decision::Close });
    assert_eq!(closed.next(direct), Next::Close(Outcome::Interrupted));
    story.tell(Event::Decided { decision: Decision::Again });
    assert_eq!(story.next(direct), Next::Score(Digest::of(A)));
    assert!(!story.cut_off(direct));
}

#[test]
fn a_sandbox_that_could_not_be_set_up_has_run_nothing() {
    let mut story = selected();
    for tries in 0..TRIES {
        assert_eq!(story.state().tries(names::REPLAY), tries);
        assert_eq!(story.next(Lifecycle::Replay), Next::Replay);
        let phase = story.start(names::REPLAY);
        story.end(phase, Reason::SetupFailed);
    }
    assert_eq!(story.next(Lifecycle::Replay), Next::Checkpoints);

    let mut story = selected();
    story.claim(A);
    let phase = story.start(names::SCORE);
    story.end(phase, Reason::SetupFailed);
    assert_eq!(story.state().failed_setups(Digest::of(A)), 1);
    assert_eq!(story.next(Lifecycle::Direct), Next::Score(Digest::of(A)));
    assert!(!story.crash().cut_off(Lifecycle::Direct));
}

#[test]
fn the_clock_goes_on_through_crashes_and_stands_still_for_validations_that_do_not_count() {
    let mut story = Story::new();
    story.start(names::EXPLORE);
    let begun = story.records.last().unwrap().boot_ns;
    let left = |story: &Story, seconds: u64, count| {
        story.state().research_left_ns(begun + seconds * SECOND, 100_000, count) / SECOND
    };
    assert_eq!(left(&story, 30, true), 70);
    assert_eq!(left(story.crash(), 30, true), 70);
    assert_eq!(left(&story, 200, true), 0);
    let asked = story.records.len() as u64 * SECOND - begun;
    story.tell(Event::ValidationRequested { ticket: 1, candidate: Digest::of(A), items: None });
    story.tell(Event::ValidationCancelled { ticket: 1 });
    assert_eq!((left(&story, 30, true), left(&story, 30, false)), (70, 71));
    story.tell(Event::ValidationRequested { ticket: 2, candidate: Digest::of(A), items: None });
    let open = 30 - (asked / SECOND + 2);
    assert_eq!(left(&story, 30, false), 71 + open);
}

#[test]
fn research_of_another_boot_has_had_the_time_up_to_its_last_event() {
    let mut story = Story::new();
    story.start(names::EXPLORE);
    let begun = story.records.last().unwrap().boot_ns;
    story.tell(Event::ValidationCancelled { ticket: 9 });
    story.boot = "two";
    story.tell(Event::Resumed {}).tell(Event::Interrupted { cause: "started anew".into() });
    story.tell(Event::Decided { decision: Decision::Again });
    let decided = story.records.last().unwrap().boot_ns;
    assert!(decided > begun + SECOND);
    assert_eq!(story.state().research_left_ns(decided + 9 * SECOND, 100_000, true), 90 * SECOND);
}

#[test]
fn nothing_is_decided_by_the_wall_clock() {
    let mut story = selected();
    story.tell(Event::ValidationRequested { ticket: 1, candidate: Digest::of(A), items: None }).crash();
    let mut set_back = story.clone();
    for (record, wall_ms) in set_back.records.iter_mut().zip((0..).map(|n: u64| u64::MAX - n * 1_000_000)) {
        record.wall_ms = wall_ms;
    }
    assert_eq!(set_back.state(), story.state());
}

/// The second table in the module's documentation.
#[test]
fn a_monitor_that_is_killed_is_the_hosts_failure() {
    let (direct, replay) = (Lifecycle::Direct, Lifecycle::Replay);
    let mut story = Story::new();
    let explore = story.start(names::EXPLORE);
    story.end(explore, Reason::SupervisorLost);
    assert_eq!((story.next(replay), story.cut_off(replay)), (Next::Research, false));

    let mut story = selected();
    let phase = story.start(names::REPLAY);
    assert!(story.end(phase, Reason::SupervisorLost).cut_off(replay));

    let mut story = selected();
    let phase = story.claim(A);
    story.start(names::SCORE);
    assert!(story.end(phase, Reason::SupervisorLost).cut_off(direct));

    // The candidate's sandbox alone: its scorer has ended by itself, and its word does not count.
    let mut story = selected();
    let phase = story.claim(A);
    story.start(names::SCORE);
    let beside = story.start(names::CANDIDATE);
    story.end(phase, Reason::Exited).end(beside, Reason::SupervisorLost);
    assert!(story.cut_off(direct));
    story.tell(Event::Interrupted { cause: "cut off".into() });
    assert!(!story.cut_off(direct), "it is said once");
    story.tell(Event::Decided { decision: Decision::Close });
    assert!(!story.cut_off(direct));
}

#[test]
fn what_an_operator_lets_be_done_again_is_tried_as_often_as_before() {
    let mut story = selected();
    for _ in 0..TRIES {
        story.claim(A);
        let phase = story.start(names::SCORE);
        story.end(phase, Reason::SetupFailed);
    }
    assert_eq!(story.state().failed_setups(Digest::of(A)), TRIES);
    story.tell(Event::Interrupted { cause: "no scorer".into() });
    story.tell(Event::Decided { decision: Decision::Again });
    assert_eq!(story.state().failed_setups(Digest::of(A)), 0);
    assert_eq!(story.next(Lifecycle::Direct), Next::Score(Digest::of(A)));

    let mut story = Story::new();
    for _ in 0..TRIES {
        let phase = story.start(names::EXPLORE);
        story.end(phase, Reason::SetupFailed);
    }
    story.tell(Event::Interrupted { cause: "no agent".into() });
    story.tell(Event::Decided { decision: Decision::Again });
    assert_eq!((story.state().tries(names::EXPLORE), story.next(Lifecycle::Direct)), (0, Next::Research));
}
