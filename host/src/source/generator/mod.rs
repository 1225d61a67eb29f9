//! The `generator` source: records made up from a seed, the same ones whenever they are read again.

mod draw;
mod options;
mod reader;
mod splits;
mod template;
#[cfg(test)]
mod tests;

pub use options::{Amount, EventTime, GeneratorOptions, Payload};

use super::rate::RateLimiter;
use super::{ReaderContext, Source, SourceReader, SourceType, Split};
use crate::Error;
use crate::config::Fault;
use async_trait::async_trait;
use reader::GeneratorReader;
use serde_json::{Value, json};
use splits::Deal;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The source type `generator`: see [`GeneratorOptions`].
#[derive(Clone, Copy, Debug, Default)]
pub struct GeneratorType;

impl SourceType for GeneratorType {
    fn name(&self) -> &str {
        "generator"
    }

    fn options_schema(&self) -> schemars::Schema {
        schemars::schema_for!(GeneratorOptions)
    }

    fn create(&self, uid: &str, options: &Value) -> Result<Arc<dyn Source>, Vec<Fault>> {
        let options = GeneratorOptions::parse(options)?;
        let limiter = options.rate.map(|rate| Arc::new(RateLimiter::new(rate)));
        Ok(Arc::new(Generator { uid: uid.to_owned(), options, limiter }))
    }
}

#[derive(Debug)]
struct Generator {
    uid: String,
    options: GeneratorOptions,
    limiter: Option<Arc<RateLimiter>>,
}

#[async_trait]
impl Source for Generator {
    async fn discover(&self, known: &BTreeSet<String>) -> Result<Vec<Split>, Error> {
        let splits = self.options.splits;
        let deals: Vec<_> = (0..splits).map(|index| Deal { index: u64::from(index), of: u64::from(splits) }).collect();
        let ids: BTreeSet<_> = deals.iter().map(Deal::id).collect();
        if let Some(other) = known.difference(&ids).next() {
            return Err(Error::user(format!(
                "source {}: the checkpoint has split {other}, but the job now deals the records into {splits} splits: leave `splits` as it was",
                self.uid
            )));
        }
        let new = deals.iter().filter(|deal| !known.contains(&deal.id()));
        let stop = self.options.count.map(|count| json!(count));
        Ok(new.map(|deal| Split { id: deal.id(), position: json!(deal.first()), stop: stop.clone(), finished: false }).collect())
    }

    /// All that makes up the records: not how many there are and how fast they come.
    fn identity(&self) -> BTreeMap<String, Value> {
        let GeneratorOptions { rate: _, count: _, seed, splits, payload, template, size, key, users, amount, time } = &self.options;
        let values = [
            ("seed", json!(seed)),
            ("splits", json!(splits)),
            ("payload", json!(payload)),
            ("template", json!(template)),
            ("size", json!(size)),
            ("key", json!(key)),
            ("users", json!(users)),
            ("amount", json!(amount)),
            ("time", json!(time)),
        ];
        values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    fn is_bounded(&self) -> bool {
        self.options.count.is_some()
    }

    async fn open(&self, context: ReaderContext) -> Result<Box<dyn SourceReader>, Error> {
        Ok(Box::new(GeneratorReader::new(&self.options, self.limiter.as_ref().map(Arc::clone), context)))
    }
}
