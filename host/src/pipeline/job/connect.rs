//! Makes the sources and sinks of a job.

use super::{Checks, ReadySink};
use crate::config::{check, unknown};
use crate::pipeline::Connectors;
use crate::pipeline::spec::{JobSpec, SinkSpec, shared_keys};
use crate::sink::{Guarantee, SinkType};
use crate::source::Source;
use schemars::Schema;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The sources, in the order of the specification; none where there are faults.
pub(super) fn sources(spec: &JobSpec, connectors: &Connectors, checks: &mut Checks) -> Vec<Option<Arc<dyn Source>>> {
    let mut made = Vec::with_capacity(spec.sources.len());
    for (index, source) in spec.sources.iter().enumerate() {
        let path = format!("/sources/{index}");
        let Some(kind) = connectors.source(&source.kind) else {
            checks.fault(format!("{path}/type"), unknown("source type", &source.kind, connectors.sources().map(|kind| kind.name())));
            made.push(None);
            continue;
        };
        let options = Value::Object(source.options.clone());
        made.push(create(&path, "sources", &kind.options_schema(), &options, checks, || kind.create(&source.uid, &options)));
    }
    made
}

/// The sinks, in the order of the specification; none where there are faults.
pub(super) fn sinks(spec: &JobSpec, connectors: &Connectors, checks: &mut Checks) -> Vec<Option<ReadySink>> {
    let mut made = Vec::with_capacity(spec.sinks.len());
    for (index, sink) in spec.sinks.iter().enumerate() {
        let path = format!("/sinks/{index}");
        let Some(kind) = connectors.sink(&sink.kind) else {
            checks.fault(format!("{path}/type"), unknown("sink type", &sink.kind, connectors.sinks().map(|kind| kind.name())));
            made.push(None);
            continue;
        };
        let (guarantee, refused) = match guarantee(sink, kind.as_ref()) {
            Ok(guarantee) => (guarantee, None),
            Err(sentence) => (kind.guarantees().last().copied().unwrap_or(Guarantee::None), Some(sentence)),
        };
        let options = Value::Object(sink.options.clone());
        let ready = create(&path, "sinks", &kind.options_schema(), &options, checks, || kind.create(&sink.uid, &options, guarantee));
        let is_refused = refused.is_some();
        if let Some(sentence) = refused {
            checks.fault(format!("{path}/delivery-guarantee"), sentence);
        }
        made.push(ready.filter(|_| !is_refused).map(|sink| ReadySink { sink, guarantee, promise: kind.promise().to_owned() }));
    }
    made
}

/// The guarantee that a sink gives in this job: what was asked for, or at-least-once, or the most below that, or the least that it has.
fn guarantee(sink: &SinkSpec, kind: &dyn SinkType) -> Result<Guarantee, String> {
    let offered = kind.guarantees();
    match sink.delivery_guarantee {
        Some(asked) if offered.contains(&asked) => Ok(asked),
        Some(asked) => {
            let names: Vec<String> = offered.iter().map(ToString::to_string).collect();
            Err(format!("{asked} cannot be given by a sink of type {}, only {}: {}", sink.kind, names.join(" or "), kind.promise()))
        }
        None => {
            let modest = offered.iter().filter(|guarantee| **guarantee <= Guarantee::AtLeastOnce).max();
            Ok(modest.or_else(|| offered.iter().min()).copied().unwrap_or(Guarantee::None))
        }
    }
}

fn create<T>(
    path: &str,
    section: &str,
    schema: &Schema,
    options: &Value,
    checks: &mut Checks,
    make: impl FnOnce() -> Result<T, Vec<crate::config::Fault>>,
) -> Option<T> {
    let schema = with_shared_keys(schema, section);
    let faults = check(&schema, options);
    let made = if faults.is_empty() { make() } else { Err(faults) };
    match made {
        Ok(made) => Some(made),
        Err(faults) => {
            for fault in faults {
                checks.fault(format!("{path}{}", fault.path), fault.message);
            }
            None
        }
    }
}

/// The schema of a type's options, with the keys that all have, so that a slip in one of these is recognised.
fn with_shared_keys(schema: &Schema, section: &str) -> Value {
    let mut schema = schema.clone().to_value();
    if let Some(root) = schema.as_object_mut() {
        let properties = root.entry("properties").or_insert_with(|| Value::Object(Map::new()));
        if let Some(properties) = properties.as_object_mut() {
            for key in shared_keys(section) {
                properties.entry(key).or_insert(Value::Bool(true));
            }
        }
    }
    schema
}
