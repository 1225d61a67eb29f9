//! The sending side of an edge between tasks: deals records to the subtasks that receive them.

use super::channel::{Element, Sender};
use crate::Error;
use crate::pipeline::plan::Exchange;
use crate::pipeline::spec::{KeyBy, OnMissingKey};
use crate::record::{Batch, JsonPointer, KeyGroups, SplitTable};
use crate::source::BatchLimits;
use crate::telemetry::TaskMetrics;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A send that takes as long as this has waited for room.
const WAIT: Duration = Duration::from_micros(50);

/// What becomes of a record without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MissingKey {
    /// The task fails and names the record.
    Fail,
    /// The record is dropped and counted.
    Drop,
    /// The receiving operator gets it without a key, and makes a dead letter of it.
    Pass,
}

/// Where the key of a record is.
#[derive(Debug)]
enum KeySource {
    Key,
    JsonPointer(JsonPointer),
    Header(String),
}

#[derive(Debug)]
enum Deal {
    Forward,
    Rebalance { next: usize },
    Broadcast,
    KeyGroup { key: KeySource, missing: MissingKey, groups: KeyGroups },
}

/// One subtask's end of an edge.
#[derive(Debug)]
pub(super) struct ExchangeWriter {
    /// The uid of the receiving node, for errors.
    to: Arc<str>,
    deal: Deal,
    senders: Vec<Sender>,
    /// Records that are dealt by key and wait for their batch to fill up, by receiving subtask.
    pending: Vec<Batch>,
    pending_since: Option<Instant>,
    limits: BatchLimits,
    split_table: SplitTable,
    dropped: Arc<AtomicU64>,
    metrics: Arc<TaskMetrics>,
    key: Vec<u8>,
}

/// What a writer needs beside its channels.
#[derive(Debug)]
pub(super) struct ExchangeOptions<'a> {
    pub(super) to: Arc<str>,
    pub(super) exchange: &'a Exchange,
    /// What becomes of a record without a key where the job does not say `drop`: by the receiving operator's error policy.
    pub(super) missing: MissingKey,
    pub(super) max_parallelism: u16,
    pub(super) limits: BatchLimits,
    pub(super) split_table: SplitTable,
    /// Counts the records without a key that were dropped.
    pub(super) dropped: Arc<AtomicU64>,
    /// Those of the sending node, for the time that it waits for room.
    pub(super) metrics: Arc<TaskMetrics>,
}

impl ExchangeWriter {
    /// A writer to these channels, one a receiving subtask (a single one for `forward`).
    pub(super) fn new(options: ExchangeOptions<'_>, senders: Vec<Sender>) -> Result<Self, Error> {
        let parallelism = u16::try_from(senders.len()).map_err(|_| Error::internal("an edge has more than 65535 channels"))?;
        let deal = match options.exchange {
            Exchange::Forward => Deal::Forward,
            Exchange::Rebalance => Deal::Rebalance { next: 0 },
            Exchange::Broadcast => Deal::Broadcast,
            Exchange::KeyGroup { key_by, on_missing_key } => Deal::KeyGroup {
                key: KeySource::of(key_by)?,
                missing: if *on_missing_key == OnMissingKey::Drop { MissingKey::Drop } else { options.missing },
                groups: KeyGroups::new(options.max_parallelism, parallelism),
            },
        };
        Ok(Self {
            to: options.to,
            deal,
            pending: senders.iter().map(|_| Batch::default()).collect(),
            senders,
            pending_since: None,
            limits: options.limits,
            split_table: options.split_table,
            dropped: options.dropped,
            metrics: options.metrics,
            key: Vec::new(),
        })
    }

    /// Deals a batch. Records dealt by key may wait until [`ExchangeWriter::flush`].
    pub(super) async fn send(&mut self, batch: Batch) -> Result<(), Error> {
        match &mut self.deal {
            Deal::Forward => self.put(0, Element::Batch(batch)).await,
            Deal::Rebalance { next } => {
                let target = *next;
                *next = (target + 1) % self.senders.len();
                self.put(target, Element::Batch(batch)).await
            }
            Deal::Broadcast => {
                for target in 0..self.senders.len() {
                    self.put(target, Element::Batch(batch.clone())).await?;
                }
                Ok(())
            }
            Deal::KeyGroup { .. } => self.deal_by_key(&batch).await,
        }
    }

    async fn deal_by_key(&mut self, batch: &Batch) -> Result<(), Error> {
        for index in 0..batch.len() {
            let Some(target) = self.push_by_key(batch, index)? else { continue };
            if self.limits.reached(&self.pending[target]) {
                self.flush_one(target).await?;
            }
        }
        if self.pending_since.is_none() && self.pending.iter().any(|pending| !pending.is_empty()) {
            self.pending_since = Some(Instant::now());
        }
        Ok(())
    }

    /// Puts a record into the batch of its subtask; none when it was dropped.
    fn push_by_key(&mut self, batch: &Batch, index: usize) -> Result<Option<usize>, Error> {
        let Deal::KeyGroup { key: source, missing, groups } = &self.deal else { return Ok(None) };
        self.key.clear();
        match source.find(batch, index, &mut self.key) {
            Ok(()) => {
                let target = groups.subtask(&self.key);
                self.pending[target].push_keyed(batch, index, Some(&self.key));
                Ok(Some(target))
            }
            Err(reason) => match missing {
                MissingKey::Pass => {
                    self.pending[0].push_keyed(batch, index, None);
                    Ok(Some(0))
                }
                MissingKey::Drop => {
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                    Ok(None)
                }
                MissingKey::Fail => {
                    let place = self.split_table.place(batch.origins()[index]);
                    let record = place.map_or_else(|| "a record that no source read".to_owned(), |place| format!("the record at {place},"));
                    Err(Error::user(format!(
                        "on the way to {}, {record} has no key by its `key-by`: {reason}; correct `key-by` or the record, or say what becomes \
                         of such records: `on-missing-key: drop`, or an operator's `error-policy`",
                        self.to
                    )))
                }
            },
        }
    }

    async fn flush_one(&mut self, target: usize) -> Result<(), Error> {
        let full = &self.pending[target];
        let room = Batch::with_capacity(full.len(), full.byte_len());
        let batch = std::mem::replace(&mut self.pending[target], room);
        self.put(target, Element::Batch(batch)).await
    }

    /// Sends what waits for its batch to fill up.
    pub(super) async fn flush(&mut self) -> Result<(), Error> {
        self.pending_since = None;
        for target in 0..self.pending.len() {
            if !self.pending[target].is_empty() {
                self.flush_one(target).await?;
            }
        }
        Ok(())
    }

    /// When the oldest record that waits has waited long enough.
    pub(super) fn flush_due(&self) -> Option<Instant> {
        self.pending_since.map(|since| since + self.limits.linger)
    }

    /// Sends an element to every receiving subtask, behind all records.
    pub(super) async fn send_to_all(&mut self, element: &Element) -> Result<(), Error> {
        self.flush().await?;
        for target in 0..self.senders.len() {
            self.put(target, element.clone()).await?;
        }
        Ok(())
    }

    /// Tells every receiving subtask, ahead of all records, that a checkpoint was given up.
    pub(super) fn give_up(&self, sequence: u64) {
        self.senders.iter().for_each(|sender| sender.give_up(sequence));
    }

    async fn put(&self, target: usize, element: Element) -> Result<(), Error> {
        let began = Instant::now();
        let sent = self.senders[target].send(element).await;
        let waited = began.elapsed();
        if waited >= WAIT {
            self.metrics.back_pressured(waited);
        }
        sent.map_err(|gone| Error::internal(format!("the channel to {}, subtask {target}, is closed", self.to)).caused_by(gone))
    }
}

impl KeySource {
    fn of(key_by: &KeyBy) -> Result<Self, Error> {
        Ok(match key_by {
            KeyBy::Key => Self::Key,
            KeyBy::JsonPointer(pointer) => Self::JsonPointer(JsonPointer::parse(pointer).map_err(Error::user)?),
            KeyBy::Header(name) => Self::Header(name.clone()),
        })
    }

    /// Appends the record's key, or says why there is none.
    fn find(&self, batch: &Batch, index: usize, key: &mut Vec<u8>) -> Result<(), String> {
        let found = match self {
            Self::Key => batch.key(index),
            Self::JsonPointer(pointer) => {
                let value = batch.value(index).ok_or("its value is null")?;
                return pointer.append_scalar(value, key).map_err(|fault| fault.to_string());
            }
            Self::Header(name) => {
                let headers = batch.headers().row(index).filter(|header| header.name == name);
                headers.last().and_then(|header| header.value)
            }
        };
        match found {
            Some(bytes) => key.extend_from_slice(bytes),
            None => {
                return Err(match self {
                    Self::Header(name) => format!("it has no header {name}"),
                    _ => "its key is null".to_owned(),
                });
            }
        }
        Ok(())
    }
}
