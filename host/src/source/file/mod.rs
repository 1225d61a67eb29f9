//! The `file` source: lines of files, plain or compressed, read once or followed as they grow and are rotated.
//!
//! [`FileType`] makes the source; `discovery` finds files (`listing`) and tells them apart (`identity`); each subtask has a `reader` and a
//! thread (`worker`) that reads ahead, file by file (`cursor`, `input`), in blocks of whole lines (`lines`).

mod cursor;
mod discovery;
mod failure;
mod identity;
mod input;
mod lines;
mod listing;
mod options;
mod position;
mod reader;
mod settings;
#[cfg(test)]
mod tests;
mod worker;

pub use options::{Compression, FileOptions, Format, OnLostFile};

use super::rate::RateLimiter;
use super::{ReaderContext, Source, SourceReader, SourceType, Split};
use crate::Error;
use crate::config::Fault;
use async_trait::async_trait;
use discovery::{LostSplits, discover};
use reader::FileReader;
use serde_json::{Value, json};
use settings::Settings;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The source type `file`: see [`FileOptions`].
#[derive(Clone, Copy, Debug, Default)]
pub struct FileType;

impl SourceType for FileType {
    fn name(&self) -> &str {
        "file"
    }

    fn options_schema(&self) -> schemars::Schema {
        schemars::schema_for!(FileOptions)
    }

    fn create(&self, uid: &str, options: &Value) -> Result<Arc<dyn Source>, Vec<Fault>> {
        let (options, settings) = FileOptions::parse(uid, options)?;
        let limiter = options.rate.map(|rate| Arc::new(RateLimiter::new(rate)));
        Ok(Arc::new(Files { settings: Arc::new(settings), limiter, lost: LostSplits::default(), has_warned: AtomicBool::new(false) }))
    }
}

#[derive(Debug)]
struct Files {
    settings: Arc<Settings>,
    limiter: Option<Arc<RateLimiter>>,
    lost: LostSplits,
    /// Whether it was said that there are no files yet.
    has_warned: AtomicBool,
}

#[async_trait]
impl Source for Files {
    async fn discover(&self, known: &BTreeSet<String>) -> Result<Vec<Split>, Error> {
        if self.is_bounded() && !known.is_empty() {
            // Resolved once, when the job started.
            return Ok(Vec::new());
        }
        let is_first = known.is_empty();
        let (settings, known, lost) = (Arc::clone(&self.settings), known.clone(), self.lost.clone());
        let found = tokio::task::spawn_blocking(move || discover(&settings, &known, &lost)).await;
        let found = found
            .map_err(|error| Error::internal(format!("source {}: looking for files broke off", self.settings.uid)).caused_by(error))??;
        if self.settings.follow && found.is_empty() && is_first && !self.has_warned.swap(true, Ordering::Relaxed) {
            let (source, path) = (self.settings.uid.as_str(), self.settings.pattern.text());
            tracing::warn!(source, "no file with a line in it fits {path} yet: waiting for one");
        }
        Ok(found)
    }

    fn discovery_interval(&self) -> Option<Duration> {
        self.settings.follow.then_some(self.settings.discovery_interval)
    }

    /// Which files, and what of their bytes is a record.
    fn identity(&self) -> BTreeMap<String, Value> {
        let Settings { pattern, skip_blank, compression, .. } = &*self.settings;
        // A working directory that cannot be found is told when files are looked for.
        let path = std::path::absolute(pattern.text()).map_or_else(|_| pattern.text().to_owned(), |path| path.display().to_string());
        let format = if *skip_blank { Format::Json } else { Format::Lines };
        let values = [("path", json!(path)), ("format", json!(format)), ("compression", json!(compression))];
        values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn is_bounded(&self) -> bool {
        !self.settings.follow
    }

    async fn open(&self, context: ReaderContext) -> Result<Box<dyn SourceReader>, Error> {
        let limiter = self.limiter.as_ref().map(Arc::clone);
        Ok(Box::new(FileReader::new(Arc::clone(&self.settings), limiter, self.lost.clone(), context)?))
    }
}
