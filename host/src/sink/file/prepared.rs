//! What the manifest of a checkpoint holds of a file, and the second phase: commit, abort, and cleaning up after dead runs.

use super::disk::{self, failure};
use super::name::PartName;
use crate::Error;
use crate::checkpoint::failpoints::crash_point;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A pending file: where it is, where it goes, and how the result is known again. Both paths are absolute, in one folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Prepared {
    pub(super) pending: PathBuf,
    pub(super) target: PathBuf,
    /// Bytes of the file.
    pub(super) length: u64,
    /// CRC-32 (that of gzip and zip) of the file.
    pub(super) crc32: u32,
    pub(super) records: u64,
    /// The number of the file within its writer's run.
    pub(super) number: u64,
}

impl Prepared {
    pub(super) fn to_value(&self) -> Result<Value, Error> {
        serde_json::to_value(self)
            .map_err(|error| Error::internal(format!("{} cannot be named in a manifest", self.pending.display())).caused_by(error))
    }

    fn from_value(value: &Value) -> Result<Self, Error> {
        let prepared: Self = serde_json::from_value(value.clone()).map_err(|error| foreign(value).caused_by(error))?;
        let name = prepared.pending.file_name().and_then(|name| name.to_str()).and_then(PartName::parse_hidden);
        let target = name.map(|name| prepared.pending.with_file_name(name.visible()));
        if target.as_ref() != Some(&prepared.target) {
            return Err(foreign(value));
        }
        Ok(prepared)
    }

    /// Prepared work as it was in a manifest.
    pub(super) fn from_values(values: &[Value]) -> Result<Vec<Self>, Error> {
        values.iter().map(Self::from_value).collect()
    }
}

/// What another type of sink has prepared under the same uid.
fn foreign(value: &Value) -> Error {
    Error::external(format!(
        "{value} was not prepared by a file sink: give the sink its former type back until the next checkpoint is completed"
    ))
    .with_retry(false)
}

/// Makes pending files visible and durable, in order. What was made visible before, and is still as it was written, counts.
pub(super) fn commit(prepared: &[Prepared]) -> Result<(), Error> {
    crash_point("sink-file::before-rename");
    for (index, file) in prepared.iter().enumerate() {
        if index > 0 {
            crash_point("sink-file::between-renames");
        }
        commit_file(file)?;
    }
    crash_point("sink-file::after-rename");
    // Also for those that were renamed before: that run may have ended before this.
    let folders: BTreeSet<_> = prepared.iter().filter_map(|file| file.target.parent()).collect();
    folders.into_iter().try_for_each(disk::sync_folder)
}

fn commit_file(file: &Prepared) -> Result<(), Error> {
    let Prepared { pending, target, length, .. } = file;
    match fs::metadata(pending) {
        Ok(found) if found.len() == *length => {}
        Ok(found) => {
            let message = format!("{} has {} bytes instead of {length}; restore it from a copy", pending.display(), found.len());
            return Err(Error::external(format!("cannot commit {}: the pending file was damaged: {message}", target.display())));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return check_committed(file),
        Err(error) => return Err(failure("look at", pending, error)),
    }
    match disk::rename_new(pending, target) {
        Ok(()) => Ok(()),
        // Another instance of the job renamed it just now.
        Err(error) if error.kind() == ErrorKind::NotFound => check_committed(file),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            check_committed(file)?;
            disk::remove(pending).map(drop)
        }
        Err(error) => Err(failure("make visible", pending, error)),
    }
}

/// Whether the visible file is the one that was prepared.
fn check_committed(file: &Prepared) -> Result<(), Error> {
    let Prepared { pending, target, length, crc32, .. } = file;
    let cannot = |what: String| Err(Error::external(format!("cannot commit {}: {what}", target.display())));
    let (found, checksum) = match measure(target) {
        Ok(measured) => measured,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return cannot(format!(
                "neither this file nor the pending one, {}, is there, so its {} records would be missing; put back whichever was moved \
                 away or deleted, unchanged",
                pending.display(),
                file.records
            ));
        }
        Err(error) => return Err(failure("read", target, error)),
    };
    if (found, checksum) == (*length, *crc32) {
        return Ok(());
    }
    cannot(format!(
        "another file is there and is not overwritten: it has {found} bytes and the CRC-32 {checksum:08x} instead of {length} bytes and \
         {crc32:08x}; move it away, and put back the right one if it was changed after it became visible"
    ))
}

fn measure(path: &Path) -> std::io::Result<(u64, u32)> {
    let mut file = File::open(path)?;
    let (mut length, mut checksum) = (0, crc32fast::Hasher::new());
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok((length, checksum.finalize())),
            Ok(read) => {
                checksum.update(&buffer[..read]);
                length += read as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Deletes pending files; what is visible stays.
pub(super) fn abort(prepared: &[Prepared]) -> Result<(), Error> {
    prepared.iter().try_for_each(|file| disk::remove(&file.pending).map(drop))
}

/// Which hidden files are leftovers.
#[derive(Clone, Debug)]
pub(super) struct Leftovers {
    pub(super) uid: String,
    pub(super) job: String,
    /// What is of a generation below this one.
    pub(super) below: u64,
    pub(super) keep: HashSet<PathBuf>,
    /// Only files that were never complete.
    pub(super) in_progress_only: bool,
    /// When this start of the job began, by the clock of the folder's file system.
    pub(super) began: Option<SystemTime>,
}

/// The name of a job and which incarnation of it an id stands for: `orders` is the first one, `orders.2` the second.
fn incarnation(job: &str) -> (&str, u64) {
    let later = job.rsplit_once('.').and_then(|(name, number)| Some((name, number.parse().ok()?)));
    later.unwrap_or((job, 1))
}

impl Leftovers {
    /// Deletes them in a folder and those below it; no folder is deleted.
    ///
    /// A *pending* file goes by the generation alone: a manifest may name it, and whether one does is known of this log only. Generations of two
    /// logs say nothing of each other, so one that is not below ours stays, and is named: checkpoints were deleted, or another job of the name
    /// writes here. A file *in progress* is never named by a manifest. It goes as well when it was not written to since this start began, or is of
    /// an earlier incarnation of the job: checkpoints deleted or switched on between two runs, and `--fresh`, begin a new count of generations.
    /// Should such a file have a living writer all the same, that one fails at its next barrier and goes on from its last checkpoint.
    pub(super) fn delete(&self, folder: &Path) -> Result<(), Error> {
        for_each_file(folder, &mut |name, path| {
            if self.is_one(name, path)? {
                disk::remove(path)?;
                tracing::info!(uid = %self.uid, path = %path.display(), "deleted what a dead run left");
            }
            Ok(ControlFlow::Continue(()))
        })
        .map(drop)
    }

    fn is_one(&self, name: &str, path: &Path) -> Result<bool, Error> {
        let Some(part) = PartName::parse_hidden(name).filter(|part| part.uid == self.uid) else { return Ok(false) };
        let is_earlier = part.job == self.job && part.generation < self.below;
        if !PartName::is_in_progress(name) {
            let stays = part.job == self.job && !is_earlier && !self.keep.contains(path) && self.is_older(path)?;
            if stays {
                let advice = "delete it if the checkpoints of its run are gone for good, or rename it to see what is in it";
                tracing::warn!(uid = %self.uid, path = %path.display(), "a pending file of a run that is not in this job's log stays: {advice}");
            }
            return Ok(is_earlier && !self.in_progress_only && !self.keep.contains(path));
        }
        let ((name, number), (own_name, own_number)) = (incarnation(&part.job), incarnation(&self.job));
        let is_replaced = name == own_name && number < own_number;
        Ok(is_earlier || is_replaced || (part.job == self.job && self.is_older(path)?))
    }

    /// Whether a file was not written to since this start began; false where that is not known.
    fn is_older(&self, path: &Path) -> Result<bool, Error> {
        let Some(began) = self.began else { return Ok(false) };
        match fs::metadata(path).and_then(|metadata| metadata.modified()) {
            Ok(modified) => Ok(modified < began),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failure("look at", path, error)),
        }
    }
}

/// A visible file that this sink of this job wrote, in a folder or those below it.
pub(super) fn find_visible(folder: &Path, uid: &str, job: &str) -> Result<Option<PathBuf>, Error> {
    let mut found = None;
    let _ended = for_each_file(folder, &mut |name, path| {
        if PartName::parse_visible(name).is_some_and(|part| part.uid == uid && part.job == job) {
            found = Some(path.to_owned());
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(found)
}

/// Whether to look on.
type Looked = Result<ControlFlow<()>, Error>;

/// Looks at the files in a folder and those below it, until told to break off; symbolic links are not followed.
fn for_each_file(folder: &Path, look: &mut dyn FnMut(&str, &Path) -> Looked) -> Looked {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(ControlFlow::Continue(())),
        Err(error) => return Err(failure("list the folder", folder, error)),
    };
    for entry in entries {
        let entry = entry.map_err(|error| failure("list the folder", folder, error))?;
        let path = entry.path();
        let kind = match entry.file_type() {
            Ok(kind) => kind,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(failure("look at", &path, error)),
        };
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        // Partitions are never hidden, so no other folder is entered.
        let looked = if kind.is_dir() && !name.starts_with('.') {
            for_each_file(&path, look)?
        } else if kind.is_file() {
            look(name, &path)?
        } else {
            continue;
        };
        if looked.is_break() {
            return Ok(looked);
        }
    }
    Ok(ControlFlow::Continue(()))
}
