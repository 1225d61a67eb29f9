//! Tells a consumer group how far completed checkpoints are. It is for those who watch lag: nothing here can fail the job.

use super::splits::offset_of;
use crate::kafka::{Consumer, TopicPartition};
use crate::source::Split;
use rdkafka::consumer::{CommitMode, Consumer as _};
use rdkafka::{Offset, TopicPartitionList};
use std::sync::{Arc, Mutex, PoisonError};

/// Commits the offsets of one reader, one commit after the other; of those that wait only the last one counts.
#[derive(Clone)]
pub(super) struct Commits {
    consumer: Arc<Consumer>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    waiting: Option<TopicPartitionList>,
    is_running: bool,
}

impl Commits {
    pub(super) fn new(consumer: Arc<Consumer>) -> Self {
        Self { consumer, state: Arc::default() }
    }

    /// Commits these positions soon, on a thread that may wait; the runtime ends only after it. All splits are committed, also those that
    /// have not moved, so that the group of an idle job does not expire.
    pub(super) fn commit(&self, positions: &[Split]) {
        let mut list = TopicPartitionList::with_capacity(positions.len());
        for split in positions {
            // Positions that the reader has reported itself.
            if let (Some(partition), Some(offset)) = (TopicPartition::parse(&split.id), offset_of(&split.position)) {
                let _fits = list.add_partition_offset(&partition.topic, partition.partition, Offset::Offset(offset));
            }
        }
        if list.count() == 0 {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting = Some(list);
        if !std::mem::replace(&mut state.is_running, true) {
            let commits = self.clone();
            tokio::task::spawn_blocking(move || commits.run());
        }
    }

    fn run(&self) {
        while let Some(offsets) = self.next() {
            let result = self.consumer.commit(&offsets, CommitMode::Sync);
            let code = result.err().and_then(|error| error.rdkafka_error_code());
            self.consumer.context().committed(code.unwrap_or(rdkafka::types::RDKafkaErrorCode::NoError));
        }
    }

    fn next(&self) -> Option<TopicPartitionList> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let next = state.waiting.take();
        state.is_running = next.is_some();
        next
    }
}
