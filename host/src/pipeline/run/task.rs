//! A task: the head that reads a source or a gate, and the chain behind it.

use super::alignment::{Alignment, Step};
use super::chain::{Chain, NodeSnapshot, now_millis};
use super::channel::{Arrival, Barrier, Disconnected, Element, Gate};
use super::event_time::{EventTime, Inputs, SourceTime};
use crate::Error;
use crate::record::Batch;
use crate::source::{BatchLimits, ReadStatus, SourceReader, Split};
use futures::future::BoxFuture;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// What the coordinator tells a task.
#[derive(Clone, Debug)]
pub(super) enum Command {
    /// Sources: begin a checkpoint.
    Trigger(Barrier),
    /// Sources: a checkpoint was given up.
    GiveUp(u64),
    /// Sources: read no more; the input ends here.
    Drain,
    /// Sources: new splits to read.
    AddSplits(Vec<Split>),
    /// A checkpoint was completed.
    Completed(u64),
    /// The state files of an operator's subtask are damaged: the next snapshot is a whole one.
    BeginChainAnew(String, u32),
    /// The job has ended: let go of everything.
    Close,
}

/// The number of a task in its run.
pub(super) type TaskId = usize;

/// What a task contributes to a checkpoint; state files are still to be uploaded.
#[derive(Debug)]
pub(super) struct TaskSnapshot {
    pub(super) barrier: Barrier,
    /// Of a task that reads a source.
    pub(super) source: Option<SourceSnapshot>,
    pub(super) nodes: Vec<NodeSnapshot>,
    /// From the first channel's barrier to the last one's.
    pub(super) alignment: Duration,
    /// How long the chain stood still for it.
    pub(super) synchronous: Duration,
    /// From the coordinator to the last channel's barrier.
    pub(super) start_delay: Duration,
}

/// What a source task contributes to a checkpoint.
#[derive(Debug)]
pub(super) struct SourceSnapshot {
    pub(super) uid: Arc<str>,
    pub(super) splits: Vec<Split>,
    /// By split, the greatest timestamp, where the source has event time.
    pub(super) greatest: Vec<(String, i64)>,
}

/// What a task reports.
#[derive(Debug)]
pub(super) enum Report {
    /// A snapshot.
    Snapshot(TaskSnapshot),
    /// All inputs have ended and the last records were emitted.
    Finished,
}

/// What a task reads.
pub(super) enum Head {
    /// A source.
    Source(SourceHead),
    /// Channels from other tasks.
    Gate(GateHead),
}

/// The reading side of a source task.
pub(super) struct SourceHead {
    pub(super) uid: Arc<str>,
    pub(super) reader: Box<dyn SourceReader>,
    pub(super) limits: BatchLimits,
    /// None where the source makes no watermarks.
    pub(super) time: Option<Box<SourceTime>>,
    /// Whether there is nothing to read and never will be: a bounded source has fewer splits than subtasks.
    pub(super) nothing_to_read: bool,
}

/// The reading side of a task behind others.
pub(super) struct GateHead {
    pub(super) gate: Gate,
    /// The input of the chain's head that each channel belongs to.
    pub(super) inputs: Vec<usize>,
    pub(super) alignment: Alignment,
}

/// A task of a run.
pub(super) struct Task {
    pub(super) subtask: u32,
    pub(super) chain: Chain,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) reports: mpsc::Sender<Report>,
}

/// Longest wait without a look at the clock, for a task with nothing to do.
const IDLE: Duration = Duration::from_secs(3600);

impl Task {
    /// Runs until the coordinator says that the job has ended.
    ///
    /// # Errors
    /// The first error of a node, or that a neighbouring task is gone.
    pub(super) fn run(self, head: Head) -> BoxFuture<'static, Result<(), Error>> {
        match head {
            Head::Source(head) => Box::pin(self.run_source(head)),
            Head::Gate(head) => Box::pin(self.run_gate(head)),
        }
    }

    async fn run_source(mut self, mut head: SourceHead) -> Result<(), Error> {
        let mut reading = !head.nothing_to_read;
        let mut ended = head.nothing_to_read;
        if head.nothing_to_read {
            self.finish().await?;
        }
        let mut batch = new_batch(head.limits);
        // What the last snapshot of each checkpoint held, until the checkpoint is completed.
        let mut positions: HashMap<u64, Vec<Split>> = HashMap::new();
        loop {
            if reading {
                self.tell_time(&mut batch, &mut head).await?;
            }
            let (wake, waiting) = (self.wake_at(), Instant::now());
            let time_wakes = head.time.as_ref().filter(|_| reading).and_then(|time| time.wake_at(waiting));
            let wake = time_wakes.map_or(wake, |time_wakes| wake.min(time_wakes));
            let woken = tokio::select! {
                biased;
                command = self.commands.recv() => Woken::Command(command),
                () = tokio::time::sleep_until(wake.into()) => Woken::Due,
                status = head.reader.next_batch(&mut batch), if reading => Woken::Read(status),
            };
            if let Some(time) = &mut head.time {
                time.waited(waiting.elapsed());
            }
            match woken {
                Woken::Command(None | Some(Command::Close)) => return self.chain.close().await,
                Woken::Command(Some(Command::GiveUp(sequence))) => self.chain.give_up(sequence),
                Woken::Command(Some(Command::BeginChainAnew(uid, subtask))) => self.begin_chain_anew(&uid, subtask),
                Woken::Command(Some(Command::AddSplits(splits))) => head.add_splits(splits).await?,
                Woken::Command(Some(Command::Trigger(barrier))) => {
                    self.emit(&mut batch, &mut head).await?;
                    let source = head.snapshot();
                    positions.insert(barrier.sequence, source.splits.clone());
                    self.snapshot(barrier, Some(source), Duration::ZERO).await?;
                    reading &= !barrier.last;
                }
                Woken::Command(Some(Command::Drain)) if ended => {}
                Woken::Command(Some(Command::Drain)) => {
                    self.emit(&mut batch, &mut head).await?;
                    (reading, ended) = (false, true);
                    self.finish().await?;
                }
                Woken::Command(Some(Command::Completed(sequence))) => head.completed(sequence, &mut positions).await,
                Woken::Due => self.tick().await?,
                Woken::Read(status) => {
                    let status = status.map_err(|error| error.within(format!("source {}", head.uid)))?;
                    self.chain.idle(waiting.elapsed());
                    self.chain.pending(head.reader.pending_records());
                    self.emit(&mut batch, &mut head).await?;
                    if status == ReadStatus::Finished {
                        (reading, ended) = (false, true);
                        self.finish().await?;
                    }
                }
            }
            tokio::task::consume_budget().await;
        }
    }

    fn begin_chain_anew(&mut self, uid: &str, subtask: u32) {
        if subtask == self.subtask {
            self.chain.begin_anew(uid);
        }
    }

    async fn emit(&mut self, batch: &mut Batch, head: &mut SourceHead) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut full = std::mem::replace(batch, new_batch(head.limits));
        if let Some(time) = &mut head.time {
            full = time.stamp(full)?;
            if let Some(told) = time.observe(&full) {
                self.chain.told(told).await?;
            }
        }
        self.chain.emit(full).await?;
        self.tick_if_due().await
    }

    /// Tells what is due to be told of event time.
    async fn tell_time(&mut self, batch: &mut Batch, head: &mut SourceHead) -> Result<(), Error> {
        let now = Instant::now();
        if !head.time.as_ref().is_some_and(|time| time.is_due(now)) {
            return Ok(());
        }
        // Records that a reader was broken off with may be the last of their split, or the first of one that was about to fall idle.
        self.emit(batch, head).await?;
        let Some(time) = &mut head.time else { return Ok(()) };
        time.look(&*head.reader);
        while let Some(told) = time.poll(now) {
            self.chain.told(told).await?;
        }
        Ok(())
    }

    async fn run_gate(mut self, mut head: GateHead) -> Result<(), Error> {
        let mut inputs = Inputs::new(head.gate.len());
        let mut aligning_since = None;
        loop {
            while let Ok(command) = self.commands.try_recv() {
                match command {
                    Command::Close => return self.chain.close().await,
                    Command::BeginChainAnew(uid, subtask) => self.begin_chain_anew(&uid, subtask),
                    // To sources.
                    Command::Trigger(_) | Command::GiveUp(_) | Command::Drain | Command::AddSplits(_) | Command::Completed(_) => {}
                }
            }
            self.tick_if_due().await?;
            let arrival = match head.gate.try_next().map_err(disconnected)? {
                Some(arrival) => arrival,
                None => {
                    // Nothing is there: what waits for its batch to fill up would wait in vain.
                    self.chain.flush().await?;
                    let (wake, waiting) = (self.wake_at(), Instant::now());
                    let arrival = tokio::select! {
                        biased;
                        command = self.commands.recv() => match command {
                            None | Some(Command::Close) => return self.chain.close().await,
                            Some(Command::BeginChainAnew(uid, subtask)) => {
                                self.begin_chain_anew(&uid, subtask);
                                continue;
                            }
                            Some(_) => continue,
                        },
                        arrival = head.gate.next() => arrival.map_err(disconnected)?,
                        () = tokio::time::sleep_until(wake.into()) => continue,
                    };
                    self.chain.idle(waiting.elapsed());
                    arrival
                }
            };
            self.arrived(arrival, &mut head, &mut inputs, &mut aligning_since).await?;
            tokio::task::consume_budget().await;
        }
    }

    async fn arrived(
        &mut self,
        arrival: Arrival,
        head: &mut GateHead,
        inputs: &mut Inputs,
        aligning_since: &mut Option<Instant>,
    ) -> Result<(), Error> {
        match arrival {
            Arrival::Element(channel, Element::Batch(batch)) => self.chain.push(head.inputs[channel], batch).await,
            Arrival::Element(channel, Element::Watermark(watermark)) => {
                self.told(inputs.told(channel, EventTime::Watermark(watermark))).await
            }
            Arrival::Element(channel, Element::Idle) => self.told(inputs.told(channel, EventTime::Idle)).await,
            Arrival::Element(channel, Element::End) => match inputs.ended(channel) {
                Some(told) => self.told(told).await,
                None => self.finish().await,
            },
            Arrival::Element(channel, Element::Barrier(barrier)) => match head.alignment.barrier(channel, barrier) {
                Step::Stale => Ok(()),
                Step::Wait { hold } => {
                    aligning_since.get_or_insert_with(Instant::now);
                    if hold {
                        head.gate.hold(channel);
                    }
                    Ok(())
                }
                Step::Complete(barrier) => {
                    head.gate.release_all();
                    let alignment = aligning_since.take().map_or(Duration::ZERO, |since| since.elapsed());
                    self.snapshot(barrier, None, alignment).await
                }
            },
            Arrival::GivenUp(sequence) => {
                if head.alignment.given_up(sequence) {
                    self.chain.give_up(sequence);
                }
                if !head.alignment.is_aligning() {
                    head.gate.release_all();
                    *aligning_since = None;
                }
                Ok(())
            }
        }
    }

    async fn told(&mut self, told: [Option<EventTime>; 2]) -> Result<(), Error> {
        for told in told.into_iter().flatten() {
            self.chain.told(told).await?;
        }
        Ok(())
    }

    async fn snapshot(&mut self, barrier: Barrier, source: Option<SourceSnapshot>, alignment: Duration) -> Result<(), Error> {
        let began = Instant::now();
        let start_delay = began.duration_since(barrier.triggered);
        self.chain.aligned(start_delay, alignment);
        let nodes = self.chain.barrier(barrier).await?;
        let snapshot = TaskSnapshot { barrier, source, nodes, alignment, synchronous: began.elapsed(), start_delay };
        self.report(Report::Snapshot(snapshot)).await
    }

    async fn finish(&mut self) -> Result<(), Error> {
        self.chain.finish().await?;
        self.report(Report::Finished).await
    }

    async fn report(&mut self, report: Report) -> Result<(), Error> {
        self.reports.send(report).await.map_err(|_| disconnected(Disconnected))
    }

    /// When [`Task::tick`] has something to do.
    fn wake_at(&self) -> Instant {
        let now = Instant::now();
        let timer = self.chain.next_timer().map(|time| {
            let ahead = u64::try_from(time.saturating_sub(now_millis())).unwrap_or(0);
            now + Duration::from_millis(ahead).min(IDLE)
        });
        let flush = self.chain.flush_due();
        timer.into_iter().chain(flush).min().unwrap_or(now + IDLE)
    }

    async fn tick_if_due(&mut self) -> Result<(), Error> {
        let timer = self.chain.next_timer().is_some_and(|time| time <= now_millis());
        let flush = self.chain.flush_due().is_some_and(|due| due <= Instant::now());
        if timer || flush { self.tick().await } else { Ok(()) }
    }

    /// Fires timers and sends what has waited long enough.
    async fn tick(&mut self) -> Result<(), Error> {
        if self.chain.next_timer().is_some_and(|time| time <= now_millis()) {
            self.chain.advance().await?;
        }
        if self.chain.flush_due().is_some_and(|due| due <= Instant::now()) {
            self.chain.flush().await?;
        }
        Ok(())
    }
}

fn new_batch(limits: BatchLimits) -> Batch {
    Batch::with_capacity(limits.records, limits.bytes)
}

/// What a source task has waited for.
enum Woken {
    Command(Option<Command>),
    /// A timer, a batch that waits, or event time.
    Due,
    Read(Result<ReadStatus, Error>),
}

impl SourceHead {
    async fn add_splits(&mut self, splits: Vec<Split>) -> Result<(), Error> {
        if let Some(time) = &mut self.time {
            time.add(&splits);
        }
        self.reader.add_splits(splits).await
    }

    fn snapshot(&self) -> SourceSnapshot {
        let greatest = self.time.as_ref().map(|time| time.greatest()).unwrap_or_default();
        SourceSnapshot { uid: Arc::clone(&self.uid), splits: self.reader.positions(), greatest }
    }

    async fn completed(&mut self, sequence: u64, positions: &mut HashMap<u64, Vec<Split>>) {
        let completed = positions.remove(&sequence);
        positions.retain(|other, _| *other > sequence);
        let Some(completed) = completed else { return };
        // Only informs the outside: the checkpoint is completed whether or not the outside hears of it.
        if let Err(error) = self.reader.on_completed(&completed).await {
            tracing::warn!(source = &*self.uid, error = %error.chain(), "the source could not tell the outside of a completed checkpoint");
        }
    }
}

fn disconnected(gone: Disconnected) -> Error {
    Error::internal("a neighbouring task is gone").caused_by(gone)
}

/// Whether an error only says that another task has failed.
pub(super) fn is_disconnect(error: &Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.is::<Disconnected>())
}
