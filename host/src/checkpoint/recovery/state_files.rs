//! The state files of what is to be restored. They are looked for before this run puts anything, so that a start which cannot succeed leaves nothing
//! behind; what they hold is checked when it is restored.

use std::collections::{BTreeMap, BTreeSet};

use super::super::intact::FileProblems;
use super::super::log::{JobLog, LogError};
use super::super::protocol::{Damage, LogView, Manifest};
use super::StartError;

/// Refuses a manifest whose state files are not all there in their lengths.
pub(super) async fn check_there(log: &JobLog, manifest: &Manifest) -> Result<(), StartError> {
    let folders: BTreeSet<&str> = manifest.snapshot.files().filter_map(|file| Some(file.path.rsplit_once('/')?.0)).collect();
    let mut there = BTreeMap::new();
    for folder in folders {
        let listed = log.storage().list(folder).await.map_err(LogError::from)?;
        there.extend(listed.into_iter().map(|object| (object.path, object.bytes)));
    }
    for file in manifest.snapshot.files() {
        let problem = match there.get(&file.path) {
            Some(bytes) if *bytes == file.bytes => continue,
            Some(_) => "has the wrong length",
            None => "is missing",
        };
        return Err(StartError::StateFile { path: file.path.clone(), slot: manifest.slot, problem });
    }
    Ok(())
}

/// The log as it is for somebody who restores an older checkpoint than the damaged ones: a manifest counts as damaged when one of its state files is.
/// All files are read, of the newest manifests up to the first that is intact.
pub(super) async fn with_their_damage(log: &JobLog, mut view: LogView) -> Result<LogView, StartError> {
    let mut problems = FileProblems::new(&**log.storage());
    let newest_first: Vec<_> = view.manifests().rev().cloned().collect();
    for manifest in newest_first {
        let mut damage = None;
        for file in manifest.snapshot.files() {
            let problem = problems.of(file).await.map_err(LogError::from)?;
            damage = damage.or(problem.map(|problem| Damage::StateFile { path: file.path.clone(), problem }));
        }
        match damage {
            Some(damage) => view.mark_damaged(manifest.slot, damage),
            None => break,
        }
    }
    Ok(view)
}
