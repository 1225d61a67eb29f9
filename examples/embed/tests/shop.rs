//! The shop as its customers meet it, and what its source and sink owe to the host.

#![allow(clippy::unwrap_used, reason = "tests")]

use async_trait::async_trait;
use embed::order_log::OrderLog;
use embed::shop;
use embed::table::Table;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use waterwheel::sink::Sink;
use waterwheel::sink::conformance::{Fixture, Place, check_sink};
use waterwheel::source::conformance::Conformance;

/// The folder of the plugins, which `make plugins` has built.
fn plugin() -> PathBuf {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/plugins");
    std::env::var_os("WATERWHEEL_PLUGINS").map_or_else(built, PathBuf::from).join("running-total.wasm")
}

/// A shop that is open.
struct Open {
    address: SocketAddr,
    close: oneshot::Sender<()>,
    ended: JoinHandle<anyhow::Result<()>>,
}

impl Open {
    async fn at(folder: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (close, closed) = oneshot::channel();
        let folder = folder.to_owned();
        let until = async move { closed.await.unwrap() };
        let ended = tokio::spawn(async move { shop::run(listener, &folder, &plugin(), until).await });
        Self { address, close, ended }
    }

    async fn close(self) {
        self.close.send(()).unwrap();
        self.ended.await.unwrap().unwrap();
    }

    /// The status and the body of the answer to a request.
    async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), body.to_owned())
    }

    async fn order(&self, user: &str, amount: &str) {
        let (status, body) = self.ask("POST", "/orders", &format!(r#"{{"user":"{user}","amount":{amount}}}"#)).await;
        assert_eq!(status, 202, "{body}");
    }

    /// Waits until the totals are these.
    async fn expect_totals(&self, expected: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let (_, totals) = self.ask("GET", "/totals", "").await;
            if totals == expected {
                return;
            }
            assert!(Instant::now() < deadline, "{totals} instead of {expected}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_are_added_up_and_a_shop_that_is_opened_again_goes_on() {
    let folder = TempDir::new().unwrap();
    let shop = Open::at(folder.path()).await;
    for (user, amount) in [("anna", "12.5"), ("ben", "7"), ("anna", "0.25")] {
        shop.order(user, amount).await;
    }
    shop.expect_totals("{\"key\":\"anna\",\"count\":2,\"sum\":12.75}\n{\"key\":\"ben\",\"count\":1,\"sum\":7}\n").await;
    let (status, page) = shop.ask("GET", "/", "").await;
    assert!(status == 200 && page.contains("\"sum\":12.75"), "{page}");

    let (status, first) = shop.ask("POST", "/checkpoints", "").await;
    assert_eq!(status, 200, "{first}");
    let (_, second) = shop.ask("POST", "/checkpoints", "").await;
    let number = |text: &str| text.trim().parse::<u64>().unwrap();
    assert!(number(&second) > number(&first), "{second} after {first}");
    let (_, job) = shop.ask("GET", "/status", "").await;
    assert!(job.contains(r#""state":"RUNNING""#) && job.contains(r#""restarts":0"#), "{job}");
    shop.close().await;

    let shop = Open::at(folder.path()).await;
    shop.order("anna", "0.25").await;
    shop.expect_totals("{\"key\":\"anna\",\"count\":3,\"sum\":13}\n{\"key\":\"ben\",\"count\":1,\"sum\":7}\n").await;
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_order_is_refused_and_does_not_reach_the_job() {
    let folder = TempDir::new().unwrap();
    let shop = Open::at(folder.path()).await;
    for body in ["", "{}", r#"{"user":"anna"}"#, r#"{"user":"anna","amount":"much"}"#] {
        let (status, _) = shop.ask("POST", "/orders", body).await;
        assert!((400..500).contains(&status), "{body}: {status}");
    }
    shop.order("anna", "1").await;
    shop.expect_totals("{\"key\":\"anna\",\"count\":1,\"sum\":1}\n").await;
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_is_a_source() {
    let folder = TempDir::new().unwrap();
    let log = OrderLog::load(&folder.path().join("orders.jsonl")).unwrap();
    (0..300).for_each(|number| log.append(&format!(r#"{{"number":{number}}}"#)).unwrap());
    let suite = Conformance { patience: Duration::from_millis(300), replays: 5, ..Conformance::default() };
    let summary = suite.check(&log).await.unwrap();
    assert_eq!((summary.splits, summary.records), (1, 300), "{summary:?}");
}

#[test]
fn a_line_that_was_being_written_is_not_in_the_log() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("orders.jsonl");
    std::fs::write(&path, "{\"number\":1}\n{\"num").unwrap();
    OrderLog::load(&path).unwrap().append("{\"number\":2}").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"number\":1}\n{\"number\":2}\n");
}

struct Tables;

#[async_trait]
impl Fixture for Tables {
    async fn place(&self) -> Box<dyn Place> {
        Box::new(InFolder(TempDir::new().unwrap()))
    }
}

struct InFolder(TempDir);

impl InFolder {
    fn table(&self) -> Table {
        Table::load(&self.0.path().join("table.json")).unwrap()
    }
}

#[async_trait]
impl Place for InFolder {
    async fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(self.table())
    }

    async fn visible(&self) -> Vec<Vec<u8>> {
        self.table().rows().into_values().map(String::into_bytes).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_is_a_sink() {
    assert_eq!(check_sink(&Tables).await, Ok(()));
}
