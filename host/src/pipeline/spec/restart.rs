//! What happens after a failure, with Flink's parameters and defaults.

use crate::config::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happens after a failure. Only the parameters of the chosen type may be given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct RestartSpec {
    /// The strategy. By default `exponential-delay` when checkpointing is on, and `none` when it is off.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<RestartType>,
    /// Parameters of `fixed-delay`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed_delay: Option<FixedDelay>,
    /// Parameters of `failure-rate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_rate: Option<FailureRate>,
    /// Parameters of `exponential-delay`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exponential_delay: Option<ExponentialDelay>,
}

/// The restart strategies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RestartType {
    /// The job fails.
    None,
    /// A number of restarts, each after the same delay.
    FixedDelay,
    /// Restarts as long as failures are not too frequent.
    FailureRate,
    /// Restarts after delays that grow, without end by default.
    ExponentialDelay,
}

/// A number of restarts, each after the same delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct FixedDelay {
    /// How many times the job is restarted before it fails. By default 1.
    pub attempts: u32,
    /// How long to wait before a restart. By default 1 s.
    pub delay: Span,
}

impl Default for FixedDelay {
    fn default() -> Self {
        Self { attempts: 1, delay: Span::from_millis(1_000) }
    }
}

/// Restarts as long as failures are not too frequent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct FailureRate {
    /// How many restarts an interval may have before the job fails. By default 1.
    pub max_failures_per_interval: u32,
    /// The interval in which failures are counted. By default 1 min.
    pub failure_rate_interval: Span,
    /// How long to wait before a restart. By default 1 s.
    pub delay: Span,
}

impl Default for FailureRate {
    fn default() -> Self {
        Self { max_failures_per_interval: 1, failure_rate_interval: Span::from_millis(60_000), delay: Span::from_millis(1_000) }
    }
}

/// Restarts after delays that grow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ExponentialDelay {
    /// The first delay. By default 1 s.
    pub initial_backoff: Span,
    /// The largest delay. By default 1 min.
    pub max_backoff: Span,
    /// What a delay is multiplied by after a failure. By default 1.5.
    pub backoff_multiplier: f64,
    /// How long the job must run without a failure for the delay to be the first one again. By default 1 h.
    pub reset_backoff_threshold: Span,
    /// By which part of itself a delay is made longer or shorter at random. By default 0.1.
    pub jitter_factor: f64,
    /// How many times the job is restarted before it fails, unless the delay was reset meanwhile. By default without end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts_before_reset_backoff: Option<u32>,
}

impl Default for ExponentialDelay {
    fn default() -> Self {
        Self {
            initial_backoff: Span::from_millis(1_000),
            max_backoff: Span::from_millis(60_000),
            backoff_multiplier: 1.5,
            reset_backoff_threshold: Span::from_millis(3_600_000),
            jitter_factor: 0.1,
            attempts_before_reset_backoff: None,
        }
    }
}
