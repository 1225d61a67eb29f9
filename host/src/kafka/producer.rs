//! A producer: its events are served by a thread of its own, and it knows what it could not deliver.

use super::context::Context;
use super::ffi::{self, ProducerTopic};
use super::{ClientOptions, error};
use crate::Error;
use crate::record::Origin;
use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::{BaseProducer, Producer as _, ProducerContext};
use std::error::Error as StdError;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How long the thread waits for events before it looks whether it should end.
const POLL: Duration = Duration::from_millis(100);

/// A topic of a [`Producer`].
pub(crate) type Topic = ProducerTopic<Deliveries>;

/// A record that was not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Undelivered {
    /// Why.
    pub(crate) code: RDKafkaErrorCode,
    /// The topic that it was for.
    pub(crate) topic: String,
    /// The partition, if one was chosen.
    pub(crate) partition: Option<i32>,
    /// Where it was read, if that is known.
    pub(crate) origin: Option<Origin>,
}

/// What is told at once: a record that was not delivered, or that the whole client cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A record was not delivered.
    Record(Undelivered),
    /// The client as a whole has failed: ask [`Producer::fatal`].
    Client,
}

type Listener = Box<dyn Fn(&Failure) + Send + Sync>;

/// The context of a producer: what was not delivered.
pub(crate) struct Deliveries {
    context: Context,
    listener: Listener,
    /// Its last user is gone: what is not delivered any more is no failure.
    retired: Arc<AtomicBool>,
    first: Mutex<Option<Undelivered>>,
}

impl ClientContext for Deliveries {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        self.context.log(level, facility, text);
    }

    fn stats_raw(&self, _: &[u8]) {}

    fn error(&self, error: KafkaError, reason: &str) {
        if self.retired.load(Ordering::Acquire) {
            return;
        }
        let is_fatal = error.rdkafka_error_code() == Some(RDKafkaErrorCode::Fatal);
        self.context.error(error, reason);
        if is_fatal {
            (self.listener)(&Failure::Client);
        }
    }

    fn generate_oauth_token(&self, config: Option<&str>) -> Result<OAuthToken, Box<dyn StdError>> {
        self.context.generate_oauth_token(config)
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, opaque: usize) {
        let Err((error, message)) = result else { return };
        if self.retired.load(Ordering::Acquire) {
            return;
        }
        let undelivered = Undelivered {
            code: error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail),
            topic: message.topic().to_owned(),
            partition: Some(message.partition()).filter(|partition| *partition >= 0),
            origin: origin(opaque),
        };
        self.first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| undelivered.clone());
        (self.listener)(&Failure::Record(undelivered));
    }
}

/// A producer. Dropping it delivers nothing more, and returns at once.
pub(crate) struct Producer {
    client: Arc<BaseProducer<Deliveries>>,
    retired: Arc<AtomicBool>,
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("context", &self.deliveries().context).finish_non_exhaustive()
    }
}

impl Producer {
    /// Makes a producer; nothing is connected yet. `listener` is told of every failure, from another thread.
    ///
    /// # Errors
    /// Properties that do not go together, or no thread.
    pub(crate) fn new(options: &ClientOptions, listener: impl Fn(&Failure) + Send + Sync + 'static) -> Result<Self, Error> {
        let retired = Arc::new(AtomicBool::new(false));
        let deliveries =
            Deliveries { context: options.context(), listener: Box::new(listener), retired: Arc::clone(&retired), first: Mutex::default() };
        let client: KafkaResult<BaseProducer<Deliveries>> = options.config().create_with_context(deliveries);
        let client = client.map_err(|error| error::of(&options.context(), "making a Kafka producer", &error))?;
        let client = Arc::new(client);
        let serve = Service { client: Arc::clone(&client), stop: Arc::clone(&retired) };
        thread::Builder::new()
            .name(format!("kafka-{}", options.uid()))
            .spawn(move || serve.run())
            .map_err(|error| Error::external("the system gives no thread for a Kafka producer").caused_by(error))?;
        Ok(Self { client, retired })
    }

    /// A topic of this producer. It must not outlive it.
    ///
    /// # Errors
    /// A name that no topic can have.
    pub(crate) fn topic(&self, name: &str) -> Result<Topic, RDKafkaErrorCode> {
        ProducerTopic::new(&self.client, name)
    }

    /// The client.
    pub(crate) fn client(&self) -> &BaseProducer<Deliveries> {
        &self.client
    }

    /// What the brokers said.
    pub(crate) fn context(&self) -> &Context {
        &self.deliveries().context
    }

    /// Waits until every record was delivered or has failed, `wait` at most; whether it is so. Meanwhile nothing lingers.
    pub(crate) fn flush(&self, wait: Duration) -> bool {
        ffi::flush(self.client.client(), wait)
    }

    /// The first record that was not delivered.
    pub(crate) fn first_failure(&self) -> Option<Undelivered> {
        self.deliveries().first.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why the client cannot go on at all, if so.
    pub(crate) fn fatal(&self) -> Option<(RDKafkaErrorCode, String)> {
        self.client.client().fatal_error()
    }

    fn deliveries(&self) -> &Deliveries {
        self.client.context()
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.retired.store(true, Ordering::Release);
    }
}

/// Serves the events of a producer until nobody uses it any more. It is the last that holds the client, whose end waits.
struct Service {
    client: Arc<BaseProducer<Deliveries>>,
    stop: Arc<AtomicBool>,
}

impl Service {
    fn run(self) {
        while !self.stop.load(Ordering::Acquire) || Arc::strong_count(&self.client) > 1 {
            self.client.poll(POLL);
        }
    }
}

/// Bits of the position in an opaque; the others are the split's.
const POSITION_BITS: u32 = 44;

/// An origin as a delivery report gives it back; 0 where there is none, or none that fits.
pub(crate) fn opaque(origin: Origin) -> usize {
    let split = u64::from(origin.split) + 1;
    if !origin.is_some() || origin.position >> POSITION_BITS != 0 || split >> (u64::BITS - POSITION_BITS) != 0 {
        return 0;
    }
    usize::try_from(split << POSITION_BITS | origin.position).unwrap_or(0)
}

fn origin(opaque: usize) -> Option<Origin> {
    let opaque = opaque as u64;
    let split = u32::try_from((opaque >> POSITION_BITS).checked_sub(1)?).ok()?;
    Some(Origin { split, position: opaque & ((1 << POSITION_BITS) - 1) })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn origins_come_back() {
        for (split, position) in [(0, 0), (3, 17), (900_000, (1 << 44) - 1)] {
            let there = Origin { split, position };
            assert_eq!(origin(opaque(there)), Some(there));
        }
        for none in [Origin::NONE, Origin { split: 1, position: 1 << 44 }, Origin { split: 1 << 20, position: 0 }] {
            assert_eq!(origin(opaque(none)), None);
        }
    }
}
