//! The client's properties: which of them the host owns, what Java's names are called here, and what librdkafka says to the rest.

use super::options::Role;
use super::secret::is_secret;
use super::{Context, ffi};
use crate::config::{Fault, closest};
use rdkafka::ClientConfig;
use rdkafka::client::Client;
use rdkafka::error::KafkaError;
use rdkafka::types::{RDKafkaConfRes, RDKafkaType};
use std::collections::BTreeMap;

/// Properties that the host sets itself, with the reason, or what to write instead.
const OWNED: &[(&str, Option<Role>, &str)] = &[
    ("enable.auto.commit", None, "the host commits offsets to the group itself, after each completed checkpoint"),
    ("auto.commit.enable", None, "the host commits offsets to the group itself, after each completed checkpoint"),
    ("auto.commit.interval.ms", None, "the host commits offsets to the group itself, after each completed checkpoint"),
    ("enable.auto.offset.store", None, "the host keeps the offsets itself: the checkpoint is the truth"),
    ("offset.store.method", None, "the host keeps the offsets itself: the checkpoint is the truth"),
    ("offset.store.path", None, "the host keeps the offsets itself: the checkpoint is the truth"),
    ("enable.partition.eof", None, "the host needs the ends of partitions to know how far it has read"),
    ("partition.assignment.strategy", Some(Role::Source), "the host deals the partitions to its subtasks itself"),
    ("group.instance.id", Some(Role::Source), "the host deals the partitions to its subtasks itself, and joins no group"),
    (
        "transactional.id",
        None,
        "the host names its producers itself, or a run could not fence the one before; set transactional-id-prefix of the sink",
    ),
    ("enable.idempotence", Some(Role::Sink), "the host turns it on where the guarantee needs it; set delivery-guarantee"),
    ("enable.gapless.guarantee", Some(Role::Sink), "the host sees to the order itself; set delivery-guarantee"),
    ("delivery.report.only.error", Some(Role::Sink), "the host decides which delivery reports it needs"),
    ("statistics.interval.ms", None, "the host has metrics of its own and does not use the client's"),
    ("log.queue", None, "the host takes the client's log lines into its own log"),
    ("log_level", None, "the host takes the client's log lines into its own log; set --log-level"),
    ("plugin.library.paths", None, "it would load native code into the host"),
    ("interceptors", None, "it would load native code into the host"),
    ("test.mock.num.brokers", None, "it would talk to no broker at all"),
    ("test.mock.broker.rtt", None, "it would talk to no broker at all"),
    (
        "enable.sasl.oauthbearer.unsecure.jwt",
        None,
        "unsigned tokens prove nothing; for a test, put one into a file and set sasl.oauthbearer.token.endpoint.url: file:///path",
    ),
];

/// What those who know the Java client write, and what to write here.
const JAVA: &[(&str, &str)] = &[
    (
        "sasl.jaas.config",
        "write sasl.username and sasl.password (each can be ${env:NAME} or ${file:path}), or sasl.oauthbearer.token.endpoint.url",
    ),
    ("key.serializer", "leave it out: keys are bytes and stay as they are"),
    ("value.serializer", "leave it out: values are bytes and stay as they are"),
    ("key.deserializer", "leave it out: keys are bytes and stay as they are"),
    ("value.deserializer", "leave it out: values are bytes and stay as they are"),
    ("ssl.truststore.location", "write ssl.ca.location, a file of PEM certificates (keytool -exportcert -rfc writes one)"),
    ("ssl.truststore.password", "leave it out: ssl.ca.location, a file of PEM certificates, has no password"),
    ("ssl.truststore.type", "leave it out: ssl.ca.location is a file of PEM certificates"),
    ("ssl.truststore.certificates", "write ssl.ca.pem"),
    (
        "ssl.keystore.type",
        "leave it out: ssl.keystore.location is a PKCS#12 file; for PEM write ssl.certificate.location and ssl.key.location",
    ),
    ("ssl.keystore.key", "write ssl.key.pem"),
    ("ssl.keystore.certificate.chain", "write ssl.certificate.pem"),
    ("ssl.protocol", "leave it out: the best version that both sides have is used"),
    ("ssl.enabled.protocols", "leave it out: the best version that both sides have is used"),
    ("ssl.provider", "leave it out: TLS is OpenSSL's"),
    ("sasl.login.class", "leave it out: Java classes do not exist here"),
    ("sasl.login.callback.handler.class", "leave it out; for OAUTHBEARER write sasl.oauthbearer.token.endpoint.url: file:///path"),
    ("sasl.client.callback.handler.class", "leave it out: Java classes do not exist here"),
    ("max.poll.records", "set execution.batch.max-records of the job"),
    ("buffer.memory", "write queue.buffering.max.kbytes"),
    ("max.request.size", "write message.max.bytes"),
    ("max.block.ms", "leave it out: the host waits while the client's queue is full"),
    ("partitioner.class", "write partitioner; the default, murmur2_random, deals keys as Java's does"),
    ("interceptor.classes", "leave it out: Java classes do not exist here"),
    ("metric.reporters", "leave it out: --status-address serves metrics"),
    ("metrics.recording.level", "leave it out: --status-address serves metrics"),
    ("default.api.timeout.ms", "write socket.timeout.ms"),
    ("receive.buffer.bytes", "write socket.receive.buffer.bytes"),
    ("send.buffer.bytes", "write socket.send.buffer.bytes"),
    ("fetch.max.wait.ms", "write fetch.wait.max.ms"),
    ("partition.discovery.interval.ms", "set partition-discovery-interval of the source"),
    ("commit.offsets.on.checkpoint", "leave it out: offsets are committed after each completed checkpoint where there is a group.id"),
    ("register.consumer.metrics", "leave it out: --status-address serves metrics"),
];

/// Every fault of properties, with paths below `/properties`.
pub(super) fn faults(role: Role, properties: &BTreeMap<String, String>) -> Vec<Fault> {
    properties.iter().filter_map(|(name, value)| Some(Fault::new(path(name), fault(role, name, value)?))).collect()
}

fn path(name: &str) -> String {
    format!("/properties/{}", name.replace('~', "~0").replace('/', "~1"))
}

fn fault(role: Role, name: &str, value: &str) -> Option<String> {
    let owned = OWNED.iter().find(|(owned, of, _)| *owned == name && of.is_none_or(|of| of == role));
    if let Some((_, _, reason)) = owned {
        return Some(format!("{name} belongs to the host: {reason}"));
    }
    if let Some((_, advice)) = JAVA.iter().find(|(java, _)| *java == name) {
        return Some(format!("{name} is a property of the Java client: {advice}"));
    }
    match ClientConfig::new().set(name, value).create_native_config() {
        Ok(_) => None,
        Err(KafkaError::ClientConfig(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, ..)) => Some(unknown(name)),
        Err(KafkaError::ClientConfig(_, reason, ..)) => Some(refused(name, value, &reason)),
        // The other error is a zero byte within a name or a value; their texts are not repeated.
        Err(_) => Some("has a zero byte in it, which the client cannot take".to_owned()),
    }
}

fn unknown(name: &str) -> String {
    let known = ffi::property_names();
    let advice = match closest(name, known.iter().map(String::as_str)) {
        Some(meant) => format!("; did you mean {meant:?}?"),
        None => ": librdkafka's CONFIGURATION.md lists all that there are".to_owned(),
    };
    format!("the Kafka client knows no property {name:?}{advice}")
}

fn refused(name: &str, value: &str, reason: &str) -> String {
    if let Some((_, missing)) = reason.split_once("not supported in this build: ") {
        let feature = if missing.contains("OpenSSL not available") { ": build with the cargo feature kafka-tls" } else { "" };
        return format!("{name} is not in this build ({missing}){feature}");
    }
    if is_secret(name) {
        return format!("the Kafka client does not take this value of {name}");
    }
    let reason = reason.trim_end_matches('.');
    if reason.is_empty() { format!("the Kafka client does not take {value:?} as {name}") } else { reason.to_owned() }
}

/// What librdkafka says to all properties together: files that cannot be read, a mechanism without its credentials. Makes a client that
/// talks to nobody.
pub(super) fn fault_of_all(config: &ClientConfig, context: Context) -> Option<Fault> {
    let secrets = context.secrets().clone();
    let native = config.create_native_config();
    let client = native.and_then(|native| Client::new(config, native, RDKafkaType::RD_KAFKA_CONSUMER, context));
    let reason = match client {
        Ok(_) => return None,
        Err(KafkaError::ClientCreation(reason)) => secrets.hide(&reason),
        Err(KafkaError::ClientConfig(_, reason, name, _)) => format!("{name}: {}", secrets.hide(&reason)),
        Err(other) => secrets.hide(&other.to_string()),
    };
    Some(Fault::new("/properties", format!("the Kafka client cannot be set up with them: {reason}")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn of(role: Role, name: &str, value: &str) -> String {
        fault(role, name, value).unwrap_or_default()
    }

    #[test]
    fn what_the_host_owns_is_refused_with_its_reason() {
        assert!(of(Role::Source, "enable.auto.commit", "true").starts_with("enable.auto.commit belongs to the host: the host commits"));
        assert!(of(Role::Sink, "enable.idempotence", "true").contains("delivery-guarantee"));
        assert_eq!(of(Role::Source, "enable.idempotence", "true"), "");
        assert!(of(Role::Sink, "transactional.id", "x").contains("transactional-id-prefix"));
    }

    #[test]
    fn names_of_the_java_client_are_translated() {
        assert!(of(Role::Source, "sasl.jaas.config", "…").contains("write sasl.username and sasl.password"));
        assert!(of(Role::Sink, "key.serializer", "x").contains("leave it out"));
        assert!(of(Role::Sink, "ssl.truststore.location", "x").contains("ssl.ca.location"));
        for (java, _) in JAVA {
            assert!(!OWNED.iter().any(|(owned, ..)| owned == java), "{java} is in both lists");
        }
    }

    #[test]
    fn a_slip_is_recognised() {
        assert_eq!(of(Role::Sink, "linger.mss", "5"), "the Kafka client knows no property \"linger.mss\"; did you mean \"linger.ms\"?");
        assert!(of(Role::Source, "fetch.min.byte", "1").contains("\"fetch.min.bytes\""));
        assert!(of(Role::Source, "colour", "blue").contains("CONFIGURATION.md"));
    }

    #[test]
    fn values_are_checked_and_secrets_not_repeated() {
        assert_eq!(of(Role::Source, "fetch.min.bytes", "10"), "");
        assert!(of(Role::Source, "fetch.min.bytes", "many").contains("fetch.min.bytes"));
        assert!(of(Role::Source, "security.protocol", "tls").contains("security.protocol"));
        assert!(!of(Role::Source, "sasl.password", "hunter2\0").contains("hunter2"));
    }

    #[test]
    fn every_owned_property_of_librdkafka_exists() {
        for (name, ..) in OWNED {
            let set = ClientConfig::new().set(*name, "1").create_native_config();
            let unknown = matches!(set, Err(KafkaError::ClientConfig(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, ..)));
            assert!(!unknown, "librdkafka has no {name}");
        }
    }
}
