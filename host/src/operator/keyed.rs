//! A keyed plugin as an operator: its records, its timers, its snapshots.

use super::condemned::{self, CondemnedList, Identities};
use super::isolation::{Condemned, Isolation, ItemId, Verdict};
use super::late::Lateness;
use super::{FailureHandler, Operator, Outputs, Times};
use crate::Error;
use crate::plugin::{CallError, Failure, Instance, InstanceFactory, OperatorContext, Scope};
use crate::record::{Batch, Origin, Row, SplitTable};
use crate::state::timers::{self, Clock, TimerColumns, Timers};
use crate::state::{Entries, StateReader, StateWriter};
use async_trait::async_trait;
use std::sync::Arc;

/// How large a chunk of state is that is asked of a plugin or given to it, in bytes.
const CHUNK_BYTES: u32 = 1 << 20;
/// How many timers fire in one call: as many as records in a batch.
const MAX_FIRED: usize = 512;

/// One subtask of an operator whose plugin is a `keyed-plugin`.
pub struct KeyedOperator {
    instance: Instance,
    failures: FailureHandler,
    split_table: SplitTable,
    timers: Timers,
    watermark: i64,
    isolation: Isolation,
    identities: Identities,
    condemned: CondemnedList,
    /// Which inputs are dealt by key: there a record without a key cannot be processed.
    keyed_inputs: Vec<bool>,
    lateness: Lateness,
}

impl std::fmt::Debug for KeyedOperator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyedOperator").field("failures", &self.failures).field("timers", &self.timers).finish_non_exhaustive()
    }
}

impl KeyedOperator {
    pub(crate) async fn open(factory: InstanceFactory, failures: FailureHandler, context: OperatorContext) -> Result<Self, Error> {
        let OperatorContext { split_table, isolation, key_groups, subtask, keyed_inputs, late_records, task_metrics, .. } = context;
        let mut condemned = CondemnedList::new(split_table.clone());
        condemned.add_found(isolation.condemned(), &key_groups, subtask);
        Ok(Self {
            instance: factory.open().await?,
            failures,
            identities: Identities::new(split_table.clone()),
            split_table,
            timers: Timers::default(),
            watermark: i64::MIN,
            isolation,
            condemned,
            keyed_inputs,
            lateness: Lateness::new(late_records, task_metrics),
        })
    }

    /// Processes records together, or notes that they failed.
    async fn together(&mut self, input: u32, batch: Batch, times: Times, outputs: &mut Outputs) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut batch = Arc::new(batch);
        match self.instance.process(input, &mut batch, times, outputs).await {
            Ok((failures, timers)) => {
                self.timers.apply(&timers);
                self.handle(&batch, &failures, outputs)
            }
            Err(error) => {
                let items = self.identities.of_records(&batch);
                Err(self.failed("process", &batch, &items, error))
            }
        }
    }

    fn handle(&self, batch: &Batch, failures: &[Failure], outputs: &mut Outputs) -> Result<(), Error> {
        failures.iter().try_for_each(|failure| self.failures.handle(batch, failure.row, &failure.reason, outputs))
    }

    /// Notes the failure of a whole batch and makes the error of it. The plugin's state is lost with its instance: the job restarts, or fails
    /// if the record is found and the policy says so.
    fn failed(&self, call: &str, batch: &Batch, items: &[ItemId], error: CallError) -> Error {
        let error = match error {
            CallError::Host(_) => return self.failures.call_error(call, error),
            error => error,
        };
        if self.isolation.failed(items, error.may_pass()) == Verdict::Blamed {
            if self.failures.fails_the_job() {
                return self.failures.error(batch, 0, &error.to_string());
            }
            self.isolation.condemn(Condemned {
                id: items[0],
                place: self.split_table.place(batch.origins()[0]),
                reason: error.to_string(),
                key: batch.key(0).unwrap_or_default().to_vec(),
            });
        }
        let place = |row: usize| self.split_table.place(batch.origins()[row]).map(|place| place.to_string());
        let call = match (place(0), place(batch.len() - 1)) {
            (Some(first), Some(last)) if batch.len() > 1 => format!("{call} (from {first} to {last})"),
            (Some(first), _) => format!("{call} (at {first})"),
            (None, _) => call.to_owned(),
        };
        self.failures.call_error(&call, error)
    }

    /// Takes the records without a key out of a batch and leaves them to the policy.
    fn without_keyless(&mut self, batch: Batch, outputs: &mut Outputs) -> Result<Batch, Error> {
        let keyless: Vec<usize> = (0..batch.len()).filter(|row| batch.key(*row).is_none()).collect();
        for row in &keyless {
            self.failures.handle(&batch, *row, "it has no key", outputs)?;
        }
        Ok(batch.without(&keyless))
    }

    /// Takes the condemned records out of a batch and leaves them to the policy.
    fn without_condemned(&mut self, batch: Batch, outputs: &mut Outputs) -> Result<Batch, Error> {
        let Self { condemned, identities, failures, .. } = self;
        let mut out = Vec::new();
        for row in 0..batch.len() {
            if let Some(reason) = condemned.reason_for_record(&batch, row, identities) {
                failures.handle(&batch, row, reason, outputs)?;
                out.push(row);
            }
        }
        Ok(batch.without(&out))
    }

    /// Fires timers together, or notes that they failed.
    async fn fire_together(&mut self, fired: &TimerColumns, times: Times, outputs: &mut Outputs) -> Result<(), Error> {
        let mut rows = Arc::new(rows_of(fired));
        match self.instance.on_timers(fired, &mut rows, times, outputs).await {
            Ok((failures, timers)) => {
                self.timers.apply(&timers);
                self.handle(&rows, &failures, outputs)
            }
            Err(error) => Err(self.failed("on-timers", &rows, &condemned::of_timers(fired), error)),
        }
    }

    async fn fire(&mut self, fired: TimerColumns, times: Times, outputs: &mut Outputs) -> Result<(), Error> {
        let fired = if self.condemned.is_empty() { fired } else { self.timers_without_condemned(&fired, outputs)? };
        if fired.is_empty() {
            return Ok(());
        }
        let items = if self.isolation.has_suspects() { condemned::of_timers(&fired) } else { Vec::new() };
        if !self.isolation.suspects_any(&items) {
            return self.fire_together(&fired, times, outputs).await;
        }
        for (index, item) in items.into_iter().enumerate() {
            let mut single = TimerColumns::default();
            copy_timer(&fired, index, &mut single);
            self.fire_together(&single, times, outputs).await?;
            self.isolation.passed(item);
        }
        Ok(())
    }

    fn timers_without_condemned(&self, fired: &TimerColumns, outputs: &mut Outputs) -> Result<TimerColumns, Error> {
        let mut kept = TimerColumns::default();
        for index in 0..fired.len() {
            match self.condemned.reason_for_timer(fired, index) {
                Some(reason) => self.failures.handle(&rows_of(fired), index, reason, outputs)?,
                None => copy_timer(fired, index, &mut kept),
            }
        }
        Ok(kept)
    }

    async fn export(&mut self, scope: Scope, state: &mut StateWriter) -> Result<(), Error> {
        let within = |error| self.failures.call_error("begin-export", error);
        self.instance.begin_export(scope).await.map_err(within)?;
        loop {
            let chunk = self.instance.next_chunk(CHUNK_BYTES).await;
            match chunk.map_err(|error| self.failures.call_error("next-chunk", error))? {
                Some(entries) => state.write(&entries),
                None => return Ok(()),
            }
        }
    }

    async fn import(&mut self, entries: &Entries) -> Result<(), Error> {
        let (state, version) = (&entries.state, entries.version);
        self.instance.import_state(entries).await.map_err(|error| match error {
            CallError::Returned(sentence) => {
                let uid = self.failures.uid();
                Error::user(format!("operator {uid}: the plugin refuses its state {state:?} of version {version}: {sentence}"))
            }
            other => self.failures.call_error("import-state", other),
        })
    }

    fn restore_own(&mut self, entries: &Entries) -> Result<(), Error> {
        let restored = match entries.state.as_str() {
            timers::STATE => self.timers.restore(entries),
            condemned::STATE => self.condemned.restore(entries),
            other => Err(format!("the host's own state {other:?} is not known to this version of Waterwheel")),
        };
        restored.map_err(|sentence| Error::user(format!("operator {}: {sentence}", self.failures.uid())))
    }
}

#[async_trait]
impl Operator for KeyedOperator {
    async fn process(&mut self, input: usize, batch: Batch, times: Times, outputs: &mut Outputs) -> Result<(), Error> {
        self.watermark = self.watermark.max(times.watermark);
        let keyed = self.keyed_inputs.get(input).copied().unwrap_or(false);
        let batch = if keyed && !batch.nulls().is_empty() { self.without_keyless(batch, outputs)? } else { batch };
        let batch = if keyed { self.lateness.sort_out(batch, self.watermark, outputs) } else { batch };
        let input = u32::try_from(input).map_err(|_| Error::internal("an operator has fewer than 2^32 inputs"))?;
        let batch = if self.condemned.is_empty() { batch } else { self.without_condemned(batch, outputs)? };
        let items = if self.isolation.has_suspects() { self.identities.of_records(&batch) } else { Vec::new() };
        if !self.isolation.suspects_any(&items) {
            return self.together(input, batch, times, outputs).await;
        }
        for (row, item) in items.into_iter().enumerate() {
            self.together(input, batch.slice(row..row + 1), times, outputs).await?;
            self.isolation.passed(item);
        }
        Ok(())
    }

    fn next_timer(&self) -> Option<i64> {
        match self.timers.earliest(Clock::Event) {
            Some(time) if time <= self.watermark => Some(i64::MIN),
            _ => self.timers.earliest(Clock::Processing),
        }
    }

    async fn advance(&mut self, times: Times, outputs: &mut Outputs) -> Result<(), Error> {
        self.watermark = self.watermark.max(times.watermark);
        let mut fired = TimerColumns::default();
        self.timers.pop_due(Clock::Event, self.watermark, MAX_FIRED, &mut fired);
        self.timers.pop_due(Clock::Processing, times.processing_time, MAX_FIRED - fired.len(), &mut fired);
        self.fire(fired, times, outputs).await
    }

    async fn finish(&mut self, times: Times, outputs: &mut Outputs) -> Result<(), Error> {
        self.failures.dropped_timers(self.timers.len(Clock::Processing));
        self.instance.finish_keyed(times, outputs).await.map_err(|error| self.failures.call_error("finish", error))
    }

    async fn snapshot(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        self.export(Scope::Changed, state).await?;
        self.timers.snapshot(state);
        self.condemned.snapshot(state);
        Ok(())
    }

    async fn snapshot_all(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        self.export(Scope::All, state).await?;
        self.timers.snapshot_all(state);
        self.condemned.snapshot_all(state);
        Ok(())
    }

    async fn restore(&mut self, state: &mut StateReader) -> Result<(), Error> {
        loop {
            let damaged = |(file, error)| {
                let message = format!("operator {}: the state file {file} cannot be read", self.failures.uid());
                Error::external(message).caused_by(error).with_retry(false)
            };
            let Some(entries) = state.next_entries().await.map_err(damaged)? else { return Ok(()) };
            if entries.state.starts_with("waterwheel.") {
                self.restore_own(&entries)?;
            } else if entries.byte_len() <= 2 * CHUNK_BYTES as usize {
                self.import(&entries).await?;
            } else {
                for part in parts(&entries, CHUNK_BYTES as usize) {
                    self.import(&part).await?;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), Error> {
        self.instance.close().await.map_err(|error| self.failures.call_error("close", error))
    }
}

/// Timers that fired as a batch: what emitted records come from, and what the error policy is applied to.
fn rows_of(timers: &TimerColumns) -> Batch {
    let mut rows = Batch::with_capacity(timers.len(), 0);
    for (index, time) in timers.times.iter().enumerate() {
        rows.push(Row { key: Some(timers.keys.get(index)), value: None, timestamp: *time, origin: Origin::NONE });
    }
    rows
}

fn copy_timer(from: &TimerColumns, index: usize, to: &mut TimerColumns) {
    let clock = if from.clocks[index] == 0 { Clock::Event } else { Clock::Processing };
    to.push(from.keys.get(index), from.times[index], from.tags[index], clock);
}

/// Entries in smaller chunks.
fn parts(entries: &Entries, bytes: usize) -> Vec<Entries> {
    let mut parts = Vec::new();
    let mut part = Entries::of(entries.state.clone(), entries.version);
    for entry in entries.iter() {
        part.push(entry);
        if part.byte_len() >= bytes {
            parts.push(std::mem::replace(&mut part, Entries::of(entries.state.clone(), entries.version)));
        }
    }
    parts.push(part);
    parts.retain(|part| !part.is_empty());
    parts
}
