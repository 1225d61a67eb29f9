//! `waterwheel checkpoint prune JOB --keep N`

use super::{Outcome, Whose, failed};
use crate::Error;
use crate::checkpoint::log::JobLog;
use crate::checkpoint::protocol::Generation;
use crate::checkpoint::protocol::retain::{self, RetentionPlan};
use crate::checkpoint::retention::delete;
use crate::pipeline::Connectors;

/// What stays.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    whose: Whose,
    /// How many completed checkpoints stay; the newest always does.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    keep: u32,
    /// Only say what would be deleted.
    #[arg(long)]
    dry_run: bool,
}

pub(super) async fn run(arguments: &Arguments, connectors: &Connectors) -> Outcome {
    let log = arguments.whose.open(connectors).await?;
    let plan = plan(&log, arguments.keep as usize).await?;
    if !arguments.dry_run {
        delete(&log, &plan).await.map_err(failed)?;
    }
    let mut text: String = plan.slots.iter().map(|slot| format!("checkpoint {slot}\n")).collect();
    text.extend(plan.files.iter().map(|file| format!("{file}\n")));
    let what = if arguments.dry_run { "would be deleted" } else { "deleted" };
    Ok(format!("{text}{} entries and {} state files {what}\n", plan.slots.len(), plan.files.len()))
}

/// What goes: by the rules of a run's own retention, from the newest checkpoint on that is known to be committed.
async fn plan(log: &JobLog, keep: usize) -> Result<RetentionPlan, Error> {
    let first = log.read().await.map_err(failed)?;
    let folder = format!("{}/{}", log.job(), retain::SHARED);
    let listed: Vec<String> = log.storage().list(&folder).await.map_err(failed)?.into_iter().map(|object| object.path).collect();
    let generation = log.newest_generation().await.map_err(failed)?.unwrap_or(Generation(0));
    let view = log.read().await.map_err(failed)?;
    // Entries that vanish while they are read may name files that are needed.
    if view != first {
        return Err(Error::external(format!(
            "job {} is running, and deletes by itself (num-retained): try again when it does not",
            log.job()
        )));
    }
    let Some(newest) = view.manifests().next_back() else { return Ok(RetentionPlan::default()) };
    // Without transactions the newest entry is what counts.
    let completed = match (newest.committed, newest.snapshot.transactional_ids.is_empty()) {
        (_, true) => newest.slot,
        (Some(committed), false) => committed.slot,
        (None, false) => return Ok(RetentionPlan::default()),
    };
    let slots = retain::entries_to_delete(&view, completed, keep);
    let files = retain::files_to_delete(&view, &slots, generation, &listed);
    Ok(RetentionPlan { slots, files })
}
