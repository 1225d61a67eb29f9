//! The reader of one subtask: hands on the batches that its thread has filled.

use super::commits::Commits;
use super::lag::{Lag, Progress};
use super::settings::Settings;
use super::splits::{Assigned, Reading};
use super::worker::{Chunk, Event, Moved, Task, Worker};
use crate::Error;
use crate::kafka::{Consumer, error};
use crate::record::Batch;
use crate::source::{BatchLimits, ReadStatus, ReaderContext, SourceReader, Split, SplitLag};
use async_trait::async_trait;
use rdkafka::error::KafkaResult;
use serde_json::json;
use std::ffi::CString;
use std::sync::Arc;
use tokio::time::{Instant, timeout_at};

/// Reads the partitions of one subtask.
pub(super) struct KafkaReader {
    settings: Arc<Settings>,
    is_bounded: bool,
    context: ReaderContext,
    worker: Worker,
    commits: Option<Commits>,
    splits: Vec<KafkaSplit>,
    current: Option<Current>,
    lag: Lag,
}

struct KafkaSplit {
    assigned: Assigned,
    number: u32,
    progress: Arc<Progress>,
}

impl KafkaSplit {
    fn advance(&mut self, next: i64, finished: bool) {
        self.assigned.position = next;
        self.assigned.finished = finished;
        self.progress.set_position(next);
    }
}

/// A chunk, and the first of its records that is not in a batch yet.
struct Current {
    chunk: Chunk,
    next: usize,
}

impl KafkaReader {
    /// Makes the client, which connects to nobody before there are splits.
    ///
    /// # Errors
    /// The client or its thread cannot be made.
    pub(super) async fn open(settings: Arc<Settings>, context: ReaderContext) -> Result<Self, Error> {
        let (subtask, limits) = (context.subtask, context.limits);
        let (for_reader, has_group, is_bounded) = (Arc::clone(&settings), settings.group.is_some(), settings.is_bounded());
        let opened = tokio::task::spawn_blocking(move || {
            let options = settings.reader_client();
            let consumer: KafkaResult<Consumer> = options.config().create_with_context(options.context());
            let consumer = Arc::new(consumer.map_err(|error| error::of(&options.context(), "making a Kafka client", &error))?);
            let worker = Worker::start(settings, Arc::clone(&consumer), subtask, limits)?;
            Ok::<_, Error>((consumer, worker))
        });
        let opened = opened.await.map_err(|error| Error::internal("making a Kafka client broke off").caused_by(error))?;
        let (consumer, worker) = opened?;
        let commits = has_group.then(|| Commits::new(consumer));
        Ok(Self { settings: for_reader, is_bounded, context, worker, commits, splits: Vec::new(), current: None, lag: Lag::default() })
    }

    fn split(&self, split: &Split) -> Result<KafkaSplit, Error> {
        if self.splits.iter().any(|before| before.assigned.partition.to_string() == split.id) {
            return Err(Error::internal(format!("split {} was added twice", split.id)));
        }
        let assigned = Assigned::parse(split)?;
        let Settings { uid, topics, .. } = &*self.settings;
        if !topics.has(&assigned.partition.topic) {
            return Err(Error::user(format!(
                "the checkpoint holds the position of {} of the source {uid}, which reads {topics} now: read that topic again, or give the source a uid \
                 of its own and leave the position behind with --allow-non-restored-state, or begin again with --fresh",
                split.id
            )));
        }
        let number = self.context.split_table.number(&self.context.uid, &split.id);
        let progress = Arc::new(Progress::new(split.id.clone(), assigned.position, assigned.stop));
        Ok(KafkaSplit { assigned, number, progress })
    }

    fn task(index: usize, split: &KafkaSplit) -> Result<Task, Error> {
        let Assigned { partition, position, stop, .. } = split.assigned.clone();
        let topic = CString::new(&*partition.topic)
            .map_err(|_| Error::user(format!("the name of topic {:?} has a zero byte in it", partition.topic)))?;
        let progress = Arc::clone(&split.progress);
        let (number, next, told) = (split.number, position, position);
        let split = Reading { partition, topic, number, next, told, stop, finished: false, told_finished: false, progress };
        Ok(Task { index, split })
    }

    /// Moves records of the current chunk into the batch. True when there is no room for more.
    fn move_records(&mut self, batch: &mut Batch) -> bool {
        let Some(mut current) = self.current.take() else { return self.context.limits.reached(batch) };
        if batch.is_empty() && current.next == 0 {
            std::mem::swap(batch, &mut current.chunk.batch);
            self.finish(current.chunk);
            return is_worth_sending(&self.context.limits, batch);
        }
        self.copy_rows(batch, &mut current);
        if current.next < current.chunk.batch.len() {
            self.current = Some(current);
            return true;
        }
        self.finish(current.chunk);
        self.context.limits.reached(batch)
    }

    /// Copies rows while there is room, and moves the positions of their splits with them.
    fn copy_rows(&mut self, batch: &mut Batch, current: &mut Current) {
        let rows = &current.chunk.batch;
        let mut place = None;
        while current.next < rows.len() {
            let row = rows.row(current.next);
            let bytes = row.key.map_or(0, <[u8]>::len) + row.value.map_or(0, <[u8]>::len);
            if !self.context.limits.has_room(batch, bytes) {
                return;
            }
            batch.push_from(rows, current.next);
            current.next += 1;
            if place.is_none_or(|place: usize| self.splits[place].number != row.origin.split) {
                place = self.splits.iter().position(|split| split.number == row.origin.split);
            }
            if let Some(place) = place {
                self.splits[place].advance(row.origin.position.cast_signed() + 1, false);
            }
        }
    }

    /// All records of a chunk are in batches: its positions count, which may lie behind gaps.
    fn finish(&mut self, chunk: Chunk) {
        for Moved { split, next, finished } in &chunk.moved {
            self.splits[*split].advance(*next, *finished);
        }
        self.worker.recycle(chunk);
    }

    fn is_finished(&self) -> bool {
        self.is_bounded && !self.splits.is_empty() && self.splits.iter().all(|split| split.assigned.finished)
    }

    fn take(&mut self, event: Option<Event>) -> Result<(), Error> {
        match event {
            Some(Event::Chunk(chunk)) => self.current = Some(Current { chunk, next: 0 }),
            Some(Event::Failed(error)) => return Err(error),
            None => return Err(Error::internal("the thread that reads Kafka has ended")),
        }
        Ok(())
    }
}

/// Whether a batch is so full that waiting for more would only cost copies.
fn is_worth_sending(limits: &BatchLimits, batch: &Batch) -> bool {
    batch.len() >= limits.records.div_ceil(2) || batch.byte_len() >= limits.bytes.div_ceil(2)
}

#[async_trait]
impl SourceReader for KafkaReader {
    async fn add_splits(&mut self, splits: Vec<Split>) -> Result<(), Error> {
        let mut tasks = Vec::new();
        for split in &splits {
            let added = self.split(split)?;
            if !added.assigned.finished {
                tasks.push(Self::task(self.splits.len(), &added)?);
                self.lag.add(Arc::clone(&added.progress));
            }
            self.splits.push(added);
        }
        if !tasks.is_empty() {
            self.worker.add(tasks);
        }
        Ok(())
    }

    async fn next_batch(&mut self, batch: &mut Batch) -> Result<ReadStatus, Error> {
        tokio::task::consume_budget().await;
        let mut deadline = None;
        loop {
            // Nothing waits between moving records and noting their positions: a dropped future loses no record.
            let is_full = self.move_records(batch);
            if self.current.is_none() && self.is_finished() {
                return Ok(ReadStatus::Finished);
            }
            if is_full && !batch.is_empty() {
                return Ok(ReadStatus::Open);
            }
            if !batch.is_empty() && deadline.is_none() {
                deadline = Some(Instant::now() + self.context.limits.linger);
            }
            if self.current.is_some() {
                continue;
            }
            let event = match deadline {
                None => self.worker.events.recv().await,
                Some(end) => match timeout_at(end, self.worker.events.recv()).await {
                    Ok(event) => event,
                    Err(_) => return Ok(ReadStatus::Open),
                },
            };
            self.take(event)?;
        }
    }

    fn positions(&self) -> Vec<Split> {
        let split = |split: &KafkaSplit| {
            let Assigned { partition, position, stop, finished } = &split.assigned;
            Split { id: partition.to_string(), position: json!(position), stop: stop.map(|stop| json!(stop)), finished: *finished }
        };
        self.splits.iter().map(split).collect()
    }

    fn pending_records(&self) -> Option<u64> {
        self.lag.total()
    }

    fn split_lag(&self) -> Option<SplitLag> {
        let lag = self.lag.clone();
        Some(Arc::new(move || lag.by_split()))
    }

    async fn on_completed(&mut self, positions: &[Split]) -> Result<(), Error> {
        if let Some(commits) = &self.commits {
            commits.commit(positions);
        }
        Ok(())
    }
}
