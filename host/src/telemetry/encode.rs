//! Metrics as samples: each name once, below it the sample of each job or subtask.

use super::names::{BUILD, JOB, Metric, MetricKind, Number, PLUGIN, PLUGIN_COUNTER, SPLIT, TASK};
use super::{JobReading, Metrics, TaskReading};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::fmt;

type TaskLabels = [(&'static str, String); 3];

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let jobs: Vec<([(&str, String); 1], JobReading)> =
            self.jobs().into_iter().map(|(id, job)| ([("job", id)], job.reading())).collect();
        let tasks: Vec<(TaskLabels, TaskReading)> = self
            .jobs()
            .into_iter()
            .flat_map(|(id, job)| {
                job.tasks().into_iter().map(move |(uid, subtask, task)| {
                    ([("job", id.clone()), ("uid", uid), ("subtask", subtask.to_string())], task.reading())
                })
            })
            .collect();
        let plugins = || tasks.iter().filter_map(|(labels, task)| task.plugin.as_ref().map(|plugin| (labels, plugin)));

        samples(&mut encoder, &BUILD, [([("version", env!("CARGO_PKG_VERSION"))], &())])?;
        for metric in &JOB {
            samples(&mut encoder, metric, jobs.iter().map(|(labels, job)| (labels.clone(), job)))?;
        }
        for metric in &TASK {
            samples(&mut encoder, metric, tasks.iter().map(|(labels, task)| (labels.clone(), task)))?;
        }
        let splits = tasks.iter().flat_map(|(labels, task)| {
            task.pending_by_split.iter().map(move |(split, records)| {
                let [job, uid, subtask] = labels.clone();
                ([job, uid, subtask, ("split", split.clone())], records)
            })
        });
        samples(&mut encoder, &SPLIT, splits)?;
        for metric in &PLUGIN {
            samples(&mut encoder, metric, plugins().map(|(labels, plugin)| (labels.clone(), plugin)))?;
        }
        let counters = plugins().flat_map(|(labels, plugin)| {
            plugin.counters.iter().map(move |(name, counter)| {
                let [job, uid, subtask] = labels.clone();
                ([job, uid, subtask, ("name", name.clone())], counter)
            })
        });
        samples(&mut encoder, &PLUGIN_COUNTER, counters)
    }
}

fn samples<'a, R: 'a, L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder,
    metric: &Metric<R>,
    readings: impl IntoIterator<Item = (L, &'a R)>,
) -> Result<(), fmt::Error> {
    let unit = metric.unit.map(|unit| Unit::Other(unit.to_owned()));
    let kind = match metric.kind {
        MetricKind::Counter => MetricType::Counter,
        MetricKind::Gauge => MetricType::Gauge,
    };
    let mut family = encoder.encode_descriptor(metric.name, metric.help, unit.as_ref(), kind)?;
    for (labels, reading) in readings {
        match (metric.number)(reading) {
            Number::Whole(None) | Number::Real(None) => {}
            Number::Whole(Some(number)) => sample(family.encode_family(&labels)?, metric.kind, &number)?,
            Number::Real(Some(number)) => sample(family.encode_family(&labels)?, metric.kind, &number)?,
        }
    }
    Ok(())
}

fn sample<N>(mut encoder: MetricEncoder<'_>, kind: MetricKind, number: &N) -> Result<(), fmt::Error>
where
    N: EncodeCounterValue + EncodeGaugeValue,
{
    match kind {
        MetricKind::Counter => encoder.encode_counter::<NoLabelSet, _, f64>(number, None),
        MetricKind::Gauge => encoder.encode_gauge(number),
    }
}
