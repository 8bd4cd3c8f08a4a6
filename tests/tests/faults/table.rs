//! What came of a walk: for each step or part of a launch, how often it was refused, ended early or made no difference.

use std::collections::{BTreeMap, BTreeSet};

use airlock_tests::record_measure;

/// How a launch with a fault ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// Airlock refused, and the command did not run.
    Refused,
    /// It ended early after the command was executed, and the status says so.
    Ended,
    /// It makes no difference, or a warning says which.
    Tolerated,
}

/// Side, and step or part.
pub(crate) type Place = (&'static str, String);

#[derive(Debug, Default)]
struct Row {
    outcomes: BTreeMap<Outcome, usize>,
    errnos: BTreeSet<i32>,
}

/// The rows, by place.
#[derive(Debug, Default)]
pub(crate) struct Table(BTreeMap<Place, Row>);

impl Table {
    pub(crate) fn add(&mut self, place: Place, outcome: Outcome, errno: i32) {
        let row = self.0.entry(place).or_default();
        *row.outcomes.entry(outcome).or_default() += 1;
        row.errnos.insert(errno);
    }

    /// Says what it holds, one line for each row: `faults as LEG, SCENE | SIDE | STEP | OUTCOMES | ERRNOS`.
    pub(crate) fn say(&self, leg: &str, scene: &str) {
        let title = format!("faults as {leg}, {scene}");
        let mut total = BTreeMap::new();
        for ((side, step), row) in &self.0 {
            let errnos: Vec<String> = row.errnos.iter().map(|errno| name(*errno)).collect();
            let outcomes = words(&row.outcomes);
            let step = step.split_whitespace().collect::<Vec<_>>().join(" ");
            record_measure(&format!("{title:36} | {side:7} | {step:36} | {outcomes} | {}", errnos.join(" ")));
            row.outcomes.iter().for_each(|(outcome, count)| *total.entry(*outcome).or_default() += count);
        }
        record_measure(&format!("{title:36} | in all  | {:36} | {} | nothing left", "", words(&total)));
    }

    /// The steps that a fault was refused at.
    pub(crate) fn refused(&self) -> BTreeSet<Place> {
        let refused = self.0.iter().filter(|(_, row)| row.outcomes.contains_key(&Outcome::Refused));
        refused.map(|(place, _)| place.clone()).collect()
    }
}

fn words(outcomes: &BTreeMap<Outcome, usize>) -> String {
    let count = |outcome| outcomes.get(&outcome).copied().unwrap_or(0);
    let [refused, ended, tolerated] = [Outcome::Refused, Outcome::Ended, Outcome::Tolerated].map(count);
    format!("{refused:4} refused {ended:4} ended {tolerated:4} tolerated")
}

/// `ENOMEM` and its like.
fn name(errno: i32) -> String {
    format!("{:?}", nix::errno::Errno::from_raw(errno))
}
