//! Plays the host to a keyed plugin.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::{Deref, DerefMut};

use super::snapshot::{SetTimer, Snapshot};
use super::{ENVIRONMENT, Input, Observed, Scope, columns};
use crate::bindings::{Context, KeyedEmitted, Timers};
use crate::output::{empty_column, empty_timers, push_entry};
use crate::plugin::KeyedPlugin;
use crate::record::{Columns, Rows, entry};
use crate::runtime::KeyedRuntime;
use crate::timer::Clock;

/// Small, so that every test goes through several chunks.
const CHUNK_BYTES: u32 = 256;

/// A plugin whose timers set timers that are due again and again is stopped after so many rounds.
const MOST_ROUNDS: u32 = 10_000;

/// Runs a [`KeyedPlugin`] in a test. Keeps its timers and fires them when their time has come, and takes and restores snapshots.
pub struct KeyedHarness<P> {
    runtime: KeyedRuntime<P>,
    observed: Observed,
    context: Context,
    timers: BTreeSet<SetTimer>,
}

impl<P> fmt::Debug for KeyedHarness<P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("KeyedHarness").field("observed", &self.observed).field("timers", &self.timers).finish_non_exhaustive()
    }
}

impl<P> Deref for KeyedHarness<P> {
    type Target = Observed;

    fn deref(&self) -> &Observed {
        &self.observed
    }
}

impl<P> DerefMut for KeyedHarness<P> {
    fn deref_mut(&mut self) -> &mut Observed {
        &mut self.observed
    }
}

impl<P: KeyedPlugin> KeyedHarness<P> {
    /// Opens the plugin with this configuration, which is JSON, and without state. The time of day is 0, and there is no watermark.
    ///
    /// # Errors
    /// The sentence with which the plugin refuses it.
    pub fn open(config: &str) -> Result<Self, String> {
        let mut runtime = KeyedRuntime::default();
        let mut observed = Observed::new(P::SIDE_OUTPUTS);
        observed.fake.during(|| runtime.open(config, ENVIRONMENT))?;
        let context = Context { watermark: i64::MIN, processing_time: 0 };
        Ok(Self { runtime, observed, context, timers: BTreeSet::new() })
    }

    /// Opens the plugin and imports a snapshot: state, timers, clocks.
    ///
    /// # Errors
    /// The sentence with which the plugin refuses configuration or state.
    pub fn restore(config: &str, snapshot: &Snapshot) -> Result<Self, String> {
        let mut harness = Self::open(config)?;
        harness.import(snapshot)?;
        harness.timers.clone_from(&snapshot.timers);
        if let Some((watermark, processing_time)) = snapshot.clocks {
            harness.context = Context { watermark, processing_time };
        }
        Ok(harness)
    }

    /// The description that a host would get, a JSON document.
    #[must_use]
    pub fn describe() -> String {
        KeyedRuntime::<P>::describe()
    }

    /// Processes one record of the first input.
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    pub fn feed(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), String> {
        self.process(0, &[Input::value(value).key(key)])
    }

    /// Processes these records, which need keys, as one batch of an input. Then fires what timers are due.
    ///
    /// # Errors
    /// The sentence with which the batch as a whole fails. Failures of records are in [`Observed::take_failures`].
    pub fn process(&mut self, input: u32, inputs: &[Input]) -> Result<(), String> {
        if inputs.iter().any(|input| input.key.is_none()) {
            return Err("a record for a keyed plugin needs a key".to_owned());
        }
        let Self { runtime, observed, context, .. } = self;
        let batch = columns::batch(inputs);
        observed.fake.headers = inputs.iter().map(|input| input.headers.clone()).collect();
        observed.fake.origins = inputs.iter().map(|input| input.origin.clone()).collect();
        let emitted = observed.fake.during(|| runtime.process(input, batch.clone(), context))?;
        self.note(emitted, Rows::Batch(Columns::of(&batch)))?;
        self.fire()
    }

    /// Moves the time of day on to this, in milliseconds since the Unix epoch, and fires what timers are due.
    ///
    /// # Errors
    /// The sentence with which the timers as a whole fail, or when the time would go back.
    pub fn advance_processing_time(&mut self, time: i64) -> Result<(), String> {
        if time < self.context.processing_time {
            return Err(format!("the time of day is {} and cannot go back to {time}", self.context.processing_time));
        }
        self.context.processing_time = time;
        self.fire()
    }

    /// Moves the watermark on to this, in milliseconds since the Unix epoch, and fires what timers are due.
    ///
    /// # Errors
    /// The sentence with which the timers as a whole fail, or when the watermark would go back.
    pub fn advance_watermark(&mut self, time: i64) -> Result<(), String> {
        if time < self.context.watermark {
            return Err(format!("the watermark is {} and cannot go back to {time}", self.context.watermark));
        }
        self.context.watermark = time;
        self.fire()
    }

    /// Ends the input: all event-time timers fire, then the plugin finishes.
    ///
    /// # Errors
    /// The sentence with which the plugin fails.
    pub fn finish(&mut self) -> Result<(), String> {
        self.advance_watermark(i64::MAX)?;
        let Self { runtime, observed, context, .. } = self;
        let emitted = observed.fake.during(|| runtime.finish(context))?;
        self.note(emitted, Rows::None)
    }

    /// The timers that are set: (clock, time, key, tag), in the order in which they are to fire.
    #[must_use]
    pub fn timers(&self) -> Vec<(Clock, i64, Vec<u8>, u32)> {
        let clock = |timer: &SetTimer| {
            if timer.clock == Clock::Event.number() { Clock::Event } else { Clock::Processing }
        };
        self.timers.iter().map(|timer| (clock(timer), timer.time, timer.key.clone(), timer.tag)).collect()
    }

    /// Fires what timers are due, and those that these set, until none is.
    fn fire(&mut self) -> Result<(), String> {
        for _ in 0..MOST_ROUNDS {
            let Context { watermark, processing_time } = self.context;
            let now = |timer: &SetTimer| {
                if timer.clock == Clock::Event.number() { watermark } else { processing_time }
            };
            let due: Vec<SetTimer> = self.timers.extract_if(.., |timer| timer.time <= now(timer)).collect();
            if due.is_empty() {
                return Ok(());
            }
            let fired = fired(&due);
            let Self { runtime, observed, context, .. } = self;
            observed.fake.headers.clear();
            observed.fake.origins.clear();
            let emitted = observed.fake.during(|| runtime.on_timers(fired.clone(), context))?;
            self.note(emitted, Rows::Fired { keys: &fired.keys, times: &fired.times })?;
        }
        Err(format!("timers set timers that are due at once, and after {MOST_ROUNDS} rounds there is no end"))
    }

    fn note(&mut self, emitted: KeyedEmitted, rows: Rows<'_>) -> Result<(), String> {
        let KeyedEmitted { emitted, timers } = emitted;
        self.observed.note(emitted, rows)?;
        for row in 0..timers.times.len() {
            let timer = SetTimer {
                clock: timers.clocks[row],
                time: timers.times[row],
                key: entry(&timers.keys, row).to_vec(),
                tag: timers.tags[row],
            };
            match timers.operations.get(row) {
                None | Some(0) => self.timers.insert(timer),
                Some(_) => self.timers.remove(&timer),
            };
        }
        Ok(())
    }

    /// Exports the state, in small chunks.
    ///
    /// # Errors
    /// The plugin's sentence.
    pub fn snapshot(&mut self, scope: Scope) -> Result<Snapshot, String> {
        self.snapshot_in_chunks(scope, CHUNK_BYTES)
    }

    /// Exports the state in chunks of about so many bytes.
    ///
    /// # Errors
    /// The plugin's sentence.
    pub fn snapshot_in_chunks(&mut self, scope: Scope, max_bytes: u32) -> Result<Snapshot, String> {
        self.runtime.begin_export(scope)?;
        let mut chunks = Vec::new();
        while let Some(chunk) = self.runtime.next_chunk(max_bytes)? {
            chunks.push(chunk);
        }
        let clocks = Some((self.context.watermark, self.context.processing_time));
        Ok(Snapshot { chunks, timers: self.timers.clone(), clocks })
    }

    /// Imports the state of a snapshot, in addition to what is there.
    ///
    /// # Errors
    /// The sentence with which the plugin refuses it.
    pub fn import(&mut self, snapshot: &Snapshot) -> Result<(), String> {
        let Self { runtime, observed, .. } = self;
        snapshot.chunks.iter().try_for_each(|chunk| observed.fake.during(|| runtime.import_state(chunk)))
    }

    /// Has the plugin forget these keys, as a host does whose state is larger than memory.
    ///
    /// # Errors
    /// When one of them has changes that were not exported.
    pub fn evict(&mut self, keys: &[&str]) -> Result<(), String> {
        let mut column = empty_column();
        for key in keys {
            push_entry(&mut column, key.as_bytes());
        }
        self.runtime.evict(&column)
    }

    /// Closes the plugin.
    pub fn close(mut self) {
        self.observed.fake.during(|| self.runtime.close());
    }
}

fn fired(due: &[SetTimer]) -> Timers {
    let mut fired = empty_timers();
    for timer in due {
        push_entry(&mut fired.keys, &timer.key);
        fired.times.push(timer.time);
        fired.tags.push(timer.tag);
        fired.clocks.push(timer.clock);
    }
    fired
}
