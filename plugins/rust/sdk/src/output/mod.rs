//! Where a plugin puts what comes of a record: records, header changes, timers, counts.

mod buffers;
#[cfg(test)]
mod tests;

use std::ops::{Deref, DerefMut};

use crate::bindings::Context;
use crate::emit::{Emit, Value, ValueWriter};
use crate::record::Rows;
use crate::timer::{Clock, RESERVED_TAGS};

#[cfg(not(target_family = "wasm"))]
pub(crate) use buffers::empty_timers;
pub(crate) use buffers::{Buffers, Mark, empty_column, end, push_entry};

/// Takes what a record gives. All of it is dropped again if the record then fails.
///
/// ```
/// use waterwheel_plugin::{Emit, Failure, Output, Record};
/// use std::io::Write;
///
/// fn process(record: &Record<'_>, out: &mut Output<'_>) -> Result<(), Failure> {
///     out.emit(record);                                              // the record as it is
///     out.emit("another value");                                     // same key, same time, same headers
///     out.emit(Emit::value(b"x").key(b"k").to("rejected"))           // another key, a side output
///         .set_header("reason", b"too late");
///     out.emit_with(Emit::default(), |value| write!(value, "{{}}"))?; // written in place, without a buffer
///     out.count("doubled", 1);
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Output<'a> {
    pub(crate) buffers: &'a mut Buffers,
    pub(crate) rows: Rows<'a>,
    pub(crate) row: u32,
    pub(crate) context: &'a Context,
    pub(crate) side_outputs: &'static [&'static str],
    /// The event time of what says nothing of it, if it is not that of the row.
    event_time: Option<i64>,
}

impl<'a> Output<'a> {
    #[inline]
    pub(crate) fn new(buffers: &'a mut Buffers, rows: Rows<'a>, context: &'a Context, side_outputs: &'static [&'static str]) -> Self {
        Self { buffers, rows, row: 0, context, side_outputs, event_time: None }
    }

    /// Emits a record: a value (bytes or text), an input [`Record`](crate::Record) as it is, or an [`Emit`].
    #[inline]
    pub fn emit<'e>(&mut self, emit: impl Into<Emit<'e>>) -> Emitted<'_> {
        let emit = emit.into();
        match emit.plain_row() {
            Some(row) if self.event_time.is_none() && self.buffers.push_plain(row) => Emitted { buffers: self.buffers, row },
            _ => self.emit_differing(&emit),
        }
    }

    /// Apart, so that the short way is small enough to become part of the loop over the rows.
    #[inline(never)]
    fn emit_differing(&mut self, emit: &Emit<'_>) -> Emitted<'_> {
        let null = match emit.value {
            Value::OfRow { row, null } => {
                self.buffers.push_value_of(self.rows, row);
                null
            }
            Value::Given(value) => {
                self.buffers.values(self.rows).extend_from_slice(value);
                self.buffers.end_value();
                false
            }
            Value::Null => {
                self.buffers.values(self.rows);
                self.buffers.end_value();
                true
            }
        };
        self.add(emit, null)
    }

    /// Emits a record whose value `write` writes, straight into the outgoing batch; a value in `emit` is ignored.
    ///
    /// # Errors
    /// The error of `write`; then nothing is emitted.
    #[inline]
    pub fn emit_with<E>(&mut self, emit: Emit<'_>, write: impl FnOnce(&mut ValueWriter<'_>) -> Result<(), E>) -> Result<Emitted<'_>, E> {
        if let Err(error) = write(&mut ValueWriter { bytes: self.buffers.values(self.rows) }) {
            self.buffers.abandon_value();
            return Err(error);
        }
        self.buffers.end_value();
        Ok(self.add(&emit, false))
    }

    #[inline]
    fn add(&mut self, emit: &Emit<'_>, null_value: bool) -> Emitted<'_> {
        let route = emit.side_output.map_or(0, |name| self.route(name));
        let emit = &Emit { timestamp: emit.timestamp.or(self.event_time), ..*emit };
        let row = self.buffers.push(self.rows, self.row, emit, route, null_value, self.context.processing_time);
        Emitted { buffers: self.buffers, row }
    }

    fn route(&mut self, name: &str) -> u8 {
        let position = self.side_outputs.iter().position(|each| *each == name);
        match position.and_then(|position| u8::try_from(position + 1).ok()) {
            Some(route) => route,
            None => {
                let declared = self.side_outputs;
                self.buffers.defect(|| {
                    format!("the plugin emits to the side output `{name}`, which it does not declare; SIDE_OUTPUTS has {declared:?}")
                });
                0
            }
        }
    }

    /// Adds to a counter that the host publishes under the operator's uid. Counters are for watching: a record that fails has counted
    /// all the same, and a replay counts again. Counts reach the host once a batch.
    pub fn count(&mut self, counter: &str, by: u64) {
        self.buffers.count_up(counter, by);
    }

    /// The watermark before this batch, in milliseconds since the Unix epoch; `i64::MIN` before there is one.
    #[must_use]
    #[inline]
    pub fn watermark(&self) -> i64 {
        self.context.watermark
    }

    /// The time of day, in milliseconds since the Unix epoch: one reading a batch.
    #[must_use]
    #[inline]
    pub fn processing_time(&self) -> i64 {
        self.context.processing_time
    }
}

/// A record just emitted, to change the headers that it carries over from its input.
#[derive(Debug)]
pub struct Emitted<'a> {
    buffers: &'a mut Buffers,
    row: u32,
}

impl Emitted<'_> {
    /// Sets a header, in place of all others of this name.
    pub fn set_header(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.buffers.edit_header(self.row, name, 0, Some(value.as_ref()));
        self
    }

    /// Sets a header with a null value, in place of all others of this name.
    pub fn set_null_header(self, name: &str) -> Self {
        self.buffers.edit_header(self.row, name, 0, None);
        self
    }

    /// Adds a header behind the others, also behind those of the same name.
    pub fn append_header(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.buffers.edit_header(self.row, name, 1, Some(value.as_ref()));
        self
    }

    /// Removes all headers of this name.
    pub fn remove_header(self, name: &str) -> Self {
        self.buffers.edit_header(self.row, name, 2, None);
        self
    }
}

/// The [`Output`] of a keyed plugin: also sets timers, for the key in process.
///
/// A timer is identified by its key, clock, time and tag; setting it twice is setting it once. One whose time has passed fires right
/// after the batch.
#[derive(Debug)]
pub struct KeyedOutput<'a> {
    pub(crate) output: Output<'a>,
    /// Not while a record of a broadcast input is processed.
    pub(crate) has_key: bool,
}

impl<'a> Deref for KeyedOutput<'a> {
    type Target = Output<'a>;

    fn deref(&self) -> &Output<'a> {
        &self.output
    }
}

impl<'a> DerefMut for KeyedOutput<'a> {
    fn deref_mut(&mut self) -> &mut Output<'a> {
        &mut self.output
    }
}

impl KeyedOutput<'_> {
    /// Sets a timer with tag 0 for this time, in milliseconds since the Unix epoch.
    pub fn set_timer(&mut self, clock: Clock, time: i64) {
        self.change_timer(clock, time, 0, 0);
    }

    /// Sets a timer with a tag, below [`RESERVED_TAGS`], to tell it apart in `on_timer`.
    pub fn set_tagged_timer(&mut self, clock: Clock, time: i64, tag: u32) {
        self.change_timer(clock, time, tag, 0);
    }

    /// Deletes the timer with tag 0 for this time, if there is one.
    pub fn delete_timer(&mut self, clock: Clock, time: i64) {
        self.change_timer(clock, time, 0, 1);
    }

    /// Deletes the timer with this tag for this time, if there is one.
    pub fn delete_tagged_timer(&mut self, clock: Clock, time: i64, tag: u32) {
        self.change_timer(clock, time, tag, 1);
    }

    /// Sets an event-time timer with a reserved tag.
    pub(crate) fn set_own_timer(&mut self, time: i64, tag: u32) {
        let Output { buffers, rows, row, .. } = &mut self.output;
        if let Some(key) = rows.key(*row) {
            buffers.push_timer(key, Clock::Event.number(), time, tag, 0);
        }
    }

    /// Calls with another event time for what says nothing of it.
    pub(crate) fn at<R>(&mut self, event_time: i64, call: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.output.event_time.replace(event_time);
        let result = call(self);
        self.output.event_time = before;
        result
    }

    fn change_timer(&mut self, clock: Clock, time: i64, tag: u32, operation: u8) {
        let Output { buffers, rows, row, .. } = &mut self.output;
        if tag >= RESERVED_TAGS {
            buffers.defect(|| format!("the plugin sets a timer with the tag {tag:#x}; tags from {RESERVED_TAGS:#x} up are reserved"));
        } else if let Some(key) = rows.key(*row).filter(|_| self.has_key) {
            buffers.push_timer(key, clock.number(), time, tag, operation);
        } else {
            buffers.defect(|| "the plugin sets a timer where there is no key: timers can be set for a record or from a timer".to_owned());
        }
    }
}
