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
