//! Which columns are left out, and that what is there is right.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::Output;
use crate::bindings::{Batch, Column, Context, Emitted};
use crate::plugin::{Environment, MapPlugin, NoConfig};
use crate::record::Record;
use crate::runtime::MapRuntime;
use crate::{Emit, Failure, fail, fail_batch};

/// Does what each letter of a value says.
struct Letters;

impl MapPlugin for Letters {
    type Config = NoConfig;
    const SIDE_OUTPUTS: &'static [&'static str] = &["first", "second"];

    fn open(_: NoConfig, _: &Environment) -> Result<Self, Failure> {
        Ok(Self)
    }

    fn process(&mut self, record: &Record<'_>, out: &mut Output<'_>) -> Result<(), Failure> {
        let value = record.value().unwrap_or(b"r");
        for letter in value {
            match letter {
                b'r' => drop(out.emit(record)),
                b'v' => drop(out.emit("new")),
                b'k' => drop(out.emit(Emit::from(record).key("K"))),
                b'n' => drop(out.emit(Emit::from(record).null_key())),
                b't' => drop(out.emit(Emit::from(record).timestamp(99))),
                b'z' => drop(out.emit(Emit::tombstone())),
                b's' => drop(out.emit(Emit::from(record).to("second"))),
                b'h' => drop(out.emit(record).set_header("a", "1").remove_header("b")),
                b'w' => out
                    .emit_with(Emit::default(), |value| {
                        value.push("half");
                        Err(fail("half written"))
                    })
                    .map(drop)?,
                b'?' => drop(out.emit(Emit::from(record).to("third"))),
                b'!' => return Err(fail("failed")),
                b'#' => return Err(fail_batch("all failed")),
                _ => {}
            }
        }
        Ok(())
    }
}

fn column(entries: &[&str]) -> Column {
    let mut column = super::empty_column();
    entries.iter().for_each(|entry| super::push_entry(&mut column, entry.as_bytes()));
    column
}

/// A batch with keys `a`, `b`, … and times 1, 2, …
fn batch(values: &[&str]) -> Batch {
    let keys = ["a", "b", "c", "d", "e", "f"];
    let timestamps = (1..).take(values.len()).collect();
    let count = u32::try_from(values.len()).unwrap();
    Batch { count, timestamps, keys: column(&keys[..values.len()]), values: column(values), nulls: Vec::new() }
}

fn run_batch(batch: Batch) -> Result<Emitted, String> {
    let mut runtime = MapRuntime::<Letters>::default();
    runtime.open("null", "{}").unwrap();
    runtime.process(batch, &Context { watermark: 0, processing_time: 0 })
}

fn run(values: &[&str]) -> Emitted {
    run_batch(batch(values)).unwrap()
}

#[test]
fn what_is_passed_on_is_left_out() {
    let emitted = run(&["r", "r", "r"]);
    assert_eq!(emitted.records, Batch { timestamps: Vec::new(), keys: column(&[]), ..batch(&["r", "r", "r"]) });
    assert_eq!((emitted.origins, emitted.routes, emitted.headers), (Vec::new(), Vec::new(), Vec::new()));
}

#[test]
fn a_filter_needs_origins_only() {
    let emitted = run(&["r", "-", "r", "r", "-", "r"]);
    assert_eq!(emitted.records.values, column(&["r", "r", "r", "r"]));
    assert_eq!(emitted.origins, [0, 2, 3, 5]);
    assert_eq!((emitted.records.keys, emitted.records.timestamps), (column(&[]), Vec::new()));
    // What is cut off at the end needs none.
    assert_eq!(run(&["r", "r", "-"]).origins, Vec::<u32>::new());
}

#[test]
fn values_keep_their_order_however_they_come() {
    let emitted = run(&["r", "rv", "vr", "rr", "-", "r"]);
    assert_eq!(emitted.records.values, column(&["r", "rv", "new", "new", "vr", "rr", "rr", "r"]));
    assert_eq!(emitted.origins, [0, 1, 1, 2, 2, 3, 3, 5]);
}

#[test]
fn a_key_that_differs_brings_the_others_with_it() {
    let emitted = run(&["r", "-", "k", "n", "r"]);
    assert_eq!(emitted.records.keys, column(&["a", "K", "", "e"]));
    assert_eq!(emitted.records.nulls, [0, 0, 1, 0]);
    let nulls = Batch { nulls: vec![1, 2, 0], ..batch(&["r", "", "k"]) };
    let emitted = run_batch(nulls).unwrap();
    assert_eq!(emitted.records.keys, column(&["", "b", "K"]));
    assert_eq!(emitted.records.nulls, [1, 2, 0]);
}

#[test]
fn a_null_key_that_is_left_out_has_no_bit() {
    let emitted = run_batch(Batch { nulls: vec![1, 0, 1], ..batch(&["r", "r", "z"]) }).unwrap();
    assert_eq!(emitted.records.keys, column(&[]));
    assert_eq!(emitted.records.nulls, [0, 0, 2]);
}

#[test]
fn a_time_that_differs_brings_the_others_with_it() {
    assert_eq!(run(&["r", "-", "t", "r"]).records.timestamps, [1, 99, 4]);
}

#[test]
fn side_outputs_are_counted_from_one() {
    assert_eq!(run(&["r", "s", "r"]).routes, [0, 2, 0]);
    let error = run_batch(batch(&["r", "?"])).unwrap_err();
    assert!(error.contains("emits to the side output `third`, which it does not declare"), "{error}");
}

#[test]
fn header_changes_name_the_emitted_record() {
    let emitted = run(&["-", "rh"]);
    let edits: Vec<_> = emitted.headers.iter().map(|edit| (edit.row, edit.name.as_str(), edit.operation)).collect();
    assert_eq!(edits, [(1, "a", 0), (1, "b", 2)]);
}

#[test]
fn a_failed_record_leaves_nothing() {
    let emitted = run(&["r", "kntzshrv!", "r", "w", "vw", "r"]);
    assert_eq!(emitted.records.values, column(&["r", "r", "r"]));
    assert_eq!(emitted.origins, [0, 2, 5]);
    assert_eq!(emitted.headers, []);
    let failures: Vec<_> = emitted.failures.iter().map(|failure| (failure.row, failure.reason.as_str())).collect();
    assert_eq!(failures, [(1, "failed"), (3, "half written"), (4, "half written")]);
    // Columns that it brought along stay, and are right.
    assert_eq!(emitted.records.keys, column(&["a", "c", "f"]));
    assert_eq!(emitted.records.timestamps, [1, 3, 6]);
}

#[test]
fn a_failed_batch_leaves_nothing_for_the_next() {
    let mut runtime = MapRuntime::<Letters>::default();
    runtime.open("null", "{}").unwrap();
    let context = Context { watermark: 0, processing_time: 0 };
    assert_eq!(runtime.process(batch(&["rkv", "#"]), &context).unwrap_err(), "all failed");
    let error = runtime.process(batch(&["?"]), &context).unwrap_err();
    assert!(error.contains("`third`"), "{error}");
    let emitted = runtime.process(batch(&["-", "r"]), &context).unwrap();
    assert_eq!((emitted.records.count, emitted.origins), (1, vec![1]));
}
