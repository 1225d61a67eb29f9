//! Memory: what comes and goes without an export leaves no trace.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::rc::Rc;

use super::codec::Reader;
use super::current::Current;
use super::map_store::{Kind, MapStore};
use super::value_store::ValueStore;
use super::{KeyedState, MapState, Store};
use crate::output::{empty_column, push_entry};

fn reader<T>() -> Reader<T> {
    Reader { name: "state".to_owned(), version: 1, migrate: None }
}

/// Calls once a key, as a record of that key; every third one fails.
fn for_keys(current: &Current, store: &dyn Store, keys: u32, mut call: impl FnMut()) {
    for number in 0..keys {
        let key = format!("key {number}");
        let mut column = empty_column();
        push_entry(&mut column, key.as_bytes());
        drop(current.take_keys(column));
        current.begin(0, key.as_bytes());
        call();
        if number % 3 == 0 {
            store.roll_back();
        }
    }
    current.end();
}

#[test]
fn values_that_come_and_go_are_freed() {
    let current = Rc::new(Current::default());
    let store = Rc::new(ValueStore::<u64>::new(Rc::clone(&current), reader()));
    let mut state = KeyedState::new(Rc::clone(&store));
    for_keys(&current, &*store, 1000, || {
        state.set(1);
        state.update(|value| *value += 1);
        state.remove();
    });
    assert!(store.places() <= 3, "{} places", store.places());
}

#[test]
fn map_entries_that_come_and_go_are_freed() {
    let current = Rc::new(Current::default());
    let store = Rc::new(MapStore::<u64>::new::<u32>(Rc::clone(&current), reader(), Kind::Map));
    let mut state = MapState::<u32, u64>::new(Rc::clone(&store));
    for_keys(&current, &*store, 1000, || {
        for subkey in 0..5 {
            state.insert(&subkey, 1);
            state.update(&subkey, |value| *value += 1);
        }
        state.remove(&2);
        state.clear();
    });
    assert!(store.places() <= 15, "{} places", store.places());
}

#[test]
fn failed_records_leave_no_places() {
    let current = Rc::new(Current::default());
    let values = Rc::new(ValueStore::<u64>::new(Rc::clone(&current), reader()));
    let mut state = KeyedState::new(Rc::clone(&values));
    for_keys(&current, &*values, 1000, || {
        state.set(1);
        values.roll_back();
    });
    assert!(values.places() <= 1, "{} places", values.places());
}
