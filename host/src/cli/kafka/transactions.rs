//! `waterwheel kafka transactions list|describe|abort`: what is open, since when, and what waits for it.

use super::Outcome;
use crate::Error;
use crate::config::Span;
use crate::kafka::cluster::Range;
use crate::kafka::producer::Producer;
use crate::kafka::wire::{self, TransactionState};
use crate::kafka::{ClientOptions, Cluster, TopicPartition, error};
use crate::sink::kafka::{Markers, prefix_fault, transactional_ids};
use jiff::Timestamp;
use rdkafka::producer::Producer as _;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// How long an id may take to be taken over.
const TAKE_OVER: Duration = Duration::from_secs(30);

/// What to do with transactions.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// The open transactions of the cluster, or all ids of a prefix.
    List {
        /// The transactional-id-prefix of a job, by default its name.
        #[arg(long)]
        prefix: Option<String>,
    },
    /// The transactions of a job: what is open, at which offsets readers with read_committed wait for it, and the newest marker.
    Describe {
        /// The transactional-id-prefix of the job, by default its name.
        #[arg(long)]
        prefix: String,
        /// A topic to look at as well; may be repeated. By default those that open transactions have written to.
        #[arg(long)]
        topic: Vec<String>,
    },
    /// Aborts what a job has left open, for readers not to wait for it to time out. A run of the job that is alive is fenced: it recovers, and
    /// reads again what it had not committed.
    Abort {
        /// The transactional-id-prefix of the job, by default its name.
        #[arg(long)]
        prefix: String,
        /// Do it, and do not only say what would be done.
        #[arg(long)]
        yes: bool,
    },
}

/// Runs the command.
pub(super) async fn run(command: &Command, options: &ClientOptions) -> Outcome {
    match command {
        Command::List { prefix } => list(options, prefix.as_deref()).await,
        Command::Describe { prefix, topic } => describe(options, prefix, topic).await,
        Command::Abort { prefix, yes } => abort(options, prefix, *yes).await,
    }
}

async fn list(options: &ClientOptions, prefix: Option<&str>) -> Outcome {
    let states = match prefix {
        Some(prefix) => states(options, |id| ids(prefix).iter().any(|own| own == id)).await?,
        None => states(options, |_| true).await?.into_iter().filter(|state| state.since.is_some()).collect(),
    };
    let mut text = String::new();
    let width = states.iter().map(|state| state.id.len()).max().unwrap_or(0);
    for state in &states {
        write(&mut text, format_args!("{:width$}  {}\n", state.id, in_words(state)));
    }
    if states.is_empty() {
        text.push_str(if prefix.is_some() { "no such transactional id is known\n" } else { "no transaction is open\n" });
    }
    Ok(text)
}

async fn describe(options: &ClientOptions, prefix: &str, topics: &[String]) -> Outcome {
    check(prefix)?;
    let (mut text, mut partitions) = (String::new(), Vec::new());
    let states = states(options, |id| ids(prefix).iter().any(|own| own == id)).await?;
    for id in ids(prefix) {
        match states.iter().find(|state| state.id == id) {
            Some(state) => write(&mut text, format_args!("{id}: {}\n", in_words(state))),
            None => write(&mut text, format_args!("{id}: not known to the brokers\n")),
        }
    }
    let open = states.iter().filter(|state| state.since.is_some());
    partitions.extend(open.flat_map(|state| &state.partitions).map(|(topic, number)| TopicPartition::new(topic.as_str(), *number)));
    let mut asking = options.clone();
    asking.set("isolation.level", "read_committed");
    let (stable, mut all) = (Cluster::new(&asking)?, options.clone());
    all.set("isolation.level", "read_uncommitted");
    for topic in stable.topics(topics.to_vec()).await? {
        partitions.extend((0..topic.partitions).map(|number| TopicPartition::new(topic.name.as_str(), number)));
    }
    partitions.sort();
    partitions.dedup();
    let waiting = waiting(&stable.ranges(partitions.clone()).await?, &Cluster::new(&all)?.ranges(partitions).await?);
    if !waiting.is_empty() {
        write(&mut text, format_args!("\nreaders with read_committed wait:\n{waiting}"));
    }
    write(&mut text, format_args!("\n{}", marker(options, prefix).await?));
    Ok(text)
}

/// Where readers wait, and how much stands behind.
fn waiting(stable: &BTreeMap<TopicPartition, Range>, all: &BTreeMap<TopicPartition, Range>) -> String {
    let mut text = String::new();
    for (partition, stable) in stable {
        let end = all.get(partition).map_or(stable.end, |all| all.end);
        if stable.end < end {
            write(&mut text, format_args!("  {partition} at offset {}, {} before the end\n", stable.end, end - stable.end));
        }
    }
    text
}

async fn marker(options: &ClientOptions, prefix: &str) -> Outcome {
    let markers = Markers::new(options, prefix)?;
    let found = markers.read().await.map_err(|error| Error::external(error.to_string()))?;
    let Some(found) = found else {
        return Ok(format!("no marker (topic {}): no job with this prefix has committed anything\n", markers.topic()));
    };
    let (marker, when) = (&found.marker, found.timestamp.map(ago).unwrap_or_default());
    let state = serde_json::to_value(marker.state).ok().and_then(|state| state.as_str().map(str::to_owned)).unwrap_or_default();
    Ok(format!(
        "marker (topic {}, offset {}{when}):\n  job {}, checkpoint {} (attempt {}), generation {}, {state}\n  checkpoint directory {}\n",
        markers.topic(),
        found.offset,
        marker.job,
        marker.checkpoint,
        marker.attempt,
        marker.generation,
        marker.storage
    ))
}

async fn abort(options: &ClientOptions, prefix: &str, yes: bool) -> Outcome {
    check(prefix)?;
    let [first, second] = ids(prefix);
    if !yes {
        return Err(Error::user(format!(
            "this takes over the transactional ids {first} and {second}: what is open under them is aborted, and a run of the job that is alive is \
             fenced (it recovers, and reads again what it had not committed). Say --yes to do it"
        )));
    }
    for id in [&first, &second] {
        let mut options = options.clone();
        options.set("transactional.id", id.as_str());
        let (producer, doing) = (Producer::new(&options, |_| ())?, format!("taking over the transactional id {id}"));
        let taken = tokio::task::spawn_blocking(move || {
            let taken = producer.client().init_transactions(TAKE_OVER);
            taken.map_err(|failed| error::of(producer.context(), doing, &failed))
        });
        taken.await.map_err(|failed| Error::internal("taking an id over broke off").caused_by(failed))??;
    }
    Ok(format!("{first} and {second} were taken over: whatever was open under them is aborted\n"))
}

/// What the brokers say to the ids that are wanted.
async fn states(options: &ClientOptions, wanted: impl Fn(&str) -> bool) -> Result<Vec<TransactionState>, Error> {
    let mut states = Vec::new();
    for address in Cluster::new(options)?.brokers().await? {
        states.extend(wire::transactions(options, &address, &wanted).await?);
    }
    states.sort_by(|left, right| left.id.cmp(&right.id));
    Ok(states)
}

fn ids(prefix: &str) -> [String; 2] {
    transactional_ids(prefix)
}

fn check(prefix: &str) -> Result<(), Error> {
    prefix_fault(prefix).map_or(Ok(()), |message| Err(Error::user(format!("--prefix {message}"))))
}

fn in_words(state: &TransactionState) -> String {
    let TransactionState { state: name, timeout, since, producer_id, producer_epoch, partitions, .. } = state;
    let mut text = format!("{name}, producer {producer_id}, epoch {producer_epoch}, timeout {}", Span(*timeout));
    if let Some(since) = since {
        write(&mut text, format_args!("; open since {}{}, {} partitions", time(*since), ago(*since), partitions.len()));
    }
    text
}

fn time(milliseconds: i64) -> String {
    Timestamp::from_millisecond(milliseconds).map_or_else(|_| milliseconds.to_string(), |time| time.to_string())
}

/// `, 3m 2s ago`; nothing for what is still to come.
fn ago(milliseconds: i64) -> String {
    let age = Timestamp::now().as_millisecond() - milliseconds;
    u64::try_from(age / 1000).map_or_else(|_| String::new(), |seconds| format!(", {} ago", Span(Duration::from_secs(seconds))))
}

fn write(text: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing to a text does not fail.
    let _written = text.write_fmt(what);
}
