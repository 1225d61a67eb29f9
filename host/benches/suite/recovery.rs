//! From `kill -9`, restarted at once, to the first record that is processed, and to the first one that is visible at the sink: the real
//! binary with 1,000,000 keys of state.

use crate::report::Report;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Keys are drawn at random from so many; after [`RECORDS`] records about 1,000,000 of them have been met.
const KEYS: u64 = 1_100_000;
const RECORDS: u64 = 2_700_000;
const ROUNDS: usize = 3;
const POLL: Duration = Duration::from_millis(2);
const TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) fn measure(report: &mut Report) {
    let folder = tempfile::tempdir().unwrap();
    let job = folder.path().join("job.yaml");
    std::fs::write(&job, specification(folder.path())).unwrap();
    let mut host = Host::start(&job);
    host.wait(|job| read(job) >= RECORDS);
    let held = host.checkpoints();
    host.wait_checkpoints(|completed| completed >= held + 2);
    let (mut processed, mut visible) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let killed = Instant::now();
        host.kill();
        host = Host::start(&job);
        host.wait(|job| written(job) >= 1);
        processed.push(killed.elapsed());
        host.wait_checkpoints(|completed| completed >= 1);
        visible.push(killed.elapsed());
    }
    host.kill();
    report.add("kill -9 to the first record processed, 1,000,000 keys", median_millis(processed), "ms on the clock", Some(1000.0));
    report.add("kill -9 to the first record visible (checkpoint every 500 ms)", median_millis(visible), "ms on the clock", None);
}

fn specification(folder: &Path) -> String {
    let (folder, plugin) = (folder.display(), crate::plugin("running-total"));
    let plugin = plugin.display();
    format!(
        "name: bench-recovery
sources: [{{uid: records, type: generator, key: '{{user}}', template: {{amount: 1.5}}, users: {KEYS}, rate: 200000}}]
operators: [{{uid: totals, plugin: {plugin}, inputs: [{{from: records, key-by: key}}], limits: {{memory: 1 GiB}}}}]
sinks: [{{uid: out, type: file, path: {folder}/out, inputs: [totals], delivery-guarantee: exactly-once}}]
execution: {{checkpointing: {{interval: 500 ms, dir: {folder}/checkpoints}}}}
"
    )
}

fn median_millis(mut durations: Vec<Duration>) -> f64 {
    durations.sort();
    durations[durations.len() / 2].as_secs_f64() * 1000.0
}

fn read(job: &Value) -> u64 {
    job["vertices"][0]["records_out"].as_u64().unwrap_or(0)
}

fn written(job: &Value) -> u64 {
    job["vertices"][2]["records_in"].as_u64().unwrap_or(0)
}

struct Host {
    process: Child,
    status: SocketAddr,
}

impl Host {
    fn start(job: &Path) -> Self {
        let status = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_waterwheel"));
        command.arg("run").arg(job).arg("--quiet").arg("--status-address").arg(status.to_string());
        Self { process: command.stderr(Stdio::inherit()).spawn().unwrap(), status }
    }

    fn get(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(self.status).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
        let mut response = String::new();
        stream.read_to_string(&mut response).ok()?;
        serde_json::from_str(response.split_once("\r\n\r\n")?.1).ok()
    }

    fn wait_for(&mut self, path: &str, is_it: impl Fn(&Value) -> bool) {
        let began = Instant::now();
        while !self.get(path).is_some_and(|value| is_it(&value)) {
            assert!(self.process.try_wait().unwrap().is_none(), "the host has ended");
            assert!(began.elapsed() < TIMEOUT, "the host did not come so far");
            std::thread::sleep(POLL);
        }
    }

    fn wait(&mut self, is_it: impl Fn(&Value) -> bool) {
        self.wait_for("/v1/jobs/bench-recovery", is_it);
    }

    fn checkpoints(&self) -> u64 {
        self.get("/v1/jobs/bench-recovery/checkpoints").map_or(0, |checkpoints| completed(&checkpoints))
    }

    fn wait_checkpoints(&mut self, is_it: impl Fn(u64) -> bool) {
        self.wait_for("/v1/jobs/bench-recovery/checkpoints", |checkpoints| is_it(completed(checkpoints)));
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn completed(checkpoints: &Value) -> u64 {
    checkpoints["counts"]["completed"].as_u64().unwrap_or(0)
}
