//! The progress of a job for people: one line that is rewritten on a terminal, plain lines elsewhere.

use crate::host::JobControl;
use crate::pipeline::run::{JobState, NodeStatus};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Time between two lines on a terminal.
const TERMINAL_PERIOD: Duration = Duration::from_millis(500);
/// Time between two lines elsewhere, in a log.
const LOG_PERIOD: Duration = Duration::from_secs(5);

/// Shows the progress of a job until it is told that the job has ended.
#[derive(Debug)]
pub(super) struct Progress {
    ended: oneshot::Sender<()>,
    shown: JoinHandle<()>,
}

impl Progress {
    pub(super) fn start(control: JobControl) -> Self {
        let (ended, end) = oneshot::channel();
        Self { ended, shown: tokio::spawn(show(control, end)) }
    }

    /// Shows the last line.
    pub(super) async fn end(self) {
        let _ended = self.ended.send(());
        let _shown = self.shown.await;
    }
}

async fn show(control: JobControl, mut end: oneshot::Receiver<()>) {
    let terminal = std::io::stderr().is_terminal();
    let period = if terminal { TERMINAL_PERIOD } else { LOG_PERIOD };
    let mut rate = Rate { at: Instant::now(), records: 0 };
    loop {
        let ended = tokio::time::timeout(period, &mut end).await.is_ok();
        let line = line(&control, &mut rate);
        // What cannot be shown is not shown: progress is no result.
        let _shown = match (terminal, ended) {
            (true, false) => write!(std::io::stderr(), "\r\x1b[2K{line}"),
            (true, true) => writeln!(std::io::stderr(), "\r\x1b[2K{line}"),
            (false, _) => writeln!(std::io::stderr(), "{line}"),
        };
        if ended {
            return;
        }
    }
}

struct Rate {
    at: Instant,
    records: u64,
}

fn line(control: &JobControl, rate: &mut Rate) -> String {
    let (status, nodes) = (control.status(), control.nodes());
    let sum = |kind: &str, count: fn(&NodeStatus) -> u64| nodes.iter().filter(|node| node.kind == kind).map(count).sum::<u64>();
    let (read, written) = (sum("source", |node| node.records_out), sum("sink", |node| node.records_in));
    let now = Instant::now();
    let seconds = now.duration_since(rate.at).as_secs_f64().max(0.001);
    #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
    let per_second = read.saturating_sub(rate.records) as f64 / seconds;
    *rate = Rate { at: now, records: read };
    let mut line = format!("{} {}: {read} read, {written} written, {per_second:.0}/s", status.name, state(status.state));
    let counts = status.checkpoints.counts;
    if let Some(last) = &status.checkpoints.latest.completed {
        line += &format!(", checkpoint {} ({} ms, {} B)", last.id, last.end_to_end_duration, last.checkpointed_size);
    }
    if counts.failed > 0 {
        line += &format!(", {} failed", counts.failed);
    }
    if status.restarts > 0 {
        line += &format!(", {} restarts", status.restarts);
    }
    if let Some(trouble) = &status.trouble {
        line += &format!(" – {trouble}");
    }
    line
}

fn state(state: JobState) -> &'static str {
    match state {
        JobState::Created => "starting",
        JobState::Running => "running",
        JobState::Restarting => "restarting",
        JobState::Failed => "failed",
        JobState::Canceled => "cancelled",
        JobState::Suspended => "stopped",
        JobState::Finished => "finished",
    }
}
