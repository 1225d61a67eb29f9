//! Black box over a real broker: runs the binary `waterwheel` from topic to topic with exactly-once, kills it at every step of the protocol and at
//! random moments, lets it stand still, wakes it beside its successor, takes broker and network away, and compares what a `read_committed` reader
//! sees with what a program of its own computes: nothing missing, nothing twice, the order of each key kept, its totals right.
//!
//! `WATERWHEEL_KILLS` is the number of random kills, by default 25, and more of them also means broker faults at every step; `WATERWHEEL_SEED`
//! repeats a run; `WATERWHEEL_PLUGINS` is the folder of the sample plugins, by default `target/plugins`. Arguments are parts of names of tests.
//! The last line says what was tried and what came of it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    clippy::declare_interior_mutable_const,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod broker_faults;
mod check;
mod ends;
mod forks;
mod harness;
mod idle;
mod input;
mod job;
mod kills;
mod markers;
mod mixed;
mod network;
mod output;
mod points;
mod proxy;
mod standstill;
mod topics;
mod zombies;

#[path = "../../host/tests/kafka/broker.rs"]
#[allow(dead_code, reason = "the other suite uses the rest")]
mod broker;
#[path = "../crash/check.rs"]
#[allow(dead_code, reason = "the other suite uses the rest")]
mod files;
#[path = "../crash/orders.rs"]
#[allow(dead_code, reason = "the other suite uses the rest")]
mod orders;
#[path = "../crash/process.rs"]
#[allow(dead_code, reason = "the other suite uses the rest")]
mod process;

use std::process::ExitCode;

fn main() -> ExitCode {
    harness::run(&tests![
        // Those that mostly wait come first, so that the others run beside them.
        idle::a_job_whose_group_offsets_expire_goes_on_where_it_was,
        broker_faults::a_broker_that_is_killed_or_stands_still_costs_nothing,
        broker_faults::a_job_is_restarting_while_the_broker_is_away,
        standstill::a_process_that_slept_past_its_transactions_timeout_loses_nothing,
        network::the_proxy_does_what_it_is_told,
        network::an_answer_to_the_end_of_a_transaction_that_is_lost_changes_nothing,
        network::a_network_that_is_slow_or_cut_changes_nothing,
        kills::random_kills_leave_exact_output,
        points::narrow_job_crashes_at_each_point_of_a_checkpoint,
        points::narrow_job_crashes_at_each_point_of_a_recovery,
        points::wide_job_crashes_at_each_point_of_a_checkpoint,
        points::wide_job_crashes_at_each_point_of_a_recovery,
        points::a_crash_while_a_job_starts_for_the_first_time_loses_nothing,
        points::a_crash_at_the_end_of_the_input_loses_nothing,
        zombies::a_second_instance_takes_over_and_the_first_one_says_so,
        zombies::instances_that_take_over_in_turn_leave_exact_output,
        zombies::an_instance_that_slept_while_another_ran_writes_nothing_more,
        zombies::an_instance_that_slept_through_the_end_writes_nothing_more,
        forks::beginning_again_repeats_the_output_once_and_only_when_allowed,
        forks::an_older_checkpoint_repeats_what_came_after_it_and_no_more,
        forks::a_copy_of_a_checkpoint_elsewhere_is_a_fork,
        forks::savepoints_of_a_running_and_of_a_stopped_job_are_exact,
        forks::a_savepoint_of_the_past_repeats_what_came_after_it_and_no_more,
        forks::a_crash_at_each_point_of_a_fork_is_finished_by_the_same_command,
        ends::a_stopped_job_goes_on_where_it_stopped,
        ends::a_finished_job_says_so_and_writes_nothing,
        ends::a_cancelled_job_goes_on_from_its_newest_checkpoint,
        ends::an_interrupted_stop_is_like_a_crash,
        markers::a_marker_topic_that_was_deleted_is_named_and_a_person_decides,
        markers::a_marker_topic_that_was_emptied_is_named_and_a_person_decides,
        markers::another_jobs_prefix_is_refused,
        markers::the_same_job_on_another_storage_is_refused,
        mixed::two_kafka_sinks_become_visible_together,
        mixed::kafka_and_files_are_both_exact,
    ])
}
