//! What a scrape shows.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Metrics in which every number is known.
fn full() -> Metrics {
    let metrics = Metrics::new();
    let job = metrics.job("orders");
    job.checkpoint_triggered();
    job.checkpoint_triggered();
    job.checkpoint_triggered();
    job.checkpoint_failed();
    let (duration, alignment, start_delay) = (Duration::from_millis(1500), Duration::from_millis(20), Duration::from_millis(3));
    job.checkpoint_completed(CheckpointReading { duration, size_bytes: 10, full_size_bytes: 100, alignment, start_delay });
    let task = job.task("totals", 1);
    task.received(3, 30);
    task.received(4, 40);
    task.sent(2, 20);
    task.busy(Duration::from_millis(250));
    task.idle(Duration::from_secs(2));
    task.back_pressured(Duration::from_micros(500));
    task.set_watermark(1_700_000_000_500);
    task.late(5);
    task.unwritten();
    job.read_transactions_from(|| TransactionsReading {
        oldest_open: Some(Duration::from_millis(2500)),
        committed: 12,
        aborted: 3,
        waiting_writers: 2,
        barrier_wait: Some(Duration::from_millis(40)),
    });
    task.set_pending(Some(17));
    task.read_splits_from(|| vec![("orders-1".to_owned(), 17)]);
    task.aligned(Duration::from_millis(2), Duration::from_millis(7));
    task.read_plugin_from(|| PluginReading {
        calls: 9,
        call_time: Duration::from_millis(125),
        traps: 1,
        failures: 3,
        skipped: 2,
        dead_letters: 1,
        dropped_timers: 4,
        memory_bytes: 65536,
        counters: BTreeMap::from([("odd \"name\"".to_owned(), 6)]),
    });
    metrics
}

fn sample<'a>(text: &'a str, name: &str, labels: &str) -> Option<&'a str> {
    let start = format!("{name}{{{labels}}} ");
    text.lines().find_map(|line| line.strip_prefix(&start))
}

#[test]
fn a_scrape_shows_every_number_under_its_name() {
    let text = full().encode();
    let (job, task) = (r#"job="orders""#, r#"job="orders",uid="totals",subtask="1""#);
    for (name, labels, number) in [
        ("waterwheel_checkpoints_completed_total", job, "1"),
        ("waterwheel_checkpoints_failed_total", job, "1"),
        ("waterwheel_checkpoints_in_progress", job, "1"),
        ("waterwheel_last_checkpoint_duration_seconds", job, "1.5"),
        ("waterwheel_last_checkpoint_size_bytes", job, "10"),
        ("waterwheel_last_checkpoint_full_size_bytes", job, "100"),
        ("waterwheel_last_checkpoint_alignment_seconds", job, "0.02"),
        ("waterwheel_last_checkpoint_start_delay_seconds", job, "0.003"),
        ("waterwheel_restarts_total", job, "0"),
        ("waterwheel_open_transaction_age_seconds", job, "2.5"),
        ("waterwheel_committed_transactions_total", job, "12"),
        ("waterwheel_aborted_transactions_total", job, "3"),
        ("waterwheel_transaction_waiting_writers", job, "2"),
        ("waterwheel_transaction_barrier_wait_seconds", job, "0.04"),
        ("waterwheel_unwritten_records_total", task, "1"),
        ("waterwheel_records_in_total", task, "7"),
        ("waterwheel_bytes_in_total", task, "70"),
        ("waterwheel_records_out_total", task, "2"),
        ("waterwheel_bytes_out_total", task, "20"),
        ("waterwheel_busy_seconds_total", task, "0.25"),
        ("waterwheel_idle_seconds_total", task, "2"),
        ("waterwheel_back_pressured_seconds_total", task, "0.0005"),
        ("waterwheel_current_watermark_timestamp_seconds", task, "1700000000.5"),
        ("waterwheel_late_records_total", task, "5"),
        ("waterwheel_pending_records", task, "17"),
        ("waterwheel_split_pending_records", r#"job="orders",uid="totals",subtask="1",split="orders-1""#, "17"),
        ("waterwheel_alignment_seconds", task, "0.007"),
        ("waterwheel_start_delay_seconds", task, "0.002"),
        ("waterwheel_plugin_calls_total", task, "9"),
        ("waterwheel_plugin_call_seconds_total", task, "0.125"),
        ("waterwheel_plugin_traps_total", task, "1"),
        ("waterwheel_failed_records_total", task, "3"),
        ("waterwheel_skipped_records_total", task, "2"),
        ("waterwheel_dead_letters_total", task, "1"),
        ("waterwheel_dropped_timers_total", task, "4"),
        ("waterwheel_plugin_memory_bytes", task, "65536"),
        ("waterwheel_plugin_counter_total", &format!(r#"{task},name="odd \"name\"""#), "6"),
    ] {
        let shown = sample(&text, name, labels).unwrap_or_else(|| unreachable!("{name} is missing in\n{text}"));
        assert_eq!(shown.parse::<f64>().unwrap(), number.parse::<f64>().unwrap(), "{name}");
    }
}

#[test]
fn a_scrape_and_the_list_of_names_are_one() {
    let text = full().encode();
    let types: BTreeMap<&str, &str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).filter_map(|line| line.split_once(' ')).collect();
    let listed = metric_names();
    let kinds: BTreeMap<&str, &str> =
        listed.iter().map(|metric| (metric.name.as_str(), if metric.kind == MetricKind::Counter { "counter" } else { "gauge" })).collect();
    assert_eq!(types, kinds);
    assert_eq!(kinds.len(), listed.len(), "a name is there twice");
    for metric in &listed {
        let line = text.lines().find(|line| line.starts_with(&format!("{}{{", metric.name))).unwrap();
        let found: Vec<&str> = line.split(['{', ',']).skip(1).filter_map(|label| label.split_once("=\"")).map(|(name, _)| name).collect();
        assert_eq!(found, metric.labels, "{line}");
        assert!(text.contains(&format!("# HELP {} {}", metric.name, metric.help)), "{}", metric.name);
    }
}

#[test]
fn what_is_not_known_is_left_out() {
    let metrics = Metrics::new();
    metrics.job("j").task("u", 0);
    let text = metrics.encode();
    for name in
        ["current_watermark_timestamp_seconds", "pending_records", "alignment_seconds", "plugin_calls_total", "last_checkpoint_size_bytes"]
    {
        assert!(!text.contains(&format!("\nwaterwheel_{name}{{")), "{name}");
    }
    assert!(sample(&text, "waterwheel_records_in_total", r#"job="j",uid="u",subtask="0""#).is_some());
}

#[test]
fn a_subtask_that_starts_again_counts_on() {
    let job = Metrics::new().job("j");
    job.task("u", 0).sent(1, 1);
    job.checkpoint_triggered();
    job.restarted();
    job.task("u", 0).sent(2, 2);
    assert_eq!(job.task("u", 0).reading().records_out, 3);
    assert_eq!((job.reading().restarts, job.reading().checkpoints_in_progress), (1, 0));
}

#[test]
fn a_removed_job_is_not_shown() {
    let metrics = full();
    assert_eq!(metrics.jobs().len(), 1);
    metrics.clone().remove_job("orders");
    assert!(!metrics.encode().contains("orders"));
}

#[test]
fn every_subtask_and_job_has_its_sample_below_one_name() {
    let metrics = Metrics::new();
    for (job, uid, subtask) in [("b", "x", 0), ("a", "y", 10), ("a", "y", 9), ("a", "x", 0)] {
        metrics.job(job).task(uid, subtask).received(1, 1);
    }
    let text = metrics.encode();
    let samples: Vec<&str> = text.lines().filter(|line| line.starts_with("waterwheel_records_in_total")).collect();
    assert_eq!(samples.len(), 4);
    assert_eq!(samples.iter().collect::<BTreeSet<_>>().len(), 4);
    assert!(samples[1].contains(r#"subtask="9""#), "{samples:?}");
}

#[test]
fn threads_lose_no_count() {
    let task = Arc::new(TaskMetrics::default());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1000).for_each(|_| task.received(2, 3)));
        }
    });
    let reading = task.reading();
    assert_eq!((reading.records_in, reading.bytes_in), (8000, 12000));
}
