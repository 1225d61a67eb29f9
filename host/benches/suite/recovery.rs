//! From `kill -9`, restarted at once, to the first record that is processed, and to the first one that is visible at the sink: the real
//! binary with 1,000,000 keys of state.

use crate::process::{Host, median_millis, read, written};
use crate::report::Report;
use std::path::Path;
use std::time::Instant;

/// Keys are drawn at random from so many; after [`RECORDS`] records about 1,000,000 of them have been met.
const KEYS: u64 = 1_100_000;
const RECORDS: u64 = 2_700_000;
const ROUNDS: usize = 3;
const JOB: &str = "bench-recovery";

pub(crate) fn measure(report: &mut Report) {
    let folder = tempfile::tempdir().unwrap();
    let job = folder.path().join("job.yaml");
    std::fs::write(&job, specification(folder.path())).unwrap();
    let mut host = Host::start(&job, JOB);
    host.wait(|job| read(job) >= RECORDS);
    let held = host.checkpoints();
    host.wait_checkpoints(|completed| completed >= held + 2);
    let (mut processed, mut visible) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let killed = Instant::now();
        host.kill();
        host = Host::start(&job, JOB);
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
        "name: {JOB}
sources: [{{uid: records, type: generator, key: '{{user}}', template: {{amount: 1.5}}, users: {KEYS}, rate: 200000}}]
operators: [{{uid: totals, plugin: {plugin}, inputs: [{{from: records, key-by: key}}], limits: {{memory: 1 GiB}}}}]
sinks: [{{uid: out, type: file, path: {folder}/out, inputs: [totals], delivery-guarantee: exactly-once}}]
execution: {{checkpointing: {{interval: 500 ms, dir: {folder}/checkpoints}}}}
"
    )
}
