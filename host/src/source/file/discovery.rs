//! Finds files that are not known yet.

use super::failure::failure;
use super::identity::{HEAD_BYTES, Identity, SplitId, read_head};
use super::listing::Found;
use super::position::{FilePosition, FileStop};
use super::settings::{Encoding, Settings};
use crate::Error;
use crate::source::Split;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Splits whose files were cut or overwritten: what has their identity now is another content. Readers note them, discovery asks.
#[derive(Clone, Debug, Default)]
pub(super) struct LostSplits(Arc<Mutex<BTreeSet<String>>>);

impl LostSplits {
    /// Notes a split.
    pub(super) fn add(&self, id: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned());
    }

    fn has(&self, id: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(id)
    }
}

/// The files that fit the pattern and are none of the known splits, in the order of their names.
///
/// # Errors
/// A file that cannot be read; a known split that is none of a file.
pub(super) fn discover(settings: &Settings, known: &BTreeSet<String>, lost: &LostSplits) -> Result<Vec<Split>, Error> {
    let within = |error: Error| error.within(format!("source {}", settings.uid));
    let mut taken = Vec::new();
    for id in known {
        let parsed = SplitId::parse(id).ok_or_else(|| {
            within(Error::user(format!("the checkpoint's split {id} is none of a file: was the source's uid used by another one?")))
        })?;
        taken.push((parsed, lost.has(id)));
    }
    let found = settings.pattern.list().map_err(within)?;
    if found.is_empty() && !settings.follow {
        let text = settings.pattern.text();
        return Err(within(Error::user(format!("no file fits {text}: correct the path, or set follow: true to wait for files"))));
    }
    let mut splits = Vec::new();
    for file in found {
        let looked_at = look_at(settings, &file, &taken);
        let new = looked_at.map_err(|error| within(failure("read", Path::new(&file.path), error)))?;
        if let Some((id, split)) = new {
            taken.push((id, false));
            splits.push(split);
        }
    }
    Ok(splits)
}

/// Whether a file was made, or its rights were changed, less than `rotation-wait` ago.
fn is_fresh(found: &Found, settings: &Settings) -> bool {
    let changed = std::fs::metadata(&found.path).map(|metadata| metadata.ctime());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    changed.is_ok_and(|changed| now.saturating_sub(Duration::from_secs(changed.try_into().unwrap_or(0))) < settings.rotation_wait)
}

/// The split of a file, when it is new and ready to be read. Files that were deleted in the meantime are none.
fn look_at(settings: &Settings, found: &Found, taken: &[(SplitId, bool)]) -> io::Result<Option<(SplitId, Split)>> {
    let file = match File::open(&found.path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // Whoever makes a file may give the rights to it a moment later.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && settings.follow && is_fresh(found, settings) => return Ok(None),
        file => file?,
    };
    let (metadata, head) = (file.metadata()?, read_head(&file)?);
    let is_plain = settings.encoding(Path::new(&found.path)) == Encoding::Plain;
    let is_ready = match (settings.follow, is_plain) {
        _ if head.is_empty() => false,
        (false, _) => true,
        // Before its first line is complete there is nothing to read, and little to tell the file by.
        (true, true) => head.len() == HEAD_BYTES || head.contains(&b'\n'),
        (true, false) => {
            let quiet = SystemTime::now().duration_since(metadata.modified()?).unwrap_or_default();
            quiet >= settings.rotation_wait
        }
    };
    let is_known = |(id, lost): &(SplitId, bool)| !lost && id.identity.is(&metadata, &head, id.name == found.name);
    if !is_ready || taken.iter().any(is_known) {
        return Ok(None);
    }
    let identity = Identity::of(&metadata, &head);
    let mut id = SplitId { name: found.name.clone(), identity, round: 0 };
    while taken.iter().any(|(other, _)| *other == id) {
        id.round += 1;
    }
    let stop = (!settings.follow || !is_plain).then(|| json!(FileStop { size: metadata.size() }));
    let position = json!(FilePosition::new(found.path.clone(), identity, 0));
    let split = Split { id: id.to_string(), position, stop, finished: false };
    Ok(Some((id, split)))
}
