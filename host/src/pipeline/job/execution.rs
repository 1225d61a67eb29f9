//! Checkpoints, restarts and batches, and what sinks need of them.

use super::{Checks, ReadySink};
use crate::checkpoint::storage::is_ephemeral;
use crate::config::{Size, Span, relative_file_url, unknown};
use crate::pipeline::plan::{CheckpointSettings, RestartStrategy, Settings};
use crate::pipeline::spec::{CheckpointMode, ExponentialDelay, JobSpec, RestartSpec, RestartType};
use crate::sink::{Guarantee, TransactionalSink};
use crate::source::BatchLimits;

/// The shortest interval and timeout of checkpoints, Flink's: below it a job would do little else.
const MIN_CHECKPOINT_TIME: Span = Span::from_millis(10);

/// The largest batch; a record that is larger travels alone.
const LARGEST_BATCH: Size = Size(64 << 20);
/// The most records in one.
const MOST_RECORDS: u32 = 1 << 16;

const CHECKPOINTING: &str = "/execution/checkpointing";

/// The settings with every default filled in.
pub(super) fn check(spec: &JobSpec, checks: &mut Checks) -> Settings {
    let checkpointing = check_checkpointing(spec, checks);
    let restart = check_restart(&spec.execution.restart_strategy, checkpointing.is_some(), checks);
    let batch = &spec.execution.batch;
    if batch.max_bytes.0 == 0 {
        checks.fault("/execution/batch/max-bytes", "must be at least one byte");
    }
    // Room for a batch is made beforehand.
    if batch.max_bytes > LARGEST_BATCH {
        checks.fault("/execution/batch/max-bytes", format!("{} is more than {LARGEST_BATCH}", batch.max_bytes));
    }
    if batch.max_records > MOST_RECORDS {
        checks.fault("/execution/batch/max-records", format!("{} is more than {MOST_RECORDS}", batch.max_records));
    }
    let whole = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let batch = BatchLimits { records: whole(batch.max_records.into()), bytes: whole(batch.max_bytes.0), linger: batch.linger.0 };
    Settings { checkpointing, restart, batch, ephemeral: spec.ephemeral }
}

fn check_checkpointing(spec: &JobSpec, checks: &mut Checks) -> Option<CheckpointSettings> {
    let written = &spec.execution.checkpointing;
    if written.unaligned.enabled {
        let path = format!("{CHECKPOINTING}/unaligned/enabled");
        if written.mode != CheckpointMode::ExactlyOnce {
            checks.fault(path.as_str(), "unaligned checkpoints need mode exactly-once: with at-least-once no barrier waits");
        }
        if written.max_concurrent_checkpoints > 1 {
            checks.fault(path, "unaligned checkpoints need max-concurrent-checkpoints 1");
        }
    }
    for (key, time) in [("interval", written.interval), ("timeout", Some(written.timeout))] {
        if time.is_some_and(|time| time < MIN_CHECKPOINT_TIME) {
            let switch_off = if key == "interval" { "; leave it out to switch checkpointing off" } else { "" };
            checks.fault(format!("{CHECKPOINTING}/{key}"), format!("must be at least {MIN_CHECKPOINT_TIME}{switch_off}"));
        }
    }
    check_dir("dir", written.dir.as_deref(), written.interval.is_some(), checks);
    check_dir("savepoint-dir", written.savepoint_dir.as_deref(), false, checks);
    if written.savepoint_dir.as_deref().is_some_and(is_ephemeral) {
        checks.fault(format!("{CHECKPOINTING}/savepoint-dir"), "savepoints in memory end with the process: give a folder");
    }
    Some(CheckpointSettings {
        interval: written.interval?.0,
        dir: written.dir.clone().unwrap_or_default(),
        savepoint_dir: written.savepoint_dir.clone(),
        mode: written.mode,
        timeout: written.timeout.0,
        min_pause: written.min_pause.0,
        max_concurrent: written.max_concurrent_checkpoints,
        tolerable_failed: written.tolerable_failed_checkpoints,
        num_retained: written.num_retained,
        retention: written.externalized_checkpoint_retention,
    })
}

fn check_dir(key: &str, dir: Option<&str>, is_on: bool, checks: &mut Checks) {
    let path = format!("{CHECKPOINTING}/{key}");
    if let Some(sentence) = dir.and_then(relative_file_url) {
        checks.fault(path, sentence);
        return;
    }
    match dir {
        None if is_on => checks.fault(path, "is missing: give a folder or a URL such as file:///var/lib/waterwheel/checkpoints"),
        Some(dir) if dir.trim().is_empty() => checks.fault(path, "is empty: give a folder or a URL"),
        Some(dir) => match dir.split_once("://").map(|(scheme, _)| scheme) {
            None | Some("file" | "memory") => {}
            Some(scheme @ ("s3" | "s3a" | "gs" | "az" | "abfs" | "abfss" | "hdfs")) => {
                checks.fault(path, format!("checkpoints in {scheme}:// are not built into this version; use a folder or file://"));
            }
            Some(scheme) => checks.fault(path, unknown("kind of storage", scheme, ["file", "memory"])),
        },
        None => {}
    }
}

fn check_restart(written: &RestartSpec, checkpointing: bool, checks: &mut Checks) -> RestartStrategy {
    const PATH: &str = "/execution/restart-strategy";
    let kind = written.kind.unwrap_or(if checkpointing { RestartType::ExponentialDelay } else { RestartType::None });
    let sections = [
        ("fixed-delay", written.fixed_delay.is_some(), RestartType::FixedDelay),
        ("failure-rate", written.failure_rate.is_some(), RestartType::FailureRate),
        ("exponential-delay", written.exponential_delay.is_some(), RestartType::ExponentialDelay),
    ];
    for (name, is_given, of) in sections {
        if is_given && of != kind {
            checks.fault(
                format!("{PATH}/{name}"),
                format!("has no effect, because the strategy is another one: add `type: {name}`, or leave it out"),
            );
        }
    }
    let exponential = written.exponential_delay.unwrap_or_default();
    check_exponential(&exponential, &format!("{PATH}/exponential-delay"), checks);
    match kind {
        RestartType::None => RestartStrategy::None,
        RestartType::FixedDelay => RestartStrategy::FixedDelay(written.fixed_delay.unwrap_or_default()),
        RestartType::FailureRate => RestartStrategy::FailureRate(written.failure_rate.unwrap_or_default()),
        RestartType::ExponentialDelay => RestartStrategy::ExponentialDelay(exponential),
    }
}

fn check_exponential(written: &ExponentialDelay, path: &str, checks: &mut Checks) {
    if written.backoff_multiplier < 1.0 {
        checks.fault(format!("{path}/backoff-multiplier"), "must be at least 1, so that delays do not become shorter");
    }
    if !(0.0..=1.0).contains(&written.jitter_factor) {
        checks.fault(format!("{path}/jitter-factor"), "must be within 0 and 1");
    }
    if written.max_backoff < written.initial_backoff {
        checks.fault(format!("{path}/max-backoff"), format!("must be at least initial-backoff, which is {}", written.initial_backoff));
    }
}

/// What sinks need of checkpoints for the guarantee that they are asked for. `made` has a sink where it could be made.
pub(super) fn check_sinks(spec: &JobSpec, made: &[Option<ReadySink>], checks: &mut Checks) {
    let checkpointing = &spec.execution.checkpointing;
    for ((index, sink), made) in spec.sinks.iter().enumerate().zip(made) {
        let guarantee = made.as_ref().map_or(sink.delivery_guarantee, |made| Some(made.guarantee));
        if guarantee != Some(Guarantee::ExactlyOnce) {
            continue;
        }
        let (uid, path) = (&sink.uid, format!("/sinks/{index}/delivery-guarantee"));
        if checkpointing.interval.is_none() && !checks.is_silent(&format!("{CHECKPOINTING}/interval")) {
            checks.fault(&path, "exactly-once needs checkpointing: set execution.checkpointing.interval and dir");
        }
        if checkpointing.mode == CheckpointMode::AtLeastOnce {
            checks.fault(
                format!("{CHECKPOINTING}/mode"),
                format!("at-least-once counts records again after a failure, so the sink {uid:?} cannot be exactly-once: use mode exactly-once, or ask the sink for at-least-once"),
            );
        }
        let is_transactional = made.as_ref().is_none_or(|made| made.sink.as_two_phase().is_some());
        if checkpointing.max_concurrent_checkpoints > 1 && is_transactional {
            checks.fault(
                format!("{CHECKPOINTING}/max-concurrent-checkpoints"),
                format!("must be 1, because the sink {uid:?} is transactional: what it prepares for one checkpoint is committed before the next one"),
            );
        }
        let transactional = made.as_ref().and_then(|made| made.sink.as_transactional());
        if let (Some(interval), Some(transactional)) = (checkpointing.interval, transactional)
            && let Err(sentence) = transactional.longest_checkpoint(interval.0)
        {
            checks.fault(format!("/sinks/{index}"), sentence);
        }
        if checkpointing.dir.as_deref().is_some_and(|dir| dir.starts_with("memory:")) && !spec.ephemeral {
            checks.fault(
                format!("{CHECKPOINTING}/dir"),
                format!("checkpoints in memory end with the process, and with them the exactly-once of the sink {uid:?}: keep them in a folder, or say `ephemeral: true`"),
            );
        }
    }
}

/// Transactions hold the decision of a job, so one place holds all of them. `made` has a sink where it could be made.
pub(super) fn check_transactions(spec: &JobSpec, made: &[Option<ReadySink>], checks: &mut Checks) {
    let transactional = |made: &ReadySink| {
        (made.guarantee == Guarantee::ExactlyOnce).then(|| made.sink.as_transactional().map(TransactionalSink::domain)).flatten()
    };
    let mut domains = made.iter().enumerate().filter_map(|(index, made)| Some((index, transactional(made.as_ref()?)?)));
    let Some((first, domain)) = domains.next() else { return };
    let first = &spec.sinks[first].uid;
    for (index, other) in domains {
        let path = format!("/sinks/{index}");
        if other.resource != domain.resource {
            checks.fault(
                format!("{path}/delivery-guarantee"),
                format!(
                    "exactly-once goes to one place a job: this sink writes to {}, {first:?} to {}, and no transaction spans both; ask one \
                     of them for at-least-once",
                    other.resource, domain.resource
                ),
            );
        } else if other.prefix != domain.prefix {
            let words =
                |prefix: &Option<String>| prefix.as_ref().map_or_else(|| "the job's name".to_owned(), |prefix| format!("{prefix:?}"));
            checks.fault(
                format!("{path}/transactional-id-prefix"),
                format!(
                    "exactly-once sinks of one job share their transactions, so their prefix has to be the same: here it is {}, for {first:?} {}",
                    words(&other.prefix),
                    words(&domain.prefix)
                ),
            );
        } else if other.settings != domain.settings {
            let names = other.settings.keys().chain(domain.settings.keys()).collect::<std::collections::BTreeSet<_>>();
            let different = names.into_iter().filter(|name| other.settings.get(*name) != domain.settings.get(*name));
            let different: Vec<&str> = different.map(String::as_str).collect();
            checks.fault(
                format!("{path}/properties"),
                format!(
                    "exactly-once sinks of one job write through the same client, so their properties have to be the same as those of \
                     {first:?}, and these are not: {}",
                    different.join(", ")
                ),
            );
        }
    }
}

/// A checkpoint may not take longer than the transactions of the job's sinks live.
pub(super) fn shorten_timeout(settings: &mut Settings, made: &[ReadySink]) {
    let Some(checkpointing) = &mut settings.checkpointing else { return };
    let exactly_once = made.iter().filter(|made| made.guarantee == Guarantee::ExactlyOnce);
    let longest = exactly_once.filter_map(|made| made.sink.as_transactional()?.longest_checkpoint(checkpointing.interval).ok()).min();
    if let Some(longest) = longest {
        checkpointing.timeout = checkpointing.timeout.min(longest);
    }
}
