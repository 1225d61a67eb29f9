//! The conformance suite that every source runs.

use super::*;
use waterwheel::source::conformance::Conformance;

fn suite() -> Conformance {
    Conformance { compare_timestamps: true, patience: Duration::from_secs(10), replays: 8, ..Conformance::default() }
}

#[tokio::test]
async fn a_bounded_source_keeps_its_promises() {
    let topic = broker().topic("suite", 3);
    broker().write(&topic, 0, numbers(0..400));
    broker().write_transaction(&topic, 1, numbers(0..50), true);
    broker().write_transaction(&topic, 1, numbers(0..50), false);
    let summary = suite().check(&*bounded(&topic)).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!((summary.splits, summary.records), (3, 450));
    assert!(summary.replays >= 10 && summary.cancellations > 0, "{summary:?}");
}

#[tokio::test]
async fn an_unbounded_source_keeps_its_promises() {
    let topic = broker().topic("suite", 2);
    broker().write(&topic, 0, numbers(0..300));
    broker().write(&topic, 1, numbers(0..30));
    let suite = Conformance { patience: Duration::from_secs(2), replays: 4, ..suite() };
    let summary = suite.check(&*source(json!({"topics": topic}))).await.unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!((summary.splits, summary.records), (2, 330));
}
