//! The reader of one subtask: moves lines from the thread's blocks into batches.

use super::cursor::Cursor;
use super::discovery::LostSplits;
use super::lines::Block;
use super::position::{FilePosition, FileStop};
use super::settings::Settings;
use super::worker::{Event, Worker};
use crate::Error;
use crate::record::{Batch, JsonPointer, Origin, Row};
use crate::source::rate::RateLimiter;
use crate::source::{BatchLimits, ReadStatus, ReaderContext, SourceReader, Split};
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::{Instant, sleep_until, timeout_at};

/// Reads the files of one subtask.
pub(super) struct FileReader {
    settings: Arc<Settings>,
    context: ReaderContext,
    limiter: Option<Arc<RateLimiter>>,
    lost: LostSplits,
    worker: Worker,
    splits: Vec<FileSplit>,
    current: Option<Current>,
    key_buffer: Vec<u8>,
}

struct FileSplit {
    id: String,
    number: u32,
    position: FilePosition,
    stop: Option<FileStop>,
    finished: bool,
}

/// A block and the first of its records that is not in a batch yet.
struct Current {
    block: Block,
    next: usize,
}

impl FileReader {
    pub(super) fn new(
        settings: Arc<Settings>,
        limiter: Option<Arc<RateLimiter>>,
        lost: LostSplits,
        context: ReaderContext,
    ) -> Result<Self, Error> {
        let worker = Worker::start(Arc::clone(&settings), context.subtask).map_err(|error| {
            Error::external(format!("source {}: the system gives no thread to read files with", context.uid)).caused_by(error)
        })?;
        Ok(Self { settings, context, limiter, lost, worker, splits: Vec::new(), current: None, key_buffer: Vec::new() })
    }

    fn split(&self, split: &Split) -> Result<FileSplit, Error> {
        let wrong = |what: &str, value: &Value| {
            let message = format!("source {}: split {} of the checkpoint has the {what} {value}", self.context.uid, split.id);
            Error::user(format!("{message}, which a file source cannot have: was the source's uid used by another one?"))
        };
        let position = FilePosition::deserialize(&split.position).map_err(|error| wrong("position", &split.position).caused_by(error))?;
        let stop = split.stop.as_ref().map(|stop| FileStop::deserialize(stop).map_err(|error| wrong("stop", stop).caused_by(error)));
        let number = self.context.split_table.number(&self.context.uid, &split.id);
        Ok(FileSplit { id: split.id.clone(), number, position, stop: stop.transpose()?, finished: split.finished })
    }

    /// Moves records of the current block into the batch, as many as there is room and leave for. None when there is no block; otherwise how long
    /// to wait where the rate allows no more.
    fn move_records(&mut self, batch: &mut Batch) -> Moved {
        let Some(current) = &mut self.current else { return Moved::NeedsBlock };
        let split = &mut self.splits[current.block.split];
        let limits = &self.context.limits;
        let left = current.block.len() - current.next;
        let most = left.min(limits.records.saturating_sub(batch.len()).max(usize::from(batch.is_empty())));
        let allowed = match &self.limiter {
            Some(limiter) if most > 0 => match limiter.take(most) {
                Ok(allowed) => allowed,
                Err(wait) => return Moved::Wait(wait),
            },
            _ => most,
        };
        let appended = append(current, split, batch, limits, allowed, self.settings.key.as_ref(), &mut self.key_buffer);
        if let Some(limiter) = &self.limiter {
            limiter.give_back(allowed - appended);
        }
        if current.next < current.block.len() {
            return if appended < allowed || allowed == most { Moved::Full } else { Moved::Some };
        }
        split.position.offset = current.block.end();
        if let Some(Current { block, .. }) = self.current.take() {
            self.worker.recycle(block);
        }
        Moved::NeedsBlock
    }

    fn take(&mut self, event: Option<Event>) -> Result<(), Error> {
        match event {
            Some(Event::Lines(block)) => {
                self.splits[block.split].position.set_head(block.head);
                self.current = Some(Current { block, next: 0 });
            }
            Some(Event::End(split)) => self.splits[split].finished = true,
            Some(Event::Lost(split)) => {
                let split = &mut self.splits[split];
                (split.finished, split.position.lost) = (true, true);
                self.lost.add(&split.id);
            }
            Some(Event::Failed(error)) => return Err(error),
            None => return Err(Error::internal(format!("source {}: the thread that reads files has ended", self.context.uid))),
        }
        Ok(())
    }

    fn is_finished(&self) -> bool {
        !self.settings.follow && !self.splits.is_empty() && self.splits.iter().all(|split| split.finished)
    }
}

/// What moving records came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    /// There may be more.
    Some,
    /// There is no room in the batch.
    Full,
    /// All blocks that were read are used up.
    NeedsBlock,
    /// The rate allows no record for so long.
    Wait(Duration),
}

/// Appends up to `most` records that find room, and says how many.
fn append(
    current: &mut Current,
    split: &mut FileSplit,
    batch: &mut Batch,
    limits: &BatchLimits,
    most: usize,
    pointer: Option<&JsonPointer>,
    key_buffer: &mut Vec<u8>,
) -> usize {
    let timestamp = now_milliseconds();
    for appended in 0..most {
        let Some((value, start, next)) = current.block.record(current.next) else { return appended };
        key_buffer.clear();
        let key = pointer.and_then(|pointer| pointer.append_scalar(value, key_buffer).is_ok().then_some(&key_buffer[..]));
        if !limits.has_room(batch, value.len() + key.map_or(0, <[u8]>::len)) {
            return appended;
        }
        let origin = Origin { split: split.number, position: start };
        batch.push(Row { key, value: Some(value), timestamp, origin });
        split.position.offset = next;
        current.next += 1;
    }
    most
}

fn now_milliseconds() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[async_trait]
impl SourceReader for FileReader {
    async fn add_splits(&mut self, splits: Vec<Split>) -> Result<(), Error> {
        let mut cursors = Vec::new();
        for split in &splits {
            if self.splits.iter().any(|before| before.id == split.id) {
                return Err(Error::internal(format!("source {}: split {} was added twice", self.context.uid, split.id)));
            }
            let added = self.split(split)?;
            if added.position.lost {
                self.lost.add(&added.id);
            }
            if !added.finished {
                let FilePosition { path, offset, .. } = &added.position;
                let identity = added.position.identity().ok_or_else(|| {
                    Error::user(format!("source {}: the head_hash in {} is not hexadecimal", self.context.uid, split.position))
                })?;
                cursors.push(Cursor::new(self.splits.len(), path.into(), identity, *offset, added.stop.map(|stop| stop.size)));
            }
            self.splits.push(added);
        }
        self.worker.add(cursors);
        Ok(())
    }

    async fn next_batch(&mut self, batch: &mut Batch) -> Result<ReadStatus, Error> {
        tokio::task::consume_budget().await;
        let mut deadline = None;
        loop {
            // Nothing waits between moving records and noting their position: a dropped future loses no record.
            let moved = self.move_records(batch);
            if self.current.is_none() && self.is_finished() {
                return Ok(ReadStatus::Finished);
            }
            if moved == Moved::Full || (!batch.is_empty() && self.context.limits.reached(batch)) {
                return Ok(ReadStatus::Open);
            }
            if !batch.is_empty() && deadline.is_none() {
                deadline = Some(Instant::now() + self.context.limits.linger);
            }
            match (moved, deadline) {
                (Moved::Some | Moved::Full, _) => {}
                (Moved::Wait(wait), deadline) => {
                    let until = Instant::now() + wait;
                    sleep_until(deadline.map_or(until, |end| end.min(until))).await;
                    if deadline.is_some_and(|end| end <= until) {
                        return Ok(ReadStatus::Open);
                    }
                }
                (Moved::NeedsBlock, None) => {
                    let event = self.worker.events.recv().await;
                    self.take(event)?;
                }
                (Moved::NeedsBlock, Some(end)) => match timeout_at(end, self.worker.events.recv()).await {
                    Ok(event) => self.take(event)?,
                    Err(_) => return Ok(ReadStatus::Open),
                },
            }
        }
    }

    fn positions(&self) -> Vec<Split> {
        let split = |split: &FileSplit| Split {
            id: split.id.clone(),
            position: json!(split.position),
            stop: split.stop.map(|stop| json!(stop)),
            finished: split.finished,
        };
        self.splits.iter().map(split).collect()
    }
}
