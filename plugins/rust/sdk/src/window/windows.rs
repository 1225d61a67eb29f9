//! Windows of records: which there are, when they fire, when they go.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Aggregate, Arrival, Pane, Window, WindowAssigner, milliseconds};
use crate::failure::Failure;
use crate::output::KeyedOutput;
use crate::record::Record;
use crate::state::{MapState, window_tag};
use crate::timer::{Clock, Timer};

/// The declared state of [`Windows`]. Get one from [`Declare::windows`](crate::Declare::windows).
pub struct WindowState<A: Aggregate> {
    panes: MapState<(i64, i64), Held<A::Accumulator>>,
    tag: u32,
}

impl<A: Aggregate> fmt::Debug for WindowState<A> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("WindowState").field(&self.panes).finish()
    }
}

/// What is kept of a window.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Held<T> {
    value: T,
    /// When the timer of a session fires: not later than the session has to, so that it need not be moved at each record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timer: Option<i64>,
    /// Whether a window that is no session has fired and stays for late records.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    fired: bool,
}

impl<T> Held<T> {
    fn of(value: T) -> Self {
        Self { value, timer: None, fired: false }
    }
}

impl<A: Aggregate> WindowState<A> {
    pub(crate) fn new(panes: MapState<(i64, i64), Held<A::Accumulator>>, name: &str) -> Self {
        Self { panes, tag: window_tag(name) }
    }

    /// The windows, for `open`. Without allowed lateness.
    #[must_use]
    pub fn assign(self, assigner: WindowAssigner, aggregate: A) -> Windows<A> {
        Windows { panes: self.panes, tag: self.tag, assigner, aggregate, lateness: 0 }
    }
}

/// Windows of event time by key: tumbling, sliding or sessions, as the [`WindowAssigner`] says, each with what an [`Aggregate`] makes of
/// its records.
///
/// - A window fires when the watermark comes to its [last millisecond](Window::max_timestamp): `emit` is called with its result.
/// - With an [allowed lateness](Self::allowed_lateness) it stays so much longer, and fires again for each record that still comes.
/// - A record all of whose windows are over is [`Arrival::Late`], and not taken.
/// - What `emit` emits has the window's last millisecond as event time, unless it says otherwise, so it is not late further down.
/// - A session that a record connects with another becomes one with it.
///
/// A plugin hands over its records in `process`, and in `on_timer` all timers (those that are not of these windows are left alone):
///
/// ```
/// use std::time::Duration;
/// use waterwheel_plugin::testing::{Input, KeyedHarness};
/// use waterwheel_plugin::*;
///
/// /// The largest number of each minute.
/// struct Largest { windows: Windows<Max> }
///
/// struct Max;
///
/// impl Aggregate for Max {
///     type Input = i64;
///     type Accumulator = i64;
///     type Output = i64;
///
///     fn create(&mut self, _window: Window) -> i64 { i64::MIN }
///     fn add(&mut self, max: &mut i64, number: &i64) -> Result<(), Failure> { *max = *number.max(max); Ok(()) }
///     fn merge(&mut self, max: &mut i64, other: i64) -> Result<(), Failure> { self.add(max, &other) }
///     fn result(&self, max: &i64) -> Result<i64, Failure> { Ok(*max) }
/// }
///
/// fn emit(pane: Pane<'_, i64>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
///     out.emit(&format!("{} {}", pane.window.start, pane.result));
///     Ok(())
/// }
///
/// impl KeyedPlugin for Largest {
///     type Config = NoConfig;
///     type States = WindowState<Max>;
///     const SIDE_OUTPUTS: &'static [&'static str] = &["late-numbers"];
///
///     fn declare(states: &mut Declare) -> Self::States {
///         states.windows("largest")
///     }
///
///     fn open(_: NoConfig, windows: Self::States, _: &Environment) -> Result<Self, Failure> {
///         let minutes = WindowAssigner::tumbling(Duration::from_secs(60))?;
///         Ok(Self { windows: windows.assign(minutes, Max).allowed_lateness(Duration::from_secs(10)) })
///     }
///
///     fn process(&mut self, record: &Record<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
///         let number = std::str::from_utf8(record.value().unwrap_or_default())?.parse()?;
///         if self.windows.add(record, &number, out, emit)?.is_late() {
///             out.emit(Emit::from(record).to("late-numbers"));
///         }
///         Ok(())
///     }
///
///     fn on_timer(&mut self, timer: &Timer<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
///         self.windows.on_timer(timer, out, emit)?;
///         Ok(())
///     }
/// }
///
/// export_keyed!(Largest);
///
/// let mut plugin = KeyedHarness::<Largest>::open("null").unwrap();
/// plugin.process(0, &[Input::value("7").key("a").timestamp(61_000), Input::value("9").key("a").timestamp(60_000)]).unwrap();
/// plugin.advance_watermark(119_999).unwrap();
/// assert_eq!(plugin.take_output()[0].text(), "60000 9");
/// ```
pub struct Windows<A: Aggregate> {
    panes: MapState<(i64, i64), Held<A::Accumulator>>,
    tag: u32,
    assigner: WindowAssigner,
    aggregate: A,
    lateness: i64,
}

impl<A: Aggregate> fmt::Debug for Windows<A> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Windows").field("panes", &self.panes).field("assigner", &self.assigner).finish_non_exhaustive()
    }
}

impl<A: Aggregate> Windows<A> {
    /// Windows stay so much longer than the watermark says, for records that come late.
    #[must_use]
    pub fn allowed_lateness(self, lateness: Duration) -> Self {
        Self { lateness: milliseconds(lateness), ..self }
    }

    /// Takes a record into its windows. Those that have fired already fire again, by `emit`.
    ///
    /// # Errors
    /// Those of the aggregate and of `emit`, to be passed on: they fail the record.
    pub fn add(
        &mut self,
        record: &Record<'_>,
        input: &A::Input,
        out: &mut KeyedOutput<'_>,
        mut emit: impl FnMut(Pane<'_, A::Output>, &mut KeyedOutput<'_>) -> Result<(), Failure>,
    ) -> Result<Arrival, Failure> {
        let (timestamp, key) = (record.timestamp(), record.key().unwrap_or_default());
        if let Some(gap) = self.assigner.gap() {
            let own = Window { start: timestamp, end: timestamp.saturating_add(gap) };
            return self.add_to_session(own, input, key, out, &mut emit);
        }
        let (watermark, mut arrival) = (out.watermark(), Arrival::Late);
        for window in self.assigner.windows(timestamp) {
            if self.end_of(window) <= watermark {
                continue;
            }
            arrival = Arrival::InTime;
            let aggregate = &mut self.aggregate;
            let has_fired = window.max_timestamp() <= watermark;
            let needs_timer = self.panes.alter(&(window.start, window.end), |held| {
                let is_new = held.is_none();
                let held = held.get_or_insert_with(|| Held::of(aggregate.create(window)));
                // With another parallelism the watermark may have gone back behind a window that has fired.
                let fires_again = !has_fired && std::mem::take(&mut held.fired);
                aggregate.add(&mut held.value, input).map(|()| is_new || fires_again)
            })?;
            if needs_timer {
                out.set_own_timer(if has_fired { self.end_of(window) } else { window.max_timestamp() }, self.tag);
            }
            if has_fired {
                self.fire(window, key, out, &mut emit)?;
            }
        }
        Ok(arrival)
    }

    /// When a window goes.
    fn end_of(&self, window: Window) -> i64 {
        window.max_timestamp().saturating_add(self.lateness)
    }

    fn add_to_session(
        &mut self,
        own: Window,
        input: &A::Input,
        key: &[u8],
        out: &mut KeyedOutput<'_>,
        emit: &mut impl FnMut(Pane<'_, A::Output>, &mut KeyedOutput<'_>) -> Result<(), Failure>,
    ) -> Result<Arrival, Failure> {
        let mut found = self.windows(|window, _| window.touches(own));
        let merged = found.iter().fold(own, |merged, window| merged.cover(*window));
        let watermark = out.watermark();
        if found.is_empty() && self.end_of(own) <= watermark {
            return Ok(Arrival::Late);
        }
        let next = if merged.max_timestamp() > watermark { merged.max_timestamp() } else { self.end_of(merged) };
        if found == [merged] {
            let aggregate = &mut self.aggregate;
            let needs_timer = self.panes.alter(&(merged.start, merged.end), |held| {
                let Some(held) = held else { return Ok(false) };
                let needs_timer = held.timer.is_none_or(|timer| timer > next);
                if needs_timer {
                    held.timer = Some(next);
                }
                aggregate.add(&mut held.value, input).map(|()| needs_timer)
            })?;
            if needs_timer {
                out.set_own_timer(next, self.tag);
            }
        } else {
            let mut held: Option<Held<A::Accumulator>> = None;
            found.sort_unstable();
            for part in found.into_iter().filter_map(|window| self.panes.take(&(window.start, window.end))) {
                match &mut held {
                    None => held = Some(part),
                    Some(held) => {
                        self.aggregate.merge(&mut held.value, part.value)?;
                        held.timer = held.timer.into_iter().chain(part.timer).min();
                    }
                }
            }
            let mut held = held.unwrap_or_else(|| Held::of(self.aggregate.create(own)));
            self.aggregate.add(&mut held.value, input)?;
            if held.timer.is_none_or(|timer| timer > next) {
                held.timer = Some(next);
                out.set_own_timer(next, self.tag);
            }
            self.panes.insert(&(merged.start, merged.end), held);
        }
        if merged.max_timestamp() <= watermark {
            self.fire(merged, key, out, emit)?;
        }
        Ok(Arrival::InTime)
    }

    /// The windows of the key that are meant, in no order.
    fn windows(&self, is_meant: impl Fn(Window, Option<i64>) -> bool) -> Vec<Window> {
        let mut found = Vec::new();
        self.panes.for_each(|(start, end), held| {
            let window = Window { start, end };
            if is_meant(window, held.timer) {
                found.push(window);
            }
        });
        found
    }

    fn fire(
        &self,
        window: Window,
        key: &[u8],
        out: &mut KeyedOutput<'_>,
        emit: &mut impl FnMut(Pane<'_, A::Output>, &mut KeyedOutput<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Some(held) = self.panes.get(&(window.start, window.end)) else { return Ok(()) };
        let result = self.aggregate.result(&held.value)?;
        out.at(window.max_timestamp(), |out| emit(Pane { key, window, result }, out))
    }

    /// Takes a timer, if it is one of these windows': those fire whose time it is, and those go that are over. Returns whether it was one.
    ///
    /// # Errors
    /// Those of the aggregate and of `emit`, to be passed on.
    pub fn on_timer(
        &mut self,
        timer: &Timer<'_>,
        out: &mut KeyedOutput<'_>,
        mut emit: impl FnMut(Pane<'_, A::Output>, &mut KeyedOutput<'_>) -> Result<(), Failure>,
    ) -> Result<bool, Failure> {
        if timer.tag() != self.tag || timer.clock() != Clock::Event {
            return Ok(false);
        }
        self.panes.claim_timer();
        for window in self.due(timer.time()) {
            self.on_time(window, timer, out, &mut emit)?;
        }
        Ok(true)
    }

    /// The windows that a timer may be for, the earliest first. All are looked at: some may be of a former configuration.
    fn due(&self, time: i64) -> Vec<Window> {
        let mut due = self.windows(|window, timer| timer.unwrap_or(window.max_timestamp()) <= time);
        due.sort_unstable();
        due
    }

    /// What is to be done with a window at the time of a timer: it fires if that is not later than its end, goes if it is over, and otherwise
    /// gets another timer.
    fn on_time(
        &mut self,
        window: Window,
        timer: &Timer<'_>,
        out: &mut KeyedOutput<'_>,
        emit: &mut impl FnMut(Pane<'_, A::Output>, &mut KeyedOutput<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (place, end, watermark) = ((window.start, window.end), self.end_of(window), out.watermark());
        let Some(waits) = self.panes.get(&place).map(|held| held.timer.is_some()) else { return Ok(()) };
        let is_complete = window.max_timestamp() <= watermark;
        let fires = is_complete && (timer.time() == window.max_timestamp() || (waits && timer.time() < window.max_timestamp()));
        if fires {
            self.fire(window, timer.key(), out, emit)?;
        }
        if is_complete && end <= watermark {
            if let Some(held) = self.panes.take(&place) {
                self.aggregate.clear(held.value);
            }
            return Ok(());
        }
        let next = if is_complete { end } else { window.max_timestamp() };
        if fires || waits {
            out.set_own_timer(next, self.tag);
        }
        if fires || waits {
            self.panes.alter(&place, |held| {
                held.iter_mut().for_each(|held| (held.timer, held.fired) = if waits { (Some(next), false) } else { (None, true) });
            });
        }
        Ok(())
    }
}
