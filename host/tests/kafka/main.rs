//! Kafka sources and sinks against a real broker, which runs for the length of the test run.

#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value, clippy::cast_possible_truncation, reason = "tests")]
// What one part of the suite needs, another does not.
#![allow(dead_code, reason = "a fixture for all parts of the suite")]

mod broker;
mod fixture_works;
#[path = "../library/numbers.rs"]
mod numbers;
mod reading;
#[cfg(feature = "kafka-tls")]
mod secure;
mod sink;
mod source;
mod tools;
