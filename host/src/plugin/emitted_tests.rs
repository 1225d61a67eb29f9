//! Hand-made answers of a plugin: what is taken over, and the sentence for each thing that is wrong.

use super::*;
use crate::plugin::bindings::types;
use crate::record::Row;

fn origin(position: u64) -> Origin {
    Origin { split: 0, position }
}

/// Three records: a key and a value; null key, empty value; empty key, null value. The first and the last have headers.
fn input() -> Arc<Batch> {
    let mut batch = Batch::default();
    batch.headers_mut().push(0, Header { name: "a", value: Some(b"1") });
    batch.headers_mut().push(0, Header { name: "b", value: None });
    batch.push(Row { key: Some(b"k0"), value: Some(b"v0"), timestamp: 10, origin: origin(100) });
    batch.push(Row { key: None, value: Some(b""), timestamp: 11, origin: origin(101) });
    batch.headers_mut().push(2, Header { name: "c", value: Some(b"3") });
    batch.push(Row { key: Some(b""), value: None, timestamp: 12, origin: origin(102) });
    Arc::new(batch)
}

fn column(entries: &[&str]) -> ColumnResult {
    let column: Column = entries.iter().map(|entry| entry.as_bytes()).collect();
    let (ends, bytes) = column.into_parts();
    ColumnResult { ends, bytes }
}

/// Values only; everything else is as in the input.
fn values(entries: &[&str]) -> Emitted {
    Emitted {
        records: BatchResult {
            count: u32::try_from(entries.len()).unwrap(),
            timestamps: Vec::new(),
            keys: column(&[]),
            values: column(entries),
            nulls: Vec::new(),
        },
        origins: Vec::new(),
        routes: Vec::new(),
        headers: Vec::new(),
        failures: Vec::new(),
    }
}

fn edit(row: u32, operation: u8, name: &str, value: Option<&str>) -> HeaderEdit {
    HeaderEdit { row, name: name.into(), operation, value: value.map(|value| value.as_bytes().to_vec()) }
}

fn accepted(emitted: Emitted) -> Vec<(u8, Batch)> {
    let mut outputs = Outputs::default();
    let failures = accept(emitted, &mut input(), Rows::Input, 2, &mut outputs).unwrap();
    assert!(failures.is_empty());
    outputs.drain().collect()
}

fn main_output(emitted: Emitted) -> Batch {
    let outputs = accepted(emitted);
    assert_eq!(outputs.len(), 1);
    let (route, batch) = outputs.into_iter().next().unwrap();
    assert_eq!(route, 0);
    batch
}

fn names(batch: &Batch, row: usize) -> Vec<String> {
    batch.headers().row(row).map(|header| header.name.to_owned()).collect()
}

/// The sentence for an answer that breaks the contract; nothing was emitted, and the input is as it was.
#[track_caller]
fn refused(spoil: impl FnOnce(&mut Emitted)) -> String {
    let mut emitted = values(&["x", "y", "z"]);
    spoil(&mut emitted);
    let (mut batch, mut outputs) = (input(), Outputs::default());
    let sentence = accept(emitted, &mut batch, Rows::Input, 2, &mut outputs).unwrap_err();
    assert!(outputs.is_empty());
    assert_eq!(batch, input());
    sentence
}

#[test]
fn what_is_left_out_is_as_in_the_input() {
    let batch = main_output(values(&["x", "y", "z"]));
    assert_eq!(batch.keys(), input().keys());
    assert_eq!(batch.timestamps(), [10, 11, 12]);
    assert_eq!(batch.origins(), [origin(100), origin(101), origin(102)]);
    assert_eq!(batch.headers(), input().headers());
    let keys: Vec<_> = batch.rows().map(|row| row.key).collect();
    assert_eq!(keys, [Some(&b"k0"[..]), None, Some(b"")]);
    let values: Vec<_> = batch.rows().map(|row| row.value).collect();
    assert_eq!(values, [Some(&b"x"[..]), Some(b"y"), Some(b"z")]);
}

#[test]
fn the_way_without_copies_gives_what_the_other_gives() {
    let answer = || {
        let mut emitted = values(&["x", "", ""]);
        emitted.records.nulls = vec![0, 0, 2];
        emitted
    };
    let (mut shared, mut outputs) = (input(), Outputs::default());
    let _held = Arc::clone(&shared);
    accept(answer(), &mut shared, Rows::Input, 0, &mut outputs).unwrap();
    assert_eq!(outputs.drain().next().unwrap().1, main_output(answer()));
}

#[test]
fn null_and_empty_stay_apart() {
    let mut emitted = values(&["", "", "z"]);
    emitted.records.keys = column(&["", "", "k"]);
    emitted.records.nulls = vec![1, 2, 0];
    let batch = main_output(emitted);
    let rows: Vec<_> = batch.rows().map(|row| (row.key, row.value)).collect();
    assert_eq!(rows, [(None, Some(&b""[..])), (Some(&b""[..]), None), (Some(b"k"), Some(b"z"))]);
}

#[test]
fn origins_carry_headers_keys_and_times_over() {
    let mut emitted = values(&["x", "y", "z", "w"]);
    emitted.origins = vec![2, 0, 0, 1];
    let batch = main_output(emitted);
    assert_eq!(batch.timestamps(), [12, 10, 10, 11]);
    assert_eq!(batch.origins(), [origin(102), origin(100), origin(100), origin(101)]);
    let keys: Vec<_> = batch.rows().map(|row| row.key).collect();
    assert_eq!(keys, [Some(&b""[..]), Some(b"k0"), Some(b"k0"), None]);
    assert_eq!((names(&batch, 0), names(&batch, 1), names(&batch, 3)), (vec!["c".into()], vec!["a".into(), "b".into()], vec![]));
}

#[test]
fn fewer_records_without_origins_come_from_the_first_rows() {
    let batch = main_output(values(&["x"]));
    assert_eq!((batch.len(), batch.timestamps(), names(&batch, 0).len()), (1, &[10][..], 2));
}

#[test]
fn nothing_emitted_is_nothing() {
    assert!(accepted(values(&[])).is_empty());
}

#[test]
fn routes_split_in_order() {
    let mut emitted = values(&["a", "b", "c"]);
    emitted.routes = vec![2, 0, 2];
    let outputs = accepted(emitted);
    assert_eq!(outputs.iter().map(|(route, _)| *route).collect::<Vec<_>>(), [0, 2]);
    let side = &outputs[1].1;
    assert_eq!(side.rows().map(|row| row.value.unwrap()).collect::<Vec<_>>(), [b"a", b"c"]);
    assert_eq!((names(side, 0), names(side, 1)), (vec!["a".into(), "b".into()], vec!["c".into()]));
    let mut emitted = values(&["a", "b"]);
    emitted.routes = vec![1, 1];
    assert_eq!(accepted(emitted).iter().map(|(route, batch)| (*route, batch.len())).collect::<Vec<_>>(), [(1, 2)]);
}

#[test]
fn header_edits_are_applied_in_order() {
    let mut emitted = values(&["x", "y", "z"]);
    emitted.headers = vec![
        edit(2, 1, "late", Some("9")),
        edit(0, 0, "b", Some("set")),
        edit(0, 1, "a", None),
        edit(0, 0, "new", Some("")),
        edit(1, 1, "only", Some("1")),
        edit(1, 2, "nobody", None),
        edit(2, 2, "c", None),
    ];
    let batch = main_output(emitted);
    let row = |row: usize| batch.headers().row(row).map(|header| (header.name, header.value)).collect::<Vec<_>>();
    assert_eq!(row(0), [("a", Some(&b"1"[..])), ("b", Some(b"set")), ("a", None), ("new", Some(b""))]);
    assert_eq!(row(1), [("only", Some(&b"1"[..]))]);
    assert_eq!(row(2), [("late", Some(&b"9"[..]))]);
    let mut emitted = values(&["x"]);
    emitted.headers = vec![edit(0, 0, "a", Some("one")), edit(0, 1, "a", Some("two")), edit(0, 0, "a", Some("last"))];
    let batch = main_output(emitted);
    assert_eq!(names(&batch, 0), ["a", "b"]);
    assert_eq!(batch.headers().row(0).next().unwrap().value, Some(&b"last"[..]));
}

#[test]
fn failures_leave_the_input_for_the_policy() {
    let mut emitted = values(&["x", "z"]);
    emitted.origins = vec![0, 2];
    emitted.failures = vec![types::Failure { row: 1, reason: "no".into() }];
    let (mut batch, mut outputs) = (input(), Outputs::default());
    let failures = accept(emitted, &mut batch, Rows::Input, 0, &mut outputs).unwrap();
    assert_eq!(failures, [Failure { row: 1, reason: "no".into() }]);
    assert_eq!(batch, input());
    assert_eq!(outputs.drain().next().unwrap().1.len(), 2);
}

#[test]
fn what_finish_emits_comes_from_nothing() {
    let finish = |emitted: Emitted| {
        let mut outputs = Outputs::default();
        accept(emitted, &mut Arc::default(), Rows::None, 0, &mut outputs).map(|_| outputs.drain().next().map(|(_, batch)| batch))
    };
    let mut emitted = values(&["x", "y"]);
    emitted.records.keys = column(&["a", ""]);
    emitted.records.timestamps = vec![1, 2];
    emitted.records.nulls = vec![0, 1];
    emitted.headers = vec![edit(1, 1, "h", None)];
    let batch = finish(emitted).unwrap().unwrap();
    assert_eq!((batch.origins(), batch.key(1), names(&batch, 1)), (&[Origin::NONE; 2][..], None, vec!["h".to_owned()]));
    assert_eq!(finish(values(&[])), Ok(None));
    assert!(finish(values(&["x"])).unwrap_err().contains("must be complete"));
    let mut emitted = values(&["x"]);
    emitted.origins = vec![0];
    assert!(finish(emitted).unwrap_err().contains("origins must be empty"));
}

#[test]
fn each_wrong_column_has_its_sentence() {
    type Spoil = fn(&mut Emitted);
    let cases: [(&str, Spoil); 25] = [
        ("values: ends fall at entry 1: 1 after 2", |e| e.records.values.ends = vec![2, 1, 3]),
        ("values: the last end is 9, but there are 3 bytes", |e| e.records.values.ends = vec![1, 2, 9]),
        ("values: the last end is 3, but there are 4 bytes", |e| e.records.values.bytes.push(0)),
        ("values has 2 entries for 3 records", |e| e.records.values = column(&["x", "y"])),
        ("values has 3 entries for 4294967295 records", |e| e.records.count = u32::MAX),
        ("keys has 4 entries for 3 records", |e| e.records.keys = column(&["", "", "", "k"])),
        ("keys: the last end is 0, but there are 1 bytes", |e| e.records.keys.bytes = vec![1]),
        ("timestamps has 1 entries for 3 records", |e| e.records.timestamps = vec![7]),
        ("nulls has 2 entries for 3 records", |e| e.records.nulls = vec![0; 2]),
        ("nulls has unknown bits at record 2: 0b00000100", |e| e.records.nulls = vec![0, 0, 4]),
        ("nulls marks keys, but keys is empty", |e| e.records.nulls = vec![1, 0, 0]),
        ("the value of record 0 is null and has bytes", |e| e.records.nulls = vec![2, 0, 0]),
        ("the key of record 1 is null and has bytes", |e| {
            e.records.keys = column(&["", "k", ""]);
            e.records.nulls = vec![0, 1, 0];
        }),
        ("origins has 2 entries for 3 records", |e| e.origins = vec![0; 2]),
        ("record 1 comes from row 3, but the input has 3 rows", |e| e.origins = vec![0, 3, 0]),
        ("record 3 comes from row 3, but the input has 3 rows", |e| e.records = values(&["x", "y", "z", "w"]).records),
        ("routes has 1 entries for 3 records", |e| e.routes = vec![0]),
        ("record 2 goes to route 3, but `describe` names 2 side outputs", |e| e.routes = vec![0, 1, 3]),
        ("record 0 goes to route 255, but `describe` names 2 side outputs", |e| e.routes = vec![255, 0, 0]),
        ("a header of record 3 is edited, but there are 3 records", |e| e.headers = vec![edit(3, 0, "h", None)]),
        ("a header edit of record 0 has operation 3; there are 0, 1 and 2", |e| e.headers = vec![edit(0, 3, "h", None)]),
        ("row 3 is reported as failed, but the input has 3 rows", |e| e.failures = vec![types::Failure { row: 3, reason: String::new() }]),
        ("row 1 is reported as failed twice", |e| {
            e.records = values(&[]).records;
            e.failures = vec![types::Failure { row: 1, reason: String::new() }; 2];
        }),
        ("record 2 comes from row 2, which is reported as failed", |e| {
            e.failures = vec![types::Failure { row: 2, reason: String::new() }];
        }),
        ("record 0 comes from row 1, which is reported as failed", |e| {
            e.origins = vec![1, 0, 0];
            e.failures = vec![types::Failure { row: 1, reason: String::new() }];
        }),
    ];
    for (sentence, spoil) in cases {
        let told = refused(spoil);
        assert!(told.contains(sentence), "{told:?} does not say {sentence:?}");
    }
}

#[test]
fn wrong_timers_are_refused() {
    let right = || TimersResult { keys: column(&["a", "b"]), times: vec![1, 2], tags: vec![0, 1], clocks: vec![0, 1], operations: vec![] };
    assert_eq!(accept_timers(right()).unwrap().len(), 2);
    type Spoil = fn(&mut TimersResult);
    let cases: [(&str, Spoil); 7] = [
        ("timers.keys: ends fall", |t| t.keys.ends = vec![2, 1]),
        ("timers.times has 1 entries for 2 keys", |t| t.times = vec![1]),
        ("timers.tags has 3 entries for 2 keys", |t| t.tags = vec![1, 2, 3]),
        ("timers.clocks has 0 entries for 2 keys", |t| t.clocks = vec![]),
        ("timers.operations has 1 entries for 2 keys", |t| t.operations = vec![0]),
        ("timers.clocks holds 2 at timer 1", |t| t.clocks = vec![0, 2]),
        ("timers.operations holds 9 at timer 0", |t| t.operations = vec![9, 0]),
    ];
    for (sentence, spoil) in cases {
        let mut timers = right();
        spoil(&mut timers);
        let told = accept_timers(timers).unwrap_err();
        assert!(told.contains(sentence), "{told:?} does not say {sentence:?}");
    }
}
