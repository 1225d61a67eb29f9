//! Runs the host, and kills it with SIGKILL at given points of the way, restarting it at once.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// How often a running host is asked how far it is.
const POLL: Duration = Duration::from_millis(5);
/// How long a host may take to read its first record.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs the job to its end. Returns for each kill the time to the first record that the next process read.
pub(crate) fn run(waterwheel: &Path, job: &Path, records: u64, kills: u32) -> Result<Vec<Duration>> {
    let mut recoveries = Vec::new();
    let mut killed: Option<Instant> = None;
    // Of the records that a process reads; the job is killed at equal distances.
    let distance = records / (u64::from(kills) + 1);
    for number in 0..=kills {
        let mut host = Host::start(waterwheel, job)?;
        host.wait_for_records(1, START_TIMEOUT)?;
        if let Some(killed) = killed.take() {
            recoveries.push(killed.elapsed());
        }
        if number == kills {
            host.wait_for_end()?;
        } else {
            host.wait_for_records(distance, Duration::from_secs(600))?;
            killed = Some(Instant::now());
            host.kill()?;
            eprintln!("killed the host with SIGKILL after it had read {distance} records or more, and restart it");
        }
    }
    Ok(recoveries)
}

struct Host {
    process: Child,
    status: SocketAddr,
}

impl Host {
    fn start(waterwheel: &Path, job: &Path) -> Result<Self> {
        let status = free_address()?;
        let mut command = Command::new(waterwheel);
        command.arg("run").arg(job).arg("--status-address").arg(status.to_string());
        let process = command.spawn().with_context(|| format!("{} cannot be started", waterwheel.display()))?;
        Ok(Self { process, status })
    }

    /// Waits until this process has read so many records.
    fn wait_for_records(&mut self, records: u64, timeout: Duration) -> Result<()> {
        let began = Instant::now();
        loop {
            if let Some(code) = self.process.try_wait()? {
                // A job that is done before it is asked has read everything.
                if code.success() && records == 1 {
                    return Ok(());
                }
                bail!("the host ended by itself ({code}) before it had read {records} records");
            }
            if self.records_read().is_some_and(|read| read >= records) {
                return Ok(());
            }
            if began.elapsed() > timeout {
                bail!("the host did not read {records} records within {timeout:?}");
            }
            std::thread::sleep(POLL);
        }
    }

    /// What the sources have read; none while the host does not answer yet.
    fn records_read(&self) -> Option<u64> {
        let job: Value = serde_json::from_str(&get(self.status, "/v1/jobs/quickstart")?).ok()?;
        let sources = job["vertices"].as_array()?.iter().filter(|node| node["kind"] == "source");
        Some(sources.filter_map(|node| node["records_out"].as_u64()).sum())
    }

    fn wait_for_end(&mut self) -> Result<()> {
        let code = self.process.wait()?;
        if !code.success() {
            bail!("the host ended with {code}");
        }
        Ok(())
    }

    /// SIGKILL: the process gets no chance to do anything.
    fn kill(&mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // A process that has ended cannot be killed again.
        let _ended = self.process.kill();
        let _ended = self.process.wait();
    }
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}

/// The body of a response over HTTP 1.0, which ends with the connection.
fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).ok()?;
    let (head, body) = response.split_once("\r\n\r\n")?;
    head.contains(" 200 ").then(|| body.to_owned())
}
