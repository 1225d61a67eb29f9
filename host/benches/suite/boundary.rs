//! The boundary to a plugin: an identity plugin against a native identity, both behind the operator trait, in batches of 512.

use crate::report::Report;
use async_trait::async_trait;
use std::path::Path;
use std::sync::Arc;
use waterwheel::Error;
use waterwheel::operator::{Isolation, Operator, Outputs, Times};
use waterwheel::plugin::{EngineOptions, LoadedPlugin, OperatorContext, PluginHost, PluginReference};
use waterwheel::record::{Batch, KeyGroups, Origin, Row, SplitTable};

const RECORDS_PER_BATCH: usize = 512;
const BATCHES: usize = 20_000;
const ROUNDS: usize = 5;
pub(crate) const TIMES: Times = Times { watermark: i64::MIN, processing_time: 0 };

/// Emits what it gets.
struct Identity;

#[async_trait]
impl Operator for Identity {
    async fn process(&mut self, _input: usize, batch: Batch, _times: Times, outputs: &mut Outputs) -> Result<(), Error> {
        outputs.emit(0, batch);
        Ok(())
    }
}

pub(crate) async fn measure(report: &mut Report) {
    let mut native: Box<dyn Operator> = Box::new(Identity);
    let mut wasm = open(&load(&crate::plugin("passthrough")).await, serde_json::Value::Null).await;
    let (mut native_best, mut wasm_best) = (f64::MAX, f64::MAX);
    // In turn, so that a machine that gets slower or faster does so for both.
    for _ in 0..ROUNDS {
        native_best = native_best.min(run(native.as_mut()).await);
        wasm_best = wasm_best.min(run(wasm.as_mut()).await);
    }
    report.add("identity behind the operator trait, native", native_best, "ns CPU/record", None);
    report.add("identity behind the operator trait, plugin", wasm_best, "ns CPU/record", None);
    report.add("the boundary to a plugin: the difference", wasm_best - native_best, "ns CPU/record", Some(20.0));
}

async fn run(operator: &mut dyn Operator) -> f64 {
    let template = batch(RECORDS_PER_BATCH);
    let mut outputs = Outputs::default();
    let began = crate::cpu_nanoseconds();
    for _ in 0..BATCHES {
        operator.process(0, template.clone(), TIMES, &mut outputs).await.unwrap();
        let emitted: usize = outputs.drain().map(|(_, batch)| batch.len()).sum();
        assert_eq!(emitted, RECORDS_PER_BATCH);
    }
    per_record(crate::cpu_nanoseconds() - began, RECORDS_PER_BATCH * BATCHES)
}

#[allow(clippy::cast_precision_loss, reason = "a figure for people")]
pub(crate) fn per_record(nanoseconds: u64, records: usize) -> f64 {
    nanoseconds as f64 / records as f64
}

fn batch(records: usize) -> Batch {
    let value = [b'x'; 100];
    let mut batch = Batch::default();
    for position in 0..records as u64 {
        batch.push(Row { key: None, value: Some(&value), timestamp: 0, origin: Origin { split: 0, position } });
    }
    batch
}

pub(crate) async fn load(file: &Path) -> LoadedPlugin {
    let host = PluginHost::new(EngineOptions::default()).unwrap();
    let loaded = host.load(&PluginReference::Path(file.to_owned()), Path::new(".")).await;
    loaded.unwrap_or_else(|error| panic!("{}: run plugins/build.sh first", error.chain()))
}

pub(crate) async fn open(plugin: &LoadedPlugin, config: serde_json::Value) -> Box<dyn Operator> {
    let context = OperatorContext {
        job: "bench".into(),
        uid: "bench".into(),
        subtask: 0,
        parallelism: 1,
        attempt: 0,
        restored: false,
        config,
        capabilities: waterwheel::plugin::Capabilities::default(),
        limits: waterwheel::plugin::Limits { memory: waterwheel::config::Size(1 << 30), ..waterwheel::plugin::Limits::default() },
        policy: waterwheel::operator::ErrorPolicy::Fail,
        late_records: waterwheel::operator::LateRecords::Process,
        key_groups: KeyGroups::new(128, 1),
        keyed_inputs: vec![true],
        split_table: SplitTable::default(),
        metrics: Arc::default(),
        task_metrics: Arc::default(),
        isolation: Isolation::default(),
    };
    plugin.operator(context).await.unwrap()
}
