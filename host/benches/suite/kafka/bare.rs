//! What the host is held against: a loop over the batch calls of librdkafka, with the properties that the host sets, in a process of its
//! own so that it is measured like the host. It keeps no state and cannot recover.
#![allow(unsafe_code, reason = "the batch calls of librdkafka are not in its safe binding")]

use super::PARTITIONS;
use super::broker::{Broker, PATIENCE};
use super::full_speed::RECORDS;
use rdkafka::bindings::{self, rd_kafka_message_t, rd_kafka_resp_err_t as Code};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::producer::{BaseProducer, PARTITION_UA, Producer as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use std::ffi::CString;
use std::process::Command;
use std::ptr;
use std::time::{Duration, Instant};

/// The first argument of the process.
const ARGUMENT: &str = "--bare-kafka-loop";
const COMMIT_EVERY: Duration = Duration::from_secs(1);
const BATCH: usize = 1024;

/// The process; killed when this is dropped.
pub(super) struct Child(std::process::Child);

impl Child {
    pub(super) fn start(broker: &Broker, input: &str, output: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        Self(command.args([ARGUMENT, broker.bootstrap(), input, output]).spawn().unwrap())
    }

    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Runs the loop if this process was started for it, and then waits to be killed. False: it was not.
pub(crate) fn ran() -> bool {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [first, servers, input, output] = arguments.as_slice() else { return false };
    if first != ARGUMENT {
        return false;
    }
    copy(servers, input, output);
    // Its CPU time is still to be read.
    loop {
        std::thread::park();
    }
}

fn copy(servers: &str, input: &str, output: &str) {
    let (consumer, producer) = (consumer(servers, input), producer(servers, output));
    let name = CString::new(output).unwrap();
    // SAFETY: both clients are alive until the function ends, and so are the queue and the topic, which are never given back: the process ends.
    let (queue, topic) = unsafe {
        (
            bindings::rd_kafka_queue_get_consumer(consumer.client().native_ptr()),
            bindings::rd_kafka_topic_new(producer.client().native_ptr(), name.as_ptr(), ptr::null_mut()),
        )
    };
    assert!(!queue.is_null() && !topic.is_null());
    let mut read: Vec<*mut rd_kafka_message_t> = vec![ptr::null_mut(); BATCH];
    let mut outgoing = Vec::with_capacity(BATCH);
    let (mut done, mut commit_at) = (0, Instant::now() + COMMIT_EVERY);
    producer.begin_transaction().unwrap();
    while done < RECORDS {
        // SAFETY: the queue is alive, and there is room for as many pointers as it is told.
        let count = unsafe { bindings::rd_kafka_consume_batch_queue(queue, 10, read.as_mut_ptr(), read.len()) };
        let messages = &read[..usize::try_from(count).unwrap()];
        // SAFETY: so many pointers are messages of ours, alive until they are destroyed below.
        outgoing.extend(messages.iter().map(|message| unsafe { copy_of(&**message) }));
        done += outgoing.len() as u64;
        produce(&producer, topic, &mut outgoing);
        // SAFETY: every message is destroyed once, and nothing refers to it any more: payloads were copied into the producer's queue.
        messages.iter().for_each(|message| unsafe { bindings::rd_kafka_message_destroy(*message) });
        if Instant::now() >= commit_at || done >= RECORDS {
            commit(&producer);
            commit_at += COMMIT_EVERY;
        }
    }
}

/// The same payload and key for a producer.
fn copy_of(message: &rd_kafka_message_t) -> rd_kafka_message_t {
    assert_eq!(message.err, Code::RD_KAFKA_RESP_ERR_NO_ERROR);
    rd_kafka_message_t {
        err: Code::RD_KAFKA_RESP_ERR_NO_ERROR,
        rkt: ptr::null_mut(),
        partition: PARTITION_UA,
        payload: message.payload,
        len: message.len,
        key: message.key,
        key_len: message.key_len,
        offset: 0,
        _private: ptr::null_mut(),
    }
}

/// Puts all into the producer's queue, and waits while that is full.
fn produce(producer: &BaseProducer, topic: *mut bindings::rd_kafka_topic_t, outgoing: &mut Vec<rd_kafka_message_t>) {
    while !outgoing.is_empty() {
        let count = i32::try_from(outgoing.len()).unwrap();
        // SAFETY: the topic is alive; so many messages are there, whose payloads are copied within the call.
        unsafe { bindings::rd_kafka_produce_batch(topic, PARTITION_UA, bindings::RD_KAFKA_MSG_F_COPY, outgoing.as_mut_ptr(), count) };
        outgoing.retain(|message| message.err != Code::RD_KAFKA_RESP_ERR_NO_ERROR);
        for message in outgoing.iter_mut() {
            assert_eq!(message.err, Code::RD_KAFKA_RESP_ERR__QUEUE_FULL);
            message.err = Code::RD_KAFKA_RESP_ERR_NO_ERROR;
        }
        producer.poll(Duration::from_millis(u64::from(!outgoing.is_empty())));
    }
}

fn commit(producer: &BaseProducer) {
    // The binding's own flush goes in steps of 100 ms.
    // SAFETY: the client is alive.
    let flushed = unsafe { bindings::rd_kafka_flush(producer.client().native_ptr(), 20_000) };
    assert_eq!(flushed, Code::RD_KAFKA_RESP_ERR_NO_ERROR);
    producer.commit_transaction(PATIENCE).unwrap();
    producer.begin_transaction().unwrap();
}

fn consumer(servers: &str, topic: &str) -> BaseConsumer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", servers).set("group.id", "bare").set("enable.auto.commit", "false");
    config.set("enable.auto.offset.store", "false").set("isolation.level", "read_committed");
    config.set("fetch.queue.backoff.ms", "2").set("queued.max.messages.kbytes", "16384");
    let consumer: BaseConsumer = config.create().unwrap();
    let mut list = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        list.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&list).unwrap();
    consumer
}

fn producer(servers: &str, topic: &str) -> BaseProducer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", servers).set("transactional.id", topic).set("delivery.report.only.error", "true");
    config.set("linger.ms", "5").set("compression.type", "lz4").set("partitioner", "murmur2_random");
    config.set("queue.buffering.max.kbytes", "32768");
    let producer: BaseProducer = config.create().unwrap();
    producer.init_transactions(PATIENCE).unwrap();
    producer
}
