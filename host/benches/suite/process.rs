//! The real binary with a job, and what its status address and `/proc` tell about it.

use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(2);
const TIMEOUT: Duration = Duration::from_secs(120);

/// `waterwheel run` on a job; killed when this is dropped.
pub(crate) struct Host {
    process: Child,
    status: SocketAddr,
    job: String,
}

impl Host {
    /// Starts the job of this file and name.
    pub(crate) fn start(file: &Path, job: &str) -> Self {
        let status = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_waterwheel"));
        command.arg("run").arg(file).arg("--quiet").arg("--status-address").arg(status.to_string());
        Self { process: command.stderr(Stdio::inherit()).spawn().unwrap(), status, job: job.to_owned() }
    }

    /// The id of the process.
    #[cfg(feature = "kafka")]
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    fn get(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(self.status).ok()?;
        write!(stream, "GET /v1/jobs/{}{path} HTTP/1.0\r\n\r\n", self.job).ok()?;
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

    /// Waits until the job is so.
    pub(crate) fn wait(&mut self, is_it: impl Fn(&Value) -> bool) {
        self.wait_for("", is_it);
    }

    /// How many checkpoints this process has completed.
    pub(crate) fn checkpoints(&self) -> u64 {
        self.get("/checkpoints").map_or(0, |checkpoints| completed(&checkpoints))
    }

    /// Waits until it has completed so many.
    pub(crate) fn wait_checkpoints(&mut self, is_it: impl Fn(u64) -> bool) {
        self.wait_for("/checkpoints", |checkpoints| is_it(completed(checkpoints)));
    }

    /// Milliseconds from trigger to completion of the last checkpoints.
    #[cfg(feature = "kafka")]
    pub(crate) fn checkpoint_millis(&self) -> Vec<f64> {
        let checkpoints = self.get("/checkpoints").unwrap();
        let history = checkpoints["history"].as_array().unwrap().iter();
        history.filter(|one| one["status"] == "COMPLETED").map(|one| one["end_to_end_duration"].as_f64().unwrap()).collect()
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Records that the source of a job of three nodes has read.
pub(crate) fn read(job: &Value) -> u64 {
    job["vertices"][0]["records_out"].as_u64().unwrap_or(0)
}

/// Records that have come to its sink.
pub(crate) fn written(job: &Value) -> u64 {
    job["vertices"][2]["records_in"].as_u64().unwrap_or(0)
}

fn completed(checkpoints: &Value) -> u64 {
    checkpoints["counts"]["completed"].as_u64().unwrap_or(0)
}

/// CPU time of a process so far, in nanoseconds: user and system, in steps of 10 ms.
pub(crate) fn cpu_nanoseconds(process: &str) -> u64 {
    const TICK_NANOSECONDS: u64 = 10_000_000;
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    ticks * TICK_NANOSECONDS
}

/// The most memory that a process has had, in bytes.
#[cfg(feature = "kafka")]
pub(crate) fn peak_bytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// The value in the middle, in milliseconds.
pub(crate) fn median_millis(mut durations: Vec<Duration>) -> f64 {
    durations.sort();
    durations[durations.len() / 2].as_secs_f64() * 1000.0
}
