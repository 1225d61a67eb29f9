//! The calls of librdkafka that have no safe binding: batches of messages, the queue of events, names of properties.
//!
//! All unsafe code of the Kafka connectors is here. What every part relies on: a pointer that librdkafka gave lives as long as the client it
//! came from, and each type here holds that client; librdkafka is thread-safe; texts that it gives are NUL-terminated and live as long as
//! what they were asked of.

mod consume;
mod events;
mod produce;
mod rights;

pub(crate) use consume::{ConsumerQueue, Message};
pub(crate) use events::{MainQueue, set_oauth_token};
pub(crate) use produce::{Outgoing, ProducerTopic, flush};
pub(crate) use rights::may_write;

use super::Consumer;
use rdkafka::bindings;
use rdkafka::consumer::Consumer as _;
use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::time::Duration;

/// Room for librdkafka's sentence about an error.
const ERROR_BYTES: usize = 512;

/// The names of all properties that librdkafka has and shows: for suggestions.
pub(crate) fn property_names() -> Vec<String> {
    let mut names = Vec::new();
    // SAFETY: the configuration is made here, dumped and destroyed here; the dump is an array of `count` texts, names and values in turn, which
    // is read before it is freed with the same count.
    unsafe {
        let config = bindings::rd_kafka_conf_new();
        let mut count = 0;
        let dump = bindings::rd_kafka_conf_dump(config, &raw mut count);
        if !dump.is_null() {
            names.extend((0..count).step_by(2).map(|index| text(*dump.add(index))));
            bindings::rd_kafka_conf_dump_free(dump, count);
        }
        bindings::rd_kafka_conf_destroy(config);
    }
    names.extend(UNLISTED.iter().map(|name| (*name).to_owned()));
    names
}

/// What a dump leaves out: other names of properties, those of topics, and those without a default.
const UNLISTED: [&str; 38] = [
    "acks",
    "bootstrap.servers",
    "client.rack",
    "compression.level",
    "compression.type",
    "debug",
    "delivery.timeout.ms",
    "fetch.max.bytes",
    "group.id",
    "linger.ms",
    "max.in.flight",
    "max.partition.fetch.bytes",
    "message.timeout.ms",
    "partitioner",
    "queue.buffering.max.ms",
    "request.required.acks",
    "request.timeout.ms",
    "retries",
    "sasl.kerberos.keytab",
    "sasl.kerberos.principal",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.password",
    "sasl.username",
    "security.protocol",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.cipher.suites",
    "ssl.crl.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "transaction.timeout.ms",
];

/// The end of a partition as the last fetch saw it; none before the first one. Asks nobody.
pub(crate) fn known_end(consumer: &Consumer, topic: &CStr, partition: i32) -> Option<i64> {
    let (mut low, mut high) = (-1, -1);
    // SAFETY: the client is alive while the consumer is borrowed, `topic` is NUL-terminated, and both offsets outlive the call.
    let code = unsafe {
        let client = consumer.client().native_ptr();
        bindings::rd_kafka_get_watermark_offsets(client, topic.as_ptr(), partition, &raw mut low, &raw mut high)
    };
    (code == bindings::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR && high >= 0).then_some(high)
}

/// A copy of a text of librdkafka; empty for null.
///
/// # Safety
/// Null, or NUL-terminated and alive.
unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: not null, and the rest is the caller's promise.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

/// A time to wait as librdkafka takes it.
fn milliseconds(time: Duration) -> c_int {
    c_int::try_from(time.as_millis()).unwrap_or(c_int::MAX)
}

/// A slice of what librdkafka gave as pointer and length; none for null, which is not empty.
///
/// # Safety
/// Null, or `length` bytes that stay as they are for `'a`.
unsafe fn bytes<'a>(pointer: *const std::ffi::c_void, length: usize) -> Option<&'a [u8]> {
    if ptr::addr_eq(pointer, ptr::null::<u8>()) {
        return None;
    }
    // SAFETY: not null, and the rest is the caller's promise.
    Some(unsafe { std::slice::from_raw_parts(pointer.cast(), length) })
}
