//! `waterwheel checkpoint verify JOB [NUMBER]`

use super::{Outcome, Whose, bytes, failed, find, kind};
use crate::Error;
use crate::checkpoint::log::JobLog;
use crate::checkpoint::protocol::Manifest;
use crate::pipeline::Connectors;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Which.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    whose: Whose,
    /// Its number; by default all.
    number: Option<u64>,
}

pub(super) async fn run(arguments: &Arguments, connectors: &Connectors) -> Outcome {
    let (log, view) = arguments.whose.read(connectors).await?;
    let (mut text, mut faults) = (String::new(), Vec::new());
    if arguments.number.is_none() {
        faults.extend(view.damaged().map(|(_, path, damage)| format!("{path} is damaged: {damage}")));
    }
    let chosen = match arguments.number {
        Some(number) => vec![find(&view, Some(number))?],
        None => view.manifests().collect(),
    };
    // Most files belong to several checkpoints.
    let mut known = BTreeMap::new();
    for manifest in chosen {
        let found = check(&log, manifest, &mut known).await?;
        let size = bytes(manifest.snapshot.full_bytes());
        let verdict = if found.is_empty() { "intact".to_owned() } else { format!("{} damaged", found.len()) };
        let files = manifest.snapshot.files().count();
        // Writing to a text cannot fail.
        let _written = writeln!(text, "checkpoint {} ({}): {files} files, {size}: {verdict}", manifest.slot, kind(manifest));
        faults.extend(found.into_iter().filter(|fault| !faults.contains(fault)).collect::<Vec<_>>());
    }
    if faults.is_empty() {
        return Ok(text);
    }
    crate::cli::say(text.trim_end());
    Err(Error::user(faults.join("\nwaterwheel: ")))
}

/// What is wrong with the state files of a checkpoint, a sentence a file.
async fn check(log: &JobLog, manifest: &Manifest, known: &mut BTreeMap<String, Option<&'static str>>) -> Result<Vec<String>, Error> {
    let mut faults = Vec::new();
    for file in manifest.snapshot.files() {
        let problem = match known.get(&file.path) {
            Some(problem) => *problem,
            None => {
                let content = log.storage().read(&file.path).await.map_err(failed)?;
                *known.entry(file.path.clone()).or_insert(file.problem(content.as_ref()))
            }
        };
        faults.extend(problem.map(|problem| format!("the state file {} {problem}", file.path)));
    }
    Ok(faults)
}
