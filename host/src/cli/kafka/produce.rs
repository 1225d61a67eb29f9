//! `waterwheel kafka produce TOPIC`: lines of the standard input become records.

use super::Outcome;
use crate::Error;
use crate::kafka::{ClientOptions, Cluster, Context, error};
use crate::record::JsonPointer;
use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use std::error::Error as StdError;
use std::io::BufRead;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a record may wait for a broker before the command gives up.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause before a record is offered again to a client whose queue is full.
const QUEUE_PAUSE: Duration = Duration::from_millis(2);

/// Where the lines go, and how.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    /// The topic; it must exist.
    topic: String,
    /// Records a second; by default as fast as lines come.
    #[arg(long, value_parser = rate)]
    rate: Option<f64>,
    /// The partition; by default the one of the key (as the Java client deals them), or any.
    #[arg(long, value_parser = clap::value_parser!(i32).range(0..))]
    partition: Option<i32>,
    /// Where in each line, which is JSON then, the key is: `/user`.
    #[arg(long, value_name = "JSON POINTER", value_parser = JsonPointer::parse, conflicts_with = "key_separator")]
    key_pointer: Option<JsonPointer>,
    /// What stands between key and value of each line.
    #[arg(long, value_name = "TEXT")]
    key_separator: Option<String>,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "write records a second, such as 10".to_owned())?;
    if rate.is_finite() && rate > 0.0 { Ok(rate) } else { Err("a rate is above 0".to_owned()) }
}

/// Runs the command. Everything that was read is on the broker when it returns without an error.
pub(super) async fn run(arguments: &Arguments, options: &ClientOptions) -> Outcome {
    Cluster::new(options)?.topics(vec![arguments.topic.clone()]).await?;
    let mut options = options.clone();
    options.set("enable.idempotence", "true").set_default("partitioner", "murmur2_random").set_default("linger.ms", "5");
    options.set_default("message.timeout.ms", DELIVERY_TIMEOUT.as_millis().to_string());
    let context = Deliveries { client: options.context(), failed: Mutex::default() };
    let producer: Result<ThreadedProducer<Deliveries>, KafkaError> = options.config().create_with_context(context);
    let producer = producer.map_err(|error| error::of(&options.context(), "making a producer", &error))?;
    options.set_token(producer.client())?;
    let arguments = arguments.clone();
    let written = tokio::task::spawn_blocking(move || write(&arguments, &producer)).await;
    let count = written.map_err(|error| Error::internal("writing broke off").caused_by(error))??;
    crate::cli::say(&format!("{count} records written"));
    Ok(String::new())
}

fn write(writing: &Arguments, producer: &ThreadedProducer<Deliveries>) -> Result<u64, Error> {
    let mut input = std::io::stdin().lock();
    let (mut line, mut count) = (Vec::new(), 0_u64);
    let began = Instant::now();
    loop {
        line.clear();
        let read =
            input.read_until(b'\n', &mut line).map_err(|error| Error::external("the standard input cannot be read").caused_by(error))?;
        if read == 0 {
            break;
        }
        let text = line.strip_suffix(b"\n").map_or(line.as_slice(), |line| line.strip_suffix(b"\r").unwrap_or(line));
        if let Some(rate) = writing.rate {
            #[allow(clippy::cast_precision_loss, reason = "exact up to 2^53 records")]
            let due = Duration::from_secs_f64(count as f64 / rate);
            std::thread::sleep(due.saturating_sub(began.elapsed()));
        }
        send(writing, producer, text, count + 1)?;
        count += 1;
    }
    // Each record is reported, or its own time is over, before this is.
    let flushed = producer.flush(DELIVERY_TIMEOUT + Duration::from_secs(5));
    failure(writing, producer)?;
    flushed.map_err(|error| error::of(&producer.context().client, format!("writing to topic {}", writing.topic), &error))?;
    Ok(count)
}

fn send(writing: &Arguments, producer: &ThreadedProducer<Deliveries>, line: &[u8], number: u64) -> Result<(), Error> {
    let (key, value) = split(writing, line, number)?;
    let mut record = BaseRecord::<[u8], [u8]>::to(&writing.topic).payload(value);
    if let Some(key) = &key {
        record = record.key(key);
    }
    if let Some(partition) = writing.partition {
        record = record.partition(partition);
    }
    loop {
        failure(writing, producer)?;
        match producer.send(record) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), refused)) => {
                record = refused;
                std::thread::sleep(QUEUE_PAUSE);
            }
            Err((error, _)) => {
                return Err(error::of(&producer.context().client, format!("line {number} to topic {}", writing.topic), &error));
            }
        }
    }
}

/// Key and value of a line.
fn split<'a>(writing: &Arguments, line: &'a [u8], number: u64) -> Result<(Option<Vec<u8>>, &'a [u8]), Error> {
    if let Some(pointer) = &writing.key_pointer {
        let mut key = Vec::new();
        let wrong = |fault| Error::user(format!("line {number} has no key: {fault}"));
        pointer.append_scalar(line, &mut key).map_err(wrong)?;
        return Ok((Some(key), line));
    }
    if let Some(separator) = writing.key_separator.as_deref().filter(|separator| !separator.is_empty()) {
        let at = line.windows(separator.len()).position(|window| window == separator.as_bytes());
        let at = at.ok_or_else(|| Error::user(format!("line {number} has no {separator:?} between key and value")))?;
        return Ok((Some(line[..at].to_vec()), &line[at + separator.len()..]));
    }
    Ok((None, line))
}

/// The first record that could not be delivered.
fn failure(writing: &Arguments, producer: &ThreadedProducer<Deliveries>) -> Result<(), Error> {
    let context = producer.context();
    let failed = context.failed.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match failed {
        None => Ok(()),
        Some((partition, failed)) => {
            let doing = format!("writing to topic {}, partition {partition}", writing.topic);
            Err(error::of(&context.client, doing, &failed))
        }
    }
}

/// Remembers the first delivery that failed.
struct Deliveries {
    client: Context,
    failed: Mutex<Option<(i32, KafkaError)>>,
}

impl ClientContext for Deliveries {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        self.client.log(level, facility, text);
    }

    fn stats_raw(&self, _: &[u8]) {}

    fn error(&self, error: KafkaError, reason: &str) {
        self.client.error(error, reason);
    }

    fn generate_oauth_token(&self, config: Option<&str>) -> Result<OAuthToken, Box<dyn StdError>> {
        self.client.generate_oauth_token(config)
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, message)) = result {
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.get_or_insert_with(|| (message.partition(), error.clone()));
        }
    }
}
