//! Every rule of the audit has a pair: what trips it, and the nearest thing that does not.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "audit/bundles.rs"]
mod bundles;
#[path = "audit/policies.rs"]
mod policies;
#[path = "audit/tasks.rs"]
mod tasks;

use std::collections::BTreeSet;

use airlock_policy::audit::{Exposure, Finding, Severity, Subject, markdown, rules};

/// Ids of what was found.
fn ids(findings: &[Finding]) -> BTreeSet<&'static str> {
    findings.iter().map(|finding| finding.rule).collect()
}

/// What is found in `trips` is what is found in `passes`, clause by clause, and `id`, at a place that exists.
fn assert_pair(id: &str, trips: &[Finding], passes: &[Finding]) {
    assert!(!ids(passes).contains(id), "{id} is found where it should not be: {passes:#?}");
    let (here, others): (Vec<_>, Vec<_>) = trips.iter().partition(|finding| finding.rule == id);
    let clauses = |findings: Vec<&Finding>| -> Vec<(&str, String)> {
        findings.into_iter().map(|finding| (finding.rule, finding.clause.clone())).collect()
    };
    assert_eq!(clauses(others), clauses(passes.iter().collect()), "{id}");
    assert!(!here.is_empty(), "{id} is not found");
    for finding in here {
        let placed = finding.line > 0 && finding.column > 0;
        assert!(placed && !finding.file.is_empty() && !finding.clause.is_empty(), "{finding:?}");
    }
}

#[test]
fn every_policy_pair_differs_by_its_rule() {
    for (id, trips, passes) in policies::PAIRS {
        assert_pair(id, &policies::findings(trips), &policies::findings(passes));
    }
}

#[test]
fn every_bundle_pair_differs_by_its_rule() {
    for (id, trips, passes) in bundles::PAIRS {
        assert_pair(id, &bundles::findings(trips), &bundles::findings(passes));
    }
}

#[test]
fn every_task_pair_differs_by_its_rule() {
    for (id, trips, passes) in tasks::PAIRS {
        assert_pair(id, &tasks::findings(trips), &tasks::findings(passes));
    }
}

/// Rules that a pair adds to what is found in something sound, besides its own.
fn added(passes: &[Finding], sound: &[Finding]) -> BTreeSet<&'static str> {
    ids(passes).difference(&ids(sound)).copied().collect()
}

/// Rule; what its other half trips, because the rule is asked of nothing sounder.
const NEEDED: [(&str, &str); 6] = [
    ("AL044", "AL043"),
    ("AL011", "AL001"),
    ("AL015", "AL001"),
    ("AL024", "AL023"),
    ("AL064", "AL077"),
    ("AL090", "AL001"),
];

/// What does not trip the rule is sound otherwise.
#[test]
fn the_other_half_of_a_pair_is_sound() {
    let sound = [policies::findings(""), bundles::findings(&[])];
    let policies =
        policies::PAIRS.iter().map(|(id, _, passes)| (*id, added(&policies::findings(passes), &sound[0])));
    let bundles =
        bundles::PAIRS.iter().map(|(id, _, passes)| (*id, added(&bundles::findings(passes), &sound[1])));
    let all = policies.chain(bundles).flat_map(|(id, added)| added.into_iter().map(move |rule| (id, rule)));
    assert_eq!(all.collect::<Vec<_>>(), NEEDED);
}

/// Whatever else is weak already: what one change more finds never lessens the figure.
#[test]
fn removing_a_protection_never_lowers_the_exposure() {
    let share = |edits: &[_]| Exposure::of(&bundles::findings(edits));
    let alone: Vec<Exposure> = bundles::PAIRS.iter().map(|(_, trips, _)| share(trips)).collect();
    assert!(alone.iter().all(|exposure| *exposure >= share(&[])));
    for (at, (first, weak, _)) in bundles::PAIRS.iter().enumerate() {
        for (second, weaker, _) in &bundles::PAIRS[at + 1..] {
            if !bundles::may_meet(weak, weaker) {
                continue;
            }
            let both = share(&[*weak, *weaker].concat());
            let other = bundles::PAIRS.iter().position(|(id, ..)| id == second).unwrap();
            assert!(both >= alone[at] && both >= alone[other], "{first} and {second}: {both:?}");
        }
    }
    let sound = Exposure::of(&policies::findings(""));
    for (id, trips, passes) in policies::PAIRS {
        let (trips, passes) = [trips, passes].map(|text| Exposure::of(&policies::findings(text))).into();
        assert!(trips >= passes && passes >= sound, "{id}");
    }
}

#[test]
fn every_rule_has_a_pair_and_an_id_of_its_own() {
    let pairs = policies::PAIRS.iter().map(|pair| pair.0).chain(bundles::PAIRS.iter().map(|pair| pair.0));
    let mut paired: BTreeSet<&str> = pairs.chain(tasks::PAIRS.iter().map(|pair| pair.0)).collect();
    // A bundle has no Landlock and a policy may have it: its pair is the first test of sound ones.
    paired.insert("AL083");
    let known: Vec<&str> = rules().map(|rule| rule.id).collect();
    assert!(known.is_sorted_by(|a, b| a < b), "{known:?}");
    assert_eq!(paired, known.into_iter().collect());
    for rule in rules() {
        let texts = [rule.title, rule.why, rule.reference, rule.remedy];
        assert!(texts.iter().all(|text| text.len() > 4 && !text.contains('\n')), "{}", rule.id);
    }
}

#[test]
fn a_sound_policy_and_a_sound_bundle_are_clean() {
    assert_eq!(policies::findings(""), []);
    assert_eq!(ids(&bundles::findings(&[])), BTreeSet::from(["AL083"]));
    assert_eq!(tasks::findings(&tasks::SOUND), []);
}

#[test]
fn the_built_in_policies_have_nothing_but_choices_to_know_of() {
    for (name, _) in airlock_policy::list() {
        let subject = Subject::policy_named(name, std::path::Path::new("/")).unwrap();
        for finding in subject.findings() {
            assert_eq!(finding.severity, Severity::Info, "{name}: {finding:#?}");
            assert!(finding.file.starts_with("built-in "), "{finding:?}");
        }
    }
}

#[test]
fn the_documented_table_is_the_codes_own() {
    let documented = include_str!("../AUDIT.md");
    assert!(documented.contains(&markdown()), "put this into AUDIT.md:\n{}", markdown());
}
