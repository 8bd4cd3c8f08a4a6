//! A supervisor with fixed answers.

use airlock_grader::Digest;
use airlock_grader::protocol::link::{Act, Acts, Answer, Done};
use airlock_grader::protocol::messages::{
    Attempt, Counts, Failure, Feedback, Finite, Item, Method, OpenTicket, Outcome, Phase, Queued, RunFacts,
    Status, TicketState, page,
};
use airlock_grader::protocol::names::Ticket;
use airlock_grader::protocol::refusal::{ErrorCode, Fault, FaultKind, ShownPath};
use airlock_grader::score;

/// How many items the validation `v-1` has: more than one page.
pub(crate) const ITEMS: u32 = 1500;

pub(crate) fn digest() -> Digest {
    format!("sha256:{}", "0123456789abcdef".repeat(4)).parse().unwrap()
}

/// Answers until the grader is gone, or says what no grader says.
pub(crate) async fn supervise(mut acts: Acts) {
    let mut ended = false;
    let mut asked = 0;
    while let Ok(Some(ask)) = acts.next().await {
        // Never answered: the caller's deadline ends it.
        if matches!(ask.act(), Act::Seal { candidate } if candidate.as_str() == "slow") {
            continue;
        }
        let answer = perform(ask.act(), &mut ended, &mut asked);
        let _ = ask.answer(answer).await;
    }
}

fn perform(act: &Act, ended: &mut bool, asked: &mut u32) -> Answer {
    match act {
        Act::Facts => Ok(Done::Facts(RunFacts {
            run: "run-1".parse().unwrap(),
            task: "digits".parse().unwrap(),
            phase: Phase::Research,
            methods: vec![Method::Status, Method::Validate, Method::Submit],
            budget_ms: 14_400_000,
            open_tickets: 8,
        })),
        Act::Status => Ok(Done::Status(Status {
            phase: if *ended { Phase::Ended } else { Phase::Research },
            elapsed_ms: 723_000,
            remaining_ms: 13_677_000,
            validations: *asked,
            open: vec![OpenTicket { ticket: Ticket(4), candidate: digest(), state: TicketState::Running }],
        })),
        Act::Seal { candidate } => match candidate.as_str() {
            "missing" => Err(Fault { fault: FaultKind::Missing, path: None }.into()),
            "linked" => {
                let path = Some(ShownPath::new(b"weights/\x1b[2J"));
                Err(Fault { fault: FaultKind::Link, path }.into())
            }
            "large" => Err(ErrorCode::NoSpace.into()),
            _ => Ok(Done::Sealed { candidate: digest() }),
        },
        Act::QueueValidation { candidate, items } => {
            assert!(items.as_ref().is_none_or(|items| items.items().len() == 2));
            *asked += 1;
            Ok(Done::Queued(Queued { ticket: Ticket(*asked), candidate: *candidate, ahead: 2 }))
        }
        Act::CancelValidation { ticket: Ticket(1) } => Err(ErrorCode::NotQueued.into()),
        Act::CancelValidation { .. } => Ok(Done::Cancelled),
        Act::Outcome { ticket, from } => outcome(*ticket, *from),
        Act::Submit { .. } | Act::NoCandidate { .. } if *ended => Err(ErrorCode::AlreadyEnded.into()),
        Act::Submit { .. } | Act::NoCandidate { .. } => {
            *ended = true;
            Ok(Done::Accepted)
        }
    }
}

fn outcome(ticket: Ticket, from: u32) -> Answer {
    let state = |state, failure, feedback| {
        Ok(Done::Outcome(Outcome { ticket, candidate: digest(), subset: false, state, failure, feedback }))
    };
    match ticket.0 {
        1 => {
            let attempt = |number| Attempt {
                status: if number % 2 == 0 { score::Status::Ok } else { score::Status::Timeout },
                score: Finite::try_from(f64::from((number + 1) % 2)).unwrap(),
                wall_ms: 1234,
            };
            let item = |number| Item {
                item: format!("item-{number}").parse().unwrap(),
                attempts: vec![attempt(number)],
            };
            let items: Vec<Item> = (0..ITEMS).map(item).collect();
            let (items, next) = page(&items, from);
            let counts = Counts { planned: ITEMS, graded: ITEMS / 2, errored: ITEMS / 2 };
            let score = Finite::try_from(0.5).unwrap();
            let trajectories = Some("v-1".parse().unwrap());
            state(TicketState::Done, None, Some(Feedback { score, counts, items, next, trajectories }))
        }
        2 => state(TicketState::Failed, Some(Failure::NoVerdict), None),
        3 => state(TicketState::Queued, None, None),
        _ => Err(ErrorCode::UnknownTicket.into()),
    }
}
