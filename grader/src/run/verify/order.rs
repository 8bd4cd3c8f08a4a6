//! Whether an event may come after those before it: the supervisor does only what [`State::next`] says.

use airlock_runtime::report::Reason;

use crate::Digest;
use crate::journal::{Decision, Event};
use crate::run::Manifest;
use crate::run::finish::result;
use crate::run::state::{CheckpointRecord, Fate, Next, State, names};

/// What is wrong with an event that comes after these; none if nothing is.
pub(super) fn out_of_order(state: &State, event: &Event, manifest: &Manifest) -> Option<String> {
    if state.closed.is_some() {
        return Some("the run was closed before it".into());
    }
    let next = state.next(manifest.task.lifecycle, manifest.agent.is_some());
    let due = match event {
        Event::PhaseStarted { phase, name, .. } => {
            *phase == state.next_phase() && may_start(state, &next, *phase, name)
        }
        Event::PhaseEnded { phase, .. } => state.phase(*phase).is_some_and(|phase| phase.ended.is_none()),
        Event::ValidationRequested { ticket, .. } => *ticket == state.next_ticket() && next == Next::Research,
        Event::ValidationCancelled { ticket } | Event::ValidationFailed { ticket, phase: None, .. } => {
            is_open(state, *ticket)
        }
        Event::ValidationResult { ticket, phase, .. }
        | Event::ValidationFailed { ticket, phase: Some(phase), .. } => {
            is_open(state, *ticket) && has_ended(state, *phase, names::VALIDATE)
        }
        Event::Chosen { .. } | Event::NoCandidate { .. } => next == Next::Research,
        // The time may be over before research has begun again.
        Event::DeadlineCapture { .. } => matches!(next, Next::Capture | Next::Research),
        Event::Submitted { .. } | Event::ChoiceRefused { .. } => next == Next::Seal,
        Event::GateResult { gate, candidate, .. } => match gate.as_str() {
            "submission" => next == Next::Gate && state.submitted == Some(*candidate),
            "checkpoint" => next == Next::Checkpoints,
            _ => false,
        },
        Event::CheckpointValidated { .. } => next == Next::Checkpoints,
        Event::CheckpointsSelected { checkpoints } => {
            let right = next == Next::Checkpoints;
            if right && *checkpoints != selection(&state.checkpoints, manifest.task.checkpoints) {
                return Some("these are not the valid checkpoints with the greatest progress".into());
            }
            right
        }
        Event::FinalClaimed { candidate, phase } => {
            if state.claims.iter().any(|claim| claim.candidate == *candidate && is_spent(state, claim.phase))
            {
                return Some(format!("the final scoring of {candidate} was claimed before"));
            }
            next == Next::Score(*candidate) && *phase == state.next_phase()
        }
        Event::Verdict { phase, candidate, .. } => {
            let claim = state.claims.last();
            claim.is_some_and(|claim| {
                (claim.phase, claim.candidate, claim.verdict) == (*phase, *candidate, None)
                    && has_ended(state, *phase, names::SCORE)
            })
        }
        Event::Scored { .. } => {
            let right = next == Next::Conclude;
            match result(state, manifest.task.lifecycle, manifest) {
                Ok(found) if right && found != *event => {
                    let found = serde_json::to_string(&found).unwrap_or_default();
                    return Some(format!("the result of these verdicts is {found}"));
                }
                Err(error) => return Some(format!("its verdicts have no result: {error}")),
                Ok(_) => right,
            }
        }
        Event::Decided { decision } => *decision == Decision::Close || state.interrupted.is_some(),
        Event::Closed { outcome } => {
            let open = state.open_tickets().next().is_some() || state.unended().next().is_some();
            next == Next::Close(*outcome) && !open
        }
        // The caller knows which line is the first.
        Event::RunCreated { .. }
        | Event::CandidateSealed { .. }
        | Event::Interrupted { .. }
        | Event::Resumed {}
        | Event::Recovered { .. } => true,
    };
    (!due).then(|| format!("`{}` cannot come here", kind(event)))
}

fn may_start(state: &State, next: &Next, number: u32, name: &str) -> bool {
    match name {
        names::EXPLORE => *next == Next::Research,
        // A grader process may be replaced, and a queued validation begin, between the choice and the end of research.
        names::GRADER => state.submitted.is_none(),
        names::VALIDATE => state.open_tickets().next().is_some(),
        names::REPLAY => *next == Next::Replay,
        names::CHECKPOINT => *next == Next::Checkpoints,
        names::SCORE => state.claims.last().is_some_and(|claim| {
            claim.phase == number && claim.verdict.is_none() && *next == Next::Score(claim.candidate)
        }),
        names::CANDIDATE => state.unended().any(|(_, name)| matches!(name, names::VALIDATE | names::SCORE)),
        _ => false,
    }
}

fn is_open(state: &State, ticket: u64) -> bool {
    state.tickets.get(&ticket).is_some_and(|ticket| ticket.fate == Fate::Open)
}

fn has_ended(state: &State, phase: u32, name: &str) -> bool {
    state.phase(phase).is_some_and(|phase| phase.name == name && phase.ended.is_some())
}

/// Whether a claim's phase has, or may have, looked at the candidate, and no operator has set it aside.
fn is_spent(state: &State, phase: u32) -> bool {
    let setup_failed = |phase: &crate::run::state::PhaseState| {
        phase.ended.is_some_and(|end| end.reason == Reason::SetupFailed)
    };
    state.phase(phase).is_none_or(|phase| !phase.void && !setup_failed(phase))
}

/// The valid checkpoints with the greatest progress; of equal progress the later name first, the same bytes once.
fn selection(checkpoints: &[CheckpointRecord], limit: Option<u32>) -> Vec<Digest> {
    let mut valid: Vec<_> = checkpoints.iter().filter(|checkpoint| checkpoint.valid).collect();
    valid.sort_by(|a, b| (b.progress, &b.name).cmp(&(a.progress, &a.name)));
    let mut selected = Vec::new();
    for checkpoint in valid {
        if !selected.contains(&checkpoint.digest) {
            selected.push(checkpoint.digest);
        }
    }
    selected.truncate(limit.map_or(0, |limit| usize::try_from(limit).unwrap_or(usize::MAX)));
    selected
}

/// An event's `type`.
fn kind(event: &Event) -> String {
    let value = serde_json::to_value(event).unwrap_or_default();
    value["type"].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selection_is_by_progress_then_name_and_without_repetition() {
        let record = |progress, name: &str, bytes: &[u8], valid| CheckpointRecord {
            digest: Digest::of(bytes),
            name: name.into(),
            progress,
            valid,
        };
        let all = [
            record(3, "c-3", b"c", true),
            record(9, "c-9", b"broken", false),
            record(5, "c-05", b"a", true),
            record(5, "c-5", b"b", true),
            record(1, "c-1", b"d", true),
            record(4, "c-4", b"b", true),
        ];
        let digests = |list: &[&[u8]]| list.iter().map(|bytes| Digest::of(bytes)).collect::<Vec<_>>();
        assert_eq!(selection(&all, Some(3)), digests(&[b"b", b"a", b"c"]));
        assert_eq!(selection(&all, Some(1)), digests(&[b"b"]));
        assert_eq!(selection(&all, Some(9)), digests(&[b"b", b"a", b"c", b"d"]));
        assert_eq!(selection(&all[1..2], Some(3)), digests(&[]));
    }
}
