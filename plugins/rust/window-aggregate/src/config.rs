//! What the job specification says.

use std::time::Duration;

use serde::Deserialize;
use waterwheel_plugin::json::Pointer;
use waterwheel_plugin::{Failure, WindowAssigner, fail};

/// The configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    window: WindowConfig,
    /// How much longer than the watermark says a window takes records, in milliseconds.
    #[serde(default)]
    allowed_lateness_ms: u64,
    pub(crate) aggregates: Vec<AggregateConfig>,
}

/// The windows.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", rename_all_fields = "kebab-case", tag = "type")]
enum WindowConfig {
    Tumbling {
        size_ms: u64,
        #[serde(default)]
        offset_ms: i64,
    },
    Sliding {
        size_ms: u64,
        slide_ms: u64,
        #[serde(default)]
        offset_ms: i64,
    },
    Session {
        gap_ms: u64,
    },
}

/// A column of the result.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct AggregateConfig {
    pub(crate) function: Function,
    /// Where in the value it finds what it aggregates. Only a count does without: it counts records.
    pub(crate) field: Option<Pointer>,
    /// The name in the result; that of the function, if it is not given.
    name: Option<String>,
}

/// How values become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Function {
    Count,
    CountDistinct,
    Sum,
    Min,
    Max,
    Avg,
    First,
    Last,
}

impl Function {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::CountDistinct => "count-distinct",
            Self::Sum => "sum",
            Self::Min => "min",
            Self::Max => "max",
            Self::Avg => "avg",
            Self::First => "first",
            Self::Last => "last",
        }
    }

    /// Whether it can only be applied to numbers.
    pub(crate) fn is_of_numbers(self) -> bool {
        matches!(self, Self::Sum | Self::Min | Self::Max | Self::Avg)
    }
}

impl AggregateConfig {
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(self.function.name())
    }
}

impl Config {
    pub(crate) fn assigner(&self) -> Result<WindowAssigner, Failure> {
        let ms = Duration::from_millis;
        let assigner = match self.window {
            WindowConfig::Tumbling { size_ms, offset_ms } => WindowAssigner::tumbling(ms(size_ms)).map(|windows| windows.offset(offset_ms)),
            WindowConfig::Sliding { size_ms, slide_ms, offset_ms } => {
                WindowAssigner::sliding(ms(size_ms), ms(slide_ms)).map(|windows| windows.offset(offset_ms))
            }
            WindowConfig::Session { gap_ms } => WindowAssigner::session(ms(gap_ms)),
        };
        assigner.map_err(|failure| fail(format!("config.window: {}", failure.reason())))
    }

    pub(crate) fn allowed_lateness(&self) -> Duration {
        Duration::from_millis(self.allowed_lateness_ms)
    }

    /// Checks what types cannot say.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.aggregates.is_empty() {
            return Err(fail("config.aggregates: is empty; name at least one, as in {\"function\": \"count\"}"));
        }
        for (index, aggregate) in self.aggregates.iter().enumerate() {
            let (name, place) = (aggregate.name(), format!("config.aggregates[{index}]"));
            if aggregate.field.is_none() && aggregate.function != Function::Count {
                return Err(fail(format!(
                    "{place}.field: is missing: {} needs a JSON pointer to what it aggregates",
                    aggregate.function.name()
                )));
            }
            if ["key", "start", "end"].contains(&name) || self.aggregates[..index].iter().any(|other| other.name() == name) {
                return Err(fail(format!("{place}.name: {name:?} is taken already in the result; give another one")));
            }
        }
        Ok(())
    }
}
