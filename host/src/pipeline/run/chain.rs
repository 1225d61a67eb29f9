//! The nodes of one task: a batch that enters runs through all of them, and leaves through the exchanges.

use super::channel::{Barrier, Element};
use super::event_time::{END_OF_TIME, EventTime};
use super::exchange::ExchangeWriter;
use crate::Error;
use crate::operator::{Operator, Outputs, Times};
use crate::record::Batch;
use crate::sink::{CheckpointBarrier, Guarantee, SinkWriter};
use crate::state::StateWriter;
use crate::telemetry::TaskMetrics;
use bytes::Bytes;
use futures::future::try_join_all;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// What a node does with a batch.
pub(super) enum Work {
    /// It is read by the task's head and only passed on.
    Source,
    /// Turns records into records.
    Operator(Box<dyn Operator>),
    /// Writes records.
    Sink(Box<dyn SinkWriter>, Guarantee),
}

/// Where what a node emits on a route goes.
pub(super) struct Output {
    pub(super) route: u8,
    pub(super) target: Target,
}

/// The receiving end of an output.
pub(super) enum Target {
    /// A node of the same chain, at one of its inputs.
    Node { index: usize, input: usize },
    /// Subtasks of another task.
    Exchange(ExchangeWriter),
}

/// One node of a chain.
pub(super) struct ChainNode {
    pub(super) uid: Arc<str>,
    pub(super) work: Work,
    pub(super) outputs: Vec<Output>,
    pub(super) metrics: Arc<TaskMetrics>,
    /// Whether the next snapshot of an operator is a whole one, which replaces the files before it.
    pub(super) whole_snapshot: bool,
}

/// What one node contributes to a checkpoint.
#[derive(Debug)]
pub(super) enum NodeSnapshot {
    /// A state file that is still to be uploaded, none when nothing changed; a whole one replaces the files before it. And where event time is.
    Operator { uid: Arc<str>, file: Option<Bytes>, whole: bool, watermark: i64 },
    /// Prepared work.
    Sink { uid: Arc<str>, prepared: Vec<Value> },
}

/// The nodes of one task, the head first.
pub(super) struct Chain {
    nodes: Vec<ChainNode>,
    watermark: i64,
    /// Whether the tasks behind were told not to wait.
    idle: bool,
    waiting: VecDeque<(usize, usize, Batch)>,
    emitted: Outputs,
}

impl Chain {
    /// A chain of these nodes, whose event time goes on from a watermark.
    pub(super) fn new(nodes: Vec<ChainNode>, watermark: i64) -> Self {
        nodes.iter().for_each(|node| node.metrics.set_watermark(watermark));
        Self { nodes, watermark, idle: false, waiting: VecDeque::new(), emitted: Outputs::default() }
    }

    fn times(&self) -> Times {
        Times { watermark: self.watermark, processing_time: now_millis() }
    }

    /// Sends a batch that the source has read through the chain.
    pub(super) async fn emit(&mut self, batch: Batch) -> Result<(), Error> {
        self.emitted.emit(0, batch);
        self.route(0).await?;
        self.run().await
    }

    /// Sends a batch into an input of the head.
    pub(super) async fn push(&mut self, input: usize, batch: Batch) -> Result<(), Error> {
        self.waiting.push_back((0, input, batch));
        self.run().await
    }

    async fn run(&mut self) -> Result<(), Error> {
        let times = self.times();
        while let Some((index, input, batch)) = self.waiting.pop_front() {
            let node = &mut self.nodes[index];
            node.metrics.received(batch.len(), batch.byte_len());
            let began = Instant::now();
            match &mut node.work {
                Work::Source => return Err(Error::internal(format!("source {} was sent a batch", node.uid))),
                Work::Operator(operator) => {
                    operator.process(input, batch, times, &mut self.emitted).await?;
                }
                Work::Sink(writer, _) => {
                    writer.write(&batch).await.map_err(|error| error.within(format!("sink {}", node.uid)))?;
                    node.metrics.sent(batch.len(), batch.byte_len());
                }
            }
            node.metrics.busy(began.elapsed());
            self.route(index).await?;
        }
        Ok(())
    }

    /// Passes on what node `index` has emitted.
    async fn route(&mut self, index: usize) -> Result<(), Error> {
        for (route, batch) in self.emitted.drain() {
            let node = &mut self.nodes[index];
            node.metrics.sent(batch.len(), batch.byte_len());
            let mut readers = node.outputs.iter().filter(|output| output.route == route).count();
            let mut batch = Some(batch);
            for output in &mut node.outputs {
                if output.route != route {
                    continue;
                }
                readers -= 1;
                let part = if readers > 0 { batch.clone() } else { batch.take() };
                match (&mut output.target, part) {
                    (Target::Node { index, input }, Some(part)) => self.waiting.push_back((*index, *input, part)),
                    (Target::Exchange(writer), Some(part)) => writer.send(part).await?,
                    (_, None) => {}
                }
            }
        }
        Ok(())
    }

    /// The processing time of the earliest timer of a node.
    pub(super) fn next_timer(&self) -> Option<i64> {
        let timer = |node: &ChainNode| match &node.work {
            Work::Operator(operator) => operator.next_timer(),
            Work::Source | Work::Sink(..) => None,
        };
        self.nodes.iter().filter_map(timer).min()
    }

    /// Fires the timers that are due.
    pub(super) async fn advance(&mut self) -> Result<(), Error> {
        for index in 0..self.nodes.len() {
            self.advance_node(index, false).await?;
        }
        Ok(())
    }

    /// Fires the due timers of one node, a bounded number at a time, each followed by what it emitted. The node is told of a new watermark
    /// whether or not it knows of a timer that is due by it.
    async fn advance_node(&mut self, index: usize, mut new_watermark: bool) -> Result<(), Error> {
        loop {
            let times = self.times();
            let node = &mut self.nodes[index];
            let Work::Operator(operator) = &mut node.work else { return Ok(()) };
            let due = operator.next_timer().is_some_and(|time| time <= times.processing_time);
            if !due && !std::mem::take(&mut new_watermark) {
                return Ok(());
            }
            new_watermark = false;
            operator.advance(times, &mut self.emitted).await?;
            self.route(index).await?;
            self.run().await?;
        }
    }

    /// Something is known of event time at the head.
    pub(super) async fn told(&mut self, told: EventTime) -> Result<(), Error> {
        match told {
            EventTime::Watermark(watermark) => self.advance_watermark(watermark).await,
            EventTime::Idle if self.idle => Ok(()),
            EventTime::Idle => {
                self.idle = true;
                self.for_all_exchanges(&Element::Idle).await
            }
        }
    }

    async fn advance_watermark(&mut self, watermark: i64) -> Result<(), Error> {
        let was_idle = std::mem::take(&mut self.idle);
        if watermark <= self.watermark {
            // Whoever is told is to wait for this task again.
            return if was_idle { self.for_all_exchanges(&Element::Watermark(self.watermark)).await } else { Ok(()) };
        }
        self.watermark = watermark;
        self.nodes.iter().for_each(|node| node.metrics.set_watermark(watermark));
        for index in 0..self.nodes.len() {
            self.advance_node(index, true).await?;
        }
        self.for_all_exchanges(&Element::Watermark(watermark)).await
    }

    /// All inputs have ended: event time ends, each node emits its last records, and the end is passed on.
    pub(super) async fn finish(&mut self) -> Result<(), Error> {
        self.watermark = END_OF_TIME;
        for index in 0..self.nodes.len() {
            self.advance_node(index, true).await?;
            let times = self.times();
            let node = &mut self.nodes[index];
            if let Work::Operator(operator) = &mut node.work {
                operator.finish(times, &mut self.emitted).await?;
                self.route(index).await?;
                self.run().await?;
            }
        }
        self.for_all_exchanges(&Element::End).await
    }

    /// Takes the snapshot of every node, then passes the barrier on. The snapshot describes exactly what came before the barrier.
    pub(super) async fn barrier(&mut self, barrier: Barrier) -> Result<Vec<NodeSnapshot>, Error> {
        self.flush().await?;
        let mut snapshots = Vec::with_capacity(self.nodes.len());
        for node in &mut self.nodes {
            if let Work::Operator(operator) = &mut node.work {
                let mut state = StateWriter::default();
                let whole = std::mem::take(&mut node.whole_snapshot);
                if whole {
                    operator.snapshot_all(&mut state).await?;
                    // It replaces all files before it, so the next delta begins here: otherwise what was set before it and is removed before
                    // the next one would be in no delta as removed, and come back with a restore.
                    operator.snapshot(&mut StateWriter::default()).await?;
                } else {
                    operator.snapshot(&mut state).await?;
                }
                let file = (!state.is_empty()).then(|| state.finish());
                snapshots.push(NodeSnapshot::Operator { uid: Arc::clone(&node.uid), file, whole, watermark: self.watermark });
            }
        }
        // Sinks may wait for each other with a barrier, so all have to meet it before any is waited for.
        self.for_all_exchanges(&Element::Barrier(barrier)).await?;
        let sinks = self.nodes.iter_mut().filter_map(|node| match &mut node.work {
            Work::Sink(writer, guarantee) => Some(prepare(&node.uid, writer.as_mut(), *guarantee, barrier)),
            _ => None,
        });
        snapshots.extend(try_join_all(sinks).await?);
        Ok(snapshots)
    }

    /// The next snapshot of an operator replaces the files before it.
    pub(super) fn begin_anew(&mut self, uid: &str) {
        self.nodes.iter_mut().filter(|node| &*node.uid == uid).for_each(|node| node.whole_snapshot = true);
    }

    /// The task has waited for its input.
    pub(super) fn idle(&self, time: Duration) {
        self.nodes.iter().take(1).for_each(|head| head.metrics.idle(time));
    }

    /// How many records the source knows to wait.
    pub(super) fn pending(&self, records: Option<u64>) {
        self.nodes.iter().take(1).for_each(|head| head.metrics.set_pending(records));
    }

    /// A barrier has come through the head.
    pub(super) fn aligned(&self, start_delay: Duration, alignment: Duration) {
        self.nodes.iter().for_each(|node| node.metrics.aligned(start_delay, alignment));
    }

    /// Sends records that wait for their batch to fill up.
    pub(super) async fn flush(&mut self) -> Result<(), Error> {
        for node in &mut self.nodes {
            for output in &mut node.outputs {
                if let Target::Exchange(writer) = &mut output.target {
                    writer.flush().await?;
                }
            }
        }
        Ok(())
    }

    /// When the oldest record that waits for its batch to fill up has waited long enough.
    pub(super) fn flush_due(&self) -> Option<Instant> {
        self.exchanges().filter_map(ExchangeWriter::flush_due).min()
    }

    /// Tells the tasks behind that a checkpoint was given up.
    pub(super) fn give_up(&self, sequence: u64) {
        self.exchanges().for_each(|writer| writer.give_up(sequence));
    }

    async fn for_all_exchanges(&mut self, element: &Element) -> Result<(), Error> {
        for node in &mut self.nodes {
            for output in &mut node.outputs {
                if let Target::Exchange(writer) = &mut output.target {
                    writer.send_to_all(element).await?;
                }
            }
        }
        Ok(())
    }

    fn exchanges(&self) -> impl Iterator<Item = &ExchangeWriter> {
        let outputs = self.nodes.iter().flat_map(|node| &node.outputs);
        outputs.filter_map(|output| match &output.target {
            Target::Exchange(writer) => Some(writer),
            Target::Node { .. } => None,
        })
    }

    /// The job ends: every node lets go of what it holds.
    pub(super) async fn close(&mut self) -> Result<(), Error> {
        for node in &mut self.nodes {
            match &mut node.work {
                Work::Source => {}
                Work::Operator(operator) => operator.close().await?,
                Work::Sink(writer, _) => writer.close().await?,
            }
        }
        Ok(())
    }
}

async fn prepare(uid: &Arc<str>, writer: &mut dyn SinkWriter, guarantee: Guarantee, barrier: Barrier) -> Result<NodeSnapshot, Error> {
    let prepared = match guarantee {
        Guarantee::ExactlyOnce => {
            let Barrier { checkpoint, attempt, last, .. } = barrier;
            writer.prepare(&CheckpointBarrier { checkpoint, attempt, last }).await
        }
        Guarantee::AtLeastOnce => writer.flush().await.map(|()| Vec::new()),
        Guarantee::None => Ok(Vec::new()),
    };
    let prepared = prepared.map_err(|error| error.within(format!("sink {uid}")))?;
    Ok(NodeSnapshot::Sink { uid: Arc::clone(uid), prepared })
}

/// The time of day, milliseconds since the Unix epoch.
pub(super) fn now_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
