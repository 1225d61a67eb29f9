//! Joins of two inputs by the distance of their records in event time.

use std::fmt;
use std::ops::ControlFlow;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Arrival;
use crate::failure::{Failure, fail};
use crate::output::KeyedOutput;
use crate::record::Record;
use crate::state::{MapState, window_tag};
use crate::timer::{Clock, Timer};

/// A record that waits for others.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Waiting<T> {
    value: T,
    /// Whether it was in a pair. Only known where it counts, of the left input of an outer join.
    #[serde(default)]
    matched: bool,
}

/// By time, as a number whose encoding is in order, and by number.
pub(crate) type Buffer<T> = MapState<(u64, u64), Waiting<T>>;

fn ordered(time: i64) -> u64 {
    time.cast_unsigned() ^ (1 << 63)
}

fn time_of(ordered: u64) -> i64 {
    (ordered ^ (1 << 63)).cast_signed()
}

/// The declared state of an [`IntervalJoin`]. Get one from [`Declare::interval_join`](crate::Declare::interval_join).
pub struct IntervalJoinState<L, R> {
    pub(crate) left: Buffer<L>,
    pub(crate) right: Buffer<R>,
    pub(crate) name: String,
}

impl<L, R> fmt::Debug for IntervalJoinState<L, R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("IntervalJoinState").field(&self.name).finish()
    }
}

impl<L, R> IntervalJoinState<L, R> {
    /// The join, for `open`: a left record of time `t` and a right one of `t + lower` to `t + upper` (milliseconds, both included) are a pair.
    ///
    /// # Errors
    /// `lower` is more than `upper`.
    pub fn between(self, lower: i64, upper: i64) -> Result<IntervalJoin<L, R>, Failure> {
        if lower > upper {
            return Err(fail(format!("the lower bound of a join ({lower} ms) must not be more than the upper one ({upper} ms)")));
        }
        let tag = window_tag(&self.name);
        Ok(IntervalJoin { left: self.left, right: self.right, tag, lower, upper, is_outer: false })
    }
}

/// Joins the records of two inputs that have the same key and are so far apart in event time.
///
/// - A pair is emitted as soon as both are there, with the later time of the two as event time unless `emit` says otherwise.
/// - A record waits until the watermark says that no partner can come any more.
/// - A record that the watermark has come to is [`Arrival::Late`], and not taken.
/// - As a [left outer join](Self::left_outer) it also emits left records that no right one came for, when their time is over.
///
/// A plugin hands over its records in `process`, and in `on_timer` all timers.
pub struct IntervalJoin<L, R> {
    left: Buffer<L>,
    right: Buffer<R>,
    tag: u32,
    lower: i64,
    upper: i64,
    is_outer: bool,
}

impl<L, R> fmt::Debug for IntervalJoin<L, R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lower, upper, is_outer, .. } = self;
        formatter
            .debug_struct("IntervalJoin")
            .field("lower", lower)
            .field("upper", upper)
            .field("is_outer", is_outer)
            .finish_non_exhaustive()
    }
}

/// What a join emits.
#[derive(Debug, PartialEq, Eq)]
pub struct Pair<'a, L, R> {
    /// The key.
    pub key: &'a [u8],
    /// The left record and its event time.
    pub left: (&'a L, i64),
    /// The right record and its event time; none in an outer join where there was none.
    pub right: Option<(&'a R, i64)>,
}

// Without asking the same of the records.
impl<L, R> Clone for Pair<'_, L, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L, R> Copy for Pair<'_, L, R> {}

impl<L, R> IntervalJoin<L, R>
where
    L: Serialize + DeserializeOwned + Clone + 'static,
    R: Serialize + DeserializeOwned + Clone + 'static,
{
    /// The same join, which also emits left records without a right one.
    #[must_use]
    pub fn left_outer(self) -> Self {
        Self { is_outer: true, ..self }
    }

    /// Takes a record of the left input, and emits its pairs with what is there.
    ///
    /// # Errors
    /// Those of `emit`, to be passed on.
    pub fn add_left(
        &mut self,
        record: &Record<'_>,
        value: L,
        out: &mut KeyedOutput<'_>,
        mut emit: impl FnMut(Pair<'_, L, R>, &mut KeyedOutput<'_>) -> Result<(), Failure>,
    ) -> Result<Arrival, Failure> {
        let (time, key) = (record.timestamp(), record.key().unwrap_or_default());
        if is_late(time, out) {
            return Ok(Arrival::Late);
        }
        let mut matched = false;
        let (first, last) = (time.saturating_add(self.lower), time.saturating_add(self.upper));
        each(&self.right, first, last, |at, right| {
            matched = true;
            let pair = Pair { key, left: (&value, time), right: Some((right, at)) };
            out.at(time.max(at), |out| emit(pair, out))
        })?;
        // Right records from here on are later than the watermark.
        if last > out.watermark() {
            put(&mut self.left, time, Waiting { value, matched });
            out.set_own_timer(last, self.tag);
        } else if self.is_outer && !matched {
            out.at(time, |out| emit(Pair { key, left: (&value, time), right: None }, out))?;
        }
        Ok(Arrival::InTime)
    }

    /// Takes a record of the right input, and emits its pairs with what is there.
    ///
    /// # Errors
    /// Those of `emit`, to be passed on.
    pub fn add_right(
        &mut self,
        record: &Record<'_>,
        value: R,
        out: &mut KeyedOutput<'_>,
        mut emit: impl FnMut(Pair<'_, L, R>, &mut KeyedOutput<'_>) -> Result<(), Failure>,
    ) -> Result<Arrival, Failure> {
        let (time, key) = (record.timestamp(), record.key().unwrap_or_default());
        if is_late(time, out) {
            return Ok(Arrival::Late);
        }
        let (first, last) = (time.saturating_sub(self.upper), time.saturating_sub(self.lower));
        each(&self.left, first, last, |at, left| {
            let pair = Pair { key, left: (left, at), right: Some((&value, time)) };
            out.at(time.max(at), |out| emit(pair, out))
        })?;
        if self.is_outer {
            self.mark_matched(first, last);
        }
        if last > out.watermark() {
            put(&mut self.right, time, Waiting { value, matched: false });
            out.set_own_timer(last, self.tag);
        }
        Ok(Arrival::InTime)
    }

    fn mark_matched(&mut self, first: i64, last: i64) {
        let mut found = Vec::new();
        let _ = self.left.try_for_range(&ordered(first), &ordered(last), |time, number, waiting| {
            if !waiting.matched {
                found.push((time, number));
            }
            ControlFlow::<()>::Continue(())
        });
        for place in found {
            self.left.alter(&place, |waiting| waiting.iter_mut().for_each(|waiting| waiting.matched = true));
        }
    }

    /// Takes a timer, if it is one of this join's: records go that no partner can come for. Returns whether it was one.
    ///
    /// # Errors
    /// Those of `emit`, to be passed on.
    pub fn on_timer(
        &mut self,
        timer: &Timer<'_>,
        out: &mut KeyedOutput<'_>,
        mut emit: impl FnMut(Pair<'_, L, R>, &mut KeyedOutput<'_>) -> Result<(), Failure>,
    ) -> Result<bool, Failure> {
        if timer.tag() != self.tag || timer.clock() != Clock::Event {
            return Ok(false);
        }
        self.left.claim_timer();
        let (first, last) = (ordered(i64::MIN), ordered(timer.time().saturating_sub(self.upper)));
        if self.is_outer {
            let emitted = self.left.try_for_range(&first, &last, |time, _, waiting| {
                let time = time_of(time);
                let pair = Pair { key: timer.key(), left: (&waiting.value, time), right: None };
                let alone = if waiting.matched { Ok(()) } else { out.at(time.max(timer.time()), |out| emit(pair, out)) };
                alone.map_or_else(ControlFlow::Break, ControlFlow::Continue)
            });
            if let ControlFlow::Break(failure) = emitted {
                return Err(failure);
            }
        }
        self.left.remove_range(&first, &last);
        self.right.remove_range(&first, &ordered(timer.time().saturating_add(self.lower)));
        Ok(true)
    }
}

fn is_late(time: i64, out: &KeyedOutput<'_>) -> bool {
    out.watermark() != i64::MIN && time <= out.watermark()
}

/// Calls for the records of these times, until one fails.
fn each<T>(buffer: &Buffer<T>, first: i64, last: i64, mut call: impl FnMut(i64, &T) -> Result<(), Failure>) -> Result<(), Failure>
where
    T: Serialize + DeserializeOwned + Clone + 'static,
{
    let called = buffer.try_for_range(&ordered(first), &ordered(last), |time, _, waiting| {
        call(time_of(time), &waiting.value).map_or_else(ControlFlow::Break, ControlFlow::Continue)
    });
    match called {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(failure) => Err(failure),
    }
}

/// Adds a record behind those of the same time.
fn put<T>(buffer: &mut Buffer<T>, time: i64, waiting: Waiting<T>)
where
    T: Serialize + DeserializeOwned + Clone + 'static,
{
    let mut number = 0;
    let _ = buffer.try_for_range(&ordered(time), &ordered(time), |_, last, _| {
        number = last + 1;
        ControlFlow::<()>::Continue(())
    });
    buffer.insert(&(ordered(time), number), waiting);
}
