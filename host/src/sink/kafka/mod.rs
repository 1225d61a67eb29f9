//! Topics of a Kafka cluster.
//!
//! Exactly-once, every record between two barriers is part of one transaction, together with a marker that names the checkpoint
//! (`transactions`); a reader with `isolation.level=read_committed` sees it when the checkpoint is completed, and never twice. What a
//! transaction did not commit is read again. At-least-once, each subtask has an idempotent producer, and every record is delivered before
//! the barrier goes on. With no guarantee records are sent and nobody waits for them.
//!
//! A batch goes to the client record by record without an allocation of its own (`send`); where it would not be taken (too large, no such
//! partition), that is found out before, because a broker refuses a whole batch for one record.

mod options;
mod send;
mod topics;
mod transactions;
mod writer;

pub use options::{CreateTopics, KafkaOptions, OnError, PartitionOption, TopicOption, TopicPlace};

pub(crate) use options::{prefix_fault, transactional_ids};
pub(crate) use transactions::marker::Markers;

use super::{Guarantee, Sink, SinkType, SinkWriter, TransactionContext, TransactionDomain, TransactionalSink, Transactions, WriterContext};
use crate::Error;
use crate::config::Fault;
use crate::kafka::producer::Undelivered;
use crate::record::Place;
use async_trait::async_trait;
use options::Settings;
use rdkafka::error::RDKafkaErrorCode;
use send::Sender;
use serde_json::Value;
use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use topics::Topics;
use transactions::KafkaTransactions;
use writer::{PlainWriter, TransactionalWriter};

/// The sink type `kafka`.
#[derive(Clone, Copy, Debug, Default)]
pub struct KafkaType;

impl SinkType for KafkaType {
    fn name(&self) -> &str {
        "kafka"
    }

    fn options_schema(&self) -> schemars::Schema {
        schemars::schema_for!(KafkaOptions)
    }

    fn guarantees(&self) -> &[Guarantee] {
        &[Guarantee::None, Guarantee::AtLeastOnce, Guarantee::ExactlyOnce]
    }

    fn promise(&self) -> &str {
        "kafka can be none (sent and forgotten), at-least-once (acknowledged before a checkpoint goes on) or exactly-once (a transaction for each \
         checkpoint; its readers need isolation.level=read_committed)"
    }

    fn create(&self, uid: &str, options: &Value, guarantee: Guarantee) -> Result<Arc<dyn Sink>, Vec<Fault>> {
        let settings = Arc::new(Settings::parse(uid, options, guarantee)?);
        let topics = Arc::new(Topics::new(Arc::clone(&settings)));
        Ok(Arc::new(KafkaSink { settings, topics, transactions: Mutex::default() }))
    }
}

/// Topics of a Kafka cluster.
#[derive(Debug)]
struct KafkaSink {
    settings: Arc<Settings>,
    topics: Arc<Topics>,
    /// The transactions of the job, where this sink opened them.
    transactions: Mutex<Option<KafkaTransactions>>,
}

#[async_trait]
impl Sink for KafkaSink {
    async fn open(&self, context: WriterContext) -> Result<Box<dyn SinkWriter>, Error> {
        if self.settings.guarantee != Guarantee::ExactlyOnce {
            let limit = self.topics.fixed().await?.map_or(usize::MAX, |topic| topic.limit);
            let sender = Sender::open(&self.settings, &self.topics, self.settings.batch_size(limit), &context).await?;
            return Ok(Box::new(PlainWriter::new(sender, &self.settings, limit, &context.split_table)?));
        }
        let transactions = context.transactions.as_deref().and_then(|transactions| (transactions as &dyn Any).downcast_ref());
        let transactions: &KafkaTransactions =
            transactions.ok_or_else(|| Error::internal("an exactly-once writer was opened without the transactions of its job"))?;
        let sender = Sender::open(&self.settings, &self.topics, transactions.batch_size(), &context).await?;
        Ok(Box::new(TransactionalWriter::new(sender, transactions.clone(), &context.split_table)))
    }

    async fn verify(&self) -> Result<(), Error> {
        let transactions = self.transactions.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(transactions) = transactions else { return self.topics.verify().await.map(|_| ()) };
        let (topic, verified) = tokio::join!(self.topics.verify(), transactions.verify());
        if let Some(topic) = topic? {
            transactions.limit_batches(topic.limit);
        }
        verified
    }

    fn promise(&self) -> Option<String> {
        Some(match self.settings.guarantee {
            Guarantee::None => "records are sent and forgotten: some may be lost or repeated".to_owned(),
            Guarantee::AtLeastOnce => {
                "every record is acknowledged before its checkpoint goes on; after a crash those since the last one are written again".to_owned()
            }
            Guarantee::ExactlyOnce => {
                "one transaction for each checkpoint, which names it; a reader with isolation.level=read_committed sees every record once, when \
                 the checkpoint is completed (with read_uncommitted it sees what was aborted, too)"
                    .to_owned()
            }
        })
    }

    fn as_transactional(&self) -> Option<&dyn TransactionalSink> {
        (self.settings.guarantee == Guarantee::ExactlyOnce).then_some(self as _)
    }
}

#[async_trait]
impl TransactionalSink for KafkaSink {
    fn domain(&self) -> TransactionDomain {
        let mut servers: Vec<&str> = self.settings.client.servers().split(',').map(str::trim).collect();
        servers.sort_unstable();
        TransactionDomain {
            resource: format!("the Kafka cluster at {}", servers.join(",")),
            prefix: self.settings.prefix.clone(),
            settings: self.settings.client.comparable(),
        }
    }

    fn longest_checkpoint(&self, interval: Duration) -> Result<Duration, String> {
        self.settings.longest_checkpoint(interval)
    }

    async fn open(&self, context: TransactionContext) -> Result<Arc<dyn Transactions>, Error> {
        let transactions = KafkaTransactions::new(&self.settings, &context)?;
        *self.transactions.lock().unwrap_or_else(PoisonError::into_inner) = Some(transactions.clone());
        Ok(Arc::new(transactions))
    }
}

/// Says which record was not delivered, and why.
fn undelivered_sentence(record: &Undelivered, place: Option<&Place>) -> String {
    let which = place.map_or_else(|| "a record".to_owned(), |place| format!("the record at {place},"));
    let partition = record.partition.map(|partition| format!(", partition {partition}")).unwrap_or_default();
    format!("{which} was not delivered to topic {}{partition}: {}", record.topic, record.code)
}

/// The error of a record that was not delivered: what a right, a setting or the record itself is to blame for is not tried again.
fn undelivered_error(code: RDKafkaErrorCode, sentence: String) -> Error {
    if transactions::is_refused(code) { Error::user(sentence) } else { Error::external(sentence) }
}
