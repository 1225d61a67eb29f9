//! The files of one writer on the disk: created hidden, finished, made pending or visible.

use super::disk::{self, failure};
use super::name::PartName;
use super::options::{Compression, Settings};
use super::part::{Output, Part};
use super::prepared::Prepared;
use crate::Error;
use crate::sink::WriterContext;
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Where a writer's files go, and what must still be synced there.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    compression: Compression,
    /// The name of the next file.
    next: PartName,
    /// Folders with entries that are not durable yet.
    unsynced: BTreeSet<PathBuf>,
}

impl Folder {
    pub(super) fn new(settings: &Settings, context: &WriterContext) -> Self {
        let next = PartName {
            uid: context.uid.clone(),
            job: context.job.clone(),
            subtask: context.subtask,
            generation: context.generation,
            counter: 0,
            extension: settings.extension.clone(),
        };
        Self { root: settings.root.clone(), compression: settings.compression, next, unsynced: BTreeSet::new() }
    }

    /// Writes a part's buffer to its file, which is created for the first bytes.
    pub(super) fn write_out(&mut self, part: &mut Part) -> Result<(), Error> {
        let output = match &mut part.output {
            Some(output) => output,
            None => part.output.insert(self.create(&part.folder)?),
        };
        output.write_all(&part.buffer).map_err(|error| failure("write to", &output.path(), error))?;
        part.buffer.clear();
        Ok(())
    }

    /// Writes a part's buffer and makes all of it durable; the part goes on.
    pub(super) fn sync(&mut self, part: &mut Part) -> Result<(), Error> {
        self.write_out(part)?;
        match &mut part.output {
            Some(output) => output.sync().map_err(|error| failure("sync", &output.path(), error)),
            None => Ok(()),
        }
    }

    /// Finishes a part: its file is complete and durable, and hidden under the name of a pending one.
    pub(super) fn make_pending(&mut self, part: Part) -> Result<Prepared, Error> {
        let (from, folder, prepared) = self.finish(part)?;
        disk::rename_new(&from, &prepared.pending).map_err(|error| failure("rename to pending", &from, error))?;
        self.unsynced.insert(folder);
        Ok(prepared)
    }

    /// Finishes a part and makes its file visible.
    pub(super) fn publish(&mut self, part: Part) -> Result<(), Error> {
        let (from, folder, prepared) = self.finish(part)?;
        let mut to = prepared.target;
        loop {
            match disk::rename_new(&from, &to) {
                Ok(()) => break,
                // Somebody put a file there since the name was chosen.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => to = folder.join(self.take_name().visible()),
                Err(error) => return Err(failure("make visible", &from, error)),
            }
        }
        self.unsynced.insert(folder);
        Ok(())
    }

    /// Makes renames and new entries durable.
    pub(super) fn sync_folders(&mut self) -> Result<(), Error> {
        while let Some(folder) = self.unsynced.first() {
            disk::sync_folder(folder)?;
            self.unsynced.pop_first();
        }
        Ok(())
    }

    fn finish(&mut self, mut part: Part) -> Result<(PathBuf, PathBuf, Prepared), Error> {
        self.write_out(&mut part)?;
        let output = part.output.take().ok_or_else(|| Error::internal("a part that was written has no file"))?;
        let path = output.path();
        let (folder, name, length, crc32) = output.finish().map_err(|error| failure("sync", &path, error))?;
        let (pending, target) = (folder.join(name.pending()), folder.join(name.visible()));
        Ok((path, folder, Prepared { pending, target, length, crc32, records: part.records, number: name.counter }))
    }

    /// Creates the next hidden file of a partition.
    fn create(&mut self, partition: &str) -> Result<Output, Error> {
        // Joining an empty path would add a slash to the end.
        let folder = if partition.is_empty() { self.root.clone() } else { self.root.join(partition) };
        disk::create_folders(&folder)?;
        loop {
            let name = self.take_name();
            if taken(&folder.join(name.visible()))? || taken(&folder.join(name.pending()))? {
                continue;
            }
            let path = folder.join(name.in_progress());
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => {
                    self.unsynced.insert(folder.clone());
                    return Output::new(folder, name, file, self.compression).map_err(|error| failure("write to", &path, error));
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failure("create", &path, error)),
            }
        }
    }

    /// The next name. It is new in a generation of a job; names that are taken all the same, as where the checkpoints of a job
    /// were deleted and its output was not, are passed over.
    fn take_name(&mut self) -> PartName {
        let name = self.next.clone();
        self.next.counter += 1;
        name
    }
}

fn taken(path: &Path) -> Result<bool, Error> {
    match path.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failure("look at", path, error)),
    }
}
