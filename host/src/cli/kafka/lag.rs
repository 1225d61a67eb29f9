//! `waterwheel kafka lag GROUP`: how far a consumer group is behind, partition by partition.

use super::{Format, Outcome, plural};
use crate::Error;
use crate::kafka::{ClientOptions, Cluster, TopicPartition};
use serde_json::json;
use std::fmt::Write;

/// Whose lag.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    /// The group, as `group.id` names it in the properties of a source.
    group: String,
    /// Only these topics; by default all of which the group has committed offsets.
    #[arg(long = "topic", value_name = "TOPIC")]
    topics: Vec<String>,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Where a group stands in a partition.
struct Place {
    partition: TopicPartition,
    committed: Option<i64>,
    end: i64,
}

impl Place {
    fn lag(&self) -> Option<i64> {
        self.committed.map(|committed| (self.end - committed).max(0))
    }
}

/// Runs the command.
pub(super) async fn run(arguments: &Arguments, options: &ClientOptions) -> Outcome {
    let mut options = options.clone();
    // As Kafka's own tool counts: to the end of the log, whatever transactions are open.
    options.set("isolation.level", "read_uncommitted");
    let cluster = Cluster::new(&options)?;
    let topics = if arguments.topics.is_empty() { cluster.all_topics().await? } else { cluster.topics(arguments.topics.clone()).await? };
    let partitions = topics.iter().flat_map(|topic| (0..topic.partitions).map(|number| TopicPartition::new(topic.name.as_str(), number)));
    let committed = cluster.committed(&arguments.group, partitions.collect()).await?;
    // Without topics asked for, those of which the group knows nothing are of no interest.
    let wanted = committed.iter().filter(|(_, offset)| offset.is_some() || !arguments.topics.is_empty());
    let ends = cluster.ranges(wanted.map(|(partition, _)| partition.clone()).collect()).await?;
    if ends.is_empty() {
        let servers = cluster.servers();
        return Err(Error::user(format!("group {} has committed no offsets on {servers}, or they have expired", arguments.group)));
    }
    let place = |(partition, range): (TopicPartition, crate::kafka::cluster::Range)| {
        let committed = committed.get(&partition).copied().flatten();
        Place { partition, committed, end: range.end }
    };
    let places: Vec<Place> = ends.into_iter().map(place).collect();
    Ok(match arguments.format {
        Format::Text => text(&places),
        Format::Json => as_json(&arguments.group, &places),
    })
}

fn text(places: &[Place]) -> String {
    let width = places.iter().map(|place| place.partition.topic.len()).max().unwrap_or(0).max("topic".len());
    let mut text = format!("{:width$}  partition  committed        end        lag\n", "topic");
    for place in places {
        let number = |offset: Option<i64>| offset.map_or("-".to_owned(), |offset| offset.to_string());
        let (committed, lag) = (number(place.committed), number(place.lag()));
        let TopicPartition { topic, partition } = &place.partition;
        // Writing to a text cannot fail.
        let _written = writeln!(text, "{topic:width$}  {partition:9}  {committed:>9}  {:9}  {lag:>9}", place.end);
    }
    let total: i64 = places.iter().filter_map(Place::lag).sum();
    let unknown = places.iter().filter(|place| place.committed.is_none()).count();
    let _written = write!(text, "{}", plural(total, "record behind", "records behind"));
    if unknown > 0 {
        let _written =
            write!(text, "; nothing committed in {}", plural(i64::try_from(unknown).unwrap_or(i64::MAX), "partition", "partitions"));
    }
    text.push('\n');
    text
}

fn as_json(group: &str, places: &[Place]) -> String {
    let place = |place: &Place| {
        let TopicPartition { topic, partition } = &place.partition;
        json!({"topic": topic, "partition": partition, "committed": place.committed, "end": place.end, "lag": place.lag()})
    };
    let total: i64 = places.iter().filter_map(Place::lag).sum();
    let document = json!({"group": group, "lag": total, "partitions": places.iter().map(place).collect::<Vec<_>>()});
    format!("{document}\n")
}
