//! The job under test: orders from a topic → `json-map` → `running-total` by user → topics and files, exactly-once, with topics, a prefix and a folder of
//! its own.

use crate::broker::Broker;
use crate::harness::{BROKER, SUMMARY, Summary};
use crate::input::{self, Feed};
use crate::orders::Orders;
use crate::output::{self, Follower, Isolation, Partitions};
use crate::process::{Ended, Process};
use crate::topics::{self, wait_for};
use crate::{check, files};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

/// Where the cleaned orders go; the totals always go to a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Second {
    Nothing,
    Topic,
    Files,
}

/// What the job looks like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) records: u64,
    /// Orders a second that come in.
    pub(crate) rate: u64,
    pub(crate) partitions: usize,
    pub(crate) parallelism: u16,
    pub(crate) second: Second,
    pub(crate) interval_ms: u64,
    /// Whether the job ends where the input ends; it is all there then when the job starts.
    pub(crate) bounded: bool,
}

/// One partition, one subtask each, one sink.
pub(crate) const NARROW: Shape =
    Shape { records: 4_000, rate: 2_000, partitions: 1, parallelism: 1, second: Second::Nothing, interval_ms: 100, bounded: false };
/// Three partitions, two subtasks each, two Kafka sinks.
pub(crate) const WIDE: Shape = Shape { partitions: 3, parallelism: 2, second: Second::Topic, ..NARROW };
/// Three partitions, two subtasks each, a Kafka sink and a file sink.
pub(crate) const MIXED: Shape = Shape { second: Second::Files, ..WIDE };

/// A job on a broker.
pub(crate) struct Job<'a> {
    broker: &'a Broker,
    folder: TempDir,
    pub(crate) name: String,
    pub(crate) orders: Orders,
    shape: Shape,
    specification: RefCell<Value>,
    feed: RefCell<Feed>,
    totals: Follower,
    starts: Cell<u32>,
    /// How many generations its logs had when the newest process was started.
    generations: Cell<usize>,
}

/// The path of a sample plugin.
fn plugin(name: &str) -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/plugins");
    let folder = std::env::var_os("WATERWHEEL_PLUGINS").map_or_else(default, PathBuf::from);
    let path = folder.join(name).with_extension("wasm");
    assert!(path.exists(), "there is no plugin {}: run `make plugins`", path.display());
    path
}

impl Job<'static> {
    /// A job on the broker that all share.
    pub(crate) fn new(shape: Shape) -> Self {
        Self::on(*BROKER, BROKER.bootstrap(), shape)
    }
}

impl<'a> Job<'a> {
    /// A job on a broker that it reaches at an address of its own, such as that of a proxy. Orders start to come in.
    pub(crate) fn on(broker: &'a Broker, servers: &str, shape: Shape) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(1);
        let name = format!("job{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        for topic in ["orders", "totals", "cleaned"] {
            topics::create(broker, &format!("{name}.{topic}"), shape.partitions);
        }
        let folder = TempDir::new().unwrap();
        let orders = Orders::deal(shape.records, 1).remove(0);
        let mut feed = Feed::start(input::Plan {
            servers: broker.bootstrap().to_owned(),
            topic: format!("{name}.orders"),
            partitions: shape.partitions,
            orders: orders.clone(),
            rate: shape.rate,
            totals: format!("{name}.totals"),
        });
        if shape.bounded {
            feed.finish();
        }
        let totals = Follower::new(broker.bootstrap(), &format!("{name}.totals"), shape.partitions);
        let specification = RefCell::new(specification(&name, folder.path(), servers, shape));
        let (feed, starts, generations) = (RefCell::new(feed), Cell::new(0), Cell::new(0));
        let job = Self { broker, folder, name, orders, shape, specification, feed, totals, starts, generations };
        job.write();
        job
    }

    /// Changes the job file.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Value)) {
        change(&mut self.specification.borrow_mut());
        self.write();
    }

    fn write(&self) {
        // JSON is YAML.
        std::fs::write(self.path("job.yaml"), serde_json::to_vec_pretty(&*self.specification.borrow()).unwrap()).unwrap();
    }

    /// A path in its folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// One of its topics.
    pub(crate) fn topic(&self, name: &str) -> String {
        format!("{}.{name}", self.name)
    }

    /// Starts a process with failpoints.
    pub(crate) fn start_with(&self, arguments: &[&str], failpoints: &str) -> Process {
        self.generations.set(self.generations_now());
        self.start_file(&self.path("job.yaml"), arguments, failpoints)
    }

    /// Starts a process on another job file.
    pub(crate) fn start_file(&self, file: &Path, arguments: &[&str], failpoints: &str) -> Process {
        self.starts.set(self.starts.get() + 1);
        let said = self.path(&format!("said-{}", self.starts.get()));
        Process::start(file, arguments, failpoints, said)
    }

    /// Starts a process.
    pub(crate) fn start(&self) -> Process {
        self.start_with(&[], "")
    }

    /// Runs a process to its end, which must come by itself.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        self.start_with(arguments, "").wait()
    }

    /// Runs it until it crashes at a failpoint, which must happen.
    #[track_caller]
    pub(crate) fn crash(&self, arguments: &[&str], failpoints: &str) {
        self.start_with(arguments, failpoints).wait().expect_abort(failpoints);
        Summary::count(&SUMMARY.kills);
    }

    /// How many totals a `read_committed` reader has seen.
    pub(crate) fn seen(&self) -> usize {
        self.totals.seen()
    }

    /// Waits until such a reader has seen so many more.
    #[track_caller]
    pub(crate) fn wait_for_more(&self, process: &mut Process, more: usize) {
        let until = self.seen() + more;
        process.wait_until("there was output", |_| self.seen() >= until);
    }

    /// Runs it until a `read_committed` reader has seen so many more totals.
    #[track_caller]
    pub(crate) fn run_until(&self, more: usize) -> Process {
        let mut process = self.start();
        self.wait_for_more(&mut process, more);
        // Output of the run before may have become visible meanwhile. A process that has a generation listens to signals.
        process.wait_until("it had a generation", |_| self.has_begun());
        process
    }

    /// Waits until a reader has seen all that the process before has committed.
    #[track_caller]
    pub(crate) fn settle(&self) {
        output::assert_nothing_open(self.broker.bootstrap(), &self.topic("totals"), self.shape.partitions);
        let all = self.read("totals", Isolation::Committed).iter().map(Vec::len).sum();
        wait_for("all was seen", || self.seen() >= all);
    }

    /// From now on the orders come as fast as they can.
    pub(crate) fn hurry(&self) {
        self.feed.borrow_mut().finish();
    }

    /// Waits until a process has worked up all input, and stops it.
    #[track_caller]
    pub(crate) fn conclude(&self, mut process: Process) {
        self.hurry();
        if self.shape.bounded {
            process.wait().expect(0, &["finished"]);
            return;
        }
        let all = usize::try_from(self.shape.records).unwrap();
        process.wait_until("all totals were there", |_| self.seen() >= all && self.has_begun());
        process.signal("TERM");
        process.wait().expect(0, &["was stopped"]);
    }

    /// Runs it until all input is worked up, and stops it.
    #[track_caller]
    pub(crate) fn finish(&self) {
        self.conclude(self.start());
    }

    /// All totals that a new reader finds.
    pub(crate) fn read(&self, topic: &str, isolation: Isolation) -> Partitions {
        output::read(self.broker.bootstrap(), &self.topic(topic), self.shape.partitions, isolation)
    }

    /// The output is exact and complete, and nothing waits for the end of a transaction.
    #[track_caller]
    pub(crate) fn check(&self) {
        output::assert_nothing_open(self.broker.bootstrap(), &self.topic("totals"), self.shape.partitions);
        check::totals_exact(&self.read("totals", Isolation::Committed), &self.orders);
        match self.shape.second {
            Second::Nothing => {}
            Second::Topic => {
                output::assert_nothing_open(self.broker.bootstrap(), &self.topic("cleaned"), self.shape.partitions);
                check::cleaned_exact(&self.read("cleaned", Isolation::Committed), &self.orders);
            }
            Second::Files => files::cleaned(&self.path("cleaned"), std::slice::from_ref(&self.orders)),
        }
    }

    /// SIGKILL. Whether it was still running.
    pub(crate) fn kill(&self, process: Process) -> bool {
        let killed = process.kill();
        if killed {
            Summary::count(&SUMMARY.kills);
        }
        killed
    }

    /// Whether the process that was started last has taken a generation.
    fn has_begun(&self) -> bool {
        self.generations_now() > self.generations.get()
    }

    fn generations_now(&self) -> usize {
        let folders = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().map(|entry| entry.unwrap().path());
        folders(self.path("checkpoints")).map(|incarnation| folders(incarnation.join("generations")).count()).sum()
    }

    /// The numbers of the checkpoints that are in its log.
    pub(crate) fn slots(&self, incarnation: &str) -> Vec<u64> {
        let entries = std::fs::read_dir(self.path("checkpoints").join(incarnation)).unwrap().map(Result::unwrap);
        // A kill in the middle of a deletion leaves an empty folder.
        let names = entries.filter(|entry| entry.path().join("_metadata").exists()).map(|entry| entry.file_name().into_string().unwrap());
        let mut slots: Vec<u64> = names.filter_map(|name| name.strip_prefix("chk-")?.parse().ok()).collect();
        slots.sort_unstable();
        slots
    }

    /// Its marker topic.
    pub(crate) fn marker_topic(&self) -> String {
        let name = format!("__waterwheel-{}", self.name);
        assert!(topics::exists(self.broker, &name), "there is no topic {name}");
        name
    }

    /// Runs a fork until all input is worked up, and stops it.
    #[track_caller]
    pub(crate) fn conclude_fork(&self, arguments: &[&str]) {
        let mut process = self.start_with(arguments, "");
        self.hurry();
        // Totals may be there twice, so that their number does not tell the end; that none is missing does.
        process.wait_until("all totals were there", |_| {
            std::thread::sleep(std::time::Duration::from_millis(200));
            self.has_begun() && check::totals(&self.read("totals", Isolation::Committed), &self.orders).missing == 0
        });
        process.signal("TERM");
        process.wait().expect(0, &["was stopped"]);
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        // What the processes said is what one needs to see what went wrong.
        let kept = std::env::temp_dir().join(format!("waterwheel-{}-{}", std::process::id(), self.name));
        let copied = std::process::Command::new("cp").arg("-r").arg(self.folder.path()).arg(&kept).status();
        if copied.is_ok_and(|status| status.success()) {
            eprintln!("the folder of {} is kept as {}", self.name, kept.display());
        }
    }
}

/// Waits until a process stands still, as a failpoint `return(stop)` lets it.
#[track_caller]
pub(crate) fn wait_until_stopped(process: &Process) {
    let stat = format!("/proc/{}/stat", process.id());
    let is_stopped = || {
        let stat = std::fs::read_to_string(&stat).unwrap_or_else(|error| panic!("the process is gone: {error}: {}", process.said()));
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
        assert!(state != Some('Z'), "the process has ended: {}", process.said());
        state == Some('T')
    };
    wait_for("the process stood still", is_stopped);
}

fn specification(name: &str, folder: &Path, servers: &str, shape: Shape) -> Value {
    let topic = |topic: &str| format!("{name}.{topic}");
    let mut source = json!({
        "uid": "orders", "type": "kafka", "bootstrap-servers": servers, "topics": [topic("orders")], "startup-mode": "earliest-offset",
        "properties": {"group.id": name},
    });
    if shape.bounded {
        source["bounded-mode"] = json!("latest-offset");
    }
    let sink = |uid: &str, from: &str| {
        json!({
            "uid": uid, "type": "kafka", "bootstrap-servers": servers, "topic": topic(uid), "inputs": [from],
            "delivery-guarantee": "exactly-once", "transactional-id-prefix": name,
        })
    };
    let mut sinks = vec![sink("totals", "total")];
    match shape.second {
        Second::Nothing => {}
        Second::Topic => sinks.push(sink("cleaned", "clean")),
        Second::Files => sinks.push(json!({
            "uid": "cleaned", "type": "file", "path": folder.join("cleaned"), "inputs": ["clean"],
            "delivery-guarantee": "exactly-once", "roll-size": 8192,
        })),
    }
    json!({
        "name": name,
        "parallelism": shape.parallelism,
        "sources": [source],
        "operators": [
            {
                "uid": "clean", "plugin": plugin("json-map"), "inputs": [{"from": "orders", "key-by": {"json-pointer": "/usr"}}],
                "config": {"rename": {"usr": "user"}, "remove": ["note"], "add": {"currency": "EUR"}},
            },
            {"uid": "total", "plugin": plugin("running-total"), "inputs": [{"from": "clean", "key-by": "key"}]},
        ],
        "sinks": sinks,
        "execution": {
            "checkpointing": {"interval": format!("{} ms", shape.interval_ms), "dir": folder.join("checkpoints"), "num-retained": 3},
            "restart-strategy": {"type": "fixed-delay", "fixed-delay": {"attempts": 100, "delay": "100 ms"}},
        },
    })
}
