use std::num::NonZeroU32;

use proptest::prelude::*;

use super::*;

fn metric(aggregate: Aggregate, k: u32, items: usize) -> Metric {
    let items = (0..items).map(|item| item.to_string()).collect();
    Metric::new(
        Direction::Max,
        aggregate,
        NonZeroU32::new(k).unwrap(),
        FailedItem::Zero,
        items,
    )
    .unwrap()
}

fn loss(items: usize) -> Metric {
    let items = (0..items).map(|item| item.to_string()).collect();
    Metric::new(
        Direction::Min,
        Aggregate::Mean,
        NonZeroU32::MIN,
        FailedItem::Void,
        items,
    )
    .unwrap()
}

fn attempt(status: Status, score: &str) -> Attempt {
    Attempt {
        status,
        score: score.parse().unwrap(),
        wall_ms: 5,
    }
}

fn right() -> Attempt {
    attempt(Status::Ok, "1")
}

fn wrong() -> Attempt {
    attempt(Status::Wrong, "0")
}

fn result(id: usize, attempts: &[Attempt]) -> ItemResult {
    ItemResult {
        id: id.to_string(),
        attempts: attempts.to_vec(),
    }
}

fn score(tally: Tally) -> String {
    tally.score.unwrap().to_string()
}

#[test]
fn the_planned_number_is_the_denominator() {
    let metric = metric(Aggregate::Mean, 1, 350);
    let results: Vec<_> = (0..184).map(|id| result(id, &[right()])).collect();
    let tally = metric.tally(&results).unwrap();
    assert_eq!(score(tally), "184/350");
    assert_eq!(
        tally.counts,
        Counts {
            planned: 350,
            ok: 184,
            missing: 166,
            ..Counts::default()
        }
    );
    assert_eq!((tally.counts.graded(), tally.counts.errored()), (184, 166));
}

/// tau2-bench issue 493 and AgentBench issue 234: errors that leave the denominator inflate the score.
#[test]
fn failures_count_zero_and_stay() {
    let failures = [
        Status::Timeout,
        Status::ExecFailure,
        Status::GateFailed,
        Status::Infra,
        Status::Wrong,
    ];
    let mut results = vec![result(0, &[right()]), result(1, &[])];
    results.extend(
        failures
            .iter()
            .enumerate()
            .map(|(at, status)| result(at + 2, &[attempt(*status, "0")])),
    );
    let tally = metric(Aggregate::Mean, 1, 8).tally(&results).unwrap();
    assert_eq!(score(tally), "1/8");
    let each = Counts {
        planned: 8,
        ok: 1,
        wrong: 1,
        timeout: 1,
        exec_failure: 1,
        gate_failed: 1,
        infra: 1,
        missing: 2,
    };
    assert_eq!(tally.counts, each);
}

#[test]
fn pass_at_k_is_solved_by_any_attempt() {
    let metric = metric(Aggregate::PassAtK, 3, 4);
    let tally = metric
        .tally(&[
            result(0, &[wrong(), attempt(Status::Timeout, "0"), right()]),
            result(1, &[right(), right(), right()]),
            result(2, &[wrong(), wrong(), wrong()]),
            result(3, &[attempt(Status::ExecFailure, "0")]),
        ])
        .unwrap();
    assert_eq!(score(tally), "2/4");
    assert_eq!((tally.counts.planned, tally.counts.missing), (12, 2));
}

#[test]
fn avg_at_k_divides_by_all_planned_attempts() {
    let metric = metric(Aggregate::AvgAtK, 4, 30);
    let tally = metric
        .tally(&[
            result(0, &[right(), right(), wrong(), right()]),
            result(7, &[right()]),
        ])
        .unwrap();
    assert_eq!(score(tally), "4/120");
    assert_eq!(tally.counts.missing, 120 - 5);
}

#[test]
fn decimals_are_added_exactly() {
    let tenth = attempt(Status::Ok, "0.1");
    let results: Vec<_> = (0..10).map(|id| result(id, &[tenth])).collect();
    assert_eq!(
        score(metric(Aggregate::Mean, 1, 10).tally(&results).unwrap()),
        "1/10"
    );
    let far = [
        result(0, &[attempt(Status::Ok, "1e30")]),
        result(1, &[attempt(Status::Ok, "1e-30")]),
    ];
    assert_eq!(
        metric(Aggregate::Mean, 1, 2).tally(&far),
        Err(TallyError::Inexact("1".into()))
    );
}

#[test]
fn a_loss_with_a_failed_item_is_void() {
    let half = attempt(Status::Ok, "0.5");
    let both = loss(2)
        .tally(&[result(1, &[half]), result(0, &[attempt(Status::Ok, "-0.25")])])
        .unwrap();
    assert_eq!(score(both), "0.25/2");
    for bad in [
        vec![],
        vec![result(1, &[])],
        vec![result(1, &[wrong()])],
        vec![result(1, &[attempt(Status::Infra, "0")])],
    ] {
        let tally = loss(2).tally(&[vec![result(0, &[half])], bad].concat()).unwrap();
        assert_eq!((tally.score, tally.counts.ok), (None, 1));
    }
}

#[test]
fn results_that_were_not_planned_are_refused() {
    let mean = metric(Aggregate::Mean, 1, 2);
    let tally = |results: &[ItemResult]| mean.tally(results).unwrap_err();
    assert_eq!(
        tally(&[result(2, &[right()])]),
        TallyError::UnknownItem("2".into())
    );
    assert_eq!(
        tally(&[result(1, &[right()]), result(1, &[])]),
        TallyError::TwiceTheSame("1".into())
    );
    assert!(matches!(
        tally(&[result(1, &[wrong(), right()])]),
        TallyError::TooManyAttempts { found: 2, .. }
    ));
    assert!(matches!(
        tally(&[result(1, &[attempt(Status::Timeout, "1")])]),
        TallyError::FailedWithScore { attempt: 1, .. }
    ));
    assert!(matches!(
        tally(&[result(1, &[attempt(Status::Ok, "-0.1")])]),
        TallyError::Negative { .. }
    ));
    let pass = metric(Aggregate::PassAtK, 2, 1);
    let half = pass.tally(&[result(0, &[right(), attempt(Status::Ok, "0.5")])]);
    assert!(matches!(half, Err(TallyError::HalfSolved { attempt: 2, .. })));
}

#[test]
fn metrics_that_mean_nothing_are_refused() {
    use {Aggregate as A, Direction as D, FailedItem as F, MetricError as E};
    let items = || vec!["a".to_owned(), "b".to_owned()];
    for (direction, aggregate, k, failed, items, error) in [
        (D::Max, A::Mean, 1, F::Zero, vec![], E::NoItems),
        (
            D::Max,
            A::Mean,
            1,
            F::Zero,
            vec!["a".into(), "a".into()],
            E::TwiceTheSame("a".into()),
        ),
        (
            D::Max,
            A::Mean,
            2,
            F::Zero,
            items(),
            E::MeanOfSeveral(2.try_into().unwrap()),
        ),
        (D::Min, A::PassAtK, 2, F::Void, items(), E::PassIsMax),
        (D::Min, A::Mean, 1, F::Zero, items(), E::ZeroIsBest),
    ] {
        let metric = Metric::new(direction, aggregate, NonZeroU32::new(k).unwrap(), failed, items);
        assert_eq!(metric, Err(error));
    }
    assert!(Metric::new(D::Min, A::AvgAtK, 2.try_into().unwrap(), F::Void, items()).is_ok());
}

#[test]
fn a_metric_is_checked_when_it_is_read() {
    let text = serde_json::to_string(&metric(Aggregate::PassAtK, 3, 2)).unwrap();
    assert_eq!(
        serde_json::from_str::<Metric>(&text).unwrap(),
        metric(Aggregate::PassAtK, 3, 2)
    );
    for bad in [
        text.replace("\"0\"", "\"1\""),
        text.replace("\"k\":3", "\"k\":0"),
        text.replace("\"k\"", "\"j\""),
    ] {
        assert!(serde_json::from_str::<Metric>(&bad).is_err(), "{bad}");
    }
}

proptest! {
    /// A result can only lower the score by being worse or absent, never by being reported.
    #[test]
    fn dropping_results_never_helps(kept in proptest::collection::vec(any::<bool>(), 20), solved in proptest::collection::vec(any::<bool>(), 20)) {
        let all: Vec<_> = solved.iter().enumerate().map(|(id, ok)| result(id, &[if *ok { right() } else { wrong() }])).collect();
        let some: Vec<_> = all.iter().zip(&kept).filter(|(_, keep)| **keep).map(|(result, _)| result.clone()).collect();
        for aggregate in [Aggregate::Mean, Aggregate::PassAtK, Aggregate::AvgAtK] {
            let metric = metric(aggregate, 1, 20);
            let (all, some) = (metric.tally(&all).unwrap(), metric.tally(&some).unwrap());
            prop_assert!(some.score.unwrap().sum <= all.score.unwrap().sum);
            prop_assert_eq!(some.score.unwrap().n.get(), 20);
            prop_assert_eq!(some.counts.graded() + some.counts.errored(), 20);
        }
    }
}
