//! Plays the host to a map plugin.

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::{ENVIRONMENT, Input, Observed, columns};
use crate::bindings::Context;
use crate::plugin::MapPlugin;
use crate::record::{Columns, Rows};
use crate::runtime::MapRuntime;

/// Runs a [`MapPlugin`] in a test.
pub struct MapHarness<P> {
    runtime: MapRuntime<P>,
    observed: Observed,
    context: Context,
}

impl<P> fmt::Debug for MapHarness<P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("MapHarness").field("observed", &self.observed).finish_non_exhaustive()
    }
}

impl<P> Deref for MapHarness<P> {
    type Target = Observed;

    fn deref(&self) -> &Observed {
        &self.observed
    }
}

impl<P> DerefMut for MapHarness<P> {
    fn deref_mut(&mut self) -> &mut Observed {
        &mut self.observed
    }
}

impl<P: MapPlugin> MapHarness<P> {
    /// Opens the plugin with this configuration, which is JSON.
    ///
    /// # Errors
    /// The sentence with which the plugin refuses it.
    pub fn open(config: &str) -> Result<Self, String> {
        let mut runtime = MapRuntime::default();
        let mut observed = Observed::new(P::SIDE_OUTPUTS);
        observed.fake.during(|| runtime.open(config, ENVIRONMENT))?;
        Ok(Self { runtime, observed, context: Context { watermark: i64::MIN, processing_time: 0 } })
    }

    /// The description that a host would get, a JSON document.
    #[must_use]
    pub fn describe() -> String {
        MapRuntime::<P>::describe()
    }

    /// Sets what the plugin is told of the time of day, in milliseconds since the Unix epoch. It is 0 at first.
    pub fn set_processing_time(&mut self, time: i64) {
        self.context.processing_time = time;
    }

    /// Sets the watermark, in milliseconds since the Unix epoch. At first there is none.
    pub fn set_watermark(&mut self, time: i64) {
        self.context.watermark = time;
    }

    /// Processes these records as one batch.
    ///
    /// # Errors
    /// The sentence with which the batch as a whole fails. Failures of records are in [`Observed::take_failures`].
    pub fn process(&mut self, inputs: &[Input]) -> Result<(), String> {
        let Self { runtime, observed, context } = self;
        let batch = columns::batch(inputs);
        observed.fake.headers = inputs.iter().map(|input| input.headers.clone()).collect();
        observed.fake.origins = inputs.iter().map(|input| input.origin.clone()).collect();
        let emitted = observed.fake.during(|| runtime.process(batch.clone(), context))?;
        observed.note(emitted, Rows::Batch(Columns::of(&batch)))
    }

    /// Ends the input.
    ///
    /// # Errors
    /// The sentence with which the plugin fails.
    pub fn finish(&mut self) -> Result<(), String> {
        let Self { runtime, observed, context } = self;
        context.watermark = i64::MAX;
        observed.fake.headers.clear();
        observed.fake.origins.clear();
        let emitted = observed.fake.during(|| runtime.finish(context))?;
        observed.note(emitted, Rows::None)
    }

    /// Closes the plugin.
    pub fn close(mut self) {
        self.observed.fake.during(|| self.runtime.close());
    }
}
