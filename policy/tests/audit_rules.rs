//! Every rule of the audit has a pair: what trips it, and the nearest thing that does not.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "audit/bundles.rs"]
mod bundles;
#[path = "audit/policies.rs"]
mod policies;
#[path = "audit/tasks.rs"]
mod tasks;

use std::collections::BTreeSet;

use airlock_policy::audit::{Finding, Severity, Subject, markdown, rules};

/// Ids of what was found.
fn ids(findings: &[Finding]) -> BTreeSet<&'static str> {
    findings.iter().map(|finding| finding.rule).collect()
}

/// `trips` is found to be what `passes` is and `id`, at a place that exists.
fn assert_pair(id: &str, trips: &[Finding], passes: &[Finding]) {
    let (with, without) = (ids(trips), ids(passes));
    assert!(!without.contains(id), "{id} is found where it should not be: {passes:#?}");
    let mut expected = without;
    expected.insert(rules().find(|rule| rule.id == id).unwrap().id);
    assert_eq!(with, expected, "{id}");
    let here = trips.iter().find(|finding| finding.rule == id).unwrap();
    assert!(here.line > 0 && here.column > 0 && !here.file.is_empty() && !here.clause.is_empty(), "{here:?}");
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
