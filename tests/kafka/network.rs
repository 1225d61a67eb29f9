//! A network that loses answers, is slow, or is gone for seconds, by a proxy between the job and the broker.

use crate::broker::{Broker, PATIENCE, send};
use crate::harness::{SUMMARY, Summary};
use crate::job::{Job, NARROW, Shape, WIDE};
use crate::output::{self, Isolation};
use crate::proxy::{END_TXN, Fault, Proxy};
use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, Producer};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// A broker behind a proxy.
struct Network {
    proxy: Proxy,
    broker: Broker,
}

impl Network {
    fn new() -> Self {
        let proxy = Proxy::bind();
        let broker = Broker::start(&["--proxy-port", &proxy.port().to_string(), "--set", "broker.session.timeout.ms=60000"]);
        let behind: SocketAddr = broker.value("proxied").parse().unwrap();
        proxy.serve(behind);
        Self { proxy, broker }
    }

    /// A job whose clients meet the proxy; orders come in and are checked beside it.
    fn job(&self, shape: Shape) -> Job<'_> {
        Job::on(&self.broker, &format!("127.0.0.1:{}", self.proxy.port()), shape)
    }
}

/// The fixture itself: with a producer alone, so that a fault of the proxy is told from one of the job.
pub(crate) fn the_proxy_does_what_it_is_told() {
    let network = Network::new();
    network.broker.create_topic("proxied", 1, &[]);
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", format!("127.0.0.1:{}", network.proxy.port()))
        .set("transactional.id", "proxied")
        .set("socket.timeout.ms", "2000")
        .create()
        .unwrap();
    producer.init_transactions(PATIENCE).unwrap();
    let commit = |value: &str| {
        producer.begin_transaction().unwrap();
        send(&producer, "proxied", 0, [value]);
        let began = Instant::now();
        while let Err(error) = producer.commit_transaction(Duration::from_secs(20)) {
            assert!(matches!(&error, KafkaError::Transaction(error) if error.is_retriable()), "{error}");
        }
        began.elapsed()
    };
    assert!(commit("as usual") < Duration::from_millis(1_900));
    network.proxy.order(END_TXN, Fault::LoseAnswer);
    let lost = commit("the answer is lost");
    assert!(lost > Duration::from_millis(1_900), "the client asked again after {lost:?}: the answer was not lost");
    network.proxy.order(END_TXN, Fault::CutInsteadOfAnswer);
    commit("the connection breaks");
    network.proxy.order(END_TXN, Fault::Delay(Duration::from_millis(500)));
    let late = commit("the request is late");
    assert!(late > Duration::from_millis(500), "{late:?}");
    assert_eq!(network.proxy.happened(), 3);
    network.proxy.cut();
    thread::sleep(Duration::from_millis(500));
    network.proxy.mend();
    commit("after the network was cut");
    let values = output::read(network.broker.bootstrap(), "proxied", 1, Isolation::Committed);
    assert_eq!(values[0].len(), 5, "{values:?}");
}

/// The outcome of a commit whose answer is lost is unknown until it is asked for again, or the marker is read.
pub(crate) fn an_answer_to_the_end_of_a_transaction_that_is_lost_changes_nothing() {
    let network = Network::new();
    let faults = [
        Fault::LoseAnswer,
        Fault::CutInsteadOfAnswer,
        // Shorter and longer than a client waits.
        Fault::Delay(Duration::from_secs(3)),
        Fault::Delay(Duration::from_secs(13)),
    ];
    for fault in faults {
        for shape in [NARROW, WIDE] {
            let job = network.job(Shape { records: 6_000, ..shape });
            let mut process = job.run_until(100);
            let before = network.proxy.happened();
            network.proxy.order(END_TXN, fault);
            process.wait_until("the fault happened", |_| network.proxy.happened() > before);
            Summary::count(&SUMMARY.broker_faults);
            job.wait_for_more(&mut process, 100);
            job.conclude(process);
            job.check();
        }
    }
    // Killed while the answer is awaited: the next process reads in the marker what came of it.
    for fault in [Fault::LoseAnswer, Fault::Delay(Duration::from_secs(2))] {
        let job = network.job(Shape { records: 6_000, ..WIDE });
        let mut process = job.run_until(100);
        let before = network.proxy.happened();
        network.proxy.order(END_TXN, fault);
        process.wait_until("the fault happened", |_| network.proxy.happened() > before);
        thread::sleep(Duration::from_millis(50));
        assert!(job.kill(process), "it was to be killed while it waited");
        SUMMARY.broker_faults.fetch_add(1, Ordering::Relaxed);
        job.finish();
        job.check();
    }
}

pub(crate) fn a_network_that_is_slow_or_cut_changes_nothing() {
    let network = Network::new();
    for seconds in [1, 4, 12] {
        let job = network.job(Shape { records: 6_000, ..WIDE });
        let mut process = job.run_until(100);
        network.proxy.cut();
        thread::sleep(Duration::from_secs(seconds));
        network.proxy.mend();
        Summary::count(&SUMMARY.broker_faults);
        job.wait_for_more(&mut process, 100);
        job.conclude(process);
        job.check();
    }
    let job = network.job(Shape { records: 6_000, ..WIDE });
    network.proxy.slow_down(Duration::from_millis(60));
    Summary::count(&SUMMARY.broker_faults);
    let process = job.run_until(300);
    assert!(job.kill(process));
    let process = job.run_until(300);
    network.proxy.slow_down(Duration::ZERO);
    job.conclude(process);
    job.check();
}
