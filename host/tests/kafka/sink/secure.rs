//! Logins and rights: what is missing is said before the first record where a broker can be asked, and in one sentence where it cannot.

use super::*;
use std::sync::OnceLock;
use waterwheel::checkpoint::participants::LastResourceError;

/// A broker with logins, where nobody may do anything yet but through the plain listener.
fn guarded() -> &'static Broker {
    static GUARDED: OnceLock<Broker> = OnceLock::new();
    GUARDED.get_or_init(|| Broker::start(&["--tls", "--sasl", "--acl", "--user", "alice:alice-secret", "--user", "bob:bob-secret"]))
}

/// The sink of a user at the listener with logins.
fn sink_of(user: &str, password: &str, topic: &str, guarantee: Guarantee) -> Arc<dyn Sink> {
    let properties = json!({
        "bootstrap.servers": guarded().value("sasl"), "security.protocol": "sasl_plaintext", "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user, "sasl.password": password,
    });
    sink_at(guarded(), &json!({"topic": topic, "properties": properties}), guarantee)
}

fn allow(user: &str, rights: &[&str], on: &[&str]) {
    let principal = format!("User:{user}");
    let mut arguments = vec!["acls", "--add", "--allow-principal", &principal];
    for right in rights {
        arguments.extend(["--operation", *right]);
    }
    arguments.extend(on);
    guarded().tool(&arguments);
}

#[tokio::test]
async fn a_wrong_password_is_said_and_not_repeated() {
    guarded().create_topic("login", 1, &[]);
    let error = sink_of("alice", "wrong-secret", "login", Guarantee::AtLeastOnce).verify().await.unwrap_err();
    let sentence = error.chain();
    assert!(!error.retry_helps() && sentence.contains("refuses the login") && !sentence.contains("wrong-secret"), "{sentence}");
}

#[tokio::test]
async fn rights_that_are_missing_are_named_one_by_one() {
    guarded().create_topic("rights", 1, &[]);
    let refused = |error: Error, words: &str| assert!(!error.retry_helps() && error.chain().contains(words), "{}", error.chain());
    let sink = sink_of("alice", "alice-secret", "rights", Guarantee::ExactlyOnce);

    // Nothing at all.
    refused(sink.verify().await.unwrap_err(), "rights");
    allow("alice", &["Describe", "DescribeConfigs"], &["--topic", "rights"]);
    refused(sink.verify().await.unwrap_err(), "Write");
    allow("alice", &["Write"], &["--topic", "rights"]);
    sink.verify().await.unwrap();

    // The topic of markers, and the transactional ids.
    let Err(error) = Job::open("guarded", &sink, Duration::from_secs(1)).await else { panic!("it was taken") };
    refused(error, "__waterwheel-guarded");
    allow("alice", &["Create", "Describe", "DescribeConfigs", "Read", "Write"], &["--topic", "__waterwheel-guarded"]);
    let job = Job::open("guarded", &sink, Duration::from_secs(1)).await.unwrap();
    let refused = |error: LastResourceError, words: &str| {
        assert!(matches!(&error, LastResourceError::Refused(sentence) if sentence.contains(words)), "{error:?}");
    };
    refused(job.transactions().fence(&[]).await.unwrap_err(), "transactional id");
    allow("alice", &["Describe", "Write"], &["--transactional-id", "guarded", "--resource-pattern-type", "prefixed"]);
    job.start(1).await;
    let mut writer = job.writer().await;
    writer.write(&texts(&["x"])).await.unwrap();
    let barrier = barrier(1);
    writer.prepare(&barrier).await.unwrap();
    job.transactions().commit(barrier.attempt).await.unwrap();
    assert_eq!(guarded().wait_committed("rights", 1).len(), 1);
}

#[tokio::test]
async fn transactions_go_over_tls_with_a_login() {
    guarded().create_topic("sealed", 2, &[]);
    let all = ["All"];
    for topic in ["sealed", "__waterwheel-sealed"] {
        allow("alice", &all, &["--topic", topic]);
    }
    allow("alice", &all, &["--transactional-id", "sealed", "--resource-pattern-type", "prefixed"]);
    let properties = json!({
        "bootstrap.servers": guarded().value("sasl_tls"), "security.protocol": "sasl_ssl", "ssl.ca.location": guarded().value("ca"),
        "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice", "sasl.password": "alice-secret",
    });
    let sink = sink_at(guarded(), &json!({"topic": "sealed", "properties": properties}), Guarantee::ExactlyOnce);
    sink.verify().await.unwrap();
    let job = Job::open("sealed", &sink, Duration::from_secs(1)).await.unwrap();
    job.start(1).await;
    let mut writer = job.writer().await;
    writer.write(&texts(&["x", "y"])).await.unwrap();
    let barrier = barrier(1);
    writer.prepare(&barrier).await.unwrap();
    job.transactions().commit(barrier.attempt).await.unwrap();
    assert_eq!(guarded().wait_committed("sealed", 2).len(), 2);
    let marker = job.transactions().read_marker().await.unwrap().unwrap();
    assert_eq!(marker.attempt, barrier.attempt);
}

#[tokio::test]
async fn rights_that_are_taken_away_fail_the_job_with_the_topic() {
    guarded().create_topic("taken", 1, &[]);
    allow("bob", &["Describe", "DescribeConfigs", "Write"], &["--topic", "taken"]);
    let sink = sink_of("bob", "bob-secret", "taken", Guarantee::AtLeastOnce);
    sink.verify().await.unwrap();
    let mut writer = Shared::default().writer(&*sink).await.unwrap();
    writer.write(&texts(&["x"])).await.unwrap();
    writer.flush().await.unwrap();
    guarded().tool(&["acls", "--remove", "--force", "--allow-principal", "User:bob", "--operation", "Write", "--topic", "taken"]);
    // Brokers learn of it a little later.
    let refused = async {
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let written = async {
                writer.write(&texts(&["y"])).await?;
                writer.flush().await
            };
            if let Err(error) = written.await {
                return error;
            }
        }
    };
    let error = tokio::time::timeout(Duration::from_secs(20), refused).await.unwrap();
    assert!(!error.retry_helps() && error.to_string().contains("topic taken"), "{error}");
}
