//! `waterwheel kafka count TOPIC`: reads a topic to its end and counts, to see what is there once, twice or not at all.

use super::numbers::{Numbers, Tally};
use super::{Format, Outcome, plural};
use crate::Error;
use crate::kafka::{ClientOptions, Cluster, TopicPartition};
use crate::record::{Batch, JsonPointer, SplitTable};
use crate::source::kafka::{IsolationLevel, whole_topic};
use crate::source::{BatchLimits, ReadStatus, ReaderContext};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

/// Large batches: nothing here waits for a single record.
const LIMITS: BatchLimits = BatchLimits { records: 4096, bytes: 1 << 20, linger: Duration::from_millis(5) };

/// What to count.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    /// The topic, read from its beginning to the end that it has now.
    topic: String,
    /// Whether records of transactions that are aborted or open count.
    #[arg(long, value_enum, default_value_t)]
    isolation: IsolationLevel,
    /// Where in each value, which is JSON then, a whole number is: `/seq`. It tells which are there twice, and which between the least and the
    /// largest are missing.
    #[arg(long, value_name = "JSON POINTER", value_parser = JsonPointer::parse)]
    json_pointer: Option<JsonPointer>,
    /// The first number that must be there.
    #[arg(long, value_name = "NUMBER", requires = "json_pointer", allow_hyphen_values = true)]
    first: Option<i64>,
    /// The last number that must be there.
    #[arg(long, value_name = "NUMBER", requires = "json_pointer", allow_hyphen_values = true)]
    last: Option<i64>,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// What was counted.
struct Counted {
    lines: BTreeMap<String, i64>,
    bytes: usize,
    /// Offsets behind the last stable one: records of open transactions, and whatever follows them.
    undecided: i64,
    tally: Option<Tally>,
}

impl Counted {
    fn total(&self) -> i64 {
        self.lines.values().sum()
    }
}

/// Runs the command.
pub(super) async fn run(arguments: &Arguments, options: &ClientOptions) -> Outcome {
    let counted = count(arguments, options).await?;
    Ok(match arguments.format {
        Format::Text => text(arguments, &counted),
        Format::Json => as_json(arguments, &counted),
    })
}

async fn count(arguments: &Arguments, options: &ClientOptions) -> Result<Counted, Error> {
    let source = whole_topic(options.clone(), &arguments.topic, arguments.isolation);
    let splits = source.discover(&BTreeSet::new()).await?;
    let undecided = undecided(arguments, options, &splits).await?;
    let mut lines: BTreeMap<String, i64> = splits.iter().map(|split| (split.id.clone(), 0)).collect();
    let table = SplitTable::default();
    let context = ReaderContext { uid: "kafka".to_owned(), subtask: 0, parallelism: 1, limits: LIMITS, split_table: table.clone() };
    let mut reader = source.open(context).await?;
    reader.add_splits(splits).await?;
    let mut numbers = arguments.json_pointer.as_ref().map(Numbers::new);
    let (mut batch, mut bytes, mut status) = (Batch::default(), 0, ReadStatus::Open);
    while status == ReadStatus::Open {
        batch.clear();
        status = reader.next_batch(&mut batch).await?;
        bytes += batch.byte_len();
        for row in batch.rows() {
            if let Some(place) = table.place(row.origin) {
                *lines.entry(place.split).or_default() += 1;
            }
            if let Some(numbers) = &mut numbers {
                numbers.add(row.value);
            }
        }
    }
    let tally = numbers.map(|numbers| numbers.tally(arguments.first, arguments.last));
    Ok(Counted { lines, bytes, undecided, tally })
}

/// How many offsets there are behind the ends that are read to.
async fn undecided(arguments: &Arguments, options: &ClientOptions, splits: &[crate::source::Split]) -> Result<i64, Error> {
    if arguments.isolation == IsolationLevel::ReadUncommitted {
        return Ok(0);
    }
    let mut options = options.clone();
    options.set("isolation.level", "read_uncommitted");
    let partitions: Vec<TopicPartition> = splits.iter().filter_map(|split| TopicPartition::parse(&split.id)).collect();
    let ranges = Cluster::new(&options)?.ranges(partitions).await?;
    let stop = |split: &crate::source::Split| Some((TopicPartition::parse(&split.id)?, split.stop.as_ref()?.as_i64()?));
    let stops: BTreeMap<TopicPartition, i64> = splits.iter().filter_map(stop).collect();
    Ok(ranges.iter().map(|(partition, range)| (range.end - stops.get(partition).copied().unwrap_or(range.end)).max(0)).sum())
}

fn text(arguments: &Arguments, counted: &Counted) -> String {
    let partitions = i64::try_from(counted.lines.len()).unwrap_or(i64::MAX);
    let (lines, partitions) = (plural(counted.total(), "line", "lines"), plural(partitions, "partition", "partitions"));
    let level = arguments.isolation.word();
    let mut text = format!("{} ({level}): {lines}, {} bytes, in {partitions}\n", arguments.topic, counted.bytes);
    if counted.undecided > 0 {
        let behind = plural(counted.undecided, "offset", "offsets");
        // Writing to a text cannot fail.
        let _written = writeln!(text, "{behind} not counted: an open transaction holds them back");
    }
    if let (Some(tally), Some(pointer)) = (&counted.tally, &arguments.json_pointer) {
        tally.write(&mut text, &pointer.to_string());
    }
    text
}

fn as_json(arguments: &Arguments, counted: &Counted) -> String {
    let mut document = json!({
        "topic": arguments.topic,
        "isolation": arguments.isolation.word(),
        "lines": counted.total(),
        "bytes": counted.bytes,
        "undecided": counted.undecided,
        "partitions": counted.lines,
    });
    if let (Some(tally), Some(fields)) = (&counted.tally, document.as_object_mut()) {
        fields.extend(tally.fields());
    }
    format!("{document}\n")
}
