//! Both lifecycles with an agent that solves the task, one that changes nothing, and none.

use std::fs;

use airlock_tests::{Graded, fraction};

use crate::solving;

#[test]
fn a_patch_is_run_from_scratch_and_its_best_checkpoint_counts() {
    let task = Graded::of("digits-soup");
    let agent = "set -e
        grep 'A soup of models' /opt/harness/instruction.md
        python3 soup.py /output; mv /output/soup-3 /output/plain-3
        sh /opt/agent/solve.sh; python3 soup.py /output
        /opt/harness/fast_eval.sh /output/soup-12
        /opt/harness/validate.sh soup-12 --wait
        /opt/harness/submit.sh";
    let run = solving(&task, agent).end().closed("scored");
    let order = "grader explore validate replay checkpoint checkpoint checkpoint score score score";
    assert_eq!(run.phase_names().join(" "), order);
    let printed = run.printed("explore");
    assert!(printed.contains("\"accuracy\"") && printed.contains("planned      297"), "{printed}");
    // Three checkpoints, each scored by itself; the best of them is the result.
    let progress: Vec<_> =
        run.all("checkpoint_validated").iter().map(|event| event["progress"].as_u64()).collect();
    assert_eq!(progress, [Some(12), Some(8), Some(4)]);
    let verdicts = run.all("verdict");
    let right = |event: &&&serde_json::Value| event["counts"]["ok"].as_u64();
    let best = verdicts.iter().max_by_key(right).unwrap();
    assert_eq!(run.event("scored")["candidate"], best["candidate"]);
    assert_eq!(run.score(), fraction(&best["score"]));
    assert!(run.sigma() > 0.3, "{}", run.sigma());
    // What was handed in is the source that changed, and nothing that was computed.
    let submitted = run.event("submitted")["candidate"].as_str().unwrap().trim_start_matches("sha256:");
    let changes = run.json(&format!("changesets/{submitted}.json")).to_string();
    assert!(changes.contains("soup.py") && !changes.contains("weights.json"), "{changes}");
    let patch = fs::read_to_string(run.path.join(format!("changesets/{submitted}.patch"))).unwrap();
    assert!(patch.contains("+++ b/soup.py") && patch.contains("+ROUNDS = 12"), "{patch}");
    let receipt = run.receipt();
    assert_eq!(receipt["result"]["outcome"], "scored");
    assert_eq!(receipt["result"]["score"], run.event("scored")["score"]);
    assert_eq!(receipt["phases"].as_array().unwrap().len(), run.phase_names().len());
}

#[test]
fn a_tree_is_scored_once_as_it_was_left() {
    let task = Graded::of("digits-direct");
    let agent = "set -e
        sh /opt/agent/solve.sh
        /opt/harness/fast_eval.sh
        /opt/harness/validate.sh . --wait
        /opt/harness/submit.sh";
    let run = solving(&task, agent).end().closed("scored");
    assert_eq!(run.phase_names().join(" "), "grader explore validate candidate score candidate");
    assert!(run.sigma() > 0.8, "{}", run.sigma());
    let (claim, verdict) = (run.event("final_claimed"), run.event("verdict"));
    assert_eq!(claim["candidate"], run.event("submitted")["candidate"]);
    assert_eq!((&verdict["candidate"], &verdict["phase"]), (&claim["candidate"], &claim["phase"]));
    // The whole hidden set, and more than the validation knew of.
    assert_eq!(verdict["counts"]["planned"], 400);
    assert_eq!(run.event("validation_result")["counts"]["planned"], 200);
    assert_eq!(run.receipt()["result"]["counts"], verdict["counts"]);
}

/// The delta of a candidate is against the initial system under the same procedure.
#[test]
fn an_unchanged_workspace_scores_what_the_baseline_does() {
    for (name, score) in [("digits-soup", "440/600"), ("digits-direct", "180/400")] {
        let task = Graded::of(name);
        let baseline = task.baseline().end().closed("scored");
        let null = task.shell("/opt/harness/submit.sh").end().closed("scored");
        assert_eq!((baseline.score().as_str(), null.score().as_str()), (score, score));
        assert_eq!((baseline.sigma(), null.sigma()), (0.1, 0.1));
        assert_eq!(baseline.event("submitted"), null.event("submitted"));
        assert_eq!(baseline.event("scored"), null.event("scored"));
        // The same phases, but for research itself.
        assert_eq!(null.phase_names()[..2], ["grader", "explore"]);
        assert_eq!(null.phase_names()[2..], baseline.phase_names());
    }
}
