//! Errors of Kafka in sentences: what was being done, what went wrong, and what to do about it.

use super::context::{Context, Trouble};
use crate::Error;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use std::fmt;

/// The error of a call: `doing` says what it was for, with topic and partition (`reading the offsets of topic orders, partition 3`).
///
/// What was refused (a login, a right, a topic that is not there) is the user's, and trying again does not help; what cannot be reached is
/// external, and the job's restart strategy tries again.
pub(crate) fn of(context: &Context, doing: impl fmt::Display, error: &KafkaError) -> Error {
    let refused = |reason: &str| Error::user(format!("{doing}: {}", context.secrets().hide(reason)));
    match error {
        KafkaError::ClientConfig(_, reason, name, _) => refused(&format!("the Kafka client does not take the property {name}: {reason}")),
        KafkaError::ClientCreation(reason) => refused(&format!("the Kafka client cannot be set up: {reason}")),
        KafkaError::AdminOp(code) => of_code(context, doing, *code, None),
        other => match other.rdkafka_error_code() {
            Some(code) => of_code(context, doing, code, None),
            None => Error::external(format!("{doing}: {}", context.secrets().hide(&other.to_string()))),
        },
    }
}

/// The error of a code, with the client's own words where it has some.
pub(crate) fn of_code(context: &Context, doing: impl fmt::Display, code: Code, detail: Option<&str>) -> Error {
    // A login that was refused ends as a time-out of whatever was asked: what was refused is the cause.
    if is_unreachable(code)
        && let Some(refusal) = context.refusal()
    {
        return of_trouble(context, doing, &refusal);
    }
    let servers = context.servers();
    let detail = detail.map(|detail| context.secrets().hide(detail)).filter(|detail| !detail.is_empty());
    let because = detail.as_ref().map(|detail| format!(" ({detail})")).unwrap_or_default();
    match code {
        code if is_unreachable(code) => {
            let last =
                context.last_trouble().map(|trouble| format!(" ({})", trouble.reason)).or(detail.map(|detail| format!(" ({detail})")));
            Error::external(format!(
                "{doing}: no broker of {servers} answers{}: is the address right, and does a broker run there?",
                last.unwrap_or_default()
            ))
        }
        Code::Authentication | Code::SaslAuthenticationFailed | Code::UnsupportedSASLMechanism | Code::IllegalSASLState | Code::SSL => {
            of_trouble(context, doing, &Trouble { code, reason: detail.unwrap_or_else(|| words(code)) })
        }
        Code::TopicAuthorizationFailed => denied(
            doing,
            servers,
            "use the topic",
            "a right (ACL) on the topic: Read and Describe for a source, Write and Describe for a sink",
        ),
        Code::GroupAuthorizationFailed => {
            denied(doing, servers, "use the group", "the right (ACL) Read on the group.id, or leave group.id out")
        }
        Code::TransactionalIdAuthorizationFailed => denied(
            doing,
            servers,
            "use the transactional id",
            "the rights (ACL) Write and Describe on ids that begin with transactional-id-prefix",
        ),
        Code::ClusterAuthorizationFailed => {
            denied(doing, servers, "do that on the cluster", "the right (ACL) on the cluster that it needs")
        }
        Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition => {
            Error::user(format!("{doing}: {servers} has no such topic or partition: create it, or correct its name{because}"))
        }
        Code::InvalidTopic => {
            Error::user(format!("{doing}: that is no name a topic can have: letters, digits, `.`, `_` and `-`, at most 249"))
        }
        Code::UnsupportedVersion | Code::UnsupportedFeature => {
            Error::user(format!("{doing}: the brokers of {servers} are too old for it{because}: Kafka 2.5 or newer is needed"))
        }
        code => Error::external(format!("{doing}: {servers} answers: {}{because}", words(code))),
    }
}

/// The error of something that the client complained about on its own.
pub(crate) fn of_trouble(context: &Context, doing: impl fmt::Display, trouble: &Trouble) -> Error {
    let (servers, reason) = (context.servers(), trouble.reason.trim_end_matches('.'));
    match trouble.code {
        Code::SSL => {
            let advice = "check security.protocol, ssl.ca.location, and ssl.certificate.location and ssl.key.location where the broker asks for them";
            let message = format!("{doing}: the TLS handshake with {servers} failed: {reason}: {advice}");
            if is_refusal(trouble) { Error::user(message) } else { Error::external(message) }
        }
        Code::Authentication | Code::SaslAuthenticationFailed | Code::UnsupportedSASLMechanism | Code::IllegalSASLState => {
            let advice = "check security.protocol, sasl.mechanism, sasl.username and sasl.password";
            Error::user(format!("{doing}: {servers} refuses the login: {reason}: {advice}"))
        }
        code => of_code(context, doing, code, Some(reason)),
    }
}

fn denied(doing: impl fmt::Display, servers: &str, what: &str, right: &str) -> Error {
    Error::user(format!("{doing}: {servers} does not allow the user of this client to {what}: give it {right}"))
}

/// Whether a complaint will not go away by itself.
pub(super) fn is_refusal(trouble: &Trouble) -> bool {
    match trouble.code {
        Code::Authentication | Code::SaslAuthenticationFailed | Code::UnsupportedSASLMechanism | Code::IllegalSASLState => true,
        // A connection that broke in the handshake may be a broker that is going down; a certificate that is refused stays refused.
        Code::SSL => ["certificate", "unknown ca", "wrong version", "handshake failure", "no shared cipher", "hostname"]
            .iter()
            .any(|word| trouble.reason.to_ascii_lowercase().contains(word)),
        _ => false,
    }
}

/// Whether a code says that nobody answered.
pub(crate) fn is_unreachable(code: Code) -> bool {
    matches!(
        code,
        Code::BrokerTransportFailure
            | Code::AllBrokersDown
            | Code::Resolve
            | Code::OperationTimedOut
            | Code::TimedOutQueue
            | Code::RequestTimedOut
            | Code::NetworkException
            | Code::BrokerNotAvailable
            | Code::WaitingForCoordinator
    )
}

/// Whether the same request may succeed in a moment: something is being elected or loaded.
pub(crate) fn is_passing(code: Code) -> bool {
    matches!(
        code,
        Code::LeaderNotAvailable
            | Code::NotLeaderForPartition
            | Code::CoordinatorLoadInProgress
            | Code::CoordinatorNotAvailable
            | Code::NotCoordinator
            | Code::ReplicaNotAvailable
            | Code::OffsetNotAvailable
            | Code::FencedLeaderEpoch
            | Code::UnknownLeaderEpoch
            | Code::UnstableOffsetCommit
            | Code::Retry
            | Code::InProgress
            | Code::WaitCache
            | Code::NotController
    )
}

/// librdkafka's description of a code, without its name.
fn words(code: Code) -> String {
    let text = code.to_string();
    let inner = text.split_once('(').map(|(_, rest)| rest.trim_end_matches(')').to_owned());
    inner.unwrap_or(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::kafka::{ClientOptions, Properties, Role, Servers};

    fn context() -> Context {
        let properties: Properties = serde_json::from_value(serde_json::json!({
            "sasl.username": "alice", "sasl.password": "hunter2", "sasl.mechanism": "PLAIN", "security.protocol": "sasl_plaintext"
        }))
        .unwrap();
        ClientOptions::check("in", Role::Source, Some(&Servers::Text("broker:9092".into())), &properties).unwrap().context()
    }

    #[test]
    fn what_cannot_be_reached_is_tried_again_and_what_is_refused_is_not() {
        let context = context();
        let unreachable = of(&context, "listing topics", &KafkaError::MetadataFetch(Code::BrokerTransportFailure));
        assert!(unreachable.retry_helps() && unreachable.to_string().contains("no broker of broker:9092 answers"));
        for code in [Code::TopicAuthorizationFailed, Code::UnknownTopicOrPartition, Code::SaslAuthenticationFailed] {
            assert!(!of_code(&context, "reading topic orders", code, None).retry_helps(), "{code:?}");
        }
    }

    #[test]
    fn a_refused_login_is_the_cause_of_a_time_out() {
        let context = context();
        context.trouble(Code::Authentication, "SASL authentication error: wrong password hunter2");
        let error = of(&context, "listing topics", &KafkaError::MetadataFetch(Code::OperationTimedOut));
        assert!(!error.retry_helps());
        assert!(error.to_string().contains("refuses the login") && !error.chain().contains("hunter2"), "{error}");
        context.reached();
        assert!(of(&context, "listing topics", &KafkaError::MetadataFetch(Code::OperationTimedOut)).retry_helps());
    }
}
