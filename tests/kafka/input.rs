//! Writes orders to a topic at a rate, as people who order would, while the job is killed; but never far ahead of what the job has worked up, so that
//! orders still come when it is started again, also on a busy machine.

use crate::orders::{Order, Orders};
use crate::output::Follower;
use crate::process::PATIENCE;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How many orders may be ahead of the totals that a reader has seen.
const AHEAD: usize = 600;

/// How long the last orders may be on their way before another client writes them.
const DELIVERY: Duration = Duration::from_secs(30);

/// What orders are written, and how fast.
pub(crate) struct Plan {
    pub(crate) servers: String,
    pub(crate) topic: String,
    pub(crate) partitions: usize,
    pub(crate) orders: Orders,
    /// Orders a second.
    pub(crate) rate: u64,
    /// Where the totals of the orders appear.
    pub(crate) totals: String,
}

/// A feed that goes on in the background.
pub(crate) struct Feed {
    hurry: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Feed {
    /// Starts to write: all orders of a user into the same partition, so that they have an order.
    pub(crate) fn start(plan: Plan) -> Self {
        let hurry = Arc::new(AtomicBool::new(false));
        let hurried = Arc::clone(&hurry);
        Self { hurry, thread: Some(thread::spawn(move || write(&plan, &hurried))) }
    }

    /// Writes what is left at once, and waits until the broker has it all.
    pub(crate) fn finish(&mut self) {
        self.hurry.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn write(plan: &Plan, hurry: &AtomicBool) {
    let mut orders: Vec<Order> = plan.orders.by_user().into_iter().flatten().collect();
    orders.sort_unstable_by_key(|order| order.number);
    loop {
        let there = ends(plan);
        if there.iter().sum::<usize>() >= orders.len() {
            return;
        }
        write_missing(plan, &orders, &there, hurry);
    }
}

/// How many records each partition has. Each time with a client of its own: one may lose sight of all brokers for good.
fn ends(plan: &Plan) -> Vec<usize> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let consumer: BaseConsumer = ClientConfig::new().set("bootstrap.servers", &plan.servers).create().unwrap();
        let end = |partition| consumer.fetch_watermarks(&plan.topic, partition, Duration::from_secs(5)).map(|(_, end)| end);
        let ends: Result<Vec<i64>, KafkaError> = (0..i32::try_from(plan.partitions).unwrap()).map(end).collect();
        match ends {
            Ok(ends) => return ends.into_iter().map(|end| usize::try_from(end).unwrap()).collect(),
            Err(error) => assert!(Instant::now() < deadline, "the ends of {} are not known: {error}", plan.topic),
        }
    }
}

/// Writes the orders that are not there yet. Some may be missing afterwards, if the broker went away meanwhile.
fn write_missing(plan: &Plan, orders: &[Order], there: &[usize], hurry: &AtomicBool) {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &plan.servers).set("enable.idempotence", "true").set("linger.ms", "5");
    // What is there is always the beginning of each partition's orders: none is given up while one behind it is written.
    config.set("message.timeout.ms", "0");
    let producer: BaseProducer = config.create().unwrap();
    let totals = Follower::new(&plan.servers, &plan.totals, plan.partitions);
    let mut due = Instant::now();
    let mut passed = vec![0; plan.partitions];
    for (sent, Order { number, user, amount }) in orders.iter().enumerate() {
        let partition = usize::try_from(user % plan.partitions as u64).unwrap();
        passed[partition] += 1;
        if passed[partition] <= there[partition] {
            continue;
        }
        due += Duration::from_micros(1_000_000 / plan.rate);
        while Instant::now() < due && !hurry.load(Ordering::Relaxed) {
            producer.poll(Duration::from_millis(2));
        }
        while sent % 50 == 0 && sent > AHEAD && !hurry.load(Ordering::Relaxed) && totals.seen() < sent - AHEAD {
            producer.poll(Duration::from_millis(5));
            due = Instant::now();
        }
        let (key, value) =
            (format!("user-{user}"), format!(r#"{{"order":{number},"usr":"user-{user}","amount":{amount},"note":"as agreed"}}"#));
        let partition = i32::try_from(partition).unwrap();
        let mut record = BaseRecord::to(&plan.topic).partition(partition).key(&key).payload(&value);
        loop {
            match producer.send(record) {
                Ok(()) => break,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), refused)) => {
                    record = refused;
                    producer.poll(Duration::from_millis(10));
                }
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::Fatal), _)) => return,
                Err((error, _)) => panic!("an order could not be sent: {error}"),
            }
        }
    }
    // What is not delivered is missing at the end.
    let _delivered = producer.flush(DELIVERY);
}
