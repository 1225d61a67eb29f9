//! Compares records with rules that come as a stream of their own, by broadcast state: a rule `{"rule": "large", "field": "/amount", "at-least": 500}`
//! is known to every key from then on, one of the same name takes its place, and `{"rule": "large"}` removes it. A record with a number at
//! a rule's field that is large enough gives `{"rule":"large","record":…}`.

use std::io::Write;

use serde::{Deserialize, Serialize};
use waterwheel_plugin::decimal::Decimal;
use waterwheel_plugin::json::Pointer;
use waterwheel_plugin::{
    BroadcastState, Declare, Emit, Environment, Failure, KeyedOutput, KeyedPlugin, NoConfig, Record, export_keyed, fail,
};

/// The plugin.
#[derive(Debug)]
pub struct MatchRules {
    rules: BroadcastState<String, Rule>,
}

/// What a record is compared with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Rule {
    field: Pointer,
    at_least: Decimal,
}

/// A rule as it comes in.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Change {
    rule: String,
    field: Option<Pointer>,
    at_least: Option<serde_json::Number>,
}

impl KeyedPlugin for MatchRules {
    type Config = NoConfig;
    type States = BroadcastState<String, Rule>;
    const INPUTS: &'static [&'static str] = &["records", "rules"];
    const BROADCAST_INPUTS: &'static [&'static str] = &["rules"];

    fn declare(states: &mut Declare) -> Self::States {
        states.broadcast("rules")
    }

    fn open(_config: NoConfig, rules: Self::States, _environment: &Environment) -> Result<Self, Failure> {
        Ok(Self { rules })
    }

    fn process(&mut self, record: &Record<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        let value = record.value().ok_or_else(|| fail("a tombstone is neither a record nor a rule"))?;
        if record.input() == 1 {
            let change: Change = serde_json::from_slice(value)?;
            return match (change.field, change.at_least) {
                (Some(field), Some(at_least)) => self.rules.insert(&change.rule, Rule { field, at_least: at_least.to_string().parse()? }),
                (None, None) => self.rules.remove(&change.rule).map(drop),
                _ => Err(fail("a rule has both field and at-least, or neither, which removes it")),
            };
        }
        let mut result = Ok(());
        self.rules.for_each(|name, rule| {
            if result.is_ok() {
                result = compare(&name, rule, value, out);
            }
        });
        result
    }
}

fn compare(name: &str, rule: &Rule, record: &[u8], out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
    let number = rule.field.find(record)?.and_then(|text| text.parse::<Decimal>().ok());
    if number.is_some_and(|number| number >= rule.at_least) {
        out.emit_with(Emit::default(), |value| {
            value.push(r#"{"rule":"#);
            serde_json::to_writer(&mut *value, name)?;
            value.push(r#","record":"#);
            value.push(record);
            value.write_all(b"}")
        })?;
    }
    Ok(())
}

export_keyed!(MatchRules);

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use waterwheel_plugin::testing::{Input, KeyedHarness, Scope};

    use super::MatchRules;

    #[test]
    fn every_record_meets_the_rules_that_are_known() {
        let mut plugin = KeyedHarness::<MatchRules>::open("null").unwrap();
        let rule = |plugin: &mut KeyedHarness<MatchRules>, rule: &str| plugin.process(1, &[Input::value(rule).key("")]).unwrap();
        plugin.feed("a", r#"{"n": 9}"#).unwrap();
        rule(&mut plugin, r#"{"rule": "some", "field": "/n", "at-least": 1}"#);
        rule(&mut plugin, r#"{"rule": "many", "field": "/n", "at-least": 7.5}"#);
        plugin.feed("a", r#"{"n": 8}"#).unwrap();
        let mut plugin = KeyedHarness::<MatchRules>::restore("null", &plugin.snapshot(Scope::All).unwrap()).unwrap();
        plugin.feed("b", r#"{"n": 7}"#).unwrap();
        rule(&mut plugin, r#"{"rule": "some"}"#);
        plugin.feed("b", r#"{"n": 7}"#).unwrap();
        assert_eq!(plugin.take_output().len(), 1);
        rule(&mut plugin, r#"{"rule": "some", "field": "/n"}"#);
        assert_eq!(plugin.take_failures()[0].reason, "a rule has both field and at-least, or neither, which removes it");
    }
}
