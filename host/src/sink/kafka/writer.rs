//! Writers of a Kafka sink: of one that is exactly-once, through the transactions of the job; of the others, each with a producer of its own.

use super::options::Settings;
use super::send::{Bound, SendError, Sender};
use super::transactions::KafkaTransactions;
use super::undelivered_sentence;
use crate::Error;
use crate::kafka::producer::{Failure, Producer, Undelivered};
use crate::record::{Batch, SplitTable};
use crate::sink::{CheckpointBarrier, Guarantee, SinkWriter};
use async_trait::async_trait;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::task::spawn_blocking;

/// How long records are waited for before it is looked whether one has failed.
const FLUSH_STEP: Duration = Duration::from_millis(50);
/// How long a sink without a guarantee waits for its last records when it is closed.
const LAST_FLUSH: Duration = Duration::from_secs(10);

/// Writes inside of the job's transactions.
pub(super) struct TransactionalWriter {
    sender: Sender,
    transactions: KafkaTransactions,
    /// The two producers as they were last met.
    bound: [Option<Bound>; 2],
}

impl TransactionalWriter {
    pub(super) fn new(sender: Sender, transactions: KafkaTransactions, split_table: &SplitTable) -> Self {
        transactions.name_records_by(split_table);
        Self { sender, transactions, bound: [None, None] }
    }
}

#[async_trait]
impl SinkWriter for TransactionalWriter {
    async fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        let (current, producer) = self.transactions.producer()?;
        let slot = &mut self.bound[current];
        if slot.as_ref().is_none_or(|bound| !Arc::ptr_eq(&bound.producer, &producer)) {
            *slot = Some(Bound::new(Arc::clone(&producer)));
        }
        let Some(bound) = slot else { return Ok(()) };
        let transactions = &self.transactions;
        match self.sender.send(bound, batch, || transactions.producer().map(|_| ())).await {
            Ok(()) => Ok(()),
            Err(SendError::Error(error)) => Err(error),
            Err(SendError::Client(undelivered)) => Err(self.transactions.lost(&undelivered, &producer)),
        }
    }

    /// All that was written is delivered at the barrier; it is never flushed alone.
    async fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn prepare(&mut self, barrier: &CheckpointBarrier) -> Result<Vec<Value>, Error> {
        self.transactions.meet(barrier).await?;
        Ok(Vec::new())
    }
}

/// Writes without transactions.
pub(super) struct PlainWriter {
    sender: Sender,
    bound: Bound,
    guarantee: Guarantee,
    split_table: SplitTable,
}

impl PlainWriter {
    /// With a producer for topics with this smallest limit.
    ///
    /// # Errors
    /// Properties that do not go together, or no thread.
    pub(super) fn new(sender: Sender, settings: &Settings, limit: usize, split_table: &SplitTable) -> Result<Self, Error> {
        let guarantee = settings.guarantee;
        let (uid, names) = (settings.client.uid().to_owned(), split_table.clone());
        let failed = AtomicU64::new(0);
        let producer = Producer::new(&settings.producer(limit), move |failure| {
            let Failure::Record(record) = failure else { return };
            let failed = 1 + failed.fetch_add(1, Relaxed);
            if guarantee == Guarantee::None && failed.is_power_of_two() {
                let place = record.origin.and_then(|origin| names.place(origin));
                tracing::warn!(uid, failed, "{}", undelivered_sentence(record, place.as_ref()));
            }
        })?;
        Ok(Self { sender, bound: Bound::new(Arc::new(producer)), guarantee, split_table: split_table.clone() })
    }

    /// Fails when a record was not delivered, unless nothing is promised.
    fn check(&self) -> Result<(), Error> {
        if self.guarantee == Guarantee::None {
            return Ok(());
        }
        check_delivered(&self.bound.producer, &self.split_table)
    }
}

#[async_trait]
impl SinkWriter for PlainWriter {
    async fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        self.check()?;
        let (guarantee, producer, table) = (self.guarantee, Arc::clone(&self.bound.producer), self.split_table.clone());
        let is_alive = || if guarantee == Guarantee::None { Ok(()) } else { check_delivered(&producer, &table) };
        match self.sender.send(&mut self.bound, batch, is_alive).await {
            Ok(()) => Ok(()),
            Err(SendError::Error(error)) => Err(error),
            Err(SendError::Client(record)) => Err(client_error(&producer, &record, &table)),
        }
    }

    async fn flush(&mut self) -> Result<(), Error> {
        loop {
            let producer = Arc::clone(&self.bound.producer);
            let done = spawn_blocking(move || producer.flush(FLUSH_STEP)).await;
            let done = done.map_err(|error| Error::internal("waiting for records broke off").caused_by(error))?;
            self.check()?;
            if done {
                return Ok(());
            }
        }
    }

    async fn close(&mut self) -> Result<(), Error> {
        if self.guarantee != Guarantee::None {
            return self.flush().await;
        }
        if tokio::time::timeout(LAST_FLUSH, self.flush()).await.is_err() {
            tracing::warn!(
                "the last records could not be delivered within {LAST_FLUSH:?} and are dropped, as delivery-guarantee: none allows"
            );
        }
        Ok(())
    }
}

fn check_delivered(producer: &Producer, table: &SplitTable) -> Result<(), Error> {
    match producer.first_failure() {
        None => Ok(()),
        Some(record) => Err(client_error(producer, &record, table)),
    }
}

/// The error of a record that the client or the broker did not take.
fn client_error(producer: &Producer, record: &Undelivered, table: &SplitTable) -> Error {
    let place = record.origin.and_then(|origin| table.place(origin));
    let sentence = undelivered_sentence(record, place.as_ref());
    let fatal = producer.fatal().map(|(_, reason)| format!(" ({})", producer.context().secrets().hide(&reason))).unwrap_or_default();
    super::undelivered_error(record.code, format!("{sentence}{fatal}"))
}
