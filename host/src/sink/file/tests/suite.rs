//! The conformance suites on the file sink.

use super::*;
use crate::sink::conformance::{Fixture, Place, check_sink, check_two_phase};
use async_trait::async_trait;
use tempfile::TempDir;

struct FileFixture(Guarantee, Value);

struct FilePlace(TempDir, Guarantee, Value);

#[async_trait]
impl Fixture for FileFixture {
    async fn place(&self) -> Box<dyn Place> {
        Box::new(FilePlace(tempfile::tempdir().unwrap(), self.0, self.1.clone()))
    }
}

#[async_trait]
impl Place for FilePlace {
    async fn sink(&self) -> Arc<dyn Sink> {
        sink(self.0.path(), self.1, self.2.clone())
    }

    async fn visible(&self) -> Vec<Vec<u8>> {
        lines(self.0.path()).into_iter().map(String::into_bytes).collect()
    }
}

#[tokio::test]
async fn at_least_once_conforms() {
    for more in [json!({}), json!({"compression": "gzip"}), json!({"compression": "zstd", "roll-size": 2000})] {
        check_sink(&FileFixture(Guarantee::AtLeastOnce, more.clone())).await.unwrap_or_else(|violations| panic!("{more}: {violations:?}"));
    }
}

#[tokio::test]
async fn exactly_once_conforms() {
    let by_day = json!({"partition-by": {"time": "%Y"}, "compression": "zstd"});
    for more in [json!({}), json!({"compression": "gzip", "roll-size": "10 KiB"}), by_day, json!({"roll-size": "4 KiB"})] {
        check_two_phase(&FileFixture(Guarantee::ExactlyOnce, more.clone()))
            .await
            .unwrap_or_else(|violations| panic!("{more}: {violations:?}"));
    }
}
