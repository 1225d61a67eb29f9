//! A map plugin that misbehaves as its input asks, to test how a host bears it. Records that ask for nothing are passed on.
//!
//! Values (`verb` or `verb:argument`): `panic:MESSAGE`, `exit`, `loop`, `allocate`, `fail:REASON`, `fail-batch:REASON`, `print:TEXT`,
//! `print-error:TEXT`, `log:TEXT`, `environment`, `clock`, `random`, `file:PATH`, `headers`, `origin`, `count:COUNTER`, `twice`, `drop`, `late`
//! (to the side output of this name), `key:KEY:VALUE` (emits the value with the key). What is asked about is emitted as text.
//!
//! Configuration: `open`, what to do when opened, as a value would say it; `first_attempt_only`, whether to behave after a restart.

mod misbehave;

use serde::Deserialize;
use waterwheel_plugin::{Emit, Environment, Failure, MapPlugin, Output, Record, export_map, fail};

/// The plugin.
#[derive(Debug)]
pub struct Faulty {
    behaves: bool,
}

/// What the job specification may say.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    open: String,
    first_attempt_only: bool,
}

impl MapPlugin for Faulty {
    type Config = Config;
    const SIDE_OUTPUTS: &'static [&'static str] = &["late"];

    fn open(config: Config, environment: &Environment) -> Result<Self, Failure> {
        misbehave::misbehave(&config.open)?;
        Ok(Self { behaves: config.first_attempt_only && environment.attempt > 0 })
    }

    fn process(&mut self, record: &Record<'_>, out: &mut Output<'_>) -> Result<(), Failure> {
        let text = record.value().and_then(|value| std::str::from_utf8(value).ok()).unwrap_or_default();
        if self.behaves {
            out.emit(record);
            return Ok(());
        }
        match text.split_once(':').unwrap_or((text, "")) {
            ("drop", _) => {}
            ("twice", _) => {
                out.emit(record);
                out.emit(record);
            }
            ("late", _) => {
                out.emit(Emit::from(record).to("late"));
            }
            ("key", argument) => {
                let (key, value) = argument.split_once(':').ok_or_else(|| fail("key needs KEY:VALUE"))?;
                out.emit(Emit::value(value).key(key));
            }
            ("headers", _) => {
                out.emit(&format!("headers {:?}", record.headers()));
            }
            ("origin", _) => {
                out.emit(&format!("origin {:?}", record.origin()));
            }
            ("count", counter) => {
                out.count(counter, 1);
                out.emit(record);
            }
            _ => match misbehave::misbehave(text)? {
                Some(told) => {
                    out.emit(&told);
                }
                None => {
                    out.emit(record);
                }
            },
        }
        Ok(())
    }
}

export_map!(Faulty);

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use waterwheel_plugin::testing::{Input, MapHarness};

    use super::Faulty;

    #[test]
    fn does_what_a_value_asks_for() {
        let mut plugin = MapHarness::<Faulty>::open("{}").unwrap();
        plugin.process(&["fine".into(), "fail:bad".into(), "twice".into(), "drop".into(), "late".into(), Input::tombstone()]).unwrap();
        let output = plugin.take_output();
        assert_eq!(output.iter().filter_map(|record| record.value.as_deref()).collect::<Vec<_>>(), [&b"fine"[..], b"twice", b"twice"]);
        assert_eq!(output.len(), 4, "the tombstone too");
        assert_eq!(plugin.take_side_output("late").len(), 1);
        assert_eq!(plugin.take_failures()[0].reason, "bad");
        assert_eq!(plugin.process(&["fine".into(), "fail-batch:all".into()]).unwrap_err(), "all");
    }

    #[test]
    #[should_panic(expected = "ouch")]
    fn panics_when_asked() {
        let mut plugin = MapHarness::<Faulty>::open("{}").unwrap();
        let _ = plugin.process(&["panic:ouch".into()]);
    }

    #[test]
    fn refuses_to_open_when_asked() {
        assert_eq!(MapHarness::<Faulty>::open(r#"{"open": "fail:not today"}"#).unwrap_err(), "not today");
    }
}
