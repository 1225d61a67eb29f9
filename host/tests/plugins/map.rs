//! The stateless world: records through, and what becomes of those that fail.

use crate::support::*;
use waterwheel::operator::{
    DEAD_LETTER_ROUTE, ErrorPolicy, OPERATOR_HEADER, Outputs, POSITION_HEADER, REASON_HEADER, SOURCE_HEADER, SPLIT_HEADER,
};
use waterwheel::plugin::{OperatorContext, World};
use waterwheel::record::{Batch, Header, Origin, Row};

#[tokio::test]
async fn identity_changes_nothing() {
    let plugin = load("passthrough").await;
    assert_eq!(plugin.world(), World::MapPlugin);
    let mut operator = plugin.operator(context()).await.unwrap();
    let mut input = Batch::default();
    let row = |key, value, position| Row { key, value, timestamp: -5, origin: Origin { split: 0, position } };
    input.headers_mut().push(0, Header { name: "traceparent", value: Some(b"00-1") });
    input.push(row(Some(b"k"), Some(b"v"), 0));
    input.push(row(None, Some(b""), 1));
    input.headers_mut().push(2, Header { name: "x", value: None });
    input.headers_mut().push(2, Header { name: "x", value: Some(b"") });
    input.push(row(Some(b""), None, 2));
    input.push(row(None, None, 3));
    let mut outputs = Outputs::default();
    for _ in 0..2 {
        operator.process(0, input.clone(), TIMES, &mut outputs).await.unwrap();
        assert_eq!(outputs.drain().collect::<Vec<_>>(), [(0, input.clone())]);
    }
    operator.process(0, Batch::default(), TIMES, &mut outputs).await.unwrap();
    operator.finish(TIMES, &mut outputs).await.unwrap();
    operator.close().await.unwrap();
    assert!(outputs.is_empty());
}

#[tokio::test]
async fn filters_expands_and_splits() {
    let plugin = load("faulty").await;
    assert_eq!(plugin.description().side_outputs, ["late"]);
    let mut operator = plugin.operator(context()).await.unwrap();
    let mut outputs = Outputs::default();
    operator.process(0, batch(&["a", "drop", "twice", "late", "b"]), TIMES, &mut outputs).await.unwrap();
    let outputs: Vec<_> = outputs.drain().map(|(route, batch)| (route, texts(&batch), batch.timestamps().to_vec())).collect();
    assert_eq!(
        outputs,
        [(0, vec!["a".into(), "twice".into(), "twice".into(), "b".into()], vec![0, 2, 2, 4]), (1, vec!["late".into()], vec![3]),]
    );
}

#[tokio::test]
async fn a_plugin_sees_headers_origin_and_counts() {
    let context = context();
    let metrics = std::sync::Arc::clone(&context.metrics);
    let mut operator = load("faulty").await.operator(context).await.unwrap();
    let mut input = Batch::default();
    for (position, value) in (0_u64..).zip(["headers", "origin", "count:seen", "count:seen"]) {
        let row = input.len();
        input.headers_mut().push(row, Header { name: "h", value: Some(b"1") });
        input.push(Row { key: None, value: Some(value.as_bytes()), timestamp: 0, origin: Origin { split: 0, position } });
    }
    let mut outputs = Outputs::default();
    operator.process(0, input, TIMES, &mut outputs).await.unwrap();
    let told = drained(&mut outputs, 0);
    assert!(told[0].contains("\"h\"") && told[0].contains("49"), "{told:?}");
    assert!(told[1].contains("orders") && told[1].contains("in.json") && told[1].contains("\"1\""), "{told:?}");
    let counts = metrics.counts();
    assert_eq!((counts.named["seen"], counts.records, counts.traps), (2, 4, 0));
    assert!(counts.calls >= 2 && counts.memory_bytes > 65_536 && !counts.call_time.is_zero());
}

#[tokio::test]
async fn the_policy_fail_names_the_record() {
    let plugin = load("faulty").await;
    for (value, reason) in
        [("fail:bad amount", "bad amount"), ("panic:ouch", "the plugin panicked: ouch (at "), ("fail-batch:all bad", "all bad")]
    {
        let mut operator = plugin.operator(context()).await.unwrap();
        let error = error_of(&mut *operator, &["a", "b", value, "c"]).await;
        let told = error.to_string();
        assert!(told.starts_with("operator op: the record at source orders, split in.json, position 2, cannot be processed: "), "{told}");
        assert!(told.contains(reason) && !error.retry_helps(), "{told}");
    }
}

/// Values that fail in every way that a single record can, between others.
const TROUBLE: [&str; 9] = ["a", "panic:ouch", "b", "fail:bad", "exit", "c", "fail-batch:all", "panic:again", "d"];

fn lenient(policy: ErrorPolicy) -> OperatorContext {
    OperatorContext { policy, ..context() }
}

#[tokio::test]
async fn the_policy_skip_leaves_out_what_fails_and_keeps_the_order() {
    let context = lenient(ErrorPolicy::Skip);
    let metrics = std::sync::Arc::clone(&context.metrics);
    let mut operator = load("faulty").await.operator(context).await.unwrap();
    assert_eq!(process(&mut *operator, &TROUBLE).await, ["a", "b", "c", "d"]);
    assert_eq!(process(&mut *operator, &["panic:alone"]).await, [""; 0]);
    assert_eq!(process(&mut *operator, &["e"]).await, ["e"]);
    let counts = metrics.counts();
    assert_eq!((counts.failures, counts.skipped, counts.dead_letters), (6, 6, 0));
    assert!(counts.traps > 6, "{counts:?}");
}

#[tokio::test]
async fn the_policy_dead_letter_sends_the_record_as_it_came() {
    let mut operator = load("faulty").await.operator(lenient(ErrorPolicy::DeadLetter)).await.unwrap();
    let mut input = batch(&TROUBLE);
    input.headers_mut().push(3, Header { name: "own", value: Some(b"kept") });
    let mut outputs = Outputs::default();
    operator.process(0, input.clone(), TIMES, &mut outputs).await.unwrap();
    let mut letters = Vec::new();
    for (route, batch) in outputs.drain() {
        if route == DEAD_LETTER_ROUTE {
            letters.extend((0..batch.len()).map(|row| batch.slice(row..row + 1)));
        }
    }
    letters.sort_by_key(|letter| letter.origins()[0]);
    assert_eq!(letters.iter().flat_map(texts).collect::<Vec<_>>(), ["panic:ouch", "fail:bad", "exit", "fail-batch:all", "panic:again"]);
    let letter = &letters[1];
    assert_eq!(letter.row(0), input.row(3));
    let headers: Vec<_> = letter.headers().row(0).map(|header| (header.name, header.value.unwrap())).collect();
    assert_eq!(
        headers,
        [
            ("own", &b"kept"[..]),
            (REASON_HEADER, b"bad"),
            (OPERATOR_HEADER, b"op"),
            (SOURCE_HEADER, b"orders"),
            (SPLIT_HEADER, b"in.json"),
            (POSITION_HEADER, b"3"),
        ]
    );
}

#[tokio::test]
async fn a_config_that_the_plugin_refuses_is_told_in_its_words() {
    let plugin = load("faulty").await;
    let error_with = async |config| plugin.operator(OperatorContext { config, ..context() }).await.err().unwrap();
    let error = error_with(serde_json::json!({"open": "fail:not today"})).await;
    assert_eq!(error.to_string(), "operator op: the plugin refuses its config: not today");
    assert!(!error.retry_helps());
    let error = error_with(serde_json::json!({"open": "panic:ouch"})).await;
    assert!(error.to_string().contains("cannot be started: the plugin panicked: ouch"), "{error}");
    let error = error_with(serde_json::json!({"nobody": 1})).await;
    assert!(error.to_string().contains("nobody"), "{error}");
}

#[tokio::test]
async fn columns_that_break_the_contract_are_refused_each_with_its_sentence() {
    let plugin = load("faulty-columns").await;
    // A batch of one, for the record would be tried alone before it is named.
    let cases = [
        ("ends-fall", "values: the last end is 4294967295, but there are 9 bytes"),
        ("ends-past-bytes", "values: the last end is 15, but there are 0 bytes"),
        ("ends-short", "values: the last end is 10, but there are 11 bytes"),
        ("count", "values has 1 entries for 2 records"),
        ("wrong-timestamps", "timestamps has 2 entries for 1 records"),
        ("wrong-keys", "keys has 2 entries for 1 records"),
        ("wrong-nulls", "nulls has 2 entries for 1 records"),
        ("wrong-origins", "origins has 2 entries for 1 records"),
        ("origin-out-of-range", "record 0 comes from row 1, but the input has 1 rows"),
        ("wrong-routes", "routes has 2 entries for 1 records"),
        ("route-out-of-range", "record 0 goes to route 2, but `describe` names 1 side outputs"),
        ("header-row-out-of-range", "a header of record 1 is edited, but there are 1 records"),
        ("header-operation", "a header edit of record 0 has operation 9; there are 0, 1 and 2"),
        ("failure-row-out-of-range", "row 1 is reported as failed, but the input has 1 rows"),
        ("failed-and-emitted", "record 0 comes from row 0, which is reported as failed"),
        ("more-without-origins", "origins is empty, so record 1 comes from row 1, but the input has 1 rows"),
    ];
    for (value, sentence) in cases {
        let mut operator = plugin.operator(context()).await.unwrap();
        let told = error_of(&mut *operator, &[value]).await.to_string();
        let expected = format!("the plugin returned what the contract does not allow: {sentence}");
        assert!(told.ends_with(&expected) && told.contains("position 0"), "{value}: {told}");
    }
    let mut operator = plugin.operator(OperatorContext { policy: ErrorPolicy::Skip, ..context() }).await.unwrap();
    assert_eq!(process(&mut *operator, &["ends-fall", "b", "c"]).await, ["b", "c"]);
    let mut operator = plugin.operator(context()).await.unwrap();
    assert_eq!(process(&mut *operator, &["fine", "too"]).await, ["fine", "too"]);
}
