//! Finds partitions, and decides once where reading them starts and ends.

use super::settings::{Reset, Settings, Start, Stop, Wanted};
use crate::Error;
use crate::kafka::cluster::{Range, Topic};
use crate::kafka::{Cluster, TopicPartition};
use crate::source::Split;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Offsets by partition; none where a question has no answer.
type Offsets = BTreeMap<TopicPartition, Option<i64>>;

/// The splits that are not known yet. At the start they begin where the options say, later ones at their beginning.
///
/// # Errors
/// A topic that is not there or may not be read, a group without offsets, nobody answers.
pub(super) async fn discover(
    settings: &Settings,
    cluster: &Cluster,
    known: &BTreeSet<String>,
    is_first: bool,
) -> Result<Vec<Split>, Error> {
    let topics = topics(settings, cluster).await?;
    check_known(&topics, known)?;
    let partitions = topics.iter().flat_map(|topic| (0..topic.partitions).map(|number| TopicPartition::new(topic.name.as_str(), number)));
    let new: Vec<TopicPartition> = partitions.filter(|partition| !known.contains(&partition.to_string())).collect();
    if is_first {
        check_named(settings, &new)?;
    }
    if new.is_empty() {
        return Ok(Vec::new());
    }
    let ranges = cluster.ranges(new.clone()).await?;
    let starts = if is_first { starts(settings, cluster, &new, &ranges).await? } else { all(&ranges, |range| range.start) };
    let stops = stops(settings, cluster, &new, &ranges).await?;
    let split = |partition: TopicPartition| {
        let range = ranges.get(&partition).copied().unwrap_or(Range { start: 0, end: 0 });
        let start = starts.get(&partition).copied().flatten().unwrap_or(range.start);
        let stop = stops.get(&partition).copied().flatten();
        let finished = stop.is_some_and(|stop| start >= stop);
        Split { id: partition.to_string(), position: json!(start), stop: stop.map(|stop| json!(stop)), finished }
    };
    Ok(new.into_iter().map(split).collect())
}

async fn topics(settings: &Settings, cluster: &Cluster) -> Result<Vec<Topic>, Error> {
    match &settings.topics {
        Wanted::Names(names) => cluster.topics(names.clone()).await,
        Wanted::Pattern(pattern) => {
            let mut topics = cluster.all_topics().await?;
            topics.retain(|topic| pattern.is_match(&topic.name));
            if topics.is_empty() && settings.discovery_interval.is_none() {
                let servers = cluster.servers();
                return Err(Error::user(format!(
                    "no topic of {servers} fits topic-pattern {}: correct it, or create the topic",
                    settings.topics
                )));
            }
            Ok(topics)
        }
    }
}

/// Topics that are read must still be there.
fn check_known(topics: &[Topic], known: &BTreeSet<String>) -> Result<(), Error> {
    let is_there = |partition: &TopicPartition| topics.iter().any(|topic| topic.name == *partition.topic);
    match known.iter().filter_map(|id| TopicPartition::parse(id)).find(|partition| !is_there(partition)) {
        Some(gone) => Err(Error::user(format!(
            "topic {} was deleted: take it out of the job, or start the job afresh when there is a new one",
            gone.topic
        ))),
        None => Ok(()),
    }
}

/// Offsets that the options give must be those of partitions that there are, and an end must be given to each.
fn check_named(settings: &Settings, partitions: &[TopicPartition]) -> Result<(), Error> {
    let absent = |given: &BTreeMap<TopicPartition, i64>| given.keys().find(|partition| !partitions.contains(partition)).cloned();
    if let Start::Offsets(given) = &settings.start
        && let Some(partition) = absent(given)
    {
        return Err(Error::user(format!("startup-specific-offsets names {partition}, and there is no such partition")));
    }
    if let Stop::Offsets(given) = &settings.stop {
        if let Some(partition) = absent(given) {
            return Err(Error::user(format!("bounded-specific-offsets names {partition}, and there is no such partition")));
        }
        if let Some(partition) = partitions.iter().find(|partition| !given.contains_key(partition)) {
            return Err(Error::user(format!("bounded-specific-offsets names no end of partition {partition}: every partition needs one")));
        }
    }
    Ok(())
}

async fn starts(
    settings: &Settings,
    cluster: &Cluster,
    partitions: &[TopicPartition],
    ranges: &BTreeMap<TopicPartition, Range>,
) -> Result<Offsets, Error> {
    match &settings.start {
        Start::Earliest => Ok(all(ranges, |range| range.start)),
        Start::Latest => Ok(all(ranges, |range| range.end)),
        Start::Offsets(given) => Ok(given.iter().map(|(partition, offset)| (partition.clone(), Some(*offset))).collect()),
        Start::Timestamp(milliseconds) => or_end(cluster.offsets_at(partitions.to_vec(), *milliseconds).await?, ranges),
        Start::Group { group, otherwise } => {
            let mut offsets = cluster.committed(group, partitions.to_vec()).await?;
            for (partition, offset) in &mut offsets {
                let range = ranges.get(partition);
                *offset = match (*offset, otherwise) {
                    (Some(offset), _) => Some(offset),
                    (None, Some(Reset::Earliest)) => range.map(|range| range.start),
                    (None, Some(Reset::Latest)) => range.map(|range| range.end),
                    (None, None) => {
                        let advice = "set auto.offset.reset in properties to earliest or latest, or another startup-mode";
                        return Err(Error::user(format!("group {group} has committed no offset of partition {partition}: {advice}")));
                    }
                };
            }
            Ok(offsets)
        }
    }
}

async fn stops(
    settings: &Settings,
    cluster: &Cluster,
    partitions: &[TopicPartition],
    ranges: &BTreeMap<TopicPartition, Range>,
) -> Result<Offsets, Error> {
    match &settings.stop {
        Stop::Never => Ok(BTreeMap::new()),
        Stop::Latest => Ok(all(ranges, |range| range.end)),
        Stop::Offsets(given) => Ok(given.iter().map(|(partition, offset)| (partition.clone(), Some(*offset))).collect()),
        Stop::Timestamp(milliseconds) => or_end(cluster.offsets_at(partitions.to_vec(), *milliseconds).await?, ranges),
    }
}

fn all(ranges: &BTreeMap<TopicPartition, Range>, offset: impl Fn(&Range) -> i64) -> Offsets {
    ranges.iter().map(|(partition, range)| (partition.clone(), Some(offset(range)))).collect()
}

/// The end where there is no record of that time yet.
fn or_end(mut offsets: Offsets, ranges: &BTreeMap<TopicPartition, Range>) -> Result<Offsets, Error> {
    for (partition, offset) in &mut offsets {
        *offset = offset.or(ranges.get(partition).map(|range| range.end));
    }
    Ok(offsets)
}
