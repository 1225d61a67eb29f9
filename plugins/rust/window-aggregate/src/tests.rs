#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use waterwheel_plugin::testing::{Input, KeyedHarness, Scope};

use super::WindowAggregate;

const ALL: &str = r#"[{"function": "count"}, {"function": "count", "field": "/v", "name": "values"}, {"function": "sum", "field": "/v"},
    {"function": "min", "field": "/v"}, {"function": "max", "field": "/v"}, {"function": "avg", "field": "/v"},
    {"function": "first", "field": "/w"}, {"function": "last", "field": "/w"}, {"function": "count-distinct", "field": "/v", "name": "distinct"}]"#;

fn config(window: &str, lateness: u64) -> String {
    format!(r#"{{"window": {window}, "allowed-lateness-ms": {lateness}, "aggregates": {ALL}}}"#)
}

fn open(config: &str) -> KeyedHarness<WindowAggregate> {
    KeyedHarness::open(config).unwrap()
}

fn feed(plugin: &mut KeyedHarness<WindowAggregate>, key: &str, timestamp: i64, value: &str) {
    plugin.process(0, &[Input::value(value).key(key).timestamp(timestamp)]).unwrap();
}

fn texts(plugin: &mut KeyedHarness<WindowAggregate>) -> Vec<String> {
    plugin.take_output().iter().map(|record| record.text().to_owned()).collect()
}

#[test]
fn all_functions_at_once() {
    let mut plugin = open(&config(r#"{"type": "tumbling", "size-ms": 10}"#, 0));
    for (at, value) in
        [(3, r#"{"v": 0.1, "w": "b"}"#), (1, r#"{"v": 0.20, "w": {"x": 1}}"#), (2, r#"{"v": 0.2}"#), (9, r#"{"v": null, "w": 7}"#)]
    {
        feed(&mut plugin, "a\"", at, value);
    }
    feed(&mut plugin, "b", -1, "{}");
    plugin.finish().unwrap();
    assert_eq!(
        texts(&mut plugin),
        [
            r#"{"key":"b","start":-10,"end":0,"count":1,"values":0,"sum":null,"min":null,"max":null,"avg":null,"first":null,"last":null,"distinct":0}"#,
            r#"{"key":"a\"","start":0,"end":10,"count":4,"values":3,"sum":0.5,"min":0.1,"max":0.2,"avg":0.166666666667,"first":{"x": 1},"last":7,"distinct":2}"#,
        ]
    );
    assert_eq!((plugin.timers().len(), plugin.snapshot(Scope::All).unwrap().entries().len()), (0, 0));
}

#[test]
fn late_records_have_a_window_fire_again_or_go_aside() {
    let mut plugin =
        open(r#"{"window": {"type": "tumbling", "size-ms": 10}, "allowed-lateness-ms": 5, "aggregates": [{"function": "count"}]}"#);
    feed(&mut plugin, "a", 1, "{}");
    plugin.advance_watermark(12).unwrap();
    feed(&mut plugin, "a", 2, "{}");
    plugin.advance_watermark(14).unwrap();
    feed(&mut plugin, "a", 3, r#"{"late": 1}"#);
    assert_eq!(texts(&mut plugin), [r#"{"key":"a","start":0,"end":10,"count":1}"#, r#"{"key":"a","start":0,"end":10,"count":2}"#]);
    let late = plugin.take_side_output("late");
    assert_eq!((late[0].text(), late[0].timestamp), (r#"{"late": 1}"#, 3));
}

#[test]
fn sessions_that_become_one_add_up() {
    let mut plugin = open(&config(r#"{"type": "session", "gap-ms": 10}"#, 0));
    for (at, value) in [
        (0, r#"{"v": 1, "w": 1}"#),
        (30, r#"{"v": 2, "w": 2}"#),
        (32, r#"{"v": 1.0, "w": 3}"#),
        (15, r#"{"v": 5}"#),
        (8, r#"{"v": 5}"#),
        (22, "{}"),
    ] {
        feed(&mut plugin, "a", at, value);
        let snapshot = plugin.snapshot(Scope::All).unwrap();
        plugin = KeyedHarness::restore(&config(r#"{"type": "session", "gap-ms": 10}"#, 0), &snapshot).unwrap();
    }
    plugin.finish().unwrap();
    assert_eq!(
        texts(&mut plugin),
        [r#"{"key":"a","start":0,"end":42,"count":6,"values":5,"sum":14,"min":1,"max":5,"avg":2.8,"first":1,"last":3,"distinct":3}"#]
    );
    assert_eq!((plugin.timers().len(), plugin.snapshot(Scope::All).unwrap().entries().len()), (0, 0));
}

#[test]
fn a_record_without_a_number_fails_and_is_in_no_window() {
    let mut plugin = open(&config(r#"{"type": "sliding", "size-ms": 10, "slide-ms": 5}"#, 0));
    for value in [r#"{"v": "7"}"#, "[", r#"{"v": 1e99}"#] {
        feed(&mut plugin, "a", 0, value);
    }
    let reasons: Vec<_> = plugin.take_failures().into_iter().map(|failure| failure.reason).collect();
    assert_eq!(reasons[0], "what is at /v is no number: \"7\"");
    assert_eq!(reasons[2], "1e99 is not a number with at most 38 digits, 30 of them decimal places");
    assert_eq!((plugin.timers().len(), plugin.snapshot(Scope::All).unwrap().entries().len()), (0, 0));
}

#[test]
fn a_wrong_configuration_is_one_clear_sentence() {
    let error = |config: &str| KeyedHarness::<WindowAggregate>::open(config).unwrap_err();
    let with = |window: &str, aggregates: &str| error(&format!(r#"{{"window": {window}, "aggregates": {aggregates}}}"#));
    let (tumbling, count) = (r#"{"type": "tumbling", "size-ms": 10}"#, r#"[{"function": "count"}]"#);
    for (found, expected) in [
        (with(r#"{"type": "tumbling", "size-ms": 0}"#, count), "config.window: the size of a window must be a millisecond or more"),
        (
            with(r#"{"type": "sliding", "size-ms": 5, "slide-ms": 6}"#, count),
            "config.window: the slide of a window (6 ms) must not be more",
        ),
        (with(r#"{"type": "session", "gap-ms": 0}"#, count), "config.window: the gap of a session"),
        (with(r#"{"type": "hopping", "size-ms": 5}"#, count), "config.window.type: unknown variant `hopping`, expected one of `tumbling`"),
        (with(r#"{"type": "session", "gap-ms": 5, "size-ms": 5}"#, count), "config.window: unknown field `size-ms`, expected `gap-ms`"),
        (with(tumbling, "[]"), "config.aggregates: is empty; name at least one"),
        (with(tumbling, r#"[{"function": "sum"}]"#), "config.aggregates[0].field: is missing: sum needs a JSON pointer"),
        (with(tumbling, r#"[{"function": "median", "field": "/a"}]"#), "config.aggregates[0].function: unknown variant `median`"),
        (with(tumbling, r#"[{"function": "count"}, {"function": "count"}]"#), "config.aggregates[1].name: \"count\" is taken already"),
        (with(tumbling, r#"[{"function": "count", "name": "key"}]"#), "config.aggregates[0].name: \"key\" is taken already"),
        (error("null"), "config: missing field `window`"),
    ] {
        assert!(found.starts_with(expected), "{found}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// The order of records does not matter, nor do restores: the results are those of a plain computation.
    #[test]
    fn shuffled_records_give_what_a_plain_computation_gives(
        records in prop::collection::vec((0..2_usize, -60..60_i64, -9..9_i64), 1..40),
        size in 3..20_i64,
        is_session: bool,
        restore in 1..10_usize,
    ) {
        let window = if is_session { format!(r#"{{"type": "session", "gap-ms": {size}}}"#) } else { format!(r#"{{"type": "tumbling", "size-ms": {size}}}"#) };
        let aggregates = r#"[{"function": "count"}, {"function": "sum", "field": "/v"}, {"function": "max", "field": "/v"}, {"function": "count-distinct", "field": "/v", "name": "distinct"}]"#;
        let config = format!(r#"{{"window": {window}, "aggregates": {aggregates}}}"#);
        let mut plugin = open(&config);
        for (index, (key, at, value)) in records.iter().enumerate() {
            feed(&mut plugin, ["a", "b"][*key], *at, &format!(r#"{{"v": {value}}}"#));
            if index % restore == 0 {
                let snapshot = plugin.snapshot(Scope::All).unwrap();
                plugin = KeyedHarness::restore(&config, &snapshot).unwrap();
            }
        }
        plugin.finish().unwrap();
        let mut expected = BTreeSet::new();
        for (index, key) in ["a", "b"].iter().enumerate() {
            let mut windows: BTreeMap<(i64, i64), Vec<i64>> = BTreeMap::new();
            let mut sorted: Vec<_> = records.iter().filter(|record| record.0 == index).map(|(_, at, value)| (*at, *value)).collect();
            sorted.sort_unstable();
            let mut session: Option<(i64, i64)> = None;
            for (at, value) in sorted {
                let window = match (is_session, session) {
                    (false, _) => (at.div_euclid(size) * size, at.div_euclid(size) * size + size),
                    (true, Some(open)) if at <= open.1 => (open.0, at + size),
                    (true, _) => (at, at + size),
                };
                let mut values = session.filter(|open| open.0 == window.0).and_then(|open| windows.remove(&open)).unwrap_or_default();
                values.push(value);
                windows.entry(window).or_default().extend(values);
                session = is_session.then_some(window);
            }
            for ((start, end), values) in windows {
                let (sum, max) = (values.iter().sum::<i64>(), values.iter().max().unwrap());
                let distinct = values.iter().collect::<BTreeSet<_>>().len();
                expected.insert(format!(r#"{{"key":"{key}","start":{start},"end":{end},"count":{},"sum":{sum},"max":{max},"distinct":{distinct}}}"#, values.len()));
            }
        }
        let found = texts(&mut plugin);
        prop_assert_eq!(found.len(), expected.len());
        prop_assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
        prop_assert_eq!(plugin.snapshot(Scope::All).unwrap().entries().len(), 0);
    }
}
