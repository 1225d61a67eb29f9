//! A checked job: a specification in which everything that can be told without loading its plugins is right, with its sources and sinks
//! made. All faults of a specification are reported at once.

mod connect;
mod event_time;
mod execution;
mod graph;
mod later;
mod names;
mod repair;
#[cfg(test)]
mod tests;

use super::Connectors;
use super::plan::Settings;
use super::spec::{self, JobSpec};
use crate::config::{Fault, Faults};
use crate::sink::{Guarantee, Sink};
use crate::source::Source;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A checked job.
#[derive(Clone, Debug)]
pub struct Job {
    spec: JobSpec,
    written: Value,
    base: PathBuf,
    settings: Settings,
    sources: Vec<Arc<dyn Source>>,
    sinks: Vec<ReadySink>,
    operator_order: Vec<usize>,
}

/// A sink that was made for the guarantee that it gives in this job.
#[derive(Clone, Debug)]
pub struct ReadySink {
    /// The sink.
    pub sink: Arc<dyn Sink>,
    /// What it promises in this job.
    pub guarantee: Guarantee,
    /// What its type can promise, in a sentence.
    pub promise: String,
}

impl Job {
    /// Reads and checks a job file, YAML or JSON. Plugins are relative to the folder of the file; the paths of sources, sinks and checkpoints
    /// are relative to the working directory. `${env:NAME}` and `${file:path}` in texts are replaced.
    ///
    /// # Errors
    /// Every fault at once.
    pub fn read(file: &Path, connectors: &Connectors) -> Result<Self, Faults> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| Faults(vec![Fault::new("", format!("cannot read {}: {error}", file.display()))]))?;
        let base = file.parent().map(Path::to_owned).unwrap_or_default();
        Self::from_text(&text, base, connectors)
    }

    /// Checks the text of a job file, as [`Job::read`] does; `base` stands for the folder of the file.
    ///
    /// # Errors
    /// Every fault at once.
    pub fn from_text(text: &str, base: impl Into<PathBuf>, connectors: &Connectors) -> Result<Self, Faults> {
        let base = base.into();
        let mut faults = Vec::new();
        let mut document = spec::parse(text).map_err(|fault| Faults(vec![fault]))?;
        spec::expand_dotted_keys(&mut document, &mut faults);
        let written = document.clone();
        let replaced = spec::substitute(&mut document, &base, &mut faults);
        Self::check(document, written, base, connectors, faults).map_err(|faults| replaced.hide_in(faults))
    }

    /// Checks a specification that was built in code; nothing in its texts is replaced. Plugins are relative to `base`.
    ///
    /// # Errors
    /// Every fault at once, with the path that it would have in a job file.
    pub fn from_spec(spec: &JobSpec, base: impl Into<PathBuf>, connectors: &Connectors) -> Result<Self, Faults> {
        let document = serde_json::to_value(spec).map_err(|error| Faults(vec![Fault::new("", error.to_string())]))?;
        Self::check(document.clone(), document, base.into(), connectors, Vec::new())
    }

    fn check(document: Value, written: Value, base: PathBuf, connectors: &Connectors, faults: Vec<Fault>) -> Result<Self, Faults> {
        let mut checks = Checks::new(faults);
        let Some(spec) = repair::read(document, &mut checks) else {
            return Err(checks.into_faults());
        };
        names::check(&spec, &mut checks);
        let operator_order = graph::check(&spec, &mut checks);
        let mut settings = execution::check(&spec, &mut checks);
        event_time::check(&spec, &mut checks);
        later::check(&spec, &mut checks);
        let sources = connect::sources(&spec, connectors, &mut checks);
        let sinks = connect::sinks(&spec, connectors, &mut checks);
        execution::check_sinks(&spec, &sinks, &mut checks);
        execution::check_transactions(&spec, &sinks, &mut checks);
        match (sources.into_iter().collect(), sinks.into_iter().collect::<Option<Vec<_>>>()) {
            (Some(sources), Some(sinks)) if checks.faults.is_empty() => {
                execution::shorten_timeout(&mut settings, &sinks);
                Ok(Self { spec, written, base, settings, sources, sinks, operator_order })
            }
            _ => Err(checks.into_faults()),
        }
    }

    /// The specification, references to environment variables and files replaced.
    pub fn spec(&self) -> &JobSpec {
        &self.spec
    }

    /// The specification as it was written, nothing replaced: what may be stored and shown.
    pub fn written(&self) -> &Value {
        &self.written
    }

    /// What paths of plugins are relative to.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// Checkpoints, restarts and batches, defaults filled in.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The sources, in the order of the specification.
    pub fn sources(&self) -> &[Arc<dyn Source>] {
        &self.sources
    }

    /// The sinks, in the order of the specification.
    pub fn sinks(&self) -> &[ReadySink] {
        &self.sinks
    }

    /// The positions of the operators, each behind those that it reads from.
    pub fn operator_order(&self) -> &[usize] {
        &self.operator_order
    }
}

/// The faults found so far, and the places about which nothing more is said because what stands there was wrong already.
#[derive(Debug)]
struct Checks {
    faults: Vec<Fault>,
    silent: Vec<String>,
}

impl Checks {
    fn new(faults: Vec<Fault>) -> Self {
        Self { silent: faults.iter().map(|fault| fault.path.clone()).collect(), faults }
    }

    /// Adds a fault, unless its place or one around it is silent.
    fn fault(&mut self, path: impl Into<String>, message: impl Into<String>) {
        let fault = Fault::new(path, message);
        if !self.is_silent(&fault.path) && !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    /// Says nothing more about a place and what is inside of it.
    fn silence(&mut self, path: impl Into<String>) {
        self.silent.push(path.into());
    }

    fn is_silent(&self, path: &str) -> bool {
        self.silent.iter().any(|silent| path.strip_prefix(silent.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    }

    fn into_faults(self) -> Faults {
        Faults(self.faults)
    }
}
