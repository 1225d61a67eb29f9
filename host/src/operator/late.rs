//! Late records: those whose timestamp the watermark of a keyed operator has reached already.

use super::Outputs;
use crate::record::Batch;
use crate::telemetry::TaskMetrics;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Where late records go by `late-records: side-output`.
pub const LATE_ROUTE: u8 = u8::MAX - 1;
/// The name of that side output.
pub const LATE_OUTPUT: &str = "late";

/// What a keyed operator does with late records of its keyed inputs. They are counted in any case; what is broadcast is never late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LateRecords {
    /// The plugin gets them like all others.
    #[default]
    Process,
    /// They are dropped.
    Drop,
    /// They go to the side output `late`, as they came.
    SideOutput,
}

/// Sorts out the late records of one subtask.
#[derive(Debug)]
pub(super) struct Lateness {
    policy: LateRecords,
    metrics: Arc<TaskMetrics>,
}

impl Lateness {
    pub(super) fn new(policy: LateRecords, metrics: Arc<TaskMetrics>) -> Self {
        Self { policy, metrics }
    }

    /// The records that the plugin is to process.
    pub(super) fn sort_out(&self, batch: Batch, watermark: i64, outputs: &mut Outputs) -> Batch {
        let is_late = |timestamp: &i64| *timestamp <= watermark;
        let late = batch.timestamps().iter().filter(|timestamp| is_late(timestamp)).count();
        // Before the first watermark nothing is late, not even the smallest timestamp.
        if late == 0 || watermark == i64::MIN {
            return batch;
        }
        self.metrics.late(late as u64);
        if self.policy == LateRecords::Process {
            return batch;
        }
        let (late, in_time): (Vec<usize>, Vec<usize>) = (0..batch.len()).partition(|row| is_late(&batch.timestamps()[*row]));
        if self.policy == LateRecords::SideOutput {
            let mut aside = Batch::default();
            late.iter().for_each(|row| aside.push_from(&batch, *row));
            outputs.emit(LATE_ROUTE, aside);
        }
        if in_time.is_empty() { Batch::default() } else { batch.without(&late) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Origin, Row};

    fn batch(timestamps: &[i64]) -> Batch {
        let mut batch = Batch::default();
        timestamps.iter().for_each(|timestamp| batch.push(Row { key: None, value: None, timestamp: *timestamp, origin: Origin::NONE }));
        batch
    }

    #[test]
    fn late_records_are_counted_and_left_to_the_policy() {
        for (policy, processed, aside) in [
            (LateRecords::Process, vec![5, 10, 11, 7], None),
            (LateRecords::Drop, vec![11], None),
            (LateRecords::SideOutput, vec![11], Some(vec![5, 10, 7])),
        ] {
            let lateness = Lateness::new(policy, Arc::default());
            let mut outputs = Outputs::default();
            assert_eq!(lateness.sort_out(batch(&[5, 10, 11, 7]), 10, &mut outputs).timestamps(), processed);
            let emitted: Vec<_> = outputs.drain().map(|(route, batch)| (route, batch.timestamps().to_vec())).collect();
            assert_eq!(emitted, aside.map(|aside| (LATE_ROUTE, aside)).into_iter().collect::<Vec<_>>());
            assert_eq!(lateness.metrics.reading().late_records, 3);
        }
    }

    #[test]
    fn nothing_is_late_before_the_first_watermark() {
        let lateness = Lateness::new(LateRecords::Drop, Arc::default());
        assert_eq!(lateness.sort_out(batch(&[i64::MIN]), i64::MIN, &mut Outputs::default()).len(), 1);
        assert_eq!(lateness.metrics.reading().late_records, 0);
    }
}
