//! What a plugin can reach: nothing, unless the job grants it. What it says goes to the log.

use crate::support::*;
use std::io::Write;
use std::sync::{Arc, Mutex};
use waterwheel::operator::Operator;
use waterwheel::plugin::{Capabilities, Folder, OperatorContext};

async fn granted(capabilities: Capabilities) -> Box<dyn Operator> {
    load("faulty").await.operator(OperatorContext { capabilities, ..context() }).await.unwrap()
}

#[tokio::test]
async fn without_grants_everything_is_denied_or_repeats() {
    // SAFETY of the environment: the variable PATH is set wherever tests run.
    assert!(std::env::var("PATH").is_ok());
    let asked = ["environment", "clock", "random", "random"];
    let first = process(&mut *granted(Capabilities::default()).await, &asked).await;
    assert_eq!(first[..2], ["environment []", "clock 1700000000123000000"]);
    assert_eq!(process(&mut *granted(Capabilities::default()).await, &asked).await, first, "a replay meets the same");
    let other = OperatorContext { subtask: 1, parallelism: 2, ..context() };
    let other = process(&mut *load("faulty").await.operator(other).await.unwrap(), &asked).await;
    assert_ne!(other[2], first[2], "each subtask has its own random numbers");
    let told = error_of(&mut *granted(Capabilities::default()).await, &["file:/etc/hostname"]).await.to_string();
    assert!(told.contains("/etc/hostname"), "{told}");
}

#[tokio::test]
async fn what_is_granted_can_be_reached() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "content").unwrap();
    let capabilities = Capabilities {
        clock: true,
        random: true,
        environment: [("GREETING".to_owned(), "hello".to_owned())].into(),
        folders: vec![Folder { path: folder.path().into(), mounted_as: "/data".into(), write: false }],
        network: false,
    };
    let told = process(&mut *granted(capabilities.clone()).await, &["environment", "file:/data/a.txt", "clock", "random"]).await;
    assert_eq!(told[..2], ["environment [GREETING=hello]", "file content"]);
    let clock: u128 = told[2].strip_prefix("clock ").unwrap().parse().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    assert!(now.abs_diff(clock) < 60_000_000_000, "{clock} is not {now}");
    let again = process(&mut *granted(capabilities).await, &["random"]).await;
    assert_ne!(again[0], told[3]);
    let missing = Folder { path: folder.path().join("nothing"), mounted_as: "/data".into(), write: true };
    let capabilities = Capabilities { folders: vec![missing], ..Capabilities::default() };
    let error = load("faulty").await.operator(OperatorContext { capabilities, ..context() }).await.err().unwrap();
    assert!(error.to_string().contains("operator op: the folder ") && error.to_string().contains("nothing"), "{error}");
}

#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn what_a_plugin_says_goes_to_the_log_with_its_operator() {
    let mut operator = granted(Capabilities::default()).await;
    let captured = Captured::default();
    let writer = captured.clone();
    let subscriber = tracing_subscriber::fmt().json().with_writer(move || writer.clone()).finish();
    let guard = tracing::subscriber::set_default(subscriber);
    let long = format!("print:{}", "x".repeat(20_000));
    process(&mut *operator, &["print:hello", "print-error:ouch", "log:careful", &long, "print:after"]).await;
    drop(guard);
    let text = String::from_utf8(captured.0.lock().unwrap().clone()).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let seen: Vec<_> = lines
        .iter()
        .map(|line| {
            let fields = &line["fields"];
            assert_eq!((fields["operator"].as_str(), fields["subtask"].as_u64()), (Some("op"), Some(0)), "{line}");
            (line["level"].as_str().unwrap(), fields["message"].as_str().unwrap())
        })
        .collect();
    assert_eq!(seen[..3], [("INFO", "hello"), ("WARN", "ouch"), ("WARN", "careful")]);
    assert!(seen[3].1.len() < 9_000, "a long line is cut");
    assert_eq!(seen[4], ("INFO", "after"));
}
