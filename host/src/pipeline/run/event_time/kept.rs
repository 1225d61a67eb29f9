//! What a manifest keeps of event time: the watermark of each operator's subtask, and the greatest timestamp of each split. Both stand under
//! keys of their own in the `extra` of their part of the manifest; one that is not there, as in manifests of earlier versions, is not known.

use super::{END_OF_TIME, NO_WATERMARK};
use crate::checkpoint::protocol::OperatorState;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// In a subtask's `extra`: its watermark, milliseconds since the Unix epoch.
const WATERMARK: &str = "watermark";
/// In a source's `extra`: by split, its greatest timestamp, milliseconds since the Unix epoch.
const GREATEST_TIMESTAMPS: &str = "greatest-timestamps";

/// Puts a member beside what stands there.
fn member<'a>(extra: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    if extra.is_null() {
        *extra = Value::Object(Map::new());
    }
    Some(extra.as_object_mut()?.entry(name).or_insert(Value::Null))
}

/// Keeps the watermark of a subtask.
pub(in crate::pipeline::run) fn keep_watermark(extra: &mut Value, watermark: i64) {
    if watermark != NO_WATERMARK
        && let Some(kept) = member(extra, WATERMARK)
    {
        *kept = watermark.into();
    }
}

/// Keeps the greatest timestamps of splits, beside those of other subtasks.
pub(in crate::pipeline::run) fn keep_greatest(extra: &mut Value, greatest: impl IntoIterator<Item = (String, i64)>) {
    for (split, timestamp) in greatest {
        if let Some(kept) = member(extra, GREATEST_TIMESTAMPS).and_then(|kept| member(kept, &split)) {
            *kept = timestamp.into();
        }
    }
}

/// The watermark that a subtask of an operator goes on from: its own, or the least of all after a change of the parallelism.
pub(in crate::pipeline::run) fn watermark_of(restored: &OperatorState, subtask: u32, parallelism: usize) -> i64 {
    let kept = |extra: &Value| extra.get(WATERMARK).and_then(Value::as_i64).unwrap_or(NO_WATERMARK);
    let watermark = if restored.subtasks.len() == parallelism {
        restored.subtasks.get(&subtask).map(|state| kept(&state.extra))
    } else {
        restored.subtasks.values().map(|state| kept(&state.extra)).min()
    };
    // Where all input had ended it ends again at once; if the job has another input now, its records are not late.
    watermark.filter(|watermark| *watermark != END_OF_TIME).unwrap_or(NO_WATERMARK)
}

/// The greatest timestamp of each split.
pub(in crate::pipeline::run) fn greatest_of(extra: &Value) -> BTreeMap<String, i64> {
    let kept = extra.get(GREATEST_TIMESTAMPS).and_then(Value::as_object);
    kept.into_iter().flatten().filter_map(|(split, timestamp)| Some((split.clone(), timestamp.as_i64()?))).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::checkpoint::protocol::SubtaskState;
    use serde_json::json;

    fn operator(watermarks: &[i64]) -> OperatorState {
        let subtask = |(index, watermark): (u32, &i64)| {
            let mut state = SubtaskState::default();
            keep_watermark(&mut state.extra, *watermark);
            (index, state)
        };
        OperatorState { subtasks: (0..).zip(watermarks).map(subtask).collect(), extra: Value::Null }
    }

    #[test]
    fn a_subtask_goes_on_from_its_own_watermark_and_from_the_least_after_rescaling() {
        let restored = operator(&[30, 10, 20]);
        assert_eq!((0..3).map(|subtask| watermark_of(&restored, subtask, 3)).collect::<Vec<_>>(), [30, 10, 20]);
        assert_eq!((0..2).map(|subtask| watermark_of(&restored, subtask, 2)).collect::<Vec<_>>(), [10, 10]);
        assert_eq!(watermark_of(&operator(&[30, END_OF_TIME]), 0, 1), 30);
        assert_eq!(watermark_of(&operator(&[30, NO_WATERMARK]), 0, 1), NO_WATERMARK);
        assert_eq!(watermark_of(&operator(&[END_OF_TIME; 2]), 0, 2), NO_WATERMARK);
    }

    #[test]
    fn what_stands_there_stays_and_what_is_missing_is_not_known() {
        let mut extra = json!({"other": 1});
        keep_watermark(&mut extra, -5);
        keep_greatest(&mut extra, [("a".to_owned(), 7)]);
        keep_greatest(&mut extra, [("b".to_owned(), 8)]);
        assert_eq!(extra, json!({"other": 1, "watermark": -5, "greatest-timestamps": {"a": 7, "b": 8}}));
        assert_eq!(greatest_of(&extra), BTreeMap::from([("a".to_owned(), 7), ("b".to_owned(), 8)]));
        assert_eq!(watermark_of(&OperatorState::default(), 0, 1), NO_WATERMARK);
        assert!(greatest_of(&Value::Null).is_empty());
        let mut without = Value::Null;
        keep_watermark(&mut without, NO_WATERMARK);
        assert_eq!(without, Value::Null, "a job without event time writes what it always wrote");
    }
}
