//! How long an operator stands still for a snapshot: running totals of 1,000,000 keys, of which 10,000 changed; and all of them.

use crate::boundary::{TIMES, load, open};
use crate::report::Report;
use std::time::{Duration, Instant};
use waterwheel::operator::{Operator, Outputs};
use waterwheel::record::{Batch, Origin, Row};
use waterwheel::state::StateWriter;

const KEYS: u64 = 1_000_000;
const CHANGED: u64 = 10_000;
const ROUNDS: usize = 5;

pub(crate) async fn measure(report: &mut Report) {
    let mut operator = open(&load(&crate::plugin("running-total")).await, serde_json::Value::Null).await;
    feed(operator.as_mut(), 0..KEYS).await;
    let mut state = StateWriter::default();
    operator.snapshot(&mut state).await.unwrap();
    assert_eq!(state.entries(), KEYS);
    let (mut changed, mut all) = (Duration::MAX, Duration::MAX);
    for round in 0..ROUNDS as u64 {
        feed(operator.as_mut(), round * CHANGED..(round + 1) * CHANGED).await;
        let mut state = StateWriter::default();
        let began = Instant::now();
        operator.snapshot(&mut state).await.unwrap();
        changed = changed.min(began.elapsed());
        assert_eq!(state.entries(), CHANGED);
        let mut state = StateWriter::default();
        let began = Instant::now();
        operator.snapshot_all(&mut state).await.unwrap();
        all = all.min(began.elapsed());
        assert_eq!(state.entries(), KEYS);
    }
    let millis = |duration: Duration| duration.as_secs_f64() * 1000.0;
    report.add("export of 10,000 changed of 1,000,000 keys", millis(changed), "ms on the clock", Some(10.0));
    report.add("export of all of 1,000,000 keys", millis(all), "ms on the clock", Some(250.0));
}

async fn feed(operator: &mut dyn Operator, keys: std::ops::Range<u64>) {
    let mut outputs = Outputs::default();
    let mut batch = Batch::default();
    for position in keys {
        let key = format!("{position:08}");
        let row =
            Row { key: Some(key.as_bytes()), value: Some(br#"{"amount":12.5}"#), timestamp: 0, origin: Origin { split: 0, position } };
        batch.push(row);
        if batch.len() == 512 {
            operator.process(0, std::mem::take(&mut batch), TIMES, &mut outputs).await.unwrap();
            outputs.drain().for_each(drop);
        }
    }
    operator.process(0, batch, TIMES, &mut outputs).await.unwrap();
    outputs.drain().for_each(drop);
}
