//! The job under test in a folder of its own: file sources, `json-map`, `running-total` by user, file sinks exactly-once.

use crate::check;
use crate::orders::Orders;
use crate::process::{Ended, Process};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// What the job looks like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) records: u64,
    /// Records a second over all sources.
    pub(crate) rate: u64,
    pub(crate) sources: usize,
    pub(crate) parallelism: u16,
    /// Whether the cleaned orders go to a sink of their own, so that two sinks take part in each checkpoint.
    pub(crate) two_sinks: bool,
    pub(crate) interval_ms: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Self { records: 20_000, rate: 4_000, sources: 1, parallelism: 1, two_sinks: false, interval_ms: 50 }
    }
}

/// One source, one subtask each, two sinks.
pub(crate) const NARROW: Shape = Shape { records: 20_000, rate: 4_000, sources: 1, parallelism: 1, two_sinks: true, interval_ms: 50 };
/// Two sources into the keyed operator, three subtasks each, two sinks.
pub(crate) const WIDE: Shape = Shape { records: 20_000, rate: 4_000, sources: 2, parallelism: 3, two_sinks: true, interval_ms: 50 };

/// A job in a folder of its own.
pub(crate) struct Job {
    folder: TempDir,
    pub(crate) sources: Vec<Orders>,
    shape: Shape,
    specification: RefCell<Value>,
    starts: Cell<u32>,
}

/// The path of a sample plugin.
pub(crate) fn plugin(name: &str) -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/plugins");
    let folder = std::env::var_os("WATERWHEEL_PLUGINS").map_or_else(default, PathBuf::from);
    let path = folder.join(name).with_extension("wasm");
    assert!(path.exists(), "there is no plugin {}: run `make plugins`", path.display());
    path
}

impl Job {
    /// Writes the orders and the job file.
    pub(crate) fn new(shape: Shape) -> Self {
        let folder = TempDir::new().unwrap();
        let sources = Orders::deal(shape.records, shape.sources);
        for (number, orders) in sources.iter().enumerate() {
            orders.write(&folder.path().join(format!("orders-{number}")), u64::from(shape.parallelism));
        }
        let specification = specification(folder.path(), shape);
        let job = Self { folder, sources, shape, specification: RefCell::new(specification), starts: Cell::new(0) };
        job.write();
        job
    }

    /// A job of another kind: `make` gets the folder that it is to work in.
    pub(crate) fn of(make: impl FnOnce(&Path) -> Value) -> Self {
        let folder = TempDir::new().unwrap();
        let specification = make(folder.path());
        let job =
            Self { folder, sources: Vec::new(), shape: Shape::default(), specification: RefCell::new(specification), starts: Cell::new(0) };
        job.write();
        job
    }

    /// Changes the job file.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Value)) {
        change(&mut self.specification.borrow_mut());
        self.write();
    }

    /// From the next start on, sources read as fast as they can: crashes have landed, and what is left is only to be finished.
    pub(crate) fn hurry(&self) {
        self.change(|job| {
            for source in job["sources"].as_array_mut().unwrap() {
                source.as_object_mut().unwrap().remove("rate");
            }
        });
    }

    fn write(&self) {
        // JSON is YAML.
        std::fs::write(self.path("job.yaml"), serde_json::to_vec_pretty(&*self.specification.borrow()).unwrap()).unwrap();
    }

    /// A path in its folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where the totals go.
    pub(crate) fn totals(&self) -> PathBuf {
        self.path("totals")
    }

    /// Starts a process with failpoints.
    pub(crate) fn start_with(&self, arguments: &[&str], failpoints: &str) -> Process {
        self.starts.set(self.starts.get() + 1);
        let said = self.path(&format!("said-{}", self.starts.get()));
        Process::start(&self.path("job.yaml"), arguments, failpoints, said)
    }

    /// Starts a process.
    pub(crate) fn start(&self) -> Process {
        self.start_with(&[], "")
    }

    /// Runs a process to its end, whatever it is.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        self.start_with(arguments, "").wait()
    }

    /// Runs it to the end of the input.
    #[track_caller]
    pub(crate) fn finish(&self) {
        self.hurry();
        self.run(&[]).expect(0, &["finished"]);
    }

    /// Runs it until it crashes at a failpoint, which must happen.
    #[track_caller]
    pub(crate) fn crash(&self, arguments: &[&str], failpoints: &str) {
        self.start_with(arguments, failpoints).wait().expect_abort(failpoints);
    }

    /// Runs it until this many files of totals are visible.
    pub(crate) fn run_until(&self, files: usize) -> Process {
        let mut process = self.start();
        let folder = self.totals();
        let more = check::visible(&folder).len() + files;
        process.wait_until("there was output", |_| check::visible(&folder).len() >= more);
        process
    }

    /// The output is exact and complete.
    #[track_caller]
    pub(crate) fn check(&self) {
        check::totals(&self.totals(), &self.sources);
        if self.shape.two_sinks {
            check::cleaned(&self.path("cleaned"), &self.sources);
        }
    }
}

fn specification(folder: &Path, shape: Shape) -> Value {
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let uid = |number| format!("orders-{number}");
    let rate = shape.rate / shape.sources as u64;
    let source = |number| json!({"uid": uid(number), "type": "file", "path": path(&uid(number)), "rate": rate});
    let input = |number| json!({"from": uid(number), "key-by": {"json-pointer": "/usr"}});
    // Small, so that a checkpoint has several files.
    let sink = |uid: &str, from: &str| {
        json!({
            "uid": uid, "type": "file", "path": path(uid), "inputs": [from], "delivery-guarantee": "exactly-once", "roll-size": 8192,
        })
    };
    let mut sinks = vec![sink("totals", "total")];
    if shape.two_sinks {
        sinks.push(sink("cleaned", "clean"));
    }
    json!({
        "name": "orders",
        "parallelism": shape.parallelism,
        "sources": (0..shape.sources).map(source).collect::<Vec<_>>(),
        "operators": [
            {
                "uid": "clean", "plugin": plugin("json-map"), "inputs": (0..shape.sources).map(input).collect::<Vec<_>>(),
                "config": {"rename": {"usr": "user"}, "remove": ["note"], "add": {"currency": "EUR"}},
            },
            {"uid": "total", "plugin": plugin("running-total"), "inputs": [{"from": "clean", "key-by": "key"}]},
        ],
        "sinks": sinks,
        "execution": execution(folder, shape.interval_ms),
    })
}

/// Checkpoints in a folder, and quick restarts.
pub(crate) fn execution(folder: &Path, interval_ms: u64) -> Value {
    json!({
        "checkpointing": {"interval": format!("{interval_ms} ms"), "dir": folder.join("checkpoints"), "num-retained": 3},
        "restart-strategy": {"type": "fixed-delay", "fixed-delay": {"attempts": 3, "delay": "20 ms"}},
    })
}
