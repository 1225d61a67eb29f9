//! `waterwheel checkpoint verify JOB [NUMBER]`

use super::super::say;
use super::{Outcome, Whose, bytes, failed, find, kind};
use crate::Error;
use crate::checkpoint::intact::FileProblems;
use crate::checkpoint::protocol::Manifest;
use crate::pipeline::Connectors;
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
    let mut problems = FileProblems::new(&**log.storage());
    for manifest in chosen {
        let found = check(manifest, &mut problems).await?;
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
    say(text.trim_end());
    Err(Error::user(faults.join("\nwaterwheel: ")))
}

/// What is wrong with the state files of a checkpoint, a sentence a file.
async fn check(manifest: &Manifest, problems: &mut FileProblems<'_>) -> Result<Vec<String>, Error> {
    let mut faults = Vec::new();
    for file in manifest.snapshot.files() {
        let problem = problems.of(file).await.map_err(failed)?;
        faults.extend(problem.map(|problem| format!("the state file {} {problem}", file.path)));
    }
    Ok(faults)
}
