//! Copies of a run that the holder of the signing key has changed and signed again: no digest tells, and what is wrong
//! must follow from what the documents say. It shows that a receipt cannot say what its run does not, by a fault of
//! the supervisor either.

use std::fs;

use airlock_grader::Digest;
use airlock_grader::journal::{Event, Outcome};
use airlock_grader::receipt::{Predicate, SecretKey};
use airlock_tests::Site;

use crate::copies::{Copy, Original};
use crate::forger::Forger;

struct Case<'a> {
    original: &'a Original,
    key: &'a SecretKey,
}

impl Case<'_> {
    /// A copy that is changed so and signed again does not verify, and what is said has these words.
    #[track_caller]
    fn refused(&self, change: impl FnOnce(&Copy, &Forger<'_>), pieces: &[&str]) {
        self.refused_with(change, |_| {}, pieces);
    }

    #[track_caller]
    fn refused_with(
        &self,
        change: impl FnOnce(&Copy, &Forger<'_>),
        say: impl FnOnce(&mut Predicate),
        pieces: &[&str],
    ) {
        let copy = self.original.copy();
        let forger = Forger::of(&copy);
        change(&copy, &forger);
        forger.sign(self.key, say);
        copy.is_refused(pieces);
    }
}

#[test]
fn what_is_signed_again_must_still_follow() {
    let original = Original::soup(Site::new());
    let key = SecretKey::load(&original.key("key"), None).unwrap();
    let case = Case { original: &original, key: &key };
    let copy = original.copy();
    Forger::of(&copy).journal(|_| {});
    Forger::of(&copy).sign(&key, |_| {});
    copy.verify().expect("only the forger's own means were tried");
    scores(&case);
    claims_and_checkpoints(&case);
    events(&case);
    documents(&case);
    predicates(&case);
}

/// The first final verdict's score, in its event, in the result and in the receipt.
fn better(event: &mut Event) {
    match event {
        Event::Verdict { score: Some(score), .. } | Event::Scored { score: Some(score), .. }
            if score.sum == 511u64.into() =>
        {
            score.sum = 599u64.into();
        }
        _ => {}
    }
}

/// Counts one more row as right, and names the verdict by its new digest.
fn one_more(copy: &Copy, forger: &Forger<'_>) {
    let path = "phases/7-score/verdict.json";
    copy.edit(path, |bytes| {
        let text = String::from_utf8(bytes.clone()).unwrap();
        *bytes =
            text.replacen(r#""score":"0","status":"wrong""#, r#""score":"1","status":"ok""#, 1).into_bytes();
    });
    let digest = Digest::of(&fs::read(copy.path(path)).unwrap());
    forger.events(|event| {
        if let Event::Verdict { phase: 7, verdict, .. } = event {
            *verdict = digest;
        }
    });
}

fn scores(case: &Case<'_>) {
    case.refused_with(
        |_, forger| forger.events(better),
        |said| said.result.score.as_mut().unwrap().sum = 599u64.into(),
        &["journal.jsonl: line ", "it says 599/600", "phases/7-score/verdict.json amounts to 511/600"],
    );
    case.refused(one_more, &["it says 511/600", "phases/7-score/verdict.json amounts to 512/600"]);
    case.refused(
        |copy, forger| {
            one_more(copy, forger);
            forger.events(|event| {
                if let Event::Verdict { phase: 7, score: Some(score), counts, .. } = event {
                    score.sum = 512u64.into();
                    (counts.ok, counts.wrong) = (counts.ok + 1, counts.wrong - 1);
                }
            });
        },
        &["line 45: the result of these verdicts is ", r#""sum":"512""#],
    );
    let worse = |event: &mut Event| {
        if let Event::Scored { sigma: Some(sigma), .. } = event {
            *sigma = "0.999999".parse().unwrap();
        }
    };
    case.refused(
        |_, forger| forger.events(worse),
        &["line 45: the result of these verdicts is ", "0.499375"],
    );
    let other = |event: &mut Event| {
        if let Event::ValidationResult { score: Some(score), .. } = event {
            score.sum = 297u64.into();
        }
    };
    case.refused(
        |_, forger| forger.events(other),
        &["it says 297/297", "phases/2-validate/verdict.json amounts to 247"],
    );
    case.refused(
        |copy, _| fs::write(copy.path("phases/7-score/fault.txt"), "the scorer ended with status 1").unwrap(),
        &["its scorer failed, so its verdict does not count"],
    );
}

fn claims_and_checkpoints(case: &Case<'_>) {
    case.refused(
        |_, forger| {
            forger.journal(|records| {
                let claim = records
                    .iter()
                    .position(|record| matches!(record.event, Event::FinalClaimed { .. }))
                    .unwrap();
                let again = records[claim].clone();
                let verdict =
                    records.iter().position(|record| matches!(record.event, Event::Verdict { .. })).unwrap();
                records.insert(verdict, again);
            });
        },
        &["the final scoring of sha256:", "was claimed before"],
    );
    case.refused(
        |_, forger| {
            forger.events(|event| {
                if let Event::CheckpointsSelected { checkpoints } = event {
                    checkpoints.remove(0);
                }
            });
        },
        &["these are not the valid checkpoints with the greatest progress"],
    );
    case.refused(
        |_, forger| {
            forger.events(|event| {
                if let Event::CheckpointValidated { progress: 12, valid, .. } = event {
                    *valid = false;
                }
            });
        },
        &["its gate and its validation say otherwise"],
    );
}

/// An event's `type`, and how it is known.
type Kind = (&'static str, fn(&Event) -> bool);

fn events(case: &Case<'_>) {
    let kinds: [Kind; 6] = [
        ("validation_result", |event| matches!(event, Event::ValidationResult { .. })),
        ("phase_ended", |event| matches!(event, Event::PhaseEnded { .. })),
        ("submitted", |event| matches!(event, Event::Submitted { .. })),
        ("gate_result", |event| matches!(event, Event::GateResult { .. })),
        ("scored", |event| matches!(event, Event::Scored { .. })),
        ("chosen", |event| matches!(event, Event::Chosen { .. })),
    ];
    for (kind, is) in kinds {
        let drop_it = |_: &Copy, forger: &Forger<'_>| {
            forger.journal(|records| {
                let place = records.iter().position(|record| is(&record.event)).expect(kind);
                records.remove(place);
            });
        };
        case.refused(drop_it, &["journal.jsonl: line ", "cannot come here"]);
    }
    case.refused(
        |_, forger| forger.journal(|records| drop(records.pop())),
        &["the run is not closed after it"],
    );
    case.refused(
        |_, forger| forger.journal(|records| drop(records.remove(0))),
        &["line 1: `run_created` is the first"],
    );
    let other = |event: &mut Event| {
        if let Event::Closed { outcome } = event {
            *outcome = Outcome::NothingValid;
        }
    };
    case.refused(|_, forger| forger.events(other), &["line 46: `closed` cannot come here"]);
}

fn documents(case: &Case<'_>) {
    // Another sandbox than the journal says.
    case.refused(
        |copy, _| {
            copy.edit("phases/3-replay/spec.json", |bytes| {
                *bytes = String::from_utf8(bytes.clone())
                    .unwrap()
                    .replacen("\"policy\":\"", "\"policy\":\"x", 1)
                    .into();
            });
        },
        &["phases/3-replay/spec.json has the digest", "line 15 of the journal names"],
    );
    case.refused(
        |copy, _| copy.edit("phases/3-replay/end.json", |bytes| bytes.push(b' ')),
        &["phases/3-replay/end.json has the digest", "of the journal names"],
    );
    // A candidate that is whole in itself, under another one's name.
    case.refused(
        |copy, _| {
            let weights: Vec<_> =
                copy.files().into_iter().filter(|path| path.ends_with("tree/weights.json")).collect();
            for end in ["manifest", "tree/weights.json"] {
                let [from, to] = [1, 0].map(|index: usize| weights[index].replace("tree/weights.json", end));
                fs::copy(copy.path(&from), copy.path(&to)).unwrap();
            }
        },
        &["/manifest has the digest", "its directory names"],
    );
    case.refused(
        |copy, _| {
            let weights = copy.files().into_iter().find(|path| path.ends_with("tree/weights.json")).unwrap();
            fs::remove_dir_all(copy.path(weights.strip_suffix("/tree/weights.json").unwrap())).unwrap();
        },
        &["store/", "/tree is missing"],
    );
    let submission = |copy: &Copy| copy.one(".submission.json");
    case.refused(
        |copy, forger| {
            let path = submission(copy);
            copy.edit(&path, |bytes| {
                let text = String::from_utf8(bytes.clone()).unwrap();
                *bytes = text
                    .replace(r#""refusals":[]"#, r#""refusals":[1]"#)
                    .replace(r#""words":[]"#, r#""words":["x"]"#)
                    .into();
            });
            let digest = Digest::of(&fs::read(copy.path(&path)).unwrap());
            forger.events(|event| {
                if let Event::GateResult { gate, report, .. } = event
                    && gate == "submission"
                {
                    *report = digest;
                }
            });
        },
        &[".submission.json: it is the report of another gate, or says otherwise"],
    );
    case.refused(
        |copy, _| copy.edit("run.json", |bytes| bytes.push(b'\n')),
        &["run.json, byte ", "not in canonical form"],
    );
}

fn predicates(case: &Case<'_>) {
    let nothing = |_: &Copy, _: &Forger<'_>| {};
    let its = |place: &str| format!("receipt.json: its `{place}` is ");
    case.refused_with(
        nothing,
        |said| said.result.in_process = true,
        &[&its("result.in_process"), "true", "false"],
    );
    case.refused_with(nothing, |said| said.result.outcome = Outcome::NothingValid, &[&its("result.outcome")]);
    case.refused_with(
        nothing,
        |said| said.weaker.push("nothing".into()),
        &["receipt.json: its `weaker[", "\"nothing\"", "null"],
    );
    case.refused_with(nothing, |said| said.task = Digest::of(b""), &[&its("task")]);
    case.refused_with(nothing, |said| said.phases[3].policy = Digest::of(b""), &[&its("phases[3].policy")]);
    case.refused_with(nothing, |said| said.run_id = "other".into(), &[&its("run_id")]);
}
