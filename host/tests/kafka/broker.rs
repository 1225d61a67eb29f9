//! Brokers for tests: one that all share, each test with topics of its own, and more of them for tests that hurt theirs.

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How long a client of the tests waits for the broker.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A broker that runs. It ends with the process of the tests, however that ends: a watchdog beside it sees to that.
pub(crate) struct Broker {
    dir: PathBuf,
    line: HashMap<String, String>,
}

/// The broker that tests share. They must not hurt it, and use topics of their own.
pub(crate) fn broker() -> &'static Broker {
    static SHARED: OnceLock<Broker> = OnceLock::new();
    // Transactions that time out soon, and compaction at once: what keeps tests short. On a busy machine a broker's heartbeat is late, and its
    // own controller would count it as gone.
    SHARED.get_or_init(|| {
        let settings = [
            "transaction.abort.timed.out.transaction.cleanup.interval.ms=1000",
            "log.cleaner.backoff.ms=200",
            "broker.session.timeout.ms=60000",
        ];
        let broker = Broker::start(&settings.map(|setting| ["--set", setting]).concat());
        broker.warm_up();
        broker
    })
}

impl Broker {
    /// Starts a broker with options of `tests/services/kafka.sh start`.
    pub(crate) fn start(options: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
        remove_leftovers(base);
        let dir = base.join(format!("kafka-{process}-{count}"));
        let dir_text = dir.to_str().unwrap().to_owned();
        let parent = process.to_string();
        let mut arguments = vec!["start", dir_text.as_str(), "--parent", parent.as_str()];
        arguments.extend_from_slice(options);
        let line = succeeded(run(&arguments));
        Self { dir, line: pairs(&line) }
    }

    /// A value of the line that the script prints: `bootstrap`, `sasl`, `ca`, `pid`, …
    pub(crate) fn value(&self, key: &str) -> &str {
        self.line.get(key).unwrap_or_else(|| panic!("the broker's line has no {key}: {:?}", self.line))
    }

    /// `host:port` of the plain listener.
    pub(crate) fn bootstrap(&self) -> &str {
        self.value("bootstrap")
    }

    /// Another command of the script on this broker: `pause`, `resume`, `kill`, `restart`.
    pub(crate) fn command(&self, command: &str) -> String {
        succeeded(run(&[command, self.dir.to_str().unwrap()]))
    }

    /// One of Kafka's own tools; its output.
    pub(crate) fn tool(&self, arguments: &[&str]) -> String {
        let mut all = vec!["tool", self.dir.to_str().unwrap()];
        all.extend_from_slice(arguments);
        succeeded(run(&all))
    }

    /// Makes a topic whose name begins with `name` and is its own.
    pub(crate) fn topic(&self, name: &str, partitions: i32) -> String {
        self.topic_with(name, partitions, &[])
    }

    /// Makes a topic of its own with a configuration.
    pub(crate) fn topic_with(&self, name: &str, partitions: i32, config: &[(&str, &str)]) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{name}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        self.create_topic(&name, partitions, config);
        name
    }

    /// Makes a topic of exactly this name.
    pub(crate) fn create_topic(&self, name: &str, partitions: i32, config: &[(&str, &str)]) {
        let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        for (key, value) in config {
            topic = topic.set(key, value);
        }
        let results = futures::executor::block_on(self.admin().create_topics([&topic], &self.patiently())).unwrap();
        results.into_iter().for_each(|result| drop(result.unwrap()));
    }

    /// Gives a topic more partitions.
    pub(crate) fn grow(&self, topic: &str, partitions: usize) {
        let new = NewPartitions::new(topic, partitions);
        let results = futures::executor::block_on(self.admin().create_partitions([&new], &self.patiently())).unwrap();
        results.into_iter().for_each(|result| drop(result.unwrap()));
    }

    /// Deletes a topic.
    pub(crate) fn delete_topic(&self, topic: &str) {
        let results = futures::executor::block_on(self.admin().delete_topics(&[topic], &self.patiently())).unwrap();
        results.into_iter().for_each(|result| drop(result.unwrap()));
    }

    /// Deletes the records of a partition before an offset.
    pub(crate) fn delete_records(&self, topic: &str, partition: i32, before: i64) {
        let mut offsets = rdkafka::TopicPartitionList::new();
        offsets.add_partition_offset(topic, partition, rdkafka::Offset::Offset(before)).unwrap();
        futures::executor::block_on(self.admin().delete_records(&offsets, &self.patiently())).unwrap();
    }

    /// A client for the administrator's calls.
    pub(crate) fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.client().create().unwrap()
    }

    /// A configuration that names this broker's plain listener.
    pub(crate) fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.bootstrap());
        config
    }

    /// A producer with these properties.
    pub(crate) fn producer(&self, properties: &[(&str, &str)]) -> BaseProducer {
        let mut config = self.client();
        config.set("linger.ms", "1");
        for (key, value) in properties {
            config.set(*key, *value);
        }
        config.create().unwrap()
    }

    /// Writes values without keys to a partition, and waits until they are there.
    pub(crate) fn write<V: AsRef<[u8]>>(&self, topic: &str, partition: i32, values: impl IntoIterator<Item = V>) {
        let producer = self.producer(&[]);
        send(&producer, topic, partition, values);
        producer.flush(PATIENCE).unwrap();
    }

    /// Writes values to a partition in a transaction, which is committed or aborted.
    pub(crate) fn write_transaction<V: AsRef<[u8]>>(&self, topic: &str, partition: i32, values: impl IntoIterator<Item = V>, commit: bool) {
        let id = format!("{topic}-{partition}");
        let producer = self.begin_transaction(&id);
        send(&producer, topic, partition, values);
        producer.flush(PATIENCE).unwrap();
        if commit { producer.commit_transaction(PATIENCE) } else { producer.abort_transaction(PATIENCE) }.unwrap();
        // A broker answers before readers see the end; whoever takes the id over waits for that.
        self.producer(&[("transactional.id", &id)]).init_transactions(PATIENCE).unwrap();
    }

    /// A producer of this transactional id with an open transaction.
    pub(crate) fn begin_transaction(&self, id: &str) -> BaseProducer {
        let producer = self.producer(&[("transactional.id", id)]);
        producer.init_transactions(PATIENCE).unwrap();
        producer.begin_transaction().unwrap();
        producer
    }

    fn patiently(&self) -> AdminOptions {
        AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE))
    }

    /// The coordinators of groups and transactions are there only after they were first asked for.
    fn warm_up(&self) {
        let topic = self.topic("warm-up", 1);
        self.write_transaction(&topic, 0, ["x"], true);
    }
}

/// Hands values without keys to a producer.
pub(crate) fn send<V: AsRef<[u8]>>(producer: &BaseProducer, topic: &str, partition: i32, values: impl IntoIterator<Item = V>) {
    for value in values {
        let mut record = BaseRecord::<(), [u8]>::to(topic).partition(partition).payload(value.as_ref());
        while let Err((error, unsent)) = producer.send(record) {
            assert_eq!(error.rdkafka_error_code(), Some(rdkafka::types::RDKafkaErrorCode::QueueFull), "{error}");
            producer.poll(Duration::from_millis(10));
            record = unsent;
        }
        producer.poll(Duration::ZERO);
    }
}

fn run(arguments: &[&str]) -> Output {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/services/kafka.sh");
    Command::new(script).args(arguments).output().unwrap()
}

fn succeeded(output: Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "kafka.sh: {out}{err}");
    out.trim().to_owned()
}

fn pairs(line: &str) -> HashMap<String, String> {
    let pair = |word: &str| word.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
    line.split_whitespace().filter_map(pair).collect()
}

/// Removes the folders of brokers whose test run is gone.
fn remove_leftovers(base: &Path) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix("kafka-").and_then(|rest| rest.split_once('-')).map(|(process, _)| process);
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _another_run_may_do_it_too = std::fs::remove_dir_all(entry.path());
        }
    }
}
