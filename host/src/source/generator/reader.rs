//! The reader of generated records.

use super::draw::Draw;
use super::options::{GeneratorOptions, Payload};
use super::splits::Deal;
use super::template::Template;
use crate::Error;
use crate::record::{Batch, Origin};
use crate::source::rate::RateLimiter;
use crate::source::{ReadStatus, ReaderContext, SourceReader, Split};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::time::Instant;

/// The size of a ready-made record by default: what stream engines are usually compared with.
const DEFAULT_FIXED_SIZE: usize = 100;

/// Makes up the records of one subtask.
pub(super) struct GeneratorReader {
    context: ReaderContext,
    limiter: Option<Arc<RateLimiter>>,
    maker: Maker,
    splits: Vec<GeneratorSplit>,
}

#[derive(Debug)]
struct GeneratorSplit {
    deal: Deal,
    number: u32,
    next: u64,
    stop: Option<u64>,
}

impl GeneratorSplit {
    fn is_finished(&self) -> bool {
        self.stop.is_some_and(|stop| self.next >= stop)
    }
}

/// Makes records in place.
struct Maker {
    draw: Draw,
    key: Option<Template>,
    key_buffer: Vec<u8>,
    value: Made,
    size: usize,
    /// What key and value need at most, in bytes.
    longest: usize,
}

enum Made {
    Fixed(Vec<u8>),
    Filled(Template),
}

impl Maker {
    fn new(options: &GeneratorOptions) -> Self {
        let size = options.size.and_then(|size| usize::try_from(size.0).ok());
        // Templates were checked with the options: an empty one is never used.
        let key = options.key.as_deref().map(|key| Template::text(key).unwrap_or_default());
        let value = match options.payload {
            Payload::Fixed => Made::Fixed(fixed_value(size.unwrap_or(DEFAULT_FIXED_SIZE))),
            Payload::Template => Made::Filled(Template::json(&options.template()).unwrap_or_default()),
        };
        let size = size.unwrap_or(0);
        let (longest_value, random_value) = match &value {
            Made::Fixed(value) => (value.len(), false),
            Made::Filled(template) => (template.longest(size), template.is_random()),
        };
        let longest = longest_value + key.as_ref().map_or(0, |key| key.longest(0));
        let is_random = random_value || key.as_ref().is_some_and(Template::is_random);
        Self { draw: Draw::new(options, is_random), key, key_buffer: Vec::new(), value, size, longest }
    }

    fn append(&mut self, batch: &mut Batch, split: u32, sequence: u64) {
        let origin = Origin { split, position: sequence };
        if let (Made::Fixed(value), None) = (&self.value, &self.key) {
            return batch.push_with(None, self.draw.time(sequence), origin, |out| out.extend_from_slice(value));
        }
        let drawn = self.draw.record(sequence);
        let key = self.key.as_ref().map(|template| {
            self.key_buffer.clear();
            template.write(&drawn, 0, &mut self.key_buffer);
            &self.key_buffer[..]
        });
        batch.push_with(key, drawn.time, origin, |out| match &self.value {
            Made::Fixed(value) => out.extend_from_slice(value),
            Made::Filled(template) => template.write(&drawn, self.size, out),
        });
    }
}

/// A JSON object of exactly `size` bytes.
fn fixed_value(size: usize) -> Vec<u8> {
    let mut value = br#"{"payload":""#.to_vec();
    value.resize(size.saturating_sub(2), b'x');
    value.extend_from_slice(br#""}"#);
    value
}

impl GeneratorReader {
    pub(super) fn new(options: &GeneratorOptions, limiter: Option<Arc<RateLimiter>>, context: ReaderContext) -> Self {
        Self { context, limiter, maker: Maker::new(options), splits: Vec::new() }
    }

    /// How many records surely find room in the batch, one at least where it is empty.
    fn room(&self, batch: &Batch) -> usize {
        let limits = self.context.limits;
        let by_bytes = limits.bytes.saturating_sub(batch.byte_len()) / self.maker.longest.max(1);
        let room = by_bytes.min(limits.records.saturating_sub(batch.len()));
        if batch.is_empty() { room.max(1) } else { room }
    }

    /// Appends up to `most` records of the split that is furthest behind, and says how many.
    fn append(&mut self, batch: &mut Batch, most: usize) -> usize {
        let Some(split) = self.splits.iter_mut().filter(|split| !split.is_finished()).min_by_key(|split| split.next) else { return 0 };
        let end = split.deal.run_end(split.next).min(split.stop.unwrap_or(u64::MAX)).min(split.next.saturating_add(most as u64));
        let mut appended = 0;
        for sequence in split.next..end {
            self.maker.append(batch, split.number, sequence);
            appended += 1;
        }
        split.next = split.deal.from(end);
        appended
    }

    fn take(&self, most: usize) -> Result<usize, std::time::Duration> {
        self.limiter.as_ref().map_or(Ok(most), |limiter| limiter.take(most))
    }

    fn split(&self, split: &Split) -> Result<GeneratorSplit, Error> {
        let wrong = |what: &str, value: &Value| {
            let message = format!("source {}: split {} of the checkpoint has the {what} {value}", self.context.uid, split.id);
            Error::user(format!(
                "{message}, which is no sequence number of it: start from another checkpoint, or leave the options as they were"
            ))
        };
        let deal = Deal::parse(&split.id).ok_or_else(|| {
            Error::user(format!(
                "source {}: {:?} is no split of a generator: was the source's uid used by another one?",
                self.context.uid, split.id
            ))
        })?;
        let next = split.position.as_u64().filter(|next| deal.has(*next)).ok_or_else(|| wrong("position", &split.position))?;
        let stop = split.stop.as_ref().map(|stop| stop.as_u64().ok_or_else(|| wrong("stop", stop))).transpose()?;
        Ok(GeneratorSplit { deal, number: self.context.split_table.number(&self.context.uid, &split.id), next, stop })
    }
}

#[async_trait]
impl SourceReader for GeneratorReader {
    async fn add_splits(&mut self, splits: Vec<Split>) -> Result<(), Error> {
        for split in &splits {
            let added = self.split(split)?;
            if self.splits.iter().any(|before| before.deal == added.deal) {
                return Err(Error::internal(format!("source {}: split {} was added twice", self.context.uid, split.id)));
            }
            self.splits.push(added);
        }
        Ok(())
    }

    async fn next_batch(&mut self, batch: &mut Batch) -> Result<ReadStatus, Error> {
        // As fast as possible means that nothing below waits: other tasks of the runtime get their turn here.
        tokio::task::consume_budget().await;
        if self.splits.is_empty() {
            return std::future::pending().await;
        }
        let mut deadline = None;
        loop {
            if self.splits.iter().all(GeneratorSplit::is_finished) {
                return Ok(ReadStatus::Finished);
            }
            let room = self.room(batch);
            if room == 0 {
                return Ok(ReadStatus::Open);
            }
            // Between taking from the limiter and moving on the split nothing waits: a dropped future loses no record.
            match self.take(room) {
                Ok(taken) => {
                    let appended = self.append(batch, taken);
                    if let Some(limiter) = &self.limiter {
                        limiter.give_back(taken - appended);
                    }
                }
                Err(wait) => {
                    let now = Instant::now();
                    let linger_end = if batch.is_empty() { None } else { Some(*deadline.get_or_insert(now + self.context.limits.linger)) };
                    match linger_end {
                        Some(end) if end <= now + wait => {
                            tokio::time::sleep_until(end).await;
                            return Ok(ReadStatus::Open);
                        }
                        _ => tokio::time::sleep(wait).await,
                    }
                }
            }
        }
    }

    fn positions(&self) -> Vec<Split> {
        let split = |split: &GeneratorSplit| Split {
            id: split.deal.id(),
            position: json!(split.next),
            stop: split.stop.map(|stop| json!(stop)),
            finished: split.is_finished(),
        };
        self.splits.iter().map(split).collect()
    }

    fn pending_records(&self) -> Option<u64> {
        let left = |split: &GeneratorSplit| Some(split.deal.count_below(split.stop?) - split.deal.count_below(split.next.min(split.stop?)));
        self.splits.iter().map(left).sum()
    }
}
