//! `waterwheel savepoint list DIR`

use super::{Format, Outcome};
use crate::checkpoint::savepoint::{self, Found, SavepointError};
use crate::cli::checkpoint::{bytes, time};
use serde_json::{Value, json};
use std::fmt::Write;

/// Where, and how.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The folder that savepoints are in, or that is one.
    dir: String,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) async fn run(arguments: &Arguments) -> Outcome {
    let mut found = savepoint::list(&arguments.dir).await?;
    found.retain(|found| found.as_ref().map_or(true, Found::is_savepoint));
    Ok(match arguments.format {
        Format::Json => format!("{:#}\n", Value::from_iter(found.iter().map(object))),
        Format::Text => table(&found),
    })
}

fn object(found: &Result<Found, SavepointError>) -> Value {
    match found {
        Err(error) => json!({"damaged": error.to_string()}),
        Ok(Found { path, manifest, .. }) => json!({
            "path": path,
            "job": manifest.job,
            "checkpoint": manifest.slot,
            "attempt": manifest.attempt,
            "written": manifest.timing.written_at_millis,
            "max_parallelism": manifest.snapshot.plan.max_parallelism,
            "operators": manifest.snapshot.operators.keys().collect::<Vec<_>>(),
            "state_bytes": manifest.snapshot.full_bytes(),
        }),
    }
}

fn table(found: &[Result<Found, SavepointError>]) -> String {
    let mut rows = vec![["job", "checkpoint", "written", "state", "savepoint"].map(str::to_owned)];
    for found in found {
        rows.push(match found {
            Err(error) => [String::new(), String::new(), String::new(), String::new(), error.to_string()],
            Ok(Found { path, manifest, .. }) => [
                manifest.job.to_string(),
                manifest.slot.to_string(),
                time(manifest.timing.written_at_millis),
                bytes(manifest.snapshot.full_bytes()),
                path.clone(),
            ],
        });
    }
    let widths: [usize; 4] = std::array::from_fn(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0));
    let mut text = String::new();
    for row in &rows {
        for (cell, width) in row.iter().zip(widths) {
            // Writing to a text cannot fail.
            let _written = write!(text, "{cell:>width$}  ");
        }
        let _written = writeln!(text, "{}", row[4]);
    }
    text
}
