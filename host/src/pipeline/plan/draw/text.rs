//! A plan for a terminal.

use super::{event_time_words, exchange_words, plugin_words};
use crate::config::{Size, Span};
use crate::pipeline::plan::{Chain, CheckpointSettings, Exchange, Node, NodeKind, Plan, RestartStrategy};
use crate::pipeline::spec::{CheckpointMode, ErrorPolicy, LateRecords, Retention};
use std::fmt::Write;

pub(super) fn draw(plan: &Plan) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(format!("job {} · {} key groups", plan.name, plan.max_parallelism));
    for chain in &plan.chains {
        let subtasks = if chain.parallelism == 1 { "subtask" } else { "subtasks" };
        line(format!("\ntask {} · {} {subtasks}", chain.index, chain.parallelism));
        draw_chain(plan, chain, &mut line);
    }
    line("\nsinks".to_owned());
    for (node, sink) in plan.sinks() {
        line(format!("  {}: {}; {}", node.uid, sink.guarantee, sink.promise));
    }
    line("\nsettings".to_owned());
    line(format!("  checkpoints  {}", plan.settings.checkpointing.as_ref().map_or_else(|| "off".to_owned(), checkpoint_words)));
    line(format!("  restarts     {}", restart_words(&plan.settings.restart)));
    let batch = &plan.settings.batch;
    let bytes = Size(u64::try_from(batch.bytes).unwrap_or(u64::MAX));
    line(format!("  batches      {} records or {bytes} at most, filled for {}", batch.records, Span(batch.linger)));
    if !plan.notes.is_empty() {
        line("\nnotes".to_owned());
        for note in &plan.notes {
            line(format!("  {note}"));
        }
    }
    out
}

fn draw_chain(plan: &Plan, chain: &Chain, line: &mut dyn FnMut(String)) {
    let head = &plan.nodes[chain.head()];
    for edge in plan.inputs(head.index) {
        let input = if plan.inputs(head.index).any(|edge| edge.input > 0) { format!("input {}: ", edge.input) } else { String::new() };
        line(format!("  ◀ {input}{} ({})", plan.output_name(edge), exchange_words(&edge.exchange)));
    }
    draw_node(plan, head, "  ", "  ", line);
}

/// Draws a node and what is chained to it; `first` stands before the node, `rest` before what hangs below it.
fn draw_node(plan: &Plan, node: &Node, first: &str, rest: &str, line: &mut dyn FnMut(String)) {
    line(format!("{first}{}  {}", node.uid, node_words(node)));
    let chained: Vec<_> = plan.outputs(node.index).filter(|edge| plan.is_chained(edge)).collect();
    for (position, edge) in chained.iter().enumerate() {
        let (branch, below) = if position + 1 == chained.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let output = if edge.route == 0 { String::new() } else { format!("({}) ", plan.output_name(edge)) };
        debug_assert_eq!(edge.exchange, Exchange::Forward, "only forward edges are chained");
        draw_node(plan, &plan.nodes[edge.to], &format!("{rest}{branch}{output}"), &format!("{rest}{below}"), line);
    }
}

fn node_words(node: &Node) -> String {
    match &node.kind {
        NodeKind::Source(source) => {
            let bounded = if source.source.is_bounded() { "ends" } else { "endless" };
            let event_time = source.event_time.as_ref().map(|event_time| format!("; {}", event_time_words(event_time))).unwrap_or_default();
            format!("source {} ({bounded}){event_time}", source.type_name)
        }
        NodeKind::Operator(operator) => {
            let policy = match operator.error_policy {
                ErrorPolicy::Fail => "",
                ErrorPolicy::Skip => ", skips errors",
                ErrorPolicy::DeadLetter => ", dead letters",
            };
            let late = match operator.late_records {
                LateRecords::Process => "",
                LateRecords::Drop => ", drops late records",
                LateRecords::SideOutput => ", late records aside",
            };
            format!("plugin {} ({}{policy}{late})", operator.plugin_name, plugin_words(operator))
        }
        NodeKind::Sink(sink) => format!("sink {} ({})", sink.type_name, sink.guarantee),
    }
}

fn checkpoint_words(settings: &CheckpointSettings) -> String {
    let mode = match settings.mode {
        CheckpointMode::ExactlyOnce => "exactly-once",
        CheckpointMode::AtLeastOnce => "at-least-once",
    };
    let retention = match settings.retention {
        Retention::DeleteOnCancellation => "all but the newest deleted",
        Retention::RetainOnCancellation => "kept",
    };
    let mut words = format!(
        "every {} into {}, {mode}; timeout {}, {} kept, {} may fail in a row, {retention} when the job is cancelled",
        Span(settings.interval),
        settings.dir,
        Span(settings.timeout),
        settings.num_retained,
        settings.tolerable_failed,
    );
    if !settings.min_pause.is_zero() {
        let _ = write!(words, ", {} apart at least", Span(settings.min_pause));
    }
    if settings.max_concurrent > 1 {
        let _ = write!(words, ", {} at once", settings.max_concurrent);
    }
    words
}

fn restart_words(restart: &RestartStrategy) -> String {
    match restart {
        RestartStrategy::None => "none: a failure ends the job".to_owned(),
        RestartStrategy::FixedDelay(settings) => format!("fixed-delay: {} times, after {} each", settings.attempts, settings.delay),
        RestartStrategy::FailureRate(settings) => format!(
            "failure-rate: up to {} failures in {}, after {} each",
            settings.max_failures_per_interval, settings.failure_rate_interval, settings.delay
        ),
        RestartStrategy::ExponentialDelay(settings) => {
            let end = settings.attempts_before_reset_backoff.map_or_else(|| "without end".to_owned(), |count| format!("{count} times"));
            format!(
                "exponential-delay: after {} to {} (times {}), {end}; from the start again after {} without a failure",
                settings.initial_backoff, settings.max_backoff, settings.backoff_multiplier, settings.reset_backoff_threshold
            )
        }
    }
}
