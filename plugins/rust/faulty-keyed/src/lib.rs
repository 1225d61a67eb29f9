//! A keyed plugin that misbehaves as its input asks, to test how a host bears it. Counts the records of each key and emits `KEY COUNT`.
//!
//! Values (`verb` or `verb:argument`): those of the plugin `faulty` that panic, loop, allocate, fail, print and ask; each happens after the
//! record was counted and has emitted, so that what a failure must take back is there. Also `processing-timer:TIME` and `event-timer:TIME` (an absolute
//! time, in milliseconds; `+N` is so much after now or the record's event time), `delete-processing-timer:TIME`, `delete-event-timer:TIME`,
//! `timer-value:TIME:VALUE` (a processing-time timer that does what `VALUE` asks for when it fires), `forget` (removes the key's state) and
//! `remember:SUBKEY` (counts the subkey in a map).
//! A timer that fires emits `KEY timer CLOCK TIME COUNT`.

#[path = "../../faulty/src/misbehave.rs"]
mod misbehave;

use waterwheel_plugin::{
    Clock, Declare, Environment, Failure, KeyedOutput, KeyedPlugin, KeyedState, MapState, NoConfig, Record, Timer, export_keyed, fail,
};

/// The plugin.
#[derive(Debug)]
pub struct FaultyKeyed {
    counts: KeyedState<u64>,
    /// By time, what a timer is to do.
    pending: MapState<i64, String>,
    remembered: MapState<String, u64>,
}

impl KeyedPlugin for FaultyKeyed {
    type Config = NoConfig;
    type States = Self;
    const INPUTS: &'static [&'static str] = &["left", "right"];

    fn declare(states: &mut Declare) -> Self {
        Self { counts: states.value("counts"), pending: states.map("pending"), remembered: states.map("remembered") }
    }

    fn open(_config: NoConfig, states: Self, _environment: &Environment) -> Result<Self, Failure> {
        Ok(states)
    }

    fn process(&mut self, record: &Record<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        let key = String::from_utf8_lossy(record.key().unwrap_or_default()).into_owned();
        let text = record.value().and_then(|value| std::str::from_utf8(value).ok()).unwrap_or_default();
        let count = self.counts.update(|count| {
            *count += 1;
            *count
        });
        out.emit(&format!("{key} {count}"));

        let (processing, event) = (out.processing_time(), record.timestamp());
        match text.split_once(':').unwrap_or((text, "")) {
            ("processing-timer", time) => out.set_timer(Clock::Processing, time_of(time, processing)?),
            ("event-timer", time) => out.set_timer(Clock::Event, time_of(time, event)?),
            ("delete-processing-timer", time) => out.delete_timer(Clock::Processing, time_of(time, processing)?),
            ("delete-event-timer", time) => out.delete_timer(Clock::Event, time_of(time, event)?),
            ("timer-value", argument) => {
                let (time, value) = argument.split_once(':').ok_or_else(|| fail("timer-value needs TIME:VALUE"))?;
                let time = time_of(time, processing)?;
                self.pending.insert(&time, value.to_owned());
                out.set_timer(Clock::Processing, time);
            }
            ("forget", _) => {
                self.counts.remove();
                self.remembered.clear();
            }
            ("remember", subkey) => self.remembered.update(subkey, |count| *count += 1),
            _ => {
                if let Some(told) = misbehave::misbehave(text)? {
                    out.emit(&told);
                }
            }
        }
        Ok(())
    }

    fn on_timer(&mut self, timer: &Timer<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        let key = String::from_utf8_lossy(timer.key());
        let count = self.counts.get().map_or(0, |count| *count);
        let clock = match timer.clock() {
            Clock::Event => "event",
            Clock::Processing => "processing",
        };
        out.emit(&format!("{key} timer {clock} {} {count}", timer.time()));
        let pending = self.pending.get(&timer.time()).map(|value| value.clone());
        if let Some(value) = pending {
            self.pending.remove(&timer.time());
            misbehave::misbehave(&value)?;
        }
        Ok(())
    }
}

/// A time as a value writes it.
fn time_of(text: &str, now: i64) -> Result<i64, Failure> {
    match text.strip_prefix('+') {
        Some(after) => Ok(now.saturating_add(after.parse()?)),
        None => Ok(text.parse()?),
    }
}

export_keyed!(FaultyKeyed);

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use waterwheel_plugin::testing::{KeyedHarness, Scope};

    use super::FaultyKeyed;

    fn output(plugin: &mut KeyedHarness<FaultyKeyed>) -> Vec<String> {
        plugin.take_output().iter().map(|record| record.text().to_owned()).collect()
    }

    #[test]
    fn a_failure_takes_back_what_was_done() {
        let mut plugin = KeyedHarness::<FaultyKeyed>::open("null").unwrap();
        for value in ["x", "fail:no", "y", "forget", "fail", "z"] {
            plugin.feed("a", value).unwrap();
        }
        assert_eq!(output(&mut plugin), ["a 1", "a 2", "a 3", "a 1"]);
        let reasons: Vec<_> = plugin.take_failures().into_iter().map(|failure| failure.reason).collect();
        assert_eq!(reasons, ["no", "asked to fail"]);
    }

    #[test]
    fn timers_fire_in_order_and_may_fail() {
        let mut plugin = KeyedHarness::<FaultyKeyed>::open("null").unwrap();
        plugin.advance_processing_time(100).unwrap();
        for value in
            ["processing-timer:+50", "processing-timer:120", "event-timer:7", "timer-value:+30:fail:late", "delete-processing-timer:150"]
        {
            plugin.feed("a", value).unwrap();
        }
        output(&mut plugin);
        plugin.advance_watermark(7).unwrap();
        plugin.advance_processing_time(200).unwrap();
        assert_eq!(output(&mut plugin), ["a timer event 7 5", "a timer processing 120 5"]);
        assert_eq!(plugin.take_failures()[0].reason, "late");
        let left = plugin.snapshot(Scope::All).unwrap();
        assert_eq!(left.entries().iter().filter(|entry| entry.state == "pending").count(), 1, "the failed timer's removal is taken back");
    }
}
