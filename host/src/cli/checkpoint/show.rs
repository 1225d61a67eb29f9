//! `waterwheel checkpoint show JOB [NUMBER]`

use super::{Outcome, Whose, find};
use crate::Error;
use crate::pipeline::Connectors;

/// Which.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    whose: Whose,
    /// Its number; by default the newest.
    number: Option<u64>,
}

pub(super) async fn run(arguments: &Arguments, connectors: &Connectors) -> Outcome {
    let (_, view) = arguments.whose.read(connectors).await?;
    let manifest = find(&view, arguments.number)?;
    let document = serde_json::to_string_pretty(&**manifest).map_err(|error| Error::internal(error.to_string()))?;
    Ok(format!("{document}\n"))
}
