//! Whole jobs that write to Kafka exactly once: to their end, through failures, beside others, without a broker for a while.

use super::*;
use crate::numbers::Numbers;
use std::path::Path;
use tempfile::TempDir;
use waterwheel::Host;
use waterwheel::config::Span;
use waterwheel::host::{JobControl, JobEnd, JobHandle, SubmitOptions};
use waterwheel::pipeline::run::{JobState, JobStatus};
use waterwheel::pipeline::spec::{FixedDelay, RestartType, SinkSpec, SourceSpec};
use waterwheel::pipeline::{JobBuilder, JobSpec};

/// Longest wait for a job; on a busy machine things take their time.
const PATIENCE: Duration = Duration::from_secs(90);

/// A folder for checkpoints, and a host that knows the source `numbers`.
struct Lab {
    numbers: Numbers,
    host: Host,
    folder: TempDir,
}

impl Lab {
    fn new(numbers: Numbers) -> Self {
        let host = Host::builder().source(Arc::new(numbers.clone())).build().unwrap();
        Self { numbers, host, folder: TempDir::new().unwrap() }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// The numbers into a topic, exactly once, with a checkpoint every 100 ms.
    fn job(&self, broker: &Broker, name: &str, topic: &str) -> JobBuilder {
        let source = SourceSpec::new("in", "numbers");
        let builder = JobBuilder::new(name).source(source).sink(kafka(broker, "out", topic));
        builder.checkpoint_every(Duration::from_millis(100), self.path("checkpoints"))
    }

    async fn submit(&self, spec: &JobSpec) -> JobHandle {
        let job = self.host.check_job(spec, ".").unwrap();
        self.host.submit(&job, SubmitOptions::default()).await.unwrap()
    }

    async fn run(&self, spec: &JobSpec) -> JobEnd {
        let handle = self.submit(spec).await;
        tokio::time::timeout(PATIENCE, handle.wait()).await.unwrap()
    }
}

fn kafka(broker: &Broker, uid: &str, topic: &str) -> SinkSpec {
    SinkSpec::new(uid, "kafka")
        .option("bootstrap-servers", broker.bootstrap())
        .option("topic", topic)
        .input("in")
        .guarantee(Guarantee::ExactlyOnce)
}

/// Restarts the job after its failures, up to a number of times.
fn restarting(job: JobBuilder, delay: Duration, attempts: u32) -> JobBuilder {
    job.execution(|execution| {
        execution.restart_strategy.kind = Some(RestartType::FixedDelay);
        execution.restart_strategy.fixed_delay = Some(FixedDelay { attempts, delay: Span(delay) });
    })
}

fn expect_each_once(broker: &Broker, topic: &str, numbers: &Numbers) {
    let expected = numbers.all_values();
    broker.wait_committed(topic, expected.len());
    let mut visible = broker.committed_texts(topic);
    visible.sort();
    assert!(visible == expected, "{} records instead of {}", visible.len(), expected.len());
}

async fn until(control: &mut JobControl, what: &str, fits: impl Fn(&JobStatus) -> bool) -> JobStatus {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let status = control.status();
        if fits(&status) {
            return status;
        }
        let changed = tokio::time::timeout_at(deadline, control.changed()).await;
        assert!(matches!(changed, Ok(true)), "{what} did not come: {status:?}");
    }
}

fn completed(status: &JobStatus) -> u64 {
    status.checkpoints.latest.completed.as_ref().map_or(0, |last| last.id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_of_two_subtasks_writes_everything_once() {
    let topic = broker().topic("job", 3);
    let lab = Lab::new(Numbers::new(4, 2000).pause(1));
    let spec = lab.job(broker(), "job", &topic).parallelism(2).build();
    let end = lab.run(&spec).await;
    assert!(matches!(end, JobEnd::Finished), "{end:?}");
    expect_each_once(broker(), &topic, &lab.numbers);
    // It had finished: nothing is written again.
    let end = lab.run(&spec).await;
    assert!(matches!(end, JobEnd::AlreadyFinished { .. }), "{end:?}");
    assert_eq!(broker().committed(&topic).len(), 8000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_repeat_and_lose_nothing() {
    let topic = broker().topic("failing", 2);
    let lab = Lab::new(Numbers::new(2, 1500).pause(1).failing(3));
    let spec = restarting(lab.job(broker(), "failing", &topic), Duration::from_millis(10), 10).build();
    let end = lab.run(&spec).await;
    assert!(matches!(end, JobEnd::Finished), "{end:?}");
    assert!(lab.numbers.records_read() > 3000, "nothing was read again");
    expect_each_once(broker(), &topic, &lab.numbers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_topics_and_files_beside_them_are_exact_together() {
    let (left, right) = (broker().topic("both-left", 2), broker().topic("both-right", 2));
    let lab = Lab::new(Numbers::new(2, 1500).pause(1).failing(2));
    let files = lab.path("files");
    let builder = lab.job(broker(), "both", &left).sink(kafka(broker(), "right", &right));
    let file = SinkSpec::new("files", "file").option("path", files.clone()).input("in").guarantee(Guarantee::ExactlyOnce);
    let spec = restarting(builder.sink(file), Duration::from_millis(10), 10).build();
    let end = lab.run(&spec).await;
    assert!(matches!(end, JobEnd::Finished), "{end:?}");
    expect_each_once(broker(), &left, &lab.numbers);
    expect_each_once(broker(), &right, &lab.numbers);
    assert_eq!(lines(Path::new(&files)), lab.numbers.all_values());
}

fn lines(folder: &Path) -> Vec<String> {
    let visible = |path: &Path| !path.file_name().unwrap().to_string_lossy().starts_with('.');
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| visible(path));
    let mut lines: Vec<String> =
        files.flat_map(|file| std::fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    lines.sort();
    lines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_job_goes_on_where_it_was() {
    let topic = broker().topic("stopped", 2);
    let lab = Lab::new(Numbers::new(2, 2000).pause(2));
    let spec = lab.job(broker(), "stopped", &topic).build();
    let handle = lab.submit(&spec).await;
    until(&mut handle.control(), "a checkpoint", |status| completed(status) >= 2).await;
    handle.control().stop().await;
    assert!(matches!(handle.wait().await, JobEnd::Stopped));
    let end = lab.run(&spec).await;
    assert!(matches!(end, JobEnd::Finished), "{end:?}");
    expect_each_once(broker(), &topic, &lab.numbers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_instance_takes_over_and_the_first_stops_for_good() {
    let topic = broker().topic("instances", 2);
    let lab = Lab::new(Numbers::new(2, 6000).pause(10));
    let spec = lab.job(broker(), "instances", &topic).build();
    let first = lab.submit(&spec).await;
    until(&mut first.control(), "a checkpoint", |status| completed(status) >= 2).await;
    let second = lab.submit(&spec).await;
    let end = tokio::time::timeout(PATIENCE, first.wait()).await.unwrap();
    assert!(matches!(end, JobEnd::Superseded(_)), "{end:?}");
    let end = tokio::time::timeout(PATIENCE, second.wait()).await.unwrap();
    assert!(matches!(end, JobEnd::Finished), "{end:?}");
    expect_each_once(broker(), &topic, &lab.numbers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefix_that_another_job_uses_is_refused() {
    let topic = broker().topic("prefix", 1);
    let lab = Lab::new(Numbers::new(1, 1).endless().pause(2));
    let with_prefix = |name: &str| {
        let sink = kafka(broker(), "out", &topic).option("transactional-id-prefix", "shared");
        let builder = JobBuilder::new(name).source(SourceSpec::new("in", "numbers")).sink(sink);
        builder.checkpoint_every(Duration::from_millis(100), lab.path(name)).build()
    };
    let owner = lab.submit(&with_prefix("owner")).await;
    until(&mut owner.control(), "a checkpoint", |status| completed(status) >= 2).await;
    let end = lab.run(&with_prefix("stranger")).await;
    let JobEnd::Failed(error) = end else { panic!("{end:?}") };
    assert!(error.chain().contains("belongs to job owner"), "{}", error.chain());
    // It fenced nobody.
    let before = completed(&owner.control().status());
    until(&mut owner.control(), "two more checkpoints", |status| completed(status) >= before + 2).await;
    assert_eq!(owner.control().status().restarts, 0);
    owner.control().stop().await;
    assert!(matches!(owner.wait().await, JobEnd::Stopped));
    // Released, it is free.
    let stranger = lab.submit(&with_prefix("stranger")).await;
    until(&mut stranger.control(), "a checkpoint", |status| completed(status) >= 1).await;
    stranger.control().cancel().await;
    assert!(matches!(stranger.wait().await, JobEnd::Cancelled));
}

/// Its own broker, which is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_waits_for_its_broker_and_goes_on() {
    let broker = Broker::start(&["--set", "transaction.abort.timed.out.transaction.cleanup.interval.ms=1000"]);
    broker.create_topic("out", 2, &[]);
    let lab = Lab::new(Numbers::new(2, 2000).pause(5));
    // Records that are not delivered are given up soon. The transaction outlives the broker's absence: what a lone broker aborts while it starts, it
    // does not tell the partitions either.
    let properties = json!({"message.timeout.ms": 3000, "transaction.timeout.ms": 120_000});
    let sink = kafka(&broker, "out", "out").option("properties", properties);
    let builder = JobBuilder::new("patient").source(SourceSpec::new("in", "numbers")).sink(sink);
    let builder = builder.checkpoint_every(Duration::from_secs(1), lab.path("checkpoints"));
    let spec = restarting(builder, Duration::from_millis(300), 1000).build();
    let handle = lab.submit(&spec).await;
    let mut control = handle.control();
    until(&mut control, "a checkpoint", |status| completed(status) >= 2).await;
    // Between two commits: a lone broker that is killed while it tells the partitions of one does not tell them after its restart, since they have no
    // leader then, and takes the transaction for complete (seen with Kafka 4.3.1).
    tokio::time::sleep(Duration::from_millis(500)).await;
    broker.command("kill");
    let status = until(&mut control, "a restart", |status| status.state == JobState::Restarting && status.restarts >= 2).await;
    let last = status.exceptions.front().map(|failure| failure.message.clone()).unwrap_or_default();
    assert!(last.contains(broker.bootstrap()) || last.contains("out"), "{last}");
    broker.command("restart");
    let status = until(&mut control, "the end", |status| status.state.is_terminal()).await;
    assert_eq!(status.state, JobState::Finished, "{status:?}");
    expect_each_once(&broker, "out", &lab.numbers);
}

#[test]
fn what_cannot_be_exactly_once_is_refused_beforehand() {
    let lab = Lab::new(Numbers::new(1, 1));
    let faults = |spec: &JobSpec| -> Vec<String> { lab.host.check_job(spec, ".").unwrap_err().0.iter().map(ToString::to_string).collect() };
    let short = |timeout: u32| {
        let sink = kafka(broker(), "out", "t").option("properties", json!({"transaction.timeout.ms": timeout}));
        let builder = JobBuilder::new("short").source(SourceSpec::new("in", "numbers")).sink(sink);
        builder.checkpoint_every(Duration::from_secs(20), lab.path("c")).build()
    };
    let refused = faults(&short(49_999));
    assert!(refused[0].contains("49999 ms") && refused[0].contains("50000 ms") && refused[0].contains("20000 ms"), "{refused:?}");
    assert!(lab.host.check_job(&short(50_000), ".").is_ok());

    let elsewhere = kafka(broker(), "right", "t").option("bootstrap-servers", "other:9092");
    let refused = faults(&lab.job(broker(), "two", "t").sink(elsewhere).build());
    assert!(refused[0].contains("no transaction spans both"), "{refused:?}");

    let differently = kafka(broker(), "right", "t").option("properties", json!({"linger.ms": 50, "sasl.password": "hunter2"}));
    let refused = faults(&lab.job(broker(), "two", "t").sink(differently).build());
    assert!(refused[0].contains("linger.ms") && !refused[0].contains("hunter2"), "{refused:?}");

    let without = JobBuilder::new("without").source(SourceSpec::new("in", "numbers")).sink(kafka(broker(), "out", "t")).build();
    let refused = faults(&without);
    assert!(refused[0].contains("exactly-once needs checkpointing"), "{refused:?}");
}
