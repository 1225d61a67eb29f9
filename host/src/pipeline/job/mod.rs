//! A checked job: a specification in which everything that can be told without loading its plugins is right, with its sources and sinks
//! made. All faults of a specification are reported at once.

mod connect;
mod event_time;
mod execution;
mod graph;
mod later;
mod limits;
mod names;
mod repair;
#[cfg(test)]
mod tests;

use super::Connectors;
use super::plan::{Plan, PluginCatalog, Settings, faults_of_plugins};
use super::spec::{self, JobSpec, Replaced};
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
        Draft::read(file, connectors).into_job()
    }

    /// Checks the text of a job file, as [`Job::read`] does; `base` stands for the folder of the file.
    ///
    /// # Errors
    /// Every fault at once.
    pub fn from_text(text: &str, base: impl Into<PathBuf>, connectors: &Connectors) -> Result<Self, Faults> {
        Draft::from_text(text, base.into(), connectors).into_job()
    }

    /// Checks a specification that was built in code; nothing in its texts is replaced. Plugins are relative to `base`.
    ///
    /// # Errors
    /// Every fault at once, with the path that it would have in a job file.
    pub fn from_spec(spec: &JobSpec, base: impl Into<PathBuf>, connectors: &Connectors) -> Result<Self, Faults> {
        let document = serde_json::to_value(spec).map_err(|error| Faults(vec![Fault::new("", error.to_string())]))?;
        Self::check(document.clone(), document, base.into(), connectors, Vec::new()).map_err(|wrong| wrong.checks.into_faults())
    }

    fn check(document: Value, written: Value, base: PathBuf, connectors: &Connectors, faults: Vec<Fault>) -> Result<Self, Box<Wrong>> {
        let mut checks = Checks::new(faults);
        let Some(spec) = repair::read(document, &mut checks) else {
            return Err(Box::new(Wrong { spec: None, base, checks }));
        };
        names::check(&spec, &mut checks);
        let operator_order = graph::check(&spec, &mut checks);
        let mut settings = execution::check(&spec, &mut checks);
        event_time::check(&spec, &mut checks);
        later::check(&spec, &mut checks);
        limits::check(&spec, &mut checks);
        let sources = connect::sources(&spec, connectors, &mut checks);
        let sinks = connect::sinks(&spec, connectors, &mut checks);
        execution::check_sinks(&spec, &sinks, &mut checks);
        execution::check_transactions(&spec, &sinks, &mut checks);
        match (sources.into_iter().collect(), sinks.into_iter().collect::<Option<Vec<_>>>()) {
            (Some(sources), Some(sinks)) if checks.faults.is_empty() => {
                execution::shorten_timeout(&mut settings, &sinks);
                Ok(Self { spec, written, base, settings, sources, sinks, operator_order })
            }
            _ => Err(Box::new(Wrong { spec: Some(spec), base, checks })),
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

/// A job file as it was read, right or wrong. Where it is wrong its plugins can be looked at all the same, so that a person sees all faults at
/// once: those of the document and those that only the plugins can tell.
#[derive(Debug)]
pub struct Draft {
    read: Result<Job, Box<Wrong>>,
    replaced: Replaced,
}

/// A specification with faults: what could be read of it, and what not to speak of any more.
#[derive(Debug)]
struct Wrong {
    spec: Option<JobSpec>,
    base: PathBuf,
    checks: Checks,
}

impl Draft {
    /// Reads a job file; see [`Job::read`].
    pub fn read(file: &Path, connectors: &Connectors) -> Self {
        let base = file.parent().map(Path::to_owned).unwrap_or_default();
        match std::fs::read_to_string(file) {
            Ok(text) => Self::from_text(&text, base, connectors),
            Err(error) => Self::unreadable(Fault::new("", format!("cannot read {}: {error}", file.display())), base),
        }
    }

    fn from_text(text: &str, base: PathBuf, connectors: &Connectors) -> Self {
        let mut faults = Vec::new();
        let mut document = match spec::parse(text) {
            Ok(document) => document,
            Err(fault) => return Self::unreadable(fault, base),
        };
        spec::expand_dotted_keys(&mut document, &mut faults);
        let written = document.clone();
        let replaced = spec::substitute(&mut document, &base, &mut faults);
        Self { read: Job::check(document, written, base, connectors, faults), replaced }
    }

    fn unreadable(fault: Fault, base: PathBuf) -> Self {
        let wrong = Wrong { spec: None, base, checks: Checks::new(vec![fault]) };
        Self { read: Err(Box::new(wrong)), replaced: Replaced::default() }
    }

    /// The specification, as far as it could be read, and what its paths of plugins are relative to.
    pub fn spec(&self) -> Option<(&JobSpec, &Path)> {
        match &self.read {
            Ok(job) => Some((&job.spec, &job.base)),
            Err(wrong) => wrong.spec.as_ref().map(|spec| (spec, wrong.base.as_path())),
        }
    }

    /// Whether the document is right.
    pub fn is_right(&self) -> bool {
        self.read.is_ok()
    }

    /// The checked job.
    ///
    /// # Errors
    /// Every fault that can be told without the plugins.
    pub fn into_job(self) -> Result<Job, Faults> {
        let replaced = self.replaced;
        self.read.map_err(|wrong| replaced.hide_in(wrong.checks.into_faults()))
    }

    /// The plan of the job with its plugins.
    ///
    /// # Errors
    /// Every fault: of the document, and of what it makes of its plugins.
    pub fn into_plan(self, catalog: &dyn PluginCatalog) -> Result<Plan, Faults> {
        let Self { read, replaced } = self;
        let faults = match read {
            Ok(job) => match Plan::build(&job, catalog) {
                Ok(plan) => return Ok(plan),
                Err(faults) => faults,
            },
            Err(wrong) => wrong.faults_with(catalog),
        };
        Err(replaced.hide_in(faults))
    }
}

impl Wrong {
    fn faults_with(self, catalog: &dyn PluginCatalog) -> Faults {
        let mut checks = self.checks;
        for fault in self.spec.iter().flat_map(|spec| faults_of_plugins(spec, catalog)) {
            checks.fault(fault.path, fault.message);
        }
        checks.into_faults()
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
