//! What the tests share: sample components, a host, an operator with everything at its default, and short ways to write batches.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use waterwheel::config::Span;
use waterwheel::operator::{ErrorPolicy, Isolation, LateRecords, Operator, Outputs, Times};
use waterwheel::plugin::{Capabilities, EngineOptions, Limits, LoadedPlugin, OperatorContext, PluginHost, PluginReference};
use waterwheel::record::{Batch, KeyGroups, Origin, Row, SplitTable};

/// The folder of build results.
fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap()
}

/// A sample component.
pub(crate) fn component(name: &str) -> PathBuf {
    let path = target().join("plugins").join(format!("{name}.wasm"));
    assert!(path.exists(), "{} is missing: run plugins/build.sh", path.display());
    path
}

/// One host for all tests: each component is compiled once.
pub(crate) static HOST: LazyLock<PluginHost> =
    LazyLock::new(|| PluginHost::new(EngineOptions::default().cache_folder(target().join("tmp/compiled-plugins"))).unwrap());

pub(crate) async fn load(name: &str) -> LoadedPlugin {
    HOST.load(&PluginReference::Path(component(name)), Path::new("")).await.unwrap()
}

/// A context for the operator `op`, subtask 0 of 1.
pub(crate) fn context() -> OperatorContext {
    OperatorContext {
        job: "test".into(),
        uid: "op".into(),
        subtask: 0,
        parallelism: 1,
        attempt: 0,
        restored: false,
        config: serde_json::json!({}),
        capabilities: Capabilities::default(),
        limits: Limits::default(),
        policy: ErrorPolicy::Fail,
        late_records: LateRecords::Process,
        key_groups: KeyGroups::new(128, 1),
        keyed_inputs: vec![true; 2],
        split_table: split_table(),
        metrics: Arc::default(),
        task_metrics: Arc::default(),
        isolation: Isolation::default(),
    }
}

/// A table in which split 0 is the file `in.json` of the source `orders`.
pub(crate) fn split_table() -> SplitTable {
    let table = SplitTable::default();
    assert_eq!(table.number("orders", "in.json"), 0);
    table
}

pub(crate) fn brief_calls() -> Limits {
    Limits { call_timeout: Span(Duration::from_millis(250)), ..Limits::default() }
}

pub(crate) const TIMES: Times = Times { watermark: i64::MIN, processing_time: 1_700_000_000_123 };

/// Values under the key `k`, read one after the other.
pub(crate) fn batch(values: &[&str]) -> Batch {
    keyed_batch(&values.iter().map(|value| ("k", *value)).collect::<Vec<_>>(), 0)
}

/// Keys and values, at positions from `first` on.
pub(crate) fn keyed_batch(records: &[(&str, &str)], first: u64) -> Batch {
    let mut batch = Batch::default();
    for (position, (key, value)) in (first..).zip(records) {
        let origin = Origin { split: 0, position };
        let timestamp = i64::try_from(position).unwrap();
        batch.push(Row { key: Some(key.as_bytes()), value: Some(value.as_bytes()), timestamp, origin });
    }
    batch
}

/// The values of an output, as text.
pub(crate) fn texts(batch: &Batch) -> Vec<String> {
    batch.rows().map(|row| row.value.map_or("null".into(), |value| String::from_utf8_lossy(value).into_owned())).collect()
}

/// The values that were emitted on a route, as text.
pub(crate) fn drained(outputs: &mut Outputs, route: u8) -> Vec<String> {
    outputs.drain().filter(|(other, _)| *other == route).flat_map(|(_, batch)| texts(&batch)).collect()
}

/// Processes values and returns those of the main output.
pub(crate) async fn process(operator: &mut dyn Operator, values: &[&str]) -> Vec<String> {
    let mut outputs = Outputs::default();
    operator.process(0, batch(values), TIMES, &mut outputs).await.unwrap();
    drained(&mut outputs, 0)
}

/// The message of the error that processing values comes to.
pub(crate) async fn error_of(operator: &mut dyn Operator, values: &[&str]) -> waterwheel::Error {
    operator.process(0, batch(values), TIMES, &mut Outputs::default()).await.unwrap_err()
}
