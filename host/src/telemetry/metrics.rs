//! The metrics of a process: those of all its jobs.

use super::JobMetrics;
use super::names::PREFIX;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The metrics of all jobs of a process. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    pub(super) jobs: Arc<Mutex<BTreeMap<String, Arc<JobMetrics>>>>,
}

impl Metrics {
    /// No jobs yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The metrics of a job; the same ones for the same id.
    pub fn job(&self, id: &str) -> Arc<JobMetrics> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(jobs.entry(id.to_owned()).or_default())
    }

    /// Forgets a job.
    pub fn remove_job(&self, id: &str) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// All jobs with their ids, in that order.
    pub fn jobs(&self) -> Vec<(String, Arc<JobMetrics>)> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.iter().map(|(id, job)| (id.clone(), Arc::clone(job))).collect()
    }

    /// All metrics at this moment in the text format of Prometheus (`text/plain; version=0.0.4`).
    pub fn encode(&self) -> String {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(self.clone()));
        let mut text = String::new();
        prometheus_client::encoding::prometheus_text::encode(&mut text, &registry).expect("invariant: writing to memory does not fail");
        text
    }
}
