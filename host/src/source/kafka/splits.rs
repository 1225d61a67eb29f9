//! A partition as it is read: from a checkpoint's JSON, and as the thread keeps it.

use super::lag::Progress;
use crate::Error;
use crate::kafka::TopicPartition;
use crate::source::Split;
use serde_json::Value;
use std::ffi::CString;
use std::sync::Arc;

/// A partition and where reading it goes on, out of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Assigned {
    pub(super) partition: TopicPartition,
    pub(super) position: i64,
    pub(super) stop: Option<i64>,
    pub(super) finished: bool,
}

/// The offset in a position; none where it is none.
pub(super) fn offset_of(position: &Value) -> Option<i64> {
    position.as_i64().filter(|offset| *offset >= 0)
}

impl Assigned {
    /// # Errors
    /// A split that no Kafka source has.
    pub(super) fn parse(split: &Split) -> Result<Self, Error> {
        let advice = "was the source's uid used by another one?";
        let wrong = |what: &str, value: &Value| {
            Error::user(format!("split {} of the checkpoint has the {what} {value}, which is no offset: {advice}", split.id))
        };
        let partition = TopicPartition::parse(&split.id);
        let partition = partition.ok_or_else(|| Error::user(format!("{:?} is no partition of a topic: {advice}", split.id)))?;
        let position = offset_of(&split.position).ok_or_else(|| wrong("position", &split.position))?;
        let stop = split.stop.as_ref().map(|stop| offset_of(stop).ok_or_else(|| wrong("stop", stop))).transpose()?;
        let finished = split.finished || stop.is_some_and(|stop| position >= stop);
        Ok(Self { partition, position, stop, finished })
    }
}

/// A partition as the thread reads it.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) partition: TopicPartition,
    /// The topic's name for librdkafka.
    pub(super) topic: CString,
    /// Its number in the job's table of splits.
    pub(super) number: u32,
    /// The offset after the last record, control record or gap that was seen.
    pub(super) next: i64,
    /// What the reader was last told of it.
    pub(super) told: i64,
    pub(super) stop: Option<i64>,
    pub(super) finished: bool,
    /// Whether the reader knows that it is finished.
    pub(super) told_finished: bool,
    pub(super) progress: Arc<Progress>,
}

impl Reading {
    /// Moves on to an offset; at the stop or behind it the split is finished.
    pub(super) fn advance(&mut self, next: i64) {
        self.next = self.next.max(next);
        if let Some(stop) = self.stop
            && self.next >= stop
        {
            // What lies behind the stop is not claimed to be read.
            self.next = stop;
            self.finished = true;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use serde_json::json;

    fn split(id: &str, position: Value, stop: Option<Value>) -> Split {
        Split { id: id.into(), position, stop, finished: false }
    }

    #[test]
    fn positions_of_other_sources_are_refused() {
        assert!(Assigned::parse(&split("orders-0", json!(5), Some(json!(5)))).unwrap().finished);
        assert!(!Assigned::parse(&split("orders-0", json!(5), None)).unwrap().finished);
        for (id, position, stop) in
            [("orders", json!(1), None), ("orders-0", json!({"offset": 1}), None), ("orders-0", json!(1), Some(json!(-1)))]
        {
            let error = Assigned::parse(&split(id, position, stop)).unwrap_err();
            assert!(!error.retry_helps() && error.to_string().contains("uid"), "{error}");
        }
    }
}
