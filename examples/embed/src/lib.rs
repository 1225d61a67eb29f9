//! A small service with Waterwheel inside. Orders are posted to it and kept in a log; a job adds them up for each user with the plugin
//! `running-total`; a page shows the totals.
//!
//! Reading order: [`order_log`] is its own source, [`table`] its own sink, [`shop`] puts them around the plugin and serves HTTP.

pub mod order_log;
pub mod shop;
pub mod table;

use schemars::JsonSchema;
use serde::Deserialize;

/// The options of the source and the sink of this service in a job: there are none.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoOptions {}
