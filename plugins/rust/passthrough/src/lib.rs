//! Sends every record on as it is. The smallest plugin, and the measure of what a plugin costs.

use waterwheel_plugin::{Environment, Failure, MapPlugin, NoConfig, Output, Record, export_map};

/// The plugin.
#[derive(Debug)]
pub struct Passthrough;

impl MapPlugin for Passthrough {
    type Config = NoConfig;

    fn open(_config: NoConfig, _environment: &Environment) -> Result<Self, Failure> {
        Ok(Self)
    }

    fn process(&mut self, record: &Record<'_>, out: &mut Output<'_>) -> Result<(), Failure> {
        out.emit(record);
        Ok(())
    }
}

export_map!(Passthrough);

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use waterwheel_plugin::testing::{Input, MapHarness};

    use super::Passthrough;

    #[test]
    fn every_record_comes_out_as_it_went_in() {
        let mut plugin = MapHarness::<Passthrough>::open("null").unwrap();
        let inputs = [
            Input::value("v").key("k").timestamp(5).header("h", "x"),
            Input::value("").key(""),
            Input::tombstone().key("k"),
            Input::value("without a key").timestamp(-1),
        ];
        plugin.process(&inputs).unwrap();
        let output = plugin.take_output();
        for (record, expected) in
            output.iter().zip([(Some("k"), Some("v"), 5), (Some(""), Some(""), 0), (Some("k"), None, 0), (None, Some("without a key"), -1)])
        {
            let (key, value, timestamp) = expected;
            assert_eq!(record.key.as_deref(), key.map(str::as_bytes));
            assert_eq!(record.value.as_deref(), value.map(str::as_bytes));
            assert_eq!(record.timestamp, timestamp);
        }
        assert_eq!(output.len(), 4);
        assert_eq!(output[0].headers, [("h".to_owned(), Some(b"x".to_vec()))]);
    }

    #[test]
    fn a_configuration_is_refused() {
        let error = MapHarness::<Passthrough>::open(r#"{"x": 1}"#).unwrap_err();
        assert!(error.contains("takes no configuration"), "{error}");
    }
}
