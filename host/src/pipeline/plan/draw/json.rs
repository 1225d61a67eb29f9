//! A plan for programs.

use super::exchange_words;
use crate::config::{Size, Span};
use crate::pipeline::plan::{CheckpointSettings, Edge, Exchange, Node, NodeKind, Plan, RestartStrategy, Settings};
use serde_json::{Map, Value, json};

pub(super) fn draw(plan: &Plan) -> String {
    let document = json!({
        "name": plan.name,
        "max-parallelism": plan.max_parallelism,
        "nodes": plan.nodes.iter().map(node).collect::<Vec<_>>(),
        "edges": plan.edges.iter().map(|edge| self::edge(plan, edge)).collect::<Vec<_>>(),
        "tasks": plan.chains.iter().map(|chain| {
            let nodes: Vec<&str> = chain.nodes.iter().map(|&node| &*plan.nodes[node].uid).collect();
            json!({"index": chain.index, "parallelism": chain.parallelism, "nodes": nodes})
        }).collect::<Vec<_>>(),
        "settings": settings(&plan.settings),
        "notes": plan.notes,
    });
    format!("{document:#}\n")
}

fn node(node: &Node) -> Value {
    let mut document = json!({"uid": &*node.uid, "parallelism": node.parallelism, "task": node.chain});
    match &node.kind {
        NodeKind::Source(source) => {
            document["kind"] = "source".into();
            document["type"] = source.type_name.as_str().into();
            document["bounded"] = source.source.is_bounded().into();
            document["event-time"] = json!(source.event_time);
        }
        NodeKind::Operator(operator) => {
            document["kind"] = "operator".into();
            document["plugin"] = operator.plugin_name.as_str().into();
            document["digest"] = json!(operator.info.digest);
            document["world"] = json!(operator.info.world);
            document["side-outputs"] = json!(operator.info.side_outputs);
            document["error-policy"] = json!(operator.error_policy);
            document["late-records"] = json!(operator.late_records);
        }
        NodeKind::Sink(sink) => {
            document["kind"] = "sink".into();
            document["type"] = sink.type_name.as_str().into();
            document["delivery-guarantee"] = json!(sink.guarantee);
            document["promise"] = sink.promise.as_str().into();
        }
    }
    document
}

fn edge(plan: &Plan, edge: &Edge) -> Value {
    let exchange = match edge.exchange {
        Exchange::Forward => "forward",
        Exchange::Rebalance => "rebalance",
        Exchange::KeyGroup { .. } => "key-group",
        Exchange::Broadcast => "broadcast",
    };
    json!({
        "from": &*plan.nodes[edge.from].uid,
        "output": plan.output_name(edge),
        "route": edge.route,
        "to": &*plan.nodes[edge.to].uid,
        "input": edge.input,
        "exchange": exchange,
        "description": exchange_words(&edge.exchange),
        "chained": plan.is_chained(edge),
    })
}

fn settings(settings: &Settings) -> Value {
    let batch = &settings.batch;
    json!({
        "checkpointing": settings.checkpointing.as_ref().map(checkpointing),
        "restart-strategy": restart(&settings.restart),
        "batch": {
            "max-records": batch.records,
            "max-bytes": Size(u64::try_from(batch.bytes).unwrap_or(u64::MAX)),
            "linger": Span(batch.linger),
        },
        "ephemeral": settings.ephemeral,
    })
}

fn checkpointing(settings: &CheckpointSettings) -> Value {
    json!({
        "interval": Span(settings.interval),
        "dir": settings.dir,
        "mode": settings.mode,
        "timeout": Span(settings.timeout),
        "min-pause": Span(settings.min_pause),
        "max-concurrent-checkpoints": settings.max_concurrent,
        "tolerable-failed-checkpoints": settings.tolerable_failed,
        "num-retained": settings.num_retained,
        "externalized-checkpoint-retention": settings.retention,
    })
}

fn restart(strategy: &RestartStrategy) -> Value {
    let (name, parameters) = match strategy {
        RestartStrategy::None => return json!({"type": "none"}),
        RestartStrategy::FixedDelay(parameters) => ("fixed-delay", json!(parameters)),
        RestartStrategy::FailureRate(parameters) => ("failure-rate", json!(parameters)),
        RestartStrategy::ExponentialDelay(parameters) => ("exponential-delay", json!(parameters)),
    };
    let mut document = Map::new();
    document.insert("type".to_owned(), name.into());
    document.insert(name.to_owned(), parameters);
    Value::Object(document)
}
