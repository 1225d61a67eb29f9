//! Whole pipelines in the library: ready-made 100-byte records → passthrough → discard.

use crate::boundary::per_record;
use crate::report::Report;
use waterwheel::Host;
use waterwheel::host::{JobEnd, SubmitOptions};

const RECORDS: usize = 20_000_000;

pub(crate) async fn measure(report: &mut Report) {
    let bare = run(false).await;
    let whole = run(true).await;
    report.add("generator → discard", bare, "ns CPU/record", None);
    report.add("generator → passthrough → discard", whole, "ns CPU/record", Some(200.0));
    report.add("the same, against the pipeline without a plugin", whole / bare, "times", None);
}

async fn run(with_plugin: bool) -> f64 {
    let plugin = crate::plugin("passthrough");
    let operators =
        if with_plugin { format!("operators: [{{uid: pass, plugin: {}, inputs: [records]}}]", plugin.display()) } else { String::new() };
    let from = if with_plugin { "pass" } else { "records" };
    let job = format!(
        "name: bench\nsources: [{{uid: records, type: generator, payload: fixed, count: {RECORDS}}}]\n{operators}\n\
         sinks: [{{uid: out, type: discard, inputs: [{from}]}}]\n"
    );
    let host = Host::builder().build().unwrap();
    let job = waterwheel::pipeline::Job::from_text(&job, ".", host.connectors()).unwrap_or_else(|faults| panic!("{faults}"));
    let running = host.submit(&job, SubmitOptions::default()).await.unwrap();
    let began = crate::cpu_nanoseconds();
    let end = running.wait().await;
    assert!(matches!(end, JobEnd::Finished), "{end:?}");
    per_record(crate::cpu_nanoseconds() - began, RECORDS)
}
