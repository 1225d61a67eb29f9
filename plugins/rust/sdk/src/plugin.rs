//! What an author implements.

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::failure::Failure;
use crate::output::{KeyedOutput, Output};
use crate::record::Record;
use crate::state::Declare;
use crate::timer::Timer;

/// Logic without state of its own: maps, filters, expands, splits. Export it with [`export_map!`](crate::export_map).
///
/// ```
/// use serde::Deserialize;
/// use waterwheel_plugin::testing::{Input, MapHarness};
/// use waterwheel_plugin::{Environment, Failure, MapPlugin, Output, Record, export_map, fail};
///
/// /// Keeps the values that are at least so long.
/// struct LongEnough { config: Config }
///
/// #[derive(Deserialize)]
/// #[serde(deny_unknown_fields)]
/// struct Config { bytes: usize }
///
/// impl MapPlugin for LongEnough {
///     type Config = Config;
///     const SIDE_OUTPUTS: &'static [&'static str] = &["short"];
///
///     fn open(config: Config, _environment: &Environment) -> Result<Self, Failure> {
///         Ok(Self { config })
///     }
///
///     fn process(&mut self, record: &Record<'_>, out: &mut Output<'_>) -> Result<(), Failure> {
///         let value = record.value().ok_or_else(|| fail("a tombstone has no length"))?;
///         if value.len() >= self.config.bytes {
///             out.emit(record);
///         } else {
///             out.emit(waterwheel_plugin::Emit::from(record).to("short"));
///         }
///         Ok(())
///     }
/// }
///
/// export_map!(LongEnough);
///
/// let mut plugin = MapHarness::<LongEnough>::open(r#"{"bytes": 3}"#).unwrap();
/// plugin.process(&[Input::value("long"), Input::value("no"), Input::tombstone()]).unwrap();
/// assert_eq!(plugin.take_output()[0].text(), "long");
/// assert_eq!(plugin.take_side_output("short")[0].text(), "no");
/// assert_eq!(plugin.take_failures()[0].reason, "a tombstone has no length");
/// ```
pub trait MapPlugin: Sized + 'static {
    /// The operator's configuration, read from the `config` of the job specification. What does not fit is refused with its path. [`NoConfig`] if
    /// there is none.
    type Config: DeserializeOwned;

    /// The names of the side outputs.
    const SIDE_OUTPUTS: &'static [&'static str] = &[];

    /// What the job has to grant, by the names in the host's documentation.
    const CAPABILITIES: &'static [&'static str] = &[];

    /// Makes an instance.
    ///
    /// # Errors
    /// Refuses the job, with the failure's sentence.
    fn open(config: Self::Config, environment: &Environment) -> Result<Self, Failure>;

    /// Processes one record. It may be called again with the same record, after a failure elsewhere in its batch.
    ///
    /// # Errors
    /// Fails the record, which then leaves nothing behind; with [`fail_batch`](crate::fail_batch) the batch.
    fn process(&mut self, record: &Record<'_>, out: &mut Output<'_>) -> Result<(), Failure>;

    /// The input has ended: emits what is left. Here a record has a null key and the time of day as event time unless it says otherwise.
    ///
    /// # Errors
    /// Fails the job.
    fn finish(&mut self, out: &mut Output<'_>) -> Result<(), Failure> {
        let _ = out;
        Ok(())
    }

    /// The last call to an instance that ends in good order.
    fn close(&mut self) {}
}

/// Logic with state and timers by key. Export it with [`export_keyed!`](crate::export_keyed).
///
/// State is that of the key of the record or timer in process. What a record writes to state, emits and sets as timers takes effect
/// as a whole, or not at all when it fails.
///
/// ```
/// use waterwheel_plugin::testing::{KeyedHarness, Scope};
/// use waterwheel_plugin::*;
///
/// /// Counts by key, and emits a key's count a second after its first record.
/// struct CountPerSecond { counts: KeyedState<u64> }
///
/// impl KeyedPlugin for CountPerSecond {
///     type Config = NoConfig;
///     type States = KeyedState<u64>;
///
///     fn declare(states: &mut Declare) -> Self::States {
///         states.value("counts")
///     }
///
///     fn open(_: NoConfig, counts: Self::States, _: &Environment) -> Result<Self, Failure> {
///         Ok(Self { counts })
///     }
///
///     fn process(&mut self, _record: &Record<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
///         if !self.counts.is_set() {
///             out.set_timer(Clock::Processing, out.processing_time() + 1000);
///         }
///         self.counts.update(|count| *count += 1);
///         Ok(())
///     }
///
///     fn on_timer(&mut self, _timer: &Timer<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
///         let count = self.counts.get().map_or(0, |count| *count);
///         self.counts.remove();
///         out.emit(&count.to_string());
///         Ok(())
///     }
/// }
///
/// export_keyed!(CountPerSecond);
///
/// let mut plugin = KeyedHarness::<CountPerSecond>::open("null").unwrap();
/// plugin.feed("a", "x").unwrap();
/// plugin.feed("a", "y").unwrap();
/// let snapshot = plugin.snapshot(Scope::All).unwrap();
///
/// let mut restored = KeyedHarness::<CountPerSecond>::restore("null", &snapshot).unwrap();
/// restored.advance_processing_time(1000).unwrap();
/// let output = restored.take_output();
/// assert_eq!((output[0].key_text(), output[0].text()), ("a", "2"));
/// ```
pub trait KeyedPlugin: Sized + 'static {
    /// The operator's configuration, read from the `config` of the job specification. What does not fit is refused with its path. [`NoConfig`] if
    /// there is none.
    type Config: DeserializeOwned;

    /// The handles of the states, as [`declare`](Self::declare) makes them: one, a tuple, a struct.
    type States;

    /// The names of the inputs, in the order of [`Record::input`]. Most plugins have one.
    const INPUTS: &'static [&'static str] = &["input"];

    /// Those of the inputs that every subtask gets as a whole: the job gives them as `broadcast`. Their records have no key here, so no state
    /// by key and no timers; they are what [`BroadcastState`](crate::BroadcastState) is written by.
    const BROADCAST_INPUTS: &'static [&'static str] = &[];

    /// The names of the side outputs.
    const SIDE_OUTPUTS: &'static [&'static str] = &[];

    /// What the job has to grant, by the names in the host's documentation.
    const CAPABILITIES: &'static [&'static str] = &[];

    /// Declares the states. Must do the same each time that it is called.
    fn declare(states: &mut Declare) -> Self::States;

    /// Makes an instance. Its state is imported afterwards.
    ///
    /// # Errors
    /// Refuses the job, with the failure's sentence.
    fn open(config: Self::Config, states: Self::States, environment: &Environment) -> Result<Self, Failure>;

    /// Processes one record.
    ///
    /// # Errors
    /// Fails the record, which then leaves nothing behind; with [`fail_batch`](crate::fail_batch) the batch, and the job is restored.
    fn process(&mut self, record: &Record<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure>;

    /// A timer has fired. Emitted records have the timer's key and its time as event time unless they say otherwise.
    ///
    /// # Errors
    /// As for [`process`](Self::process).
    fn on_timer(&mut self, timer: &Timer<'_>, out: &mut KeyedOutput<'_>) -> Result<(), Failure> {
        let _ = (timer, out);
        Ok(())
    }

    /// All inputs have ended and all event-time timers have fired: emits what is left. There is no key here, so no state. A record has a
    /// null key and the time of day as event time unless it says otherwise.
    ///
    /// # Errors
    /// Fails the job.
    fn finish(&mut self, out: &mut Output<'_>) -> Result<(), Failure> {
        let _ = out;
        Ok(())
    }

    /// The last call to an instance that ends in good order.
    fn close(&mut self) {}
}

/// Where an instance runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// The job's name.
    pub job: String,
    /// The operator's uid.
    pub uid: String,
    /// Which of the operator's parallel instances this is, from 0.
    pub subtask: u32,
    /// How many there are.
    pub parallelism: u32,
    /// How often the job was started before, restarts included.
    pub attempt: u64,
    /// Whether state is going to be restored.
    pub restored: bool,
}

/// The configuration of a plugin that takes none: `null`, `{}` or left out. Anything else is refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NoConfig;

impl<'de> Deserialize<'de> for NoConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Nothing;

        impl<'de> Visitor<'de> for Nothing {
            type Value = NoConfig;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("no configuration: this plugin takes none")
            }

            fn visit_unit<E: serde::de::Error>(self) -> Result<NoConfig, E> {
                Ok(NoConfig)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NoConfig, A::Error> {
                match map.next_entry::<String, IgnoredAny>()? {
                    None => Ok(NoConfig),
                    Some((name, _)) => Err(serde::de::Error::custom(format!("this plugin takes no configuration, and there is `{name}`"))),
                }
            }
        }

        deserializer.deserialize_any(Nothing)
    }
}
