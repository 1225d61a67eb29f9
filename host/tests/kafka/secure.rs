//! Logins, certificates and rights: what works, and what is said where it does not.

use super::broker::Broker;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::{Command, Output};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use waterwheel::Error;
use waterwheel::record::{Batch, SplitTable};
use waterwheel::source::{BatchLimits, KafkaType, ReadStatus, ReaderContext, Source, SourceType};

const SECRET: &str = "correct-horse-9";
const OTHER_SECRET: &str = "battery-staple-7";

/// A broker with every kind of listener and with ACLs; alice may read the topic `orders`, bob nothing.
fn broker() -> &'static Broker {
    static SHARED: OnceLock<Broker> = OnceLock::new();
    SHARED.get_or_init(|| {
        let (alice, bob) = (format!("alice:{SECRET}"), format!("bob:{OTHER_SECRET}"));
        let broker = Broker::start(&["--tls", "--sasl", "--acl", "--user", &alice, "--user", &bob]);
        broker.create_topic("orders", 1, &[]);
        broker.write("orders", 0, ["a", "b"]);
        let rights =
            ["acls", "--add", "--allow-principal", "User:alice", "--operation", "Read", "--operation", "Describe", "--topic", "orders"];
        broker.tool(&rights);
        broker
    })
}

fn source(listener: &str, properties: Value) -> Arc<dyn Source> {
    let options = json!({"bootstrap-servers": broker().value(listener), "topics": "orders", "bounded-mode": "latest-offset", "properties": properties});
    KafkaType.create("in", &options).unwrap_or_else(|faults| panic!("{faults:?}"))
}

fn login(mechanism: &str, user: &str, secret: &str) -> Value {
    json!({"security.protocol": "sasl_plaintext", "sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": secret})
}

async fn read(source: &dyn Source) -> Result<Vec<String>, Error> {
    let splits = source.discover(&BTreeSet::new()).await?;
    let limits = BatchLimits { records: 100, bytes: 1 << 16, linger: Duration::from_millis(5) };
    let context = ReaderContext { uid: "in".into(), subtask: 0, parallelism: 1, limits, split_table: SplitTable::default() };
    let mut reader = source.open(context).await?;
    reader.add_splits(splits).await?;
    let mut values = Vec::new();
    loop {
        let mut batch = Batch::default();
        let status = tokio::time::timeout(Duration::from_secs(30), reader.next_batch(&mut batch)).await.unwrap()?;
        values.extend(batch.rows().map(|row| String::from_utf8(row.value.unwrap().to_vec()).unwrap()));
        if status == ReadStatus::Finished {
            return Ok(values);
        }
    }
}

async fn refused(listener: &str, properties: Value) -> String {
    let error = read(&*source(listener, properties)).await.unwrap_err();
    let message = error.chain();
    assert!(!error.retry_helps(), "{message}");
    assert!(!message.contains(SECRET) && !message.contains(OTHER_SECRET), "{message}");
    message
}

#[tokio::test]
async fn every_login_reads() {
    for mechanism in ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] {
        let read = read(&*source("sasl", login(mechanism, "alice", SECRET))).await;
        assert_eq!(read.unwrap_or_else(|error| panic!("{mechanism}: {error}")), ["a", "b"]);
    }
}

#[tokio::test]
async fn a_login_over_tls_reads() {
    let mut properties = login("SCRAM-SHA-512", "alice", SECRET);
    properties["security.protocol"] = json!("sasl_ssl");
    properties["ssl.ca.location"] = json!(broker().value("ca"));
    assert_eq!(read(&*source("sasl_tls", properties)).await.unwrap(), ["a", "b"]);
}

#[tokio::test]
async fn a_certificate_is_a_login_too() {
    broker().tool(&[
        "acls",
        "--add",
        "--allow-principal",
        "User:CN=client",
        "--operation",
        "Read",
        "--operation",
        "Describe",
        "--topic",
        "orders",
    ]);
    let properties = json!({
        "security.protocol": "ssl", "ssl.ca.location": broker().value("ca"),
        "ssl.certificate.location": broker().value("client_cert"), "ssl.key.location": broker().value("client_key"),
    });
    assert_eq!(read(&*source("tls", properties)).await.unwrap(), ["a", "b"]);
}

#[tokio::test]
async fn a_token_comes_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let part = |value: Value| base64_url(value.to_string().as_bytes());
    let token = format!("{}.{}.", part(json!({"alg": "none"})), part(json!({"sub": "alice", "iat": now, "exp": now + 300})));
    std::fs::write(&path, format!("{token}\n")).unwrap();
    let properties = |url: String| json!({"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": url});
    let url = format!("file://{}", path.display());
    assert_eq!(read(&*source("sasl", properties(url))).await.unwrap(), ["a", "b"]);
    let absent = read(&*source("sasl", properties("file:///no/such/token".to_owned()))).await.unwrap_err();
    assert!(absent.chain().contains("the token file /no/such/token cannot be read"), "{}", absent.chain());
}

/// Asked over connections of the program's own, not the client library's.
#[test]
fn every_login_shows_open_transactions() {
    for who in ["User:alice", "User:CN=client"] {
        broker().tool(&["acls", "--add", "--allow-principal", who, "--operation", "Describe", "--transactional-id", "*"]);
    }
    let _open = broker().begin_transaction("shown-0");
    let ca = format!("ssl.ca.location={}", broker().value("ca"));
    let password = format!("sasl.password={SECRET}");
    let login = |protocol: &str, mechanism: &str| {
        let [protocol, mechanism] = [format!("security.protocol={protocol}"), format!("sasl.mechanism={mechanism}")];
        vec![protocol, mechanism, "sasl.username=alice".to_owned(), password.clone(), ca.clone()]
    };
    let client = [("security.protocol", "ssl"), ("ssl.certificate.location", broker().value("client_cert"))];
    let mut certificate: Vec<String> = client.iter().map(|(name, value)| format!("{name}={value}")).collect();
    certificate.extend([format!("ssl.key.location={}", broker().value("client_key")), ca.clone()]);
    for (listener, properties) in [
        ("bootstrap", Vec::new()),
        ("sasl", login("sasl_plaintext", "PLAIN")),
        ("sasl", login("sasl_plaintext", "SCRAM-SHA-256")),
        ("sasl_tls", login("sasl_ssl", "SCRAM-SHA-512")),
        ("tls", certificate),
    ] {
        let output = transactions(listener, &properties);
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(shown.contains("shown-0"), "{listener} {properties:?}: {shown}{}", String::from_utf8_lossy(&output.stderr));
    }
    let mut wrong = login("sasl_ssl", "SCRAM-SHA-512");
    wrong[3] = format!("sasl.password={OTHER_SECRET}");
    let output = transactions("sasl_tls", &wrong);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && !said.contains(OTHER_SECRET), "{said}");
}

/// `waterwheel kafka transactions list` of one id, at a listener.
fn transactions(listener: &str, properties: &[String]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_waterwheel"));
    let servers = if listener == "bootstrap" { broker().bootstrap() } else { broker().value(listener) };
    command.args(["kafka", "--bootstrap-server", servers, "transactions"]);
    properties.iter().for_each(|property| {
        command.args(["-p", property]);
    });
    command.args(["list", "--prefix", "shown"]).output().unwrap()
}

#[tokio::test]
async fn a_wrong_password_is_told_and_not_tried_again() {
    for mechanism in ["PLAIN", "SCRAM-SHA-512"] {
        let message = refused("sasl", login(mechanism, "alice", OTHER_SECRET)).await;
        assert!(message.contains("refuses the login") && message.contains("sasl.password"), "{mechanism}: {message}");
    }
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_told() {
    let message = refused("tls", json!({"security.protocol": "ssl"})).await;
    assert!(message.contains("TLS handshake") && message.contains("ssl.ca.location"), "{message}");
}

#[tokio::test]
async fn missing_rights_are_told_and_not_tried_again() {
    let message = refused("sasl", login("SCRAM-SHA-512", "bob", OTHER_SECRET)).await;
    assert!(message.contains("topic orders") && message.contains("does not allow the user"), "{message}");
}

#[tokio::test]
async fn a_group_that_may_not_be_used_costs_nothing() {
    let mut properties = login("SCRAM-SHA-512", "alice", SECRET);
    properties["group.id"] = json!("not-allowed");
    assert_eq!(read(&*source("sasl", properties)).await.unwrap(), ["a", "b"]);
}

#[tokio::test]
async fn the_wrong_kind_of_listener_is_told() {
    // Neither side can know what the other one speaks: it counts as unreachable.
    for (listener, properties) in [("sasl", json!({})), ("bootstrap", login("PLAIN", "alice", SECRET))] {
        let error = read(&*source(listener, properties)).await.unwrap_err();
        let message = error.chain();
        assert!(message.contains(broker().value(listener)) && !message.contains(SECRET), "{listener}: {message}");
        println!("{listener}: {message}");
    }
}

fn base64_url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().chain([0, 0].iter()).take(3).fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
        for index in 0..=chunk.len() {
            text.push(char::from(ALPHABET[(word >> (18 - 6 * index) & 63) as usize]));
        }
    }
    text
}
