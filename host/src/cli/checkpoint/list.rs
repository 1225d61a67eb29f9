//! `waterwheel checkpoint list JOB`

use super::{Format, Outcome, Whose, bytes, failed, kind};
use crate::checkpoint::protocol::{LogEntry, LogView, Slot};
use crate::pipeline::Connectors;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::fmt::Write;

/// Which, and how.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    whose: Whose,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) async fn run(arguments: &Arguments, connectors: &Connectors) -> Outcome {
    let (log, view) = arguments.whose.read(connectors).await?;
    let newest = log.newest_generation().await.map_err(failed)?;
    let committed = view.manifests().next_back().and_then(|newest| newest.committed).map(|point| point.slot);
    match arguments.format {
        Format::Json => {
            let entries: Vec<Value> = view.entries().map(|(slot, entry)| object(slot, entry)).collect();
            let generation = newest.map(|generation| generation.0);
            let document = json!({"job": view.job, "generation": generation, "committed": committed, "checkpoints": entries});
            Ok(format!("{document:#}\n"))
        }
        Format::Text => {
            let runs = newest.map_or(0, |generation| generation.0);
            Ok(format!("job {} at {}, started {runs} times\n{}", view.job, log.storage().describe(), table(&view)))
        }
    }
}

fn object(slot: Slot, entry: &LogEntry) -> Value {
    match &entry.content {
        Err(damage) => json!({"checkpoint": slot, "path": entry.path, "damaged": damage.to_string()}),
        Ok(manifest) => json!({
            "checkpoint": slot,
            "path": entry.path,
            "kind": kind(manifest),
            "generation": manifest.generation,
            "attempt": manifest.attempt,
            "triggered": manifest.timing.triggered_at_millis,
            "written": manifest.timing.written_at_millis,
            "state_bytes": manifest.snapshot.full_bytes(),
            "uploaded_bytes": manifest.uploaded_bytes,
        }),
    }
}

fn table(view: &LogView) -> String {
    let mut rows = vec![["checkpoint", "written", "generation", "state", "uploaded", "what it is"].map(str::to_owned)];
    for (slot, entry) in view.entries() {
        rows.push(match &entry.content {
            Err(damage) => [slot.to_string(), String::new(), String::new(), String::new(), String::new(), format!("damaged: {damage}")],
            Ok(manifest) => [
                slot.to_string(),
                time(manifest.timing.written_at_millis),
                manifest.generation.to_string(),
                bytes(manifest.snapshot.full_bytes()),
                bytes(manifest.uploaded_bytes),
                kind(manifest),
            ],
        });
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        for (cell, width) in row.iter().zip(widths) {
            // Writing to a text cannot fail.
            let _written = write!(text, "{cell:>width$}  ");
        }
        let _written = writeln!(text, "{}", row[5]);
    }
    text
}

pub(in crate::cli) fn time(milliseconds: u64) -> String {
    let time = i64::try_from(milliseconds).ok().and_then(|time| Timestamp::from_millisecond(time).ok());
    time.map_or_else(|| milliseconds.to_string(), |time| time.to_string())
}
