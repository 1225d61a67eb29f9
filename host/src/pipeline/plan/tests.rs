//! Plans of small jobs, and their drawings.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::{AssumedPlugins, Exchange, Format, Plan, PluginCatalog, PluginInfo};
use crate::Error;
use crate::operator::{DEAD_LETTER_ROUTE, LATE_ROUTE, LateRecords};
use crate::pipeline::spec::{EventTimeSpec, InputSpec, KeyBy, OnMissingKey, OperatorSpec, SinkSpec, SourceSpec, TimeUnit};
use crate::pipeline::{Connectors, Job, JobBuilder, JobSpec};
use crate::plugin::{PluginReference, World};
use crate::sink::Guarantee;
use std::path::Path;
use std::time::Duration;

/// Two plugins: `join.wasm`, keyed with two inputs, a side output and a need for the clock; everything else is a map.
#[derive(Debug)]
struct Shelf;

impl PluginCatalog for Shelf {
    fn describe(&self, plugin: &PluginReference) -> Result<PluginInfo, Error> {
        let map = PluginInfo {
            digest: Some(format!("sha256:{}", "0".repeat(64))),
            world: World::MapPlugin,
            inputs: Vec::new(),
            side_outputs: Vec::new(),
            capabilities: Vec::new(),
            states: None,
            least_memory_bytes: Some(1 << 20),
            broadcast_inputs: Vec::new(),
            broadcast_states: Vec::new(),
        };
        match plugin.to_string().as_str() {
            "join.wasm" => Ok(PluginInfo {
                world: World::KeyedPlugin,
                inputs: vec!["orders".into(), "users".into()],
                side_outputs: vec!["late".into(), "unknown".into()],
                capabilities: vec!["clock".into()],
                ..map
            }),
            "count.wasm" => Ok(PluginInfo { world: World::KeyedPlugin, ..map }),
            "rules.wasm" => Ok(PluginInfo {
                world: World::KeyedPlugin,
                inputs: vec!["orders".into(), "rules".into()],
                broadcast_inputs: vec!["rules".into()],
                ..map
            }),
            "gone.wasm" => Err(Error::user("there is no file gone.wasm")),
            _ => Ok(map),
        }
    }
}

fn pointer(from: &str, pointer: &str) -> InputSpec {
    InputSpec::from(from).keyed_by(KeyBy::JsonPointer(pointer.into()))
}

fn enrichment() -> JobBuilder {
    let mut join = OperatorSpec::new("join", "join.wasm")
        .input(pointer("clean", "/user"))
        .input(InputSpec::from("users").keyed_by(KeyBy::Key).numbered(1))
        .parallelism(2)
        .dead_letters_to("bad");
    join.capabilities.clock = true;
    JobBuilder::new("enrichment")
        .source(SourceSpec::new("orders", "generator"))
        .source(SourceSpec::new("users", "generator").option("count", 10))
        // Stands before what it reads from: the order of a document is free.
        .operator(join)
        .operator(OperatorSpec::new("clean", "map.wasm").input("orders"))
        .sink(SinkSpec::new("out", "file").input("join").option("path", "out").guarantee(Guarantee::ExactlyOnce).parallelism(2))
        .sink(SinkSpec::new("late", "file").input("join.late").option("path", "late").guarantee(Guarantee::ExactlyOnce))
        .sink(SinkSpec::new("bad", "file").option("path", "bad"))
        .checkpoint_every(Duration::from_millis(500), "checkpoints")
}

fn job(spec: &JobSpec) -> Job {
    Job::from_spec(spec, Path::new("jobs"), &Connectors::builtin()).unwrap_or_else(|faults| panic!("{faults}"))
}

#[test]
fn a_plugin_that_cannot_be_started_with_its_memory_is_refused() {
    let mut spec = enrichment().build();
    spec.operators[1].limits.memory = crate::config::Size(100 << 10);
    let faults: Vec<String> = Plan::build(&job(&spec), &Shelf).unwrap_err().0.iter().map(ToString::to_string).collect();
    assert_eq!(
        faults,
        ["/operators/1/limits/memory: 100 KiB is less than the 1 MiB that the plugin map.wasm takes before its first record"]
    );
}

#[test]
fn nodes_edges_and_chains_follow_from_the_inputs() {
    let plan = Plan::build(&job(&enrichment().build()), &Shelf).unwrap();
    let nodes: Vec<&str> = plan.nodes.iter().map(|node| &*node.uid).collect();
    assert_eq!(nodes, ["orders", "users", "clean", "join", "out", "late", "bad"]);
    let edges: Vec<_> = plan.edges.iter().map(|edge| (nodes[edge.from], edge.route, nodes[edge.to], edge.input)).collect();
    assert_eq!(
        edges,
        [
            ("orders", 0, "clean", 0),
            ("clean", 0, "join", 0),
            ("users", 0, "join", 1),
            ("join", 0, "out", 0),
            ("join", 1, "late", 0),
            ("join", DEAD_LETTER_ROUTE, "bad", 0),
        ]
    );
    let exchanges: Vec<&Exchange> = plan.edges.iter().map(|edge| &edge.exchange).collect();
    let keyed = |key_by| Exchange::KeyGroup { key_by, on_missing_key: OnMissingKey::Fail };
    assert_eq!(
        exchanges,
        [
            &Exchange::Forward,
            &keyed(KeyBy::JsonPointer("/user".into())),
            &keyed(KeyBy::Key),
            &Exchange::Forward,
            &Exchange::Rebalance,
            &Exchange::Rebalance
        ]
    );
    let chains: Vec<Vec<&str>> = plan.chains.iter().map(|chain| chain.nodes.iter().map(|&node| nodes[node]).collect()).collect();
    assert_eq!(chains, [vec!["orders", "clean"], vec!["users"], vec!["join", "out"], vec!["late"], vec!["bad"]]);
    for chain in &plan.chains {
        assert!(chain.nodes.iter().all(|&node| plan.nodes[node].chain == chain.index && plan.nodes[node].parallelism == chain.parallelism));
    }
    assert_eq!(plan.node("join").unwrap().type_name(), "join.wasm");
    assert_eq!(plan.node("out").unwrap().written["path"], "out");
    assert!(plan.notes.iter().any(|note| note.contains("out and late become visible one after the other")), "{:?}", plan.notes);
}

#[test]
fn what_only_plugins_can_tell_is_reported_at_once() {
    let spec = JobBuilder::new("wrong")
        .source(SourceSpec::new("orders", "generator"))
        .operator(OperatorSpec::new("join", "join.wasm").input("orders"))
        .operator(OperatorSpec::new("map", "map.wasm").input("join.lat").input(InputSpec::from("orders").numbered(1)))
        .operator(OperatorSpec::new("gone", "gone.wasm").input("map.side"))
        .operator(OperatorSpec::new("nothing", "nothing").input("gone"))
        .sink(SinkSpec::new("out", "file").input("nothing").option("path", "out"))
        .build();
    let faults: Vec<String> = Plan::build(&job(&spec), &Shelf).unwrap_err().0.iter().map(ToString::to_string).collect();
    assert_eq!(
        faults,
        [
            "/operators/2/plugin: there is no file gone.wasm",
            "/operators/3/plugin: \"nothing\" does not name a plugin: write a path to a .wasm file, `name@version`, or `sha256:` and the digest of a component",
            "/operators/0/inputs/0/key-by: is missing: the plugin join.wasm is keyed, so its inputs are dealt by key (`key-by: key`, `key-by: {json-pointer: /user}`, `key-by: {header: user}`) or given whole to every subtask (`broadcast: true`)",
            "/operators/0/inputs: nothing arrives at input 1 (users) of the plugin join.wasm: give an input `as: 1`",
            "/operators/0/capabilities/clock: the plugin join.wasm needs clock, which the job does not grant",
            "/operators/1/inputs/1/as: the plugin map.wasm has one input, 0, and no input 1",
            "/operators/1/inputs/0: unknown side output \"lat\"; did you mean \"late\"?",
            "/operators/2/inputs/0: the plugin map.wasm has no side outputs, so there is no map.side; its output is map",
        ]
    );
}

#[test]
fn an_input_that_a_plugin_wants_whole_is_broadcast() {
    let faults = |rules: InputSpec| {
        let spec = JobBuilder::new("rules")
            .source(SourceSpec::new("orders", "generator"))
            .source(SourceSpec::new("rules", "generator"))
            .operator(OperatorSpec::new("apply", "rules.wasm").input(pointer("orders", "/user")).input(rules.numbered(1)))
            .sink(SinkSpec::new("out", "file").input("apply").option("path", "out"))
            .build();
        let faults = Plan::build(&job(&spec), &Shelf).err().map(|faults| faults.0).unwrap_or_default();
        faults.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let wanted = "/operators/0/inputs/1/broadcast: must be true: every subtask of the plugin rules.wasm has to get its input 1 (rules) as a whole, without key-by";
    assert_eq!(faults(pointer("rules", "/user")), [wanted]);
    assert_eq!(faults("rules".into()), [wanted]);
    let mut broadcast = InputSpec::from("rules");
    broadcast.broadcast = true;
    assert_eq!(faults(broadcast), [""; 0]);
}

#[test]
fn a_plan_without_its_plugins_takes_what_the_job_uses() {
    let job = job(&enrichment().build());
    let assumed = Plan::build(&job, &AssumedPlugins::of(job.spec())).unwrap();
    let known = Plan::build(&job, &Shelf).unwrap();
    assert_eq!(assumed.edges, known.edges);
    assert!(assumed.notes.iter().any(|note| note.contains("not loaded")), "{:?}", assumed.notes);
}

#[test]
fn the_text_shows_tasks_guarantees_settings_and_notes() {
    let text = Plan::build(&job(&enrichment().build()), &Shelf).unwrap().draw(Format::Text);
    let tasks = text.split("\nsinks\n").next().unwrap();
    assert_eq!(
        tasks,
        "job enrichment · 128 key groups

task 0 · 1 subtask
  orders  source generator (endless)
  └─ clean  plugin map.wasm (map, sha256:000000000000)

task 1 · 1 subtask
  users  source generator (ends)

task 2 · 2 subtasks
  ◀ input 0: clean (by /user)
  ◀ input 1: users (by its key)
  join  plugin join.wasm (keyed, sha256:000000000000, dead letters)
  └─ out  sink file (exactly-once)

task 3 · 1 subtask
  ◀ join.late (in turn)
  late  sink file (exactly-once)

task 4 · 1 subtask
  ◀ dead letters of join (in turn)
  bad  sink file (at-least-once)
"
    );
    assert!(text.contains("  checkpoints  every 500ms into checkpoints, exactly-once; timeout 10m"), "{text}");
    assert!(text.contains("  restarts     exponential-delay: after 1s to 1m (times 1.5), without end"), "{text}");
    assert!(text.contains("  batches      512 records or 64 KiB at most, filled for 5ms"), "{text}");
    assert!(text.contains("  The sinks out and late become visible one after the other"), "{text}");
}

#[test]
fn mermaid_and_json_show_the_same_graph() {
    let plan = Plan::build(&job(&enrichment().build()), &Shelf).unwrap();
    let mermaid = plan.draw(Format::Mermaid);
    assert!(mermaid.starts_with("flowchart LR\n  subgraph t0[\"task 0 ×1\"]\n    n0([\"orders<br/>generator\"])\n"), "{mermaid}");
    assert!(mermaid.contains("  n2 -->|\"by /user\"| n3\n"), "{mermaid}");
    assert!(mermaid.contains("  n3 --> n4\n"), "{mermaid}");
    assert!(mermaid.contains("  n3 -->|\"join.late, in turn\"| n5\n"), "{mermaid}");
    let json: serde_json::Value = serde_json::from_str(&plan.draw(Format::Json)).unwrap();
    assert_eq!(json["nodes"].as_array().unwrap().len(), 7);
    assert_eq!(json["edges"][1]["exchange"], "key-group");
    assert_eq!(json["nodes"][4]["delivery-guarantee"], "exactly-once");
    assert_eq!(json["settings"]["checkpointing"]["interval"], "500ms");
}

#[test]
fn a_job_built_in_code_reads_back_from_its_text() {
    let spec = enrichment().build();
    let text = serde_json::to_string(&spec).unwrap();
    assert_eq!(Job::from_text(&text, "jobs", &Connectors::builtin()).unwrap().spec(), &spec);
}

/// Windows over a source with event time; late ones go to a sink of their own.
fn windows(late: &str) -> JobSpec {
    let event_time = EventTimeSpec::default()
        .json_pointer("/at", TimeUnit::Seconds)
        .out_of_orderness(Duration::from_secs(5))
        .idle_timeout(Duration::from_secs(60))
        .skip_errors();
    JobBuilder::new("windows")
        .source(SourceSpec::new("in", "generator").event_time(event_time))
        .operator(
            OperatorSpec::new("count", "count.wasm").input(pointer("in", "/user")).late_records(LateRecords::SideOutput).parallelism(2),
        )
        .sink(SinkSpec::new("out", "discard").input("count"))
        .sink(SinkSpec::new("late", "discard").input(late))
        .build()
}

#[test]
fn event_time_and_late_records_are_shown_and_late_records_have_a_route() {
    let spec = windows("count.late");
    let plan = Plan::build(&job(&spec), &Shelf).unwrap();
    assert_eq!(plan.edges.iter().map(|edge| edge.route).collect::<Vec<_>>(), [0, 0, LATE_ROUTE]);
    let text = plan.draw(Format::Text);
    let source = "in  source generator (endless); event time from /at in seconds, out of order by 5s, idle after 1m, skips errors";
    for line in [source, "count  plugin count.wasm (keyed, sha256:000000000000, late records aside)", "◀ count.late (in turn)"] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let json: serde_json::Value = serde_json::from_str(&plan.draw(Format::Json)).unwrap();
    assert_eq!(json["nodes"][0]["event-time"]["watermark"]["out-of-orderness"], "5s");
    assert_eq!(json["nodes"][1]["late-records"], "side-output");
    let assumed = Plan::build(&job(&spec), &AssumedPlugins::of(&spec)).unwrap();
    assert_eq!(assumed.edges, plan.edges);
    let text = serde_json::to_string(&spec).unwrap();
    assert_eq!(Job::from_text(&text, "jobs", &Connectors::builtin()).unwrap().spec(), &spec);
}

#[test]
fn late_records_need_a_keyed_plugin_and_a_name_of_their_own() {
    let faults = |spec: &JobSpec| Plan::build(&job(spec), &Shelf).unwrap_err().0.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut spec = windows("count.late");
    spec.operators[0].plugin = "map.wasm".into();
    assert!(faults(&spec)[0].starts_with("/operators/0/late-records: the plugin map.wasm is not keyed"));
    let mut spec = windows("count.late");
    spec.operators[0].plugin = "join.wasm".into();
    let of_late = faults(&spec).into_iter().find(|fault| fault.starts_with("/operators/0/late-records")).unwrap();
    assert!(of_late.contains("has a side output \"late\" of its own"), "{of_late}");
    let mut spec = windows("count.late");
    spec.operators[0].late_records = LateRecords::Drop;
    assert!(faults(&spec)[0].ends_with("`late-records: side-output` makes one of its late records"));
}

#[test]
fn a_source_without_event_time_that_holds_time_back_is_noted() {
    let mut spec = windows("count.late");
    spec.sources.push(SourceSpec::new("other", "generator"));
    spec.operators[0].inputs.push(pointer("other", "/user"));
    let notes = Plan::build(&job(&spec), &Shelf).unwrap().notes;
    assert!(notes.iter().any(|note| note.starts_with("The source other has no event-time: in count event time stands still")), "{notes:?}");
    let notes = Plan::build(&job(&windows("count.late")), &Shelf).unwrap().notes;
    assert!(!notes.iter().any(|note| note.contains("event-time")), "{notes:?}");
}
