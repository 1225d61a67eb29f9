//! What the client's errors mean for transactions.

use super::epochs::Loss;
use crate::checkpoint::participants::LastResourceError;
use crate::kafka::producer::{Producer, Undelivered};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

/// Whether a code says that another producer has the transactional id, or that the broker has aborted the transaction: the two look alike.
fn is_fenced(code: Code) -> bool {
    matches!(code, Code::Fenced | Code::ProducerFenced | Code::InvalidProducerEpoch)
}

/// Whether a code says that the broker refuses by a setting or a right, so that trying again does not help.
pub(in crate::sink::kafka) fn is_refused(code: Code) -> bool {
    matches!(
        code,
        Code::TransactionalIdAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::TopicAuthorizationFailed
            | Code::InvalidTransactionTimeout
            | Code::InvalidRecord
            | Code::InvalidTimestamp
            | Code::PolicyViolation
            | Code::UnsupportedVersion
            | Code::UnsupportedForMessageFormat
    )
}

/// The error of a transaction call: `doing` says what it was for.
///
/// Nothing but a retriable error leaves the outcome open; everything else is answered by a recovery, which reads the marker.
pub(super) fn of_call(producer: &Producer, doing: &str, error: &KafkaError) -> LastResourceError {
    let words = |reason: &str| format!("{doing}: {}", producer.context().secrets().hide(reason));
    match error {
        KafkaError::Transaction(error) => {
            let (code, sentence) = (error.code(), words(&error.string()));
            if is_refused(code) {
                LastResourceError::Refused(sentence)
            } else if is_fenced(code) {
                LastResourceError::Fenced(sentence)
            } else if error.is_fatal() || error.txn_requires_abort() || !error.is_retriable() {
                of_producer(producer).map_or(LastResourceError::Lost(sentence), Into::into)
            } else {
                LastResourceError::Unknown(sentence)
            }
        }
        // Records are still on their way: the transaction itself has not been touched.
        KafkaError::Flush(_) => LastResourceError::Unknown(words(&error.to_string())),
        _ => LastResourceError::Lost(words(&error.to_string())),
    }
}

/// Why nothing more can be sent with a producer, if it says so itself.
pub(super) fn of_producer(producer: &Producer) -> Option<Loss> {
    let (code, reason) = producer.fatal()?;
    let sentence = format!("the producer cannot go on: {}", producer.context().secrets().hide(&reason));
    Some(if is_fenced(code) {
        Loss::Fenced(sentence)
    } else if is_refused(code) {
        Loss::Refused(sentence)
    } else {
        Loss::Lost(sentence)
    })
}

/// A record of the transaction that was not delivered.
pub(super) fn of_record(record: &Undelivered, sentence: String) -> Loss {
    if is_fenced(record.code) {
        Loss::Fenced(sentence)
    } else if is_refused(record.code) {
        Loss::Refused(sentence)
    } else {
        Loss::Lost(sentence)
    }
}
