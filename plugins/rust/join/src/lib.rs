//! Joins two inputs of JSON records by key and event time, without code: `{"lower-ms": -60000, "upper-ms": 60000}` pairs each left record of time `t`
//! with each right one of `t - 60000` to `t + 60000`, and emits `{"key":"anna","left":…,"right":…}` with the values as they are written.
//!
//! `"type": "left-outer"` (`inner` is the default) also emits left records that no right one came for, with `"right":null`, when the watermark has
//! passed the last time that one could have had. `left-name` and `right-name` give the two members other names. Late records, to which the
//! watermark has come, go to the side output `late` as they are.

use std::io::Write;

use serde::Deserialize;
use serde_json::value::RawValue;
use waterwheel_plugin::{
    Declare, Emit, Environment, Failure, IntervalJoin, IntervalJoinState, KeyedOutput, KeyedPlugin, Pair, Record, Timer, export_keyed, fail,
};

/// The plugin.
#[derive(Debug)]
pub struct Join {
    join: IntervalJoin<String, String>,
    /// `,"NAME":` of the left and the right value.
    names: [String; 2],
}

/// What the job specification may say.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// The least that a right record may be later than a left one, in milliseconds; negative: so much earlier.
    lower_ms: i64,
    /// The most.
    upper_ms: i64,
    #[serde(default, rename = "type")]
    kind: Kind,
    #[serde(default = "left")]
    left_name: String,
    #[serde(default = "right")]
    right_name: String,
}

/// What is emitted besides pairs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    /// Nothing.
    #[default]
    Inner,
    /// Left records without a right one.
    LeftOuter,
}

fn left() -> String {
    "left".to_owned()
}

fn right() -> String {
    "right".to_owned()
}

impl KeyedPlugin for Join {
    type Config = Config;
    type States = IntervalJoinState<String, String>;
    const INPUTS: &'static [&'static str] = &["left", "right"];
    const SIDE_OUTPUTS: &'static [&'static str] = &["late"];

    fn declare(states: &mut Declare) -> Self::States {
        states.interval_join("join")
    }

    fn open(config: Config, states: Self::States, _environment: &Environment) -> Result<Self, Failure> {
        let Config { lower_ms, upper_ms, kind, left_name, right_name } = config;
        if left_name == right_name || [&left_name, &right_name].contains(&&"key".to_owned()) {
            return Err(fail(format!(
                "config.right-name: the result has key, {left_name:?} and {right_name:?}; give left-name and right-name so that all three differ"
            )));
        }
        let join = states.between(lower_ms, upper_ms).map_err(|failure| fail(format!("config.lower-ms: {}", failure.reason())))?;
        let name = |name| serde_json::to_string(&name).map(|name| format!(",{name}:"));
        let names = [name(left_name)?, name(right_name)?];
        Ok(Self { join: if kind == Kind::LeftOuter { join.left_outer() } else { join }, names })
    }

    fn process(&mut self, record: &Record<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        let value: &RawValue = serde_json::from_slice(record.value().ok_or_else(|| fail("a tombstone cannot be joined"))?)?;
        let (value, Self { join, names }) = (value.get().to_owned(), self);
        let emit = |pair: Pair<'_, String, String>, out: &mut KeyedOutput<'_>| emit(names, pair, out);
        let arrival =
            if record.input() == 0 { join.add_left(record, value, out, emit)? } else { join.add_right(record, value, out, emit)? };
        if arrival.is_late() {
            out.emit(Emit::from(record).to("late"));
        }
        Ok(())
    }

    fn on_timer(&mut self, timer: &Timer<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        let Self { join, names } = self;
        join.on_timer(timer, out, |pair, out| emit(names, pair, out))?;
        Ok(())
    }
}

fn emit([left, right]: &[String; 2], pair: Pair<'_, String, String>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
    let key = std::str::from_utf8(pair.key)?;
    out.emit_with(Emit::default(), |value| {
        value.push(r#"{"key":"#);
        serde_json::to_writer(&mut *value, key)?;
        write!(value, "{left}{}{right}{}}}", pair.left.0, pair.right.map_or("null", |(right, _)| right.as_str()))
    })?;
    Ok(())
}

export_keyed!(Join);

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use waterwheel_plugin::testing::{Input, KeyedHarness, Scope};

    use super::Join;

    fn feed(plugin: &mut KeyedHarness<Join>, input: u32, at: i64, value: &str) {
        plugin.process(input, &[Input::value(value).key("k").timestamp(at)]).unwrap();
    }

    fn output(plugin: &mut KeyedHarness<Join>) -> Vec<(i64, String)> {
        plugin.take_output().iter().map(|record| (record.timestamp, record.text().to_owned())).collect()
    }

    #[test]
    fn pairs_are_emitted_and_left_records_without_one_where_that_is_asked_for() {
        let config = r#"{"lower-ms": 0, "upper-ms": 10, "type": "left-outer", "right-name": "payment"}"#;
        let mut plugin = KeyedHarness::<Join>::open(config).unwrap();
        feed(&mut plugin, 0, 5, r#"{"order": 1.50}"#);
        feed(&mut plugin, 1, 15, "[7]");
        feed(&mut plugin, 1, 16, "8");
        feed(&mut plugin, 0, 17, "9");
        assert_eq!(output(&mut plugin), [(15, r#"{"key":"k","left":{"order": 1.50},"payment":[7]}"#.to_owned())]);
        let snapshot = plugin.snapshot(Scope::All).unwrap();
        let mut plugin = KeyedHarness::<Join>::restore(config, &snapshot).unwrap();
        plugin.advance_watermark(20).unwrap();
        feed(&mut plugin, 1, 20, "10");
        assert_eq!(plugin.take_side_output("late")[0].text(), "10");
        plugin.finish().unwrap();
        assert_eq!(output(&mut plugin), [(27, r#"{"key":"k","left":9,"payment":null}"#.to_owned())]);
        assert_eq!((plugin.timers().len(), plugin.snapshot(Scope::All).unwrap().entries().len()), (0, 0));
    }

    #[test]
    fn what_is_no_json_fails() {
        let mut plugin = KeyedHarness::<Join>::open(r#"{"lower-ms": 0, "upper-ms": 0}"#).unwrap();
        feed(&mut plugin, 0, 5, "{");
        assert_eq!(plugin.take_failures()[0].reason, "EOF while parsing an object at line 1 column 1");
    }

    #[test]
    fn a_wrong_configuration_is_one_clear_sentence() {
        let error = |config| KeyedHarness::<Join>::open(config).unwrap_err();
        assert_eq!(
            error(r#"{"lower-ms": 1, "upper-ms": 0}"#),
            "config.lower-ms: the lower bound of a join (1 ms) must not be more than the upper one (0 ms)"
        );
        assert!(error(r#"{"lower-ms": 0, "upper-ms": 0, "left-name": "right"}"#).starts_with("config.right-name: the result has key, "));
        assert!(error(r#"{"lower-ms": 0}"#).starts_with("config: missing field `upper-ms`"));
        assert!(
            error(r#"{"lower-ms": 0, "upper-ms": 0, "type": "outer"}"#)
                .starts_with("config.type: unknown variant `outer`, expected `inner`")
        );
    }
}
