//! The suite finds each broken promise, and passes the sources that come with the host.

#![allow(clippy::unwrap_used, clippy::panic, clippy::needless_pass_by_value, reason = "tests")]

use super::*;
use crate::record::{Origin, Row};
use crate::source::{FileType, GeneratorType, ReaderContext, SourceReader, SourceType};
use async_trait::async_trait;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::sync::Arc;

/// A promise to break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Break {
    Nothing,
    CancelSafety,
    PositionBehind,
    PositionAhead,
    Order,
    Finish,
    Limits,
    Appending,
    OtherRecords,
    ForgetsFinished,
    FindsAgain,
    NoSplitsIsFinished,
    ForgetsSplits,
    GoesOnAfterTheEnd,
    Stuck,
}

const SPLITS: u64 = 3;
const RECORDS: u64 = 200;

/// Splits of numbered records that arrive slowly now and then.
#[derive(Debug)]
struct Numbers(Break);

struct NumbersReader {
    breaks: Break,
    context: ReaderContext,
    splits: Vec<(Split, u64, u32)>,
    calls: u64,
    told_finished: bool,
}

#[async_trait]
impl Source for Numbers {
    async fn discover(&self, known: &BTreeSet<String>) -> Result<Vec<Split>, Error> {
        let split = |id: u64| Split { id: format!("s{id}"), position: json!(0), stop: Some(json!(RECORDS)), finished: false };
        Ok((0..SPLITS).map(split).filter(|split| self.0 == Break::FindsAgain || !known.contains(&split.id)).collect())
    }

    fn is_bounded(&self) -> bool {
        true
    }

    async fn open(&self, context: ReaderContext) -> Result<Box<dyn SourceReader>, Error> {
        Ok(Box::new(NumbersReader { breaks: self.0, context, splits: Vec::new(), calls: 0, told_finished: false }))
    }
}

#[async_trait]
impl SourceReader for NumbersReader {
    async fn add_splits(&mut self, splits: Vec<Split>) -> Result<(), Error> {
        for split in splits {
            let next = split.position.as_u64().unwrap();
            let number = self.context.split_table.number(&self.context.uid, &split.id);
            self.splits.push((split, next, number));
        }
        Ok(())
    }

    async fn next_batch(&mut self, batch: &mut Batch) -> Result<ReadStatus, Error> {
        self.calls += 1;
        if self.splits.is_empty() && self.breaks != Break::NoSplitsIsFinished {
            return std::future::pending().await;
        }
        if self.breaks == Break::Appending {
            batch.clear();
        }
        let stop = if self.breaks == Break::GoesOnAfterTheEnd && self.told_finished { RECORDS + 1 } else { RECORDS };
        let random = u64::from(self.breaks == Break::OtherRecords) * self.calls;
        let Some((_, next, number)) = self.splits.iter_mut().filter(|split| split.1 < stop).min_by_key(|split| split.1) else {
            let again = self.breaks == Break::Finish && self.calls.is_multiple_of(2);
            self.told_finished = true;
            return Ok(if again { ReadStatus::Open } else { ReadStatus::Finished });
        };
        if self.breaks == Break::Stuck && *next > 100 {
            return std::future::pending().await;
        }
        let limit = if self.breaks == Break::Limits { 10 } else { self.context.limits.records - batch.len() };
        let step = if self.breaks == Break::Limits { 9 } else { 5 };
        let end = (*next + step).min(stop).min(*next + limit as u64);
        let first = *next;
        if self.breaks == Break::CancelSafety {
            *next = end;
        }
        if self.calls.is_multiple_of(4) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        *next = end;
        for sequence in first..end {
            let position = if self.breaks == Break::Order && sequence % 50 == 20 { sequence - 5 } else { sequence };
            let value = (sequence + random).to_string();
            let origin = Origin { split: *number, position };
            batch.push(Row { key: None, value: Some(value.as_bytes()), timestamp: 0, origin });
        }
        Ok(ReadStatus::Open)
    }

    fn positions(&self) -> Vec<Split> {
        let splits = self.splits.iter().map(|(split, next, _)| {
            let reported = match self.breaks {
                Break::PositionBehind if *next > 100 => next - 1,
                Break::PositionAhead if *next > 100 && *next < RECORDS => next + 1,
                _ => *next,
            };
            let finished = *next >= RECORDS && self.breaks != Break::ForgetsFinished;
            Split { position: json!(reported), finished, ..split.clone() }
        });
        splits.filter(|split| self.breaks != Break::ForgetsSplits || !split.finished).collect()
    }
}

fn suite() -> Conformance {
    Conformance { patience: Duration::from_millis(300), ..Conformance::default() }
}

#[tokio::test]
async fn a_right_source_passes() {
    let summary = suite().check(&Numbers(Break::Nothing)).await.unwrap();
    assert_eq!((summary.splits, summary.records, summary.replays), (3, 600, 50));
    assert!(summary.cancellations > 5, "{summary:?}");
}

#[tokio::test]
async fn each_broken_promise_is_found() {
    let expected = [
        (Break::CancelSafety, "read there before"),
        (Break::PositionBehind, "reading again from"),
        (Break::PositionAhead, "reading again from"),
        (Break::Order, "came after one of position"),
        (Break::Finish, "open again"),
        (Break::Limits, "above the limits"),
        (Break::Appending, "took away records"),
        (Break::OtherRecords, "was read there before"),
        (Break::ForgetsFinished, "is not"),
        (Break::FindsAgain, "found split s0 again"),
        (Break::NoSplitsIsFinished, "without splits"),
        (Break::ForgetsSplits, "were added"),
        (Break::GoesOnAfterTheEnd, "open again"),
        (Break::Stuck, "brought nothing and was not finished"),
    ];
    let checks = expected.map(|(breaks, words)| async move {
        match suite().check(&Numbers(breaks)).await {
            Ok(summary) => panic!("{breaks:?} was not found: {summary:?}"),
            Err(violation) => assert!(violation.to_string().contains(words), "{breaks:?}: {violation}"),
        }
    });
    futures::future::join_all(checks).await;
}

async fn check(source: Arc<dyn Source>, suite: Conformance) -> Summary {
    suite.check(&*source).await.unwrap()
}

#[tokio::test]
async fn the_generator_passes() {
    let bounded = json!({"count": 2_000, "splits": 3, "key": "{user}", "rate": 20_000});
    let summary = check(GeneratorType.create("g", &bounded).unwrap(), Conformance { compare_timestamps: true, ..suite() }).await;
    assert_eq!((summary.splits, summary.records), (3, 2_000));
    assert!(summary.cancellations > 3, "{summary:?}");
    let endless = json!({"rate": 20_000, "template": {"amount": "{amount}", "padding": "{padding}"}, "size": 200});
    let summary = check(GeneratorType.create("g", &endless).unwrap(), Conformance { records: 700, replays: 4, ..suite() }).await;
    assert!(summary.records >= 700, "{summary:?}");
}

/// Lines of many lengths, some of them blank, the last without a line end.
fn text(seed: usize, lines: usize) -> String {
    let line = |i: usize| match (i * 7 + seed) % 11 {
        0 => String::new(),
        1 => "  \r".to_owned(),
        width => format!(
            r#"{{"seed":{seed},"user":"u{}","text":"{}"}}{}"#,
            i % 5,
            "x".repeat(width * width),
            if width % 2 == 0 { "\r" } else { "" }
        ),
    };
    (0..lines).map(line).collect::<Vec<_>>().join("\n")
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn the_file_source_passes() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.jsonl"), text(1, 300)).unwrap();
    fs::write(folder.path().join("b.jsonl.gz"), gzip(&text(2, 300))).unwrap();
    fs::write(folder.path().join("c.jsonl.zst"), zstd::encode_all(text(3, 300).as_bytes(), 1).unwrap()).unwrap();
    for options in [json!({}), json!({"format": "lines"}), json!({"key": "/user", "rate": 10_000})] {
        let mut options = options;
        options["path"] = Value::from(folder.path().to_str().unwrap());
        let is_limited = options.get("rate").is_some();
        let summary = check(FileType.create("f", &options).unwrap(), suite()).await;
        assert!(summary.splits == 3 && summary.records > 700, "{summary:?}");
        assert!(summary.cancellations > 0 || !is_limited, "a limited rate makes readers wait: {summary:?}");
    }
}

#[tokio::test]
async fn the_file_source_passes_when_it_follows() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.log", "b.log"] {
        fs::write(folder.path().join(name), text(4, 200) + "half a line").unwrap();
    }
    let options = json!({"path": folder.path().join("*.log").to_str().unwrap(), "follow": true, "format": "lines"});
    let summary = check(FileType.create("f", &options).unwrap(), Conformance { replays: 4, ..suite() }).await;
    assert_eq!((summary.splits, summary.records), (2, 398));
}
