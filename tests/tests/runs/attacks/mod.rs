//! Attacks on graders that were reported in public, tried against whole runs. Each test says where they were reported, and
//! shows in the same run that the attack works where the defence is not.
//!
//! | row | attack | tests |
//! | --- | --- | --- |
//! | 1 | tests, solution or criteria in the agent's tree | `no_answer_secret_neighbour_or_way_out_is_found` |
//! | 3 | an agent that brings answers | `a_restart_gives_back_no_time_and_takes_no_other_agent` |
//! | 4 | reading gold answers by local paths | `no_answer_secret_neighbour_or_way_out_is_found` |
//! | 5 | fetching solutions | `no_answer_secret_neighbour_or_way_out_is_found`, `there_is_no_interface_but_the_loopback` |
//! | 7 | secrets in an environment | `no_answer_secret_neighbour_or_way_out_is_found`, `the_callers_environment_stays_outside` |
//! | 8 | the grader's memory | `no_answer_secret_neighbour_or_way_out_is_found`, `the_first_process_is_closed` |
//! | 9 | a judge's rubric | `no_answer_secret_neighbour_or_way_out_is_found` |
//! | 11 | the final as an oracle | `the_final_choice_is_answered_by_nothing_but_its_acknowledgement` |
//! | 12 | training on benchmark rows | `a_patch_that_knows_a_hidden_row_is_refused` |
//! | 13 | training on returned trajectories | `what_validations_returned_is_not_trained_on` |
//! | 14 | a seed that is known | `no_answer_secret_neighbour_or_way_out_is_found` |
//! | 15 | writing the reward file | `a_reward_that_research_wrote_is_never_seen`, `no_candidate_says_what_it_scores` |
//! | 17 | a writer that outlives grading | `what_is_scored_is_the_sealed_copy_and_its_writer_is_dead` |
//! | 19 | a late write through an open descriptor | `what_is_scored_is_the_sealed_copy_and_its_writer_is_dead`, `a_writer_cannot_change_what_was_sealed` |
//! | 20 | editing tests and metrics | `what_is_planted_beside_the_candidate_moves_no_score` |
//! | 21 | conftest.py | `hooks_of_test_runners_and_builds_are_no_part_of_a_candidate` |
//! | 22 | sitecustomize, .pth, PYTHONPATH | `what_is_planted_beside_the_candidate_moves_no_score` |
//! | 23 | LD_PRELOAD, BASH_ENV, ld.so.preload | `no_candidate_says_what_it_scores`, `no_answer_secret_neighbour_or_way_out_is_found` |
//! | 24 | trojans in PATH | `what_is_planted_beside_the_candidate_moves_no_score` |
//! | 25 | overwriting the parser | `what_is_planted_beside_the_candidate_moves_no_score` |
//! | 26 | forged output | `no_candidate_says_what_it_scores` |
//! | 27 | an early end with status 0, or none at all | `no_candidate_says_what_it_scores`, `a_candidate_without_its_program_scores_nothing` |
//! | 28 | build files | `hooks_of_test_runners_and_builds_are_no_part_of_a_candidate` |
//! | 29 | rewriting what the difference is taken against | `the_candidates_git_history_changes_nothing`, `hooks_of_test_runners_and_builds_are_no_part_of_a_candidate` |
//! | 30 | objects equal to everything | `no_candidate_says_what_it_scores` |
//! | 31 | an answer that is evaluated | `no_candidate_says_what_it_scores` |
//! | 32 | NaN and infinity | `no_candidate_says_what_it_scores`, `what_has_two_meanings_is_refused` |
//! | 33 | tricks of JSON | `no_candidate_says_what_it_scores`, `what_has_two_meanings_is_refused`, `bad_lines_are_told_and_the_connection_goes_on` |
//! | 35 | forged receipts | `what_is_planted_beside_the_candidate_moves_no_score`, `what_was_signed_is_verified` |
//! | 36 | words to a judge | `no_candidate_says_what_it_scores` |
//! | 38 | pickles | `what_a_tree_may_not_hold_is_refused_by_kind`, `a_checkpoint_brings_no_code` |
//! | 39 | auto_map, templates, code in a checkpoint | `a_checkpoint_brings_no_code` |
//! | 40 | links out of the artifact | `what_a_tree_may_not_hold_is_refused_by_kind`, `does_not_resolve_through_a_link_in_the_middle` |
//! | 42 | special, sparse, deep and misnamed files | `what_a_tree_may_not_hold_is_refused_by_kind` |
//! | 43 | archives that escape | `what_a_tree_may_not_hold_is_refused_by_kind` |
//! | 44 | a change between check and use | `what_is_scored_is_the_sealed_copy_and_its_writer_is_dead` |
//! | 46 | another model in the place of one's own | `a_patch_brings_no_weights`, `nothing_of_research_is_there_in_the_replay` |
//! | 47 | weights and data in a patch | `a_patch_brings_no_weights` |
//! | 48 | a gate that believes metadata | `a_gate_looks_at_bytes_and_not_at_claims` |
//! | 50 | a link where the grader writes or reads | `a_reward_that_research_wrote_is_never_seen`, `a_planted_link_gets_no_report` |
//! | 51 | more time | `who_is_late_is_ended_and_what_lay_there_is_kept_but_not_scored` |
//! | 52 | the timer, and a restart | `a_restart_gives_back_no_time_and_takes_no_other_agent` |
//! | 53 | a patched clock | `no_candidate_says_what_it_scores` |
//! | 54 | remembered and early answers | `no_candidate_says_what_it_scores` |
//! | 55 | going round the GPU's lock | `of_many_processes_one_gets_it`, `a_lock_on_a_removed_file_is_none` |
//! | 56 | memory of another run | `nothing_of_research_is_there_in_the_replay`, `shared_memory_of_the_host_is_not_found` |
//! | 57 | killing what is not one's own | `foreign_processes_live_on`, `a_daemon_does_not_outlive_its_sandbox` |
//! | 58 | a library in the way of the measurement | `no_candidate_says_what_it_scores`, `no_answer_secret_neighbour_or_way_out_is_found` |
//! | 59 | starving the grader | `a_fork_bomb_does_not_disturb_another_runs_validation` |
//! | 62 | abuse of the socket | `who_abuses_the_socket_is_served_its_own_run_alone`, `ten_thousand_connections_leave_nothing`, `descriptors_end_the_connection_and_are_not_kept`, `half_a_line_does_not_wait_for_ever` |
//! | 64 | privileges | `no_answer_secret_neighbour_or_way_out_is_found`, `all_five_capability_sets_are_empty` |

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
