//! The options of the Kafka sink and what is right for them.

use crate::config::{Fault, parse_options};
use crate::kafka::{ClientOptions, Properties, Role, Servers};
use crate::record::JsonPointer;
use crate::sink::Guarantee;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// The longest name that a topic can have, in bytes.
const MAX_TOPIC_BYTES: usize = 249;
/// The longest prefix, in bytes: the marker topic's name begins with [`MARKER_TOPIC`].
const MAX_PREFIX_BYTES: usize = 200;
/// What the name of the topic of markers begins with; the prefix follows.
const MARKER_TOPIC: &str = "__waterwheel-";

/// The property that says how long a transaction may be open, in milliseconds.
pub(super) const TRANSACTION_TIMEOUT: &str = "transaction.timeout.ms";
/// What a checkpoint needs of a transaction's time beyond intervals: to be stored and committed.
const COMMIT_TIME: Duration = Duration::from_secs(10);
/// The least default of the transaction timeout.
const LEAST_DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a request to a broker may take. Without it, transactional clients would wait as long as a transaction.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a record of a sink with a guarantee may be on its way.
const DELIVERY_TIME: Duration = Duration::from_secs(30);

/// How long the client waits before it sends a request again. A commit that is answered sooner was sent once: see [`Settings::answered_once`].
const RETRY_BACKOFF: Duration = Duration::from_millis(250);

/// librdkafka's default of `batch.size`.
const BATCH_SIZE: usize = 1_000_000;

/// The properties that only producers have.
const OF_PRODUCERS: &[&str] = &[
    TRANSACTION_TIMEOUT,
    "acks",
    "batch.num.messages",
    "batch.size",
    "compression.codec",
    "compression.level",
    "compression.type",
    "delivery.report.only.error",
    "delivery.timeout.ms",
    "linger.ms",
    "message.send.max.retries",
    "message.timeout.ms",
    "msg_order_cmp",
    "partitioner",
    "produce.offset.report",
    "queue.buffering.backpressure.threshold",
    "queue.buffering.max.kbytes",
    "queue.buffering.max.messages",
    "queue.buffering.max.ms",
    "queuing.strategy",
    "request.required.acks",
    "request.timeout.ms",
    "retries",
    "sticky.partitioning.linger.ms",
];

/// The options of the sink `kafka`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct KafkaOptions {
    /// `host:port` of one or more brokers; the others are learned from them.
    pub bootstrap_servers: Option<Servers>,

    /// The topic that records go to: its name, or where it stands in each record.
    pub topic: TopicOption,

    /// Which partition a record goes to: `by-key` as Java's producer does (murmur2; records without a key are dealt at random in batches),
    /// or `{header: name}`, a number as text in that header. By default `by-key`.
    #[serde(default)]
    pub partition: PartitionOption,

    /// Topics that are missing are made like this. By default a missing topic is refused.
    pub create_topics: Option<CreateTopics>,

    /// What becomes of a record that cannot be written: one that is too large for its topic, names no topic, or a partition that is not there.
    /// `fail`: the job fails and names it. `skip`: it is left out, logged and counted. By default `fail`.
    #[serde(default)]
    pub on_error: OnError,

    /// What the transactional ids of an exactly-once sink begin with; no other job may use it. By default the name of the job.
    pub transactional_id_prefix: Option<String>,

    /// Properties of the Kafka client (librdkafka), such as `security.protocol` or `compression.type`.
    #[serde(default)]
    pub properties: Properties,
}

/// Where the topic of a record comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum TopicOption {
    /// One topic for all records.
    Name(String),
    /// A place in each record.
    Of(TopicPlace),
}

/// A place in a record where its topic stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum TopicPlace {
    /// The value of a header.
    Header(String),
    /// A text in the value, which is JSON, at this pointer.
    JsonPointer(String),
}

/// How the partition of a record is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum PartitionOption {
    /// By the hash of the key.
    #[default]
    ByKey,
    /// The number in a header.
    Header(String),
}

/// How missing topics are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CreateTopics {
    /// The number of partitions.
    #[schemars(range(min = 1, max = 100_000))]
    pub partitions: i32,
    /// The copies of each partition. By default the broker's `default.replication.factor`.
    #[schemars(range(min = 1, max = 1000))]
    pub replication_factor: Option<i32>,
}

/// What becomes of a record that cannot be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnError {
    /// The job fails, naming the record.
    #[default]
    Fail,
    /// The record is left out, logged and counted.
    Skip,
}

/// Where the topic of a record comes from, checked.
#[derive(Clone, Debug)]
pub(super) enum TopicFrom {
    Name(String),
    Header(String),
    JsonPointer(JsonPointer),
}

/// The checked options.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) topic: TopicFrom,
    /// The header with the partition; none: by key.
    pub(super) partition_header: Option<String>,
    pub(super) create_topics: Option<CreateTopics>,
    pub(super) on_error: OnError,
    pub(super) prefix: Option<String>,
    pub(super) guarantee: Guarantee,
    /// The properties as they were given, with the host's defaults; without those of a guarantee.
    pub(super) client: ClientOptions,
}

impl Settings {
    /// Reads and checks options. Nobody is asked: a broker need not be there.
    pub(super) fn parse(uid: &str, options: &Value, guarantee: Guarantee) -> Result<Self, Vec<Fault>> {
        let options: KafkaOptions = parse_options(options)?;
        let mut faults = Vec::new();
        let topic = match &options.topic {
            TopicOption::Name(name) => topic_fault(name).map_or_else(|| Ok(TopicFrom::Name(name.clone())), |message| Err(("", message))),
            TopicOption::Of(TopicPlace::Header(name)) => Ok(TopicFrom::Header(name.clone())),
            TopicOption::Of(TopicPlace::JsonPointer(pointer)) => {
                JsonPointer::parse(pointer).map(TopicFrom::JsonPointer).map_err(|error| ("/json-pointer", error.to_string()))
            }
        };
        if let Err((place, message)) = &topic {
            faults.push(Fault::new(format!("/topic{place}"), message.clone()));
        }
        if let Some(prefix) = &options.transactional_id_prefix {
            if guarantee != Guarantee::ExactlyOnce {
                let message = format!("has no effect on a sink that is {guarantee}: leave it out, or set delivery-guarantee: exactly-once");
                faults.push(Fault::new("/transactional-id-prefix", message));
            } else if let Some(message) = prefix_fault(prefix) {
                faults.push(Fault::new("/transactional-id-prefix", message));
            }
        }
        let client = ClientOptions::check(uid, Role::Sink, options.bootstrap_servers.as_ref(), &options.properties);
        let client = client.map_err(|wrong| faults.extend(wrong)).map(|mut client| {
            set_defaults(&mut client);
            client
        });
        match (topic, client) {
            (Ok(topic), Ok(client)) if faults.is_empty() => Ok(Self {
                topic,
                partition_header: match options.partition {
                    PartitionOption::ByKey => None,
                    PartitionOption::Header(name) => Some(name),
                },
                create_topics: options.create_topics,
                on_error: options.on_error,
                prefix: options.transactional_id_prefix,
                guarantee,
                client,
            }),
            _ => Err(faults),
        }
    }

    /// How long a transaction may be open with such an interval of checkpoints.
    pub(super) fn transaction_timeout(&self, interval: Duration) -> Duration {
        let given = self.client.get(TRANSACTION_TIMEOUT).and_then(|given| given.trim().parse().ok());
        given.map_or_else(|| default_timeout(interval), Duration::from_millis)
    }

    /// The longest that a checkpoint may take, so that its transaction does not time out first.
    ///
    /// # Errors
    /// A sentence with all numbers, when transactions time out too soon for the interval.
    pub(super) fn longest_checkpoint(&self, interval: Duration) -> Result<Duration, String> {
        let timeout = self.transaction_timeout(interval);
        let least = least_timeout(interval);
        if timeout < least {
            return Err(format!(
                "{TRANSACTION_TIMEOUT} is {} ms, and a checkpoint every {} ms needs at least {} ms (twice the interval and {} s): a transaction \
                 that times out takes its records with it; raise it, or leave it out (then it is {} ms)",
                timeout.as_millis(),
                interval.as_millis(),
                least.as_millis(),
                COMMIT_TIME.as_secs(),
                default_timeout(interval).as_millis()
            ));
        }
        Ok(timeout.saturating_sub(interval).saturating_sub(COMMIT_TIME))
    }

    /// A request that is answered within this time was surely not sent twice: the client pauses before it repeats one, for 80 % of
    /// `retry.backoff.ms` at least.
    pub(super) fn answered_once(&self) -> Duration {
        let milliseconds = |name| self.client.get(name).and_then(|given| given.trim().parse().ok()).map(Duration::from_millis);
        let backoff = milliseconds("retry.backoff.ms").unwrap_or(RETRY_BACKOFF).mul_f64(0.75);
        backoff.min(milliseconds("socket.timeout.ms").unwrap_or(SOCKET_TIMEOUT) / 2)
    }

    /// The properties of a client that only asks: without those of producers, which it would complain about.
    pub(super) fn asking(&self) -> ClientOptions {
        let mut client = self.client.clone();
        for name in OF_PRODUCERS {
            client.take(name);
        }
        client
    }

    /// How large a batch is at most, given the smallest limit of its topics: a broker refuses a larger one whole, with all that is in it.
    pub(super) fn batch_size(&self, limit: usize) -> usize {
        self.client.get("batch.size").and_then(|given| given.trim().parse().ok()).unwrap_or(BATCH_SIZE).min(limit)
    }

    /// The properties of a producer outside of transactions, for topics with this smallest limit.
    pub(super) fn producer(&self, limit: usize) -> ClientOptions {
        let mut client = self.client.clone();
        client.set("batch.size", self.batch_size(limit).to_string());
        client.take(TRANSACTION_TIMEOUT);
        client.set("enable.idempotence", (self.guarantee != Guarantee::None).to_string());
        if self.guarantee != Guarantee::None {
            deliver_within(&mut client, DELIVERY_TIME);
        }
        client
    }

    /// The properties of the producer of a transactional id, for topics with this smallest limit.
    pub(super) fn transactional_producer(&self, id: &str, timeout: Duration, limit: usize) -> ClientOptions {
        let mut client = self.client.clone();
        client.set("batch.size", self.batch_size(limit).to_string());
        client.set("enable.idempotence", "true");
        client.set("transactional.id", id);
        client.set(TRANSACTION_TIMEOUT, timeout.as_millis().to_string());
        deliver_within(&mut client, DELIVERY_TIME.min(timeout));
        client
    }
}

/// Gives records that are not delivered up after a time, unless a person has said when: the job recovers, with a new client.
fn deliver_within(client: &mut ClientOptions, time: Duration) {
    if client.get("delivery.timeout.ms").is_none() {
        client.set_default("message.timeout.ms", time.as_millis().to_string());
    }
}

/// What every producer has unless a person says otherwise.
fn set_defaults(client: &mut ClientOptions) {
    client.set("delivery.report.only.error", "true");
    client.set_default("linger.ms", "5");
    client.set_default("partitioner", "murmur2_random");
    client.set_default("socket.timeout.ms", SOCKET_TIMEOUT.as_millis().to_string());
    client.set_default("retry.backoff.ms", RETRY_BACKOFF.as_millis().to_string());
    client.set_default("queue.buffering.max.kbytes", (32 * 1024).to_string());
    // A small record costs the client far more than its bytes.
    client.set_default("queue.buffering.max.messages", "50000");
    if client.get("compression.codec").is_none() {
        client.set_default("compression.type", "lz4");
    }
}

/// The least transaction timeout for an interval of checkpoints: an epoch lasts an interval, its checkpoint may take as long again.
pub(super) fn least_timeout(interval: Duration) -> Duration {
    interval.saturating_mul(2).saturating_add(COMMIT_TIME)
}

fn default_timeout(interval: Duration) -> Duration {
    LEAST_DEFAULT_TIMEOUT.max(interval.saturating_mul(3).saturating_add(Duration::from_secs(30)))
}

/// The topic of the markers of a prefix.
pub(crate) fn marker_topic(prefix: &str) -> String {
    format!("{MARKER_TOPIC}{prefix}")
}

/// The ids of the two producers of a prefix.
pub(crate) fn transactional_ids(prefix: &str) -> [String; 2] {
    [format!("{prefix}-0"), format!("{prefix}-1")]
}

/// What is wrong with the name of a topic.
pub(super) fn topic_fault(name: &str) -> Option<String> {
    let reason = if name.starts_with("__") {
        "names that begin with `__` are the brokers' and the host's own"
    } else if name.is_empty() || name == "." || name == ".." || name.len() > MAX_TOPIC_BYTES || !name.chars().all(is_legal) {
        "letters, digits, `.`, `_` and `-`, at most 249 of them"
    } else {
        return None;
    };
    Some(format!("{name:?} is no name of a topic to write to: {reason}"))
}

/// What is wrong with a prefix: the marker topic's name is made of it.
pub(crate) fn prefix_fault(prefix: &str) -> Option<String> {
    let is_right = !prefix.is_empty() && prefix.len() <= MAX_PREFIX_BYTES && prefix.chars().all(is_legal);
    (!is_right).then(|| {
        format!(
            "{prefix:?} cannot be used: a topic is named after it, so write letters, digits, `.`, `_` and `-`, at most {MAX_PREFIX_BYTES}"
        )
    })
}

fn is_legal(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(options: &Value, guarantee: Guarantee) -> Result<Settings, Vec<String>> {
        Settings::parse("out", options, guarantee).map_err(|faults| faults.iter().map(ToString::to_string).collect())
    }

    fn with(properties: &Value) -> Settings {
        parse(&json!({"bootstrap-servers": "a:1", "topic": "out", "properties": properties}), Guarantee::ExactlyOnce).unwrap()
    }

    #[test]
    fn every_fault_is_named_at_once() {
        let options = json!({"bootstrap-servers": "a", "topic": "a b", "transactional-id-prefix": "", "properties": {"linger.mss": 1}});
        let faults = parse(&options, Guarantee::ExactlyOnce).unwrap_err();
        for (fault, path) in
            faults.iter().zip(["/topic: ", "/transactional-id-prefix: ", "/bootstrap-servers: ", "/properties/linger.mss: "])
        {
            assert!(fault.starts_with(path), "{faults:?}");
        }
        assert_eq!(faults.len(), 4);
        let options = json!({"bootstrap-servers": "a:1", "topic": {"json-pointer": "no"}, "transactional-id-prefix": "p"});
        let faults = parse(&options, Guarantee::AtLeastOnce).unwrap_err();
        assert!(faults[0].starts_with("/topic/json-pointer: ") && faults[1].contains("has no effect on a sink that is at-least-once"));
        assert!(parse(&json!({"bootstrap-servers": "a:1", "topic": "__consumer_offsets"}), Guarantee::None).is_err());
    }

    #[test]
    fn topics_and_partitions_are_read() {
        let of = |topic: Value| parse(&json!({"bootstrap-servers": ["a:1"], "topic": topic}), Guarantee::None).unwrap().topic;
        assert!(matches!(of(json!("out")), TopicFrom::Name(name) if name == "out"));
        assert!(matches!(of(json!({"header": "to"})), TopicFrom::Header(name) if name == "to"));
        assert!(matches!(of(json!({"json-pointer": "/to"})), TopicFrom::JsonPointer(_)));
        let options = json!({"bootstrap-servers": "a:1", "topic": "out", "partition": {"header": "p"}});
        assert_eq!(parse(&options, Guarantee::None).unwrap().partition_header.as_deref(), Some("p"));
    }

    #[test]
    fn transactions_outlive_checkpoints() {
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        assert_eq!(with(&json!({})).transaction_timeout(second), Duration::from_secs(120));
        assert_eq!(with(&json!({})).transaction_timeout(minute), Duration::from_secs(210));
        assert_eq!(with(&json!({})).longest_checkpoint(second), Ok(Duration::from_secs(109)));
        assert_eq!(with(&json!({"transaction.timeout.ms": 12000})).longest_checkpoint(second), Ok(second));
        let sentence = with(&json!({"transaction.timeout.ms": "11999"})).longest_checkpoint(second).unwrap_err();
        for number in ["11999 ms", "1000 ms", "12000 ms", "120000 ms"] {
            assert!(sentence.contains(number), "{sentence}");
        }
    }

    #[test]
    fn guarantees_decide_on_properties() {
        let settings = with(&json!({"linger.ms": 50}));
        let client = settings.transactional_producer("p-0", Duration::from_secs(60), 5000);
        for (name, value) in [
            ("transactional.id", "p-0"),
            ("transaction.timeout.ms", "60000"),
            ("linger.ms", "50"),
            ("batch.size", "5000"),
            ("compression.type", "lz4"),
            ("message.timeout.ms", "30000"),
        ] {
            assert_eq!(client.get(name), Some(value), "{name}");
        }
        // Not longer than the transaction: the client would refuse that.
        let client = settings.transactional_producer("p-0", Duration::from_secs(20), 5000);
        assert_eq!(client.get("message.timeout.ms"), Some("20000"));
        let settings = parse(&json!({"bootstrap-servers": "a:1", "topic": "out"}), Guarantee::None).unwrap();
        assert_eq!(settings.producer(usize::MAX).get("enable.idempotence"), Some("false"));
    }
}
