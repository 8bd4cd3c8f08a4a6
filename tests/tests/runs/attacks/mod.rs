mod answers;
mod artifacts;
mod resources;
mod verdict;

use airlock_tests::GradedRun;

/// What the gates said of the submission, in words.
pub(crate) fn gate_words(run: &GradedRun<'_>) -> String {
    let candidate = run.event("submitted")["candidate"].as_str().unwrap().trim_start_matches("sha256:");
    run.json(&format!("changesets/{candidate}.submission.json"))["words"].to_string()
}
