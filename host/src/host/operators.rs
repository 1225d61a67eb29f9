//! Makes the operators of a job from its plugins, and keeps what outlives a restart: counters, and what was learned about records that fail.

use crate::Error;
use crate::operator::{Isolation, Operator};
use crate::pipeline::Plan;
use crate::pipeline::plan::{LoadedPlugins, OperatorNode};
use crate::pipeline::run::{OpenOperator, OperatorTask};
use crate::plugin::{OperatorContext, PluginCounts, PluginMetrics};
use crate::record::KeyGroups;
use crate::telemetry::{JobMetrics, PluginReading, TaskMetrics};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The plugins of a job as operators.
#[derive(Debug)]
pub(super) struct PluginOperators {
    loaded: LoadedPlugins,
    kept: BTreeMap<String, Kept>,
}

/// What is kept of an operator from restart to restart.
#[derive(Debug)]
struct Kept {
    isolation: Isolation,
    /// By subtask.
    metrics: Vec<Arc<PluginMetrics>>,
    /// By subtask.
    task_metrics: Vec<Arc<TaskMetrics>>,
}

impl PluginOperators {
    pub(super) fn new(plan: &Plan, loaded: LoadedPlugins, job: &JobMetrics) -> Self {
        let kept = |(node, _): (&crate::pipeline::plan::Node, &OperatorNode)| {
            let metrics: Vec<Arc<PluginMetrics>> = (0..node.parallelism).map(|_| Arc::default()).collect();
            let task_metrics: Vec<Arc<TaskMetrics>> = (0..metrics.len()).map(|subtask| job.task(&node.uid, subtask)).collect();
            for (metrics, task) in metrics.iter().zip(&task_metrics) {
                let metrics = Arc::clone(metrics);
                task.read_plugin_from(move || reading(metrics.counts()));
            }
            (node.uid.to_string(), Kept { isolation: Isolation::default(), metrics, task_metrics })
        };
        Self { loaded, kept: plan.operators().map(kept).collect() }
    }

    /// The counters of every subtask: uid, subtask, counts.
    pub(super) fn counts(&self) -> Vec<(String, usize, PluginCounts)> {
        let mut counts = Vec::new();
        for (uid, kept) in &self.kept {
            counts.extend(kept.metrics.iter().enumerate().map(|(subtask, metrics)| (uid.clone(), subtask, metrics.counts())));
        }
        counts
    }
}

fn reading(counts: PluginCounts) -> PluginReading {
    PluginReading {
        calls: counts.calls,
        call_time: counts.call_time,
        traps: counts.traps,
        failures: counts.failures,
        skipped: counts.skipped,
        dead_letters: counts.dead_letters,
        dropped_timers: counts.dropped_timers,
        memory_bytes: counts.memory_bytes,
        counters: counts.named,
    }
}

#[async_trait]
impl OpenOperator for PluginOperators {
    async fn open(&self, node: &OperatorNode, task: OperatorTask) -> Result<Box<dyn Operator>, Error> {
        let missing = || Error::internal(format!("operator {} is not part of the plan", task.uid));
        let kept = self.kept.get(&*task.uid).ok_or_else(missing)?;
        let metrics = kept.metrics.get(usize::from(task.subtask)).ok_or_else(missing)?;
        let task_metrics = kept.task_metrics.get(usize::from(task.subtask)).ok_or_else(missing)?;
        let context = OperatorContext {
            job: task.job,
            uid: task.uid.to_string(),
            subtask: u32::from(task.subtask),
            parallelism: u32::from(task.parallelism),
            attempt: u32::try_from(task.restarts).unwrap_or(u32::MAX),
            restored: task.restored,
            config: node.config.clone(),
            capabilities: node.capabilities.clone(),
            limits: node.limits,
            policy: node.error_policy,
            late_records: node.late_records,
            key_groups: KeyGroups::new(task.max_parallelism, task.parallelism),
            keyed_inputs: task.keyed_inputs,
            split_table: task.split_table,
            metrics: Arc::clone(metrics),
            task_metrics: Arc::clone(task_metrics),
            isolation: kept.isolation.clone(),
        };
        self.loaded.get(&node.plugin)?.operator(context).await
    }

    fn isolation_steps(&self) -> u64 {
        self.kept.values().map(|kept| kept.isolation.steps()).sum()
    }
}
