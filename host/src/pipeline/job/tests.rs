//! What validation says of documents, right and wrong.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::Job;
use crate::Error;
use crate::config::Fault;
use crate::pipeline::Connectors;
use crate::sink::{Guarantee, Sink, SinkType, SinkWriter, WriterContext};
use async_trait::async_trait;
use schemars::json_schema;
use serde_json::Value;
use std::sync::Arc;

/// A sink that can be at-least-once and no more.
#[derive(Debug)]
struct Modest;

impl SinkType for Modest {
    fn name(&self) -> &str {
        "modest"
    }

    fn options_schema(&self) -> schemars::Schema {
        json_schema!({"type": "object", "properties": {"colour": {"type": "string"}}, "additionalProperties": false})
    }

    fn guarantees(&self) -> &[Guarantee] {
        &[Guarantee::None, Guarantee::AtLeastOnce]
    }

    fn promise(&self) -> &str {
        "Nothing is taken back."
    }

    fn create(&self, _: &str, options: &Value, _: Guarantee) -> Result<Arc<dyn Sink>, Vec<Fault>> {
        match options.get("colour").and_then(Value::as_str) {
            Some(colour) if colour != "blue" => Err(vec![Fault::new("/colour", format!("{colour:?} is not blue"))]),
            _ => Ok(Arc::new(Modest)),
        }
    }
}

#[async_trait]
impl Sink for Modest {
    async fn open(&self, _: WriterContext) -> Result<Box<dyn SinkWriter>, Error> {
        Err(Error::internal("nothing is written here"))
    }
}

fn connectors() -> Connectors {
    let mut connectors = Connectors::builtin();
    connectors.register_sink(Arc::new(Modest));
    connectors
}

fn faults(text: &str) -> Vec<String> {
    match Job::from_text(text, "jobs", &connectors()) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.0.iter().map(ToString::to_string).collect(),
    }
}

/// A job that is right, with these lines more.
fn with(sink: &str, more: &str) -> String {
    format!(
        "name: orders\nsources:\n- {{uid: orders, type: generator, count: 10}}\nsinks:\n- {{uid: out, inputs: [orders], {sink}}}\n{more}\n"
    )
}

const MODEST: &str = "type: modest";
const EXACT: &str = "type: file, path: out, delivery-guarantee: exactly-once";
const CHECKPOINTS: &str = "execution.checkpointing: {interval: 1 s, dir: checkpoints}";

#[test]
fn a_right_job_has_no_fault_and_every_default() {
    let job = Job::from_text(&with(MODEST, ""), "jobs", &connectors()).unwrap();
    assert_eq!(job.sinks()[0].guarantee, Guarantee::AtLeastOnce);
    assert_eq!((job.spec().max_parallelism, job.spec().parallelism), (128, 1));
    assert!(job.settings().checkpointing.is_none());
    assert_eq!(job.settings().restart, crate::pipeline::plan::RestartStrategy::None);
    assert_eq!((job.settings().batch.records, job.settings().batch.bytes), (512, 65_536));
    assert_eq!(faults(&with(EXACT, CHECKPOINTS)), [""; 0]);
}

#[test]
fn faults_of_structure_meaning_and_options_are_reported_together() {
    let text = "
nme: orders
sources:
- {uid: orders, type: generator, count: many}
- {uid: orders, type: genrator}
operators:
- {uid: totals, plugin: totals.wasm, inputs: [ordres], error-policy: dead-letter, parallelism: 200}
sinks:
- {uid: out, type: modest, inputs: [totals], colour: red, delivery-guarantee: exactly-once}
- {uid: files, type: file, inputs: [totals], paht: out}
execution: {checkpointing.interval: soon, restart-strategy: {type: fixed-dely}}
";
    let expected = [
        "/execution/checkpointing/interval: \"soon\" is wrong here: expected a duration such as \"500 ms\" or \"10 min\"",
        "/execution/restart-strategy/type: \"fixed-dely\" is wrong here: expected \"none\", \"fixed-delay\", \"failure-rate\" or \"exponential-delay\"",
        "/name: is missing (What the job is called: letters, digits, `-` and `_`, beginning with a letter or a digit)",
        "/nme: unknown key \"nme\"; did you mean \"name\"?",
        "/operators/0/dead-letter-sink: is missing: error-policy dead-letter needs the uid of the sink that dead letters go to",
        "/operators/0/inputs/0: unknown input \"ordres\"; did you mean \"orders\"?",
        "/operators/0/parallelism: 200 is more than max-parallelism, which is 128: give fewer subtasks or a larger max-parallelism",
        "/sinks/0/colour: \"red\" is not blue",
        "/sinks/0/delivery-guarantee: exactly-once cannot be given by a sink of type modest, only none or at-least-once: Nothing is taken back.",
        "/sinks/1/paht: unknown key \"paht\"; did you mean \"path\"?",
        "/sinks/1/path: is missing (The folder that the files are put into)",
        "/sources/0/count: \"many\" is wrong here: expected a whole number",
        "/sources/1/type: unknown source type \"genrator\"; did you mean \"generator\"?",
        "/sources/1/uid: \"orders\" is the uid of /sources/0 as well; every uid stands for one thing",
    ];
    let mut found = faults(text);
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn what_is_wrong_is_named_once_and_not_again_for_what_it_leads_to() {
    // Neither the missing type nor the broken inputs make further faults: of types, of readers, of inputs.
    let text = "
name: orders
sources: [{uid: orders}, 3]
operators: [{uid: a, plugin: a.wasm, inputs: 7}]
sinks: [{uid: out, type: modest, inputs: [a, {frm: b}, {from: orders, key-by: {json-pionter: /a}}]}]
";
    let mut found = faults(text);
    found.sort();
    let paths: Vec<&str> = found.iter().map(|fault| fault.split(": ").next().unwrap()).collect();
    assert_eq!(
        paths,
        [
            "/operators/0/inputs",
            "/sinks/0/inputs/1/frm",
            "/sinks/0/inputs/1/from",
            "/sinks/0/inputs/2/key-by",
            "/sources/0/type",
            "/sources/1"
        ],
        "{found:#?}"
    );
    assert_eq!(
        found[3],
        "/sinks/0/inputs/2/key-by: {\"json-pionter\":\"/a\"} is wrong here: expected \"key\", {json-pointer: …} or {header: …}"
    );
}

#[test]
fn the_graph_must_lead_from_sources_to_sinks() {
    assert_eq!(
        faults("name: a"),
        [
            "/sources: there is none: a job has at least one source",
            "/sinks: there is none: a job has at least one sink (type discard takes what nobody wants)"
        ]
    );
    let operators = "operators:
- {uid: a, plugin: a.wasm, inputs: [orders, c]}
- {uid: b, plugin: a.wasm, inputs: [a]}
- {uid: c, plugin: a.wasm, inputs: [b]}
- {uid: d, plugin: a.wasm, inputs: [d, out, orders.side]}
- {uid: e, plugin: a.wasm, inputs: []}";
    assert_eq!(
        faults(&with(MODEST, operators)),
        [
            "/operators/3/inputs/0: \"d\" reads its own output; records flow in one direction",
            "/operators/3/inputs/1: \"out\" is a sink, which has no output",
            "/operators/3/inputs/2: the source \"orders\" has one output and no side output \"side\"; write \"orders\"",
            "/operators/4/inputs: is empty: an operator reads from at least one source or operator",
            "/operators/0/inputs: records would flow in a circle: a → b → c → a",
        ]
    );
    let unread = "operators:\n- {uid: a, plugin: a.wasm, inputs: [orders]}";
    assert_eq!(
        faults(&with(MODEST, unread)),
        ["/operators/0/uid: nobody reads \"a\": name it in the inputs of an operator or a sink, or leave it out"]
    );
}

#[test]
fn inputs_that_contradict_themselves_are_refused() {
    let operators = "operators:
- uid: a
  plugin: a.wasm
  inputs:
  - {from: orders, key-by: key, broadcast: true}
  - {from: orders, as: 2, on-missing-key: drop}
  - {from: orders, as: 2, key-by: {json-pointer: user}}
- {uid: b, plugin: a.wasm, inputs: [a], dead-letter-sink: out}
- {uid: c, plugin: a.wasm, inputs: [b], error-policy: dead-letter, dead-letter-sink: uot}
";
    let sinks = "type: modest}\n- {uid: copy, type: modest, inputs: [{from: c, as: 1}]}\n- {uid: spare, type: modest, inputs: []";
    let found = faults(&with(sinks, operators));
    assert_eq!(
        found,
        [
            "/operators/0/inputs/0/broadcast: contradicts key-by: an input is dealt by key or given whole to every subtask",
            "/operators/0/inputs/1/on-missing-key: says what happens to a record without a key, but the input has no key-by",
            "/operators/0/inputs/2: \"orders\" is read twice at this input",
            "/operators/0/inputs/2/key-by/json-pointer: \"user\" is not a JSON pointer such as \"/user\" or \"/order/id\" (in a name, ~1 stands for / and ~0 for ~)",
            "/operators/0/inputs: an input is numbered 2 by `as`, but none 1: numbers begin at 0 and have no gaps",
            "/sinks/1/inputs/0/as: a sink has one input, 0, and no input 1",
            "/sinks/2/inputs: is empty: a sink reads from at least one source or operator, or is some operator's dead-letter-sink",
            "/operators/1/dead-letter-sink: is given, but error-policy is not dead-letter: nothing would go there",
            "/operators/2/dead-letter-sink: unknown sink \"uot\"; did you mean \"out\"?",
        ]
    );
}

#[test]
fn guarantees_that_cannot_be_kept_are_refused() {
    let exact = |more: &str| faults(&with(EXACT, more));
    assert_eq!(exact(""), ["/sinks/0/delivery-guarantee: exactly-once needs checkpointing: set execution.checkpointing.interval and dir"]);
    assert_eq!(
        exact("execution.checkpointing: {interval: 1 s}"),
        ["/execution/checkpointing/dir: is missing: give a folder or a URL such as file:///var/lib/waterwheel/checkpoints"]
    );
    let weak = exact(&format!("{CHECKPOINTS}\nexecution.checkpointing.mode: at-least-once"));
    assert_eq!(weak.len(), 1, "{weak:?}");
    assert!(weak[0].starts_with("/execution/checkpointing/mode: at-least-once counts records again"), "{weak:?}");
    let many = exact(&format!("{CHECKPOINTS}\nexecution.checkpointing.max-concurrent-checkpoints: 2"));
    assert_eq!(many.len(), 2, "{many:?}");
    let because = "/execution/checkpointing/max-concurrent-checkpoints: must be 1, because the sink \"out\"";
    assert!(many.iter().any(|fault| fault.starts_with(because)), "{many:?}");
    let memory = exact("execution.checkpointing: {interval: 1 s, dir: \"memory://\"}");
    assert_eq!(memory.len(), 1, "{memory:?}");
    assert!(memory[0].contains("say `ephemeral: true`"), "{memory:?}");
    assert_eq!(exact("execution.checkpointing: {interval: 1 s, dir: \"memory://\"}\nephemeral: true"), [""; 0]);
    assert_eq!(faults(&with(MODEST, "execution.checkpointing.mode: at-least-once")), [""; 0]);
}

#[test]
fn batches_that_no_memory_has_room_for_are_refused() {
    let found = faults(&with(MODEST, "execution.batch: {max-records: 4294967295, max-bytes: 900 TiB}"));
    assert_eq!(
        found,
        ["/execution/batch/max-bytes: 900 TiB is more than 64 MiB", "/execution/batch/max-records: 4294967295 is more than 65536"]
    );
}

#[test]
fn settings_that_would_have_no_effect_or_are_not_built_are_refused() {
    let execution = "execution:
  checkpointing: {interval: 1 ms, timeout: 0, dir: \"s3://bucket\", savepoint-dir: \"memory://\", incremental: false, unaligned.enabled: true, mode: at-least-once, aligned-checkpoint-timeout: 1 s}
  restart-strategy: {type: none, fixed-delay.attempts: 3, exponential-delay: {jitter-factor: 2, backoff-multiplier: 0.5, max-backoff: 1 ms}}
  batch: {max-records: 0, max-bytes: 0}
  state-recovery: {path: chk-3, claim-mode: claim, ignore-unclaimed-state: true}
";
    let found = faults(&with(MODEST, execution));
    let mut paths: Vec<&str> = found.iter().map(|fault| fault.split(": ").next().unwrap()).collect();
    paths.sort_unstable();
    assert_eq!(
        paths,
        [
            "/execution/batch/max-bytes",
            "/execution/batch/max-records",
            "/execution/checkpointing/aligned-checkpoint-timeout",
            "/execution/checkpointing/dir",
            "/execution/checkpointing/incremental",
            "/execution/checkpointing/interval",
            "/execution/checkpointing/savepoint-dir",
            "/execution/checkpointing/timeout",
            "/execution/checkpointing/unaligned/enabled",
            "/execution/checkpointing/unaligned/enabled",
            "/execution/restart-strategy/exponential-delay",
            "/execution/restart-strategy/exponential-delay/backoff-multiplier",
            "/execution/restart-strategy/exponential-delay/jitter-factor",
            "/execution/restart-strategy/exponential-delay/max-backoff",
            "/execution/restart-strategy/fixed-delay",
            "/execution/state-recovery/claim-mode",
            "/execution/state-recovery/ignore-unclaimed-state",
            "/execution/state-recovery/path",
        ],
        "{found:#?}"
    );
}

#[test]
fn names_are_safe_everywhere() {
    let long = "x".repeat(65);
    for (name, problem) in
        [("''", "is empty"), ("-a", "does not begin"), ("a.b", "has '.' in it"), ("a/b", "has '/' in it"), (&long, "is longer than")]
    {
        let text = with(MODEST, "").replace("name: orders", &format!("name: {name}"));
        let found = faults(&text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("/name: ") && found[0].contains(problem), "{found:?}");
    }
    let twice = faults(&with("type: modest}\n- {uid: ORDERS, type: modest, inputs: [orders]", ""));
    assert_eq!(twice, ["/sinks/1/uid: \"ORDERS\" is the uid of /sources/0 as well; every uid stands for one thing"]);
}

#[test]
fn replaced_values_never_show() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("colour"), "crimson\n").unwrap();
    let text = with("type: modest, colour: '${file:colour}', delivery-guarantee: '${env:WATERWHEEL_NOT_SET}'", "");
    let faults = Job::from_text(&text, folder.path(), &connectors()).unwrap_err();
    let faults: Vec<String> = faults.0.iter().map(ToString::to_string).collect();
    assert_eq!(
        faults,
        [
            "/sinks/0/delivery-guarantee: ${env:WATERWHEEL_NOT_SET}: the environment variable WATERWHEEL_NOT_SET cannot be read: environment variable not found",
            "/sinks/0/colour: \"${file:colour}\" is not blue",
        ]
    );
    let job = Job::from_text(
        &with("type: modest, colour: '${env:CARGO_PKG_NAME}'", "").replace("modest", "file, path: x").replace("colour", "extension"),
        "",
        &connectors(),
    )
    .unwrap();
    assert_eq!(job.written()["sinks"][0]["extension"], "${env:CARGO_PKG_NAME}");
    assert_eq!(job.spec().sinks[0].options["extension"], "waterwheel");
}

#[test]
fn numbers_of_every_kind_are_told_with_their_paths() {
    let found = |text: &str| faults(&format!("name: a\nsinks: [{{uid: out, inputs: [op], type: modest}}]\n{text}"));
    let source = "sources: [{uid: in, type: generator, count: 100000000000000000000000000000}]";
    let operator = "operators: [{uid: op, plugin: a.wasm, inputs: [{from: in, as: 255}], limits: {memory: 0, call-timeout: 0}}]";
    let batch =
        "execution: {batch: {max-records: 99999999999999}, restart-strategy: {type: fixed-delay, fixed-delay: {attempts: 5000000000}}}";
    let mut all = found(&format!("{source}\n{operator}\n{batch}\nparallelism: 1.0"));
    all.sort();
    assert_eq!(
        all,
        [
            "/execution/batch/max-records: 99999999999999 is wrong here: it must be at most 4294967295",
            "/execution/restart-strategy/fixed-delay/attempts: 5000000000 is wrong here: it must be at most 4294967295",
            "/operators/0/inputs/0/as: 255 is out of range: only 0 is possible where there is one input",
            "/operators/0/limits/call-timeout: must be at least 1ms: a call that takes longer fails",
            "/operators/0/limits/memory: 0 B is less than 64 KiB, the least that a plugin can have",
            "/parallelism: 1.0 is wrong here: write it as a whole number, without a decimal point",
            "/sources/0/count: 1e+29 is wrong here: it must be at most 18446744073709551615",
        ]
    );
    let interval = found(
        "sources: [{uid: in, type: generator}]\noperators: [{uid: op, plugin: a.wasm, inputs: [in]}]\nexecution.checkpointing: {interval: 99999999999999999999999, dir: x}",
    );
    assert_eq!(interval.len(), 1, "{interval:?}");
    assert!(interval[0].starts_with("/execution/checkpointing/interval: expected a duration"), "{interval:?}");
}

#[test]
fn a_relative_file_url_is_told_with_what_to_write() {
    let found = faults(&with(MODEST, "execution.checkpointing: {interval: 1 s, dir: \"file://x/y\"}"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("/execution/checkpointing/dir: ") && found[0].contains("write file:///x/y"), "{found:?}");
}

fn event_time_faults(event_time: &str) -> Vec<String> {
    let mut found = faults(&format!(
        "name: a\nsources:\n- {{uid: in, type: generator, event-time: {event_time}}}\nsinks:\n- {{uid: out, inputs: [in], type: modest}}\n"
    ));
    found.sort();
    found
}

#[test]
fn event_time_is_read_in_every_spelling_and_has_defaults() {
    use crate::pipeline::spec::{EventTimeSpec, TimeUnit};
    use std::time::Duration;
    for right in ["{}", "{timestamp: record, on-error: skip}", "{timestamp: {json-pointer: ''}}", "{watermark: {interval: 1}}"] {
        assert_eq!(event_time_faults(right), [""; 0], "{right}");
    }
    let text = "
name: a
sources:
- uid: in
  type: generator
  event-time:
    timestamp: {json-pointer: /at, unit: rfc3339}
    watermark: {out-of-orderness: 5 s, idle-timeout: 1 min}
sinks: [{uid: out, inputs: [in], type: modest}]
";
    let job = Job::from_text(text, "jobs", &connectors()).unwrap();
    let expected = EventTimeSpec::default()
        .json_pointer("/at", TimeUnit::Rfc3339)
        .out_of_orderness(Duration::from_secs(5))
        .idle_timeout(Duration::from_secs(60))
        .interval(Duration::from_millis(200));
    assert_eq!(job.spec().sources[0].event_time, Some(expected));
}

#[test]
fn every_fault_of_event_time_is_named_with_its_path() {
    let found = event_time_faults(
        "{timestamp: {json-pointer: at, unit: ns}, watermark: {out-of-orderness: soon, idle-timeout: 0, interval: 0 ms, idle: 1}, on-error: drop}",
    );
    assert_eq!(
        found,
        [
            "/sources/0/event-time/on-error: \"drop\" is wrong here: expected \"fail\" or \"skip\"",
            "/sources/0/event-time/timestamp/json-pointer: \"at\" is not a JSON pointer such as \"/at\" (in a name, ~1 stands for / and ~0 for ~)",
            "/sources/0/event-time/timestamp/unit: \"ns\" is wrong here: expected \"s\", \"ms\", \"us\" or \"rfc3339\"",
            "/sources/0/event-time/watermark/idle-timeout: must be at least 1ms; leave it out to wait for every split",
            "/sources/0/event-time/watermark/idle: unknown key \"idle\"; known are out-of-orderness, idle-timeout, interval",
            "/sources/0/event-time/watermark/interval: must be at least 1ms; without `event-time` no watermarks are made",
            "/sources/0/event-time/watermark/out-of-orderness: \"soon\" is wrong here: expected a duration such as \"500 ms\" or \"10 min\"",
        ]
    );
    assert_eq!(
        event_time_faults("{timestamp: value, watermark: {idle-timeout: 30000 years}}"),
        [
            "/sources/0/event-time/timestamp: \"value\" is wrong here: expected \"record\" or {json-pointer: …}",
            "/sources/0/event-time/watermark/idle-timeout: is longer than 20,000 years",
        ]
    );
}

#[test]
fn late_records_that_nobody_would_read_are_a_fault() {
    let text = "
name: a
sources: [{uid: in, type: generator}]
operators: [{uid: op, plugin: a.wasm, inputs: [{from: in, key-by: key}], late-records: side-output}]
sinks: [{uid: out, inputs: [op], type: modest}]
";
    assert_eq!(
        faults(text),
        ["/operators/0/late-records: nobody reads \"op.late\": name it in the inputs of an operator or a sink, or write drop"]
    );
    assert_eq!(faults(&text.replace("inputs: [op]", "inputs: [op, op.late]")), [""; 0]);
}
