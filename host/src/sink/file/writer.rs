//! The writer of one subtask: records into parts, parts into files; at a barrier all files are closed.

use super::disk;
use super::folder::Folder;
use super::options::Settings;
use super::part::{BUFFER_BYTES, Part};
use super::prepared::Prepared;
use crate::Error;
use crate::checkpoint::failpoints::crash_point;
use crate::record::Batch;
use crate::sink::{CheckpointBarrier, Guarantee, SinkWriter, WriterContext};
use async_trait::async_trait;
use serde_json::Value;
use std::collections::HashMap;
use tokio::task::spawn_blocking;

/// The writer of one subtask of the file sink.
///
/// Formatting happens in the caller's task, what may block (compression, writing, syncing) on a thread for that. A call that is cancelled
/// or fails leaves a writer that refuses every other call: what it holds is then unknown.
#[derive(Debug)]
pub(super) struct FileWriter {
    /// None while a blocking thread has it, and for good after a failure.
    work: Option<Box<Work>>,
}

impl FileWriter {
    pub(super) fn new(settings: Settings, guarantee: Guarantee, context: WriterContext) -> Self {
        Self { work: Some(Box::new(Work::new(settings, guarantee, context))) }
    }

    /// Does blocking work on a thread for that.
    async fn blocking<T: Send + 'static>(&mut self, run: fn(&mut Work) -> Result<T, Error>) -> Result<T, Error> {
        let mut work = self.work.take().ok_or_else(lost)?;
        let joined = spawn_blocking(move || run(&mut work).map(|result| (work, result))).await;
        let (work, result) = joined.map_err(|error| Error::internal("writing did not end").caused_by(error))??;
        self.work = Some(work);
        Ok(result)
    }
}

fn lost() -> Error {
    Error::internal("the writer failed or was cancelled before; only a new one can go on from a checkpoint")
}

#[async_trait]
impl SinkWriter for FileWriter {
    async fn write(&mut self, batch: &Batch) -> Result<(), Error> {
        let work = self.work.as_mut().ok_or_else(lost)?;
        work.roll_by_time();
        for index in 0..batch.len() {
            work.append(batch, index)?;
        }
        if work.is_due() {
            self.blocking(Work::write_out).await?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Error> {
        self.blocking(Work::flush).await
    }

    async fn prepare(&mut self, _barrier: &CheckpointBarrier) -> Result<Vec<Value>, Error> {
        let prepared = self.blocking(Work::prepare).await?;
        prepared.iter().map(Prepared::to_value).collect()
    }

    async fn close(&mut self) -> Result<(), Error> {
        self.blocking(Work::close).await
    }
}

/// What a writer holds between calls.
#[derive(Debug)]
struct Work {
    settings: Settings,
    guarantee: Guarantee,
    context: WriterContext,
    folder: Folder,
    /// At most one a partition, and no more than the limit.
    parts: Vec<Part>,
    /// Where in `parts` the part of a partition is.
    places: HashMap<String, usize>,
    /// Where in `parts` the last record went.
    current: Option<usize>,
    /// Rises whenever a record goes to another part than the one before.
    tick: u64,
    /// Parts that take no more records, in the order in which they were closed.
    closing: Vec<Part>,
    /// Whether a part's buffer is full.
    buffer_full: bool,
    /// Pending files of the next prepare.
    closed: Vec<Prepared>,
}

impl Work {
    fn new(settings: Settings, guarantee: Guarantee, context: WriterContext) -> Self {
        Self {
            folder: Folder::new(&settings, &context),
            settings,
            guarantee,
            context,
            parts: Vec::new(),
            places: HashMap::new(),
            current: None,
            tick: 0,
            closing: Vec::new(),
            buffer_full: false,
            closed: Vec::new(),
        }
    }

    /// Appends a record to the part of its partition; memory only.
    fn append(&mut self, batch: &Batch, index: usize) -> Result<(), Error> {
        let moved = self.settings.partitioner.go_to(batch, index);
        let place = match self.current {
            Some(place) if !moved => place,
            _ => self.place_of_current_partition(),
        };
        let part = &mut self.parts[place];
        let before = part.buffer.len();
        let format = self.settings.format;
        format.append(batch, index, &mut part.buffer).map_err(|unfit| format.refusal(unfit, batch, index, &self.context))?;
        part.bytes += (part.buffer.len() - before) as u64;
        part.records += 1;
        self.buffer_full |= part.buffer.len() >= BUFFER_BYTES;
        if part.bytes >= self.settings.roll_size {
            self.close_part(place);
        }
        Ok(())
    }

    fn place_of_current_partition(&mut self) -> usize {
        let folder = self.settings.partitioner.current();
        self.tick += 1;
        let place = match self.places.get(folder) {
            Some(place) => *place,
            None => {
                if self.parts.len() >= self.settings.max_open_partitions {
                    let oldest = (0..self.parts.len()).min_by_key(|place| self.parts[*place].last_used);
                    oldest.into_iter().for_each(|place| self.close_part(place));
                }
                let folder = self.settings.partitioner.current();
                self.places.insert(folder.to_owned(), self.parts.len());
                self.parts.push(Part::new(folder, self.tick));
                self.parts.len() - 1
            }
        };
        self.parts[place].last_used = self.tick;
        self.current = Some(place);
        place
    }

    /// Closes a part: its partition's next record begins another one.
    fn close_part(&mut self, place: usize) {
        let part = self.parts.swap_remove(place);
        self.places.remove(&part.folder);
        // The last part took its place.
        if let Some(known) = self.parts.get(place).and_then(|moved| self.places.get_mut(&moved.folder)) {
            *known = place;
        }
        self.current = None;
        if part.records > 0 {
            self.closing.push(part);
        }
    }

    fn close_all_parts(&mut self) {
        while !self.parts.is_empty() {
            self.close_part(self.parts.len() - 1);
        }
    }

    fn roll_by_time(&mut self) {
        let Some(interval) = self.settings.roll_interval else { return };
        while let Some(place) = self.parts.iter().position(|part| part.opened.elapsed() >= interval) {
            self.close_part(place);
        }
    }

    fn is_due(&self) -> bool {
        self.buffer_full || !self.closing.is_empty()
    }

    /// Empties full buffers and finishes the files of closed parts. Files get their numbers here, those of closed parts first:
    /// so the order of numbers within a partition is that of the records.
    fn write_out(&mut self) -> Result<(), Error> {
        for part in self.closing.drain(..) {
            match self.guarantee {
                Guarantee::ExactlyOnce => self.closed.push(self.folder.make_pending(part)?),
                _ => self.folder.publish(part)?,
            }
        }
        for part in self.parts.iter_mut().filter(|part| part.buffer.len() >= BUFFER_BYTES) {
            self.folder.write_out(part)?;
        }
        self.buffer_full = false;
        Ok(())
    }

    /// Everything durable: exactly-once in hidden files, which go on; at-least-once in visible ones.
    fn flush(&mut self) -> Result<(), Error> {
        if self.guarantee != Guarantee::ExactlyOnce {
            self.close_all_parts();
        }
        self.write_out()?;
        for part in &mut self.parts {
            self.folder.sync(part)?;
        }
        self.folder.sync_folders()
    }

    fn prepare(&mut self) -> Result<Vec<Prepared>, Error> {
        if self.guarantee != Guarantee::ExactlyOnce {
            return Err(Error::internal("a file sink that promises at-least-once was asked to prepare"));
        }
        crash_point("sink-file::before-prepare-sync");
        self.close_all_parts();
        self.write_out()?;
        self.folder.sync_folders()?;
        crash_point("sink-file::after-prepare");
        let mut prepared = std::mem::take(&mut self.closed);
        // Names rise within a subtask in the order in which their files become visible.
        prepared.sort_by_key(|file| file.number);
        Ok(prepared)
    }

    fn close(&mut self) -> Result<(), Error> {
        if self.guarantee != Guarantee::ExactlyOnce {
            return self.flush();
        }
        // No checkpoint names these files, so nobody will ever ask for them.
        let open = self.parts.drain(..).chain(self.closing.drain(..)).filter_map(|part| part.output);
        let paths: Vec<_> = open.map(|output| output.path()).chain(self.closed.drain(..).map(|file| file.pending)).collect();
        self.places.clear();
        self.current = None;
        paths.iter().try_for_each(|path| disk::remove(path).map(drop))
    }
}
